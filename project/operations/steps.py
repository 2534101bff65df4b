"""Runs other commands of the product in separate processes.

After a restore, this process still has the settings and the keys from before.
"""

import os
import subprocess
import sys
from collections.abc import Callable

from project.instance import BASE_DIR


def run_manage_command(
    *words: str, tell: Callable[[str], object], database_url: str | None = None
) -> int:
    """Run `manage.py` with these arguments, and return its exit code.

    Each line of its output is passed to `tell`. With `database_url`, the command uses another
    database.
    """
    environment = dict(os.environ)
    if database_url is not None:
        environment.pop("DATABASE_URL_FILE", None)
        environment["DATABASE_URL"] = database_url
    process = subprocess.Popen(  # noqa: S603  # our own commands
        [sys.executable, str(BASE_DIR / "manage.py"), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        for line in process.stdout or ():
            tell(line.rstrip("\n"))
    return process.returncode
