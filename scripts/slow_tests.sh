#!/usr/bin/env bash
# Runs the tests that start processes and browsers: scripts/slow_tests.sh PYTHON TESTERS
#
# Several run in parallel, and a busy machine delays them. Failed tests run once more, one at a time.
# Both results are printed. More than ten failures are not repeated.
set -uo pipefail
most_again=10
slow=("$1" -m pytest -rfEs -m slow --hypothesis-profile=whole)
said=$(mktemp) && trap 'rm -f "$said"' EXIT

"${slow[@]}" -n "$2" --dist loadfile tests | tee "$said" && exit
# The summary has one line per failure: FAILED or ERROR, the test, and the reason after a dash.
mapfile -t failed < <(sed -nE 's/^(FAILED|ERROR) (tests\/[^ ]+::.*)/\2/p' "$said" | sed 's/ - .*//' | sort -u)
if [ "${#failed[@]}" -lt 1 ] || [ "${#failed[@]}" -gt "$most_again" ]; then
  echo "${#failed[@]} tests failed: too many for a second try, or no test but the run itself."
  exit 1
fi
echo "Once more, by themselves: ${#failed[@]}"
"${slow[@]}" "${failed[@]}"
