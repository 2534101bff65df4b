#!/usr/bin/env bash
# Runs the tests that start processes and browsers: scripts/slow_tests.sh PYTHON TESTERS
#
# Several run beside each other, and each waits for what a busy machine gives it. What failed is run
# once more, by itself. Both runs are told, and more than five failures are no accident.
set -uo pipefail
most_again=5
slow=("$1" -m pytest -p cacheprovider -rfEs -m slow --hypothesis-profile=whole)

"${slow[@]}" -n "$2" --dist loadfile && exit
failed=$("${slow[@]}" --lf --lfnf=none --collect-only -qq | grep -c ::)
if [ "$failed" -lt 1 ] || [ "$failed" -gt "$most_again" ]; then
  echo "$failed failures: too many for a second try, or none that a test had."
  exit 1
fi
echo "Once more, by themselves: $failed"
"${slow[@]}" --lf --lfnf=none
