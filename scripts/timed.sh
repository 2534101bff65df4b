#!/usr/bin/env bash
# Runs a command and records its duration: scripts/timed.sh FILE NAME COMMAND...
# The line is printed and added to FILE; `make test-all` prints all of them at its end.
set -uo pipefail
file=$1 name=$2
shift 2
began=$(date +%s)
"$@"
code=$?
took=$(($(date +%s) - began))
printf '%-28s %3d:%02d\n' "$name" $((took / 60)) $((took % 60)) | tee -a "$file"
exit "$code"
