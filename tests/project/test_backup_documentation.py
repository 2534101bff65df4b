"""Runs the documented commands of backup and restore in order."""

import os
import re
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from chats.checkpoints import checks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "backup-and-upgrade.md"
pytestmark = pytest.mark.processes


def commands_of(title: str) -> list[str]:
    """The command blocks of one section."""
    text = PAGE.read_text(encoding="utf-8")
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


@pytest.mark.in_turn
def test_a_restored_sqlite_backup_has_what_was_there_and_can_be_signed_again(
    tmp_path: Path,
) -> None:
    operator = Operator(tmp_path)
    operator.manage("setup")
    operator.manage("ledger_checkpoint")
    operator.run(*commands_of("Back up SQLite"))
    (operator.data / "encryption_key").write_text("lost")
    database = sqlite3.connect(operator.data / "palimpsest.sqlite3")
    database.execute("DROP TABLE chats_message")
    database.close()

    restore, reopen = commands_of("Restore SQLite")
    assert "Verified " in operator.run(restore)

    # A checkpoint that was signed after the backup does not match it.
    operator.manage("login_link", "admin")
    operator.manage("ledger_checkpoint")
    *steps, verify = restore.strip().splitlines()
    operator.run(*steps)
    assert checks.OTHER_LEDGER in operator.run(verify, code=1)
    operator.run(reopen)
    assert "Verified " in operator.run(verify)


@pytest.mark.services
@pytest.mark.in_turn
def test_a_restored_postgresql_backup_has_what_was_there(tmp_path: Path, cluster: Any) -> None:
    names = [f"{name}_{uuid.uuid4().hex}" for name in ("backup", "restored")]
    first, restored = (cluster.url("postgres", name) for name in names)
    operator = Operator(
        tmp_path,
        ADMIN_URL=cluster.url("postgres", "postgres"),
        DATABASE_URL=first,
        RESTORED_URL=restored,
    )
    cluster.execute(f"CREATE DATABASE {names[0]}")
    operator.manage("setup")
    operator.manage("ledger_checkpoint")
    operator.run(*commands_of("Back up PostgreSQL"))
    documented = commands_of("Restore PostgreSQL")
    said = operator.run(*(text.replace("palimpsest_restored", names[1]) for text in documented))
    assert "Verified " in said
    assert "Compared with" in said
