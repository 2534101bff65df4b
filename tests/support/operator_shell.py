"""A person with a shell in an installation, and the commands of a documented section."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

BACKUP_PAGE = ROOT / "docs" / "backup-and-upgrade.md"


def list_section_commands(title: str) -> list[str]:
    """The command blocks of one section."""
    text = BACKUP_PAGE.read_text(encoding="utf-8")
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Operator:
    """A person with a shell in the product's folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "manage.py").symlink_to(ROOT / "manage.py")
        self.data = folder / "data"
        self.data.mkdir()
        plain = {key: value for key, value in os.environ.items() if key in {"PATH", "HOME"}}
        self.environment = {**plain, "PALIMPSEST_DATA": str(self.data), **environment}

    def run(self, *commands: str, code: int = 0) -> str:
        """Run commands; all succeed, or the last one exits with `code`."""
        done = subprocess.run(
            ["sh", "-ec", "\n".join(commands)],  # noqa: S607
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *words: str, code: int = 0) -> str:
        return self.run(" ".join([".venv/bin/python", "manage.py", *words]), code=code)


def count_rows(operator: Operator) -> str:
    """The number of rows of each table, as the product sees them."""
    return operator.manage(
        "shell",
        "-v",
        "0",
        "-c",
        "'from django.apps import apps;"
        "print(sorted((m._meta.db_table, m._base_manager.count())"
        " for m in apps.get_models(include_auto_created=True)))'",
    )
