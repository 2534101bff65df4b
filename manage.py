#!/usr/bin/env python
"""The command line of the product. `python manage.py serve` starts it."""

import os
import sys

from chats.ground.native import parse_missing_library
from project.env import Misconfigured
from project.trouble import SAID, describe_command_error

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        if sys.argv[1:2] == ["serve"]:
            # Not a command of Django: the launcher decides when Django is loaded.
            from project.launcher import main

            sys.exit(main(sys.argv[2:]))
        if sys.argv[1:] == ["version"]:
            # Django's command of the same name prints Django's version.
            from project.release import get_product_version

            sys.stdout.write(f"Palimpsest {get_product_version()}\n")
            sys.exit()
        from django.core.management import CommandError, execute_from_command_line

        from project.versions import WRITING, refuse_newer_database

        if sys.argv[1:2] and sys.argv[1] in WRITING:
            import django

            django.setup()
            try:
                refuse_newer_database()
            except CommandError as error:
                sys.exit(str(error))
        execute_from_command_line(sys.argv)
    except Misconfigured as error:
        sys.exit(str(error))
    except ImportError as error:
        lacking = parse_missing_library(str(error))
        if lacking is None:
            raise
        sys.exit(f"Palimpsest needs {lacking.name}, which this machine lacks. {lacking.remedy}")
    except Exception as error:
        said = describe_command_error(error)
        if not said:
            raise
        sys.stderr.write(f"{said}\n")
        sys.exit(SAID)
