"""`manage.py doctor`: checks the installation and says what to do."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from project.operations.doctor import FAILURE, OK, WARNING, Diagnosis, diagnose_installation

MARKS = {OK: "ok  ", WARNING: "WARN", FAILURE: "FAIL"}
# Exit codes: a failure, or warnings if --strict is given.
FAILED = 1
WARNED = 2


class Command(BaseCommand):
    """Exit codes: 0 without failures, 1 with a failure, 2 with only warnings and `--strict`."""

    help = "Check database, broker, workers, schedule, disk, keys, clock and model servers."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object per line")
        parser.add_argument("--offline", action="store_true", help="call no model server")
        parser.add_argument("--strict", action="store_true", help="exit with 2 for warnings")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print each diagnosis when it is known, and exit."""
        levels = set()
        for found in diagnose_installation(is_offline=options["offline"]):
            levels.add(found.level)
            self.stdout.write(
                json.dumps(found.describe()) if options["json"] else format_diagnosis(found)
            )
            self.stdout.flush()
        if FAILURE in levels:
            sys.exit(FAILED)
        if WARNING in levels and options["strict"]:
            sys.exit(WARNED)


def format_diagnosis(found: Diagnosis) -> str:
    """Return the diagnosis as one line, or two if there is something to do."""
    line = f"{MARKS[found.level]} {found.part}: {found.text}"
    return f"{line}\n     → {found.remedy}" if found.remedy else line
