#!/usr/bin/env bash
# Runs the fast tests on each supported Python of this machine other than that of .venv:
# scripts/other_pythons.sh FOLDER. A missing version is reported and skipped.
set -euo pipefail
folder=$1
ours=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in 3.11 3.12 3.13; do
  [ "$version" = "$ours" ] && continue
  if ! "python$version" -c '' 2>/dev/null; then
    echo "Python $version: not on this machine"
    continue
  fi
  echo "Python $version"
  "python$version" -m venv "$folder/$version"
  "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r constraints.txt -r constraints-test.txt
  "$folder/$version/bin/python" -m pytest -n auto --dist loadfile -q -m "not slow and not wide"
done
