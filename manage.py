#!/usr/bin/env python
"""The command line of the product: `python manage.py serve` starts it."""

import os
import sys

from chats.ground.native import missing_library
from project.env import Misconfigured

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        if sys.argv[1:2] == ["serve"]:
            # Without Django, which would stay in memory as long as the product runs.
            from project.launcher import main

            sys.exit(main(sys.argv[2:]))
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
    except Misconfigured as error:
        sys.exit(str(error))
    except ImportError as error:
        lacking = missing_library(str(error))
        if lacking is None:
            raise
        sys.exit(f"Palimpsest needs {lacking.name}, which this machine lacks. {lacking.remedy}")
