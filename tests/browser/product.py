"""The product as a person starts it: `manage.py serve` on an empty folder, with all processes."""

import os
import re
import shutil
import socket
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from tests.faults.programs import MANAGE, Program, free_port, put_tables, python, until

LINK = re.compile(r"https?://\S+/login/link/\S+/")
# The button that tests and saves a server on the setup page.
SAVE_SERVER = "form:has(#server-api_key) [type=submit]"


class Product:
    """One running installation with a separate data folder. Its output is in its log."""

    def __init__(self, **env: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plm-browser-", dir="/tmp"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PALIMPSEST_DATA": str(self.folder / "data"),
            "PALIMPSEST_PORT": str(self.port),
            **env,
        }
        put_tables(self.folder / "data")
        self.log = self.folder / "serve.log"
        command = python(MANAGE, "serve", "--port", str(self.port))
        self.program = Program("serve", command, env=self.env, log=self.log)

    def printed_link(self, *, seconds: float = 40) -> str:
        """The sign-in link that the launcher printed, once the pages answer."""
        until(
            lambda: self.program.must_live() and LINK.search(self.program.said()), seconds=seconds
        )
        until(self.is_listening, seconds=20)
        found = LINK.search(self.program.said())
        if found is None:
            raise RuntimeError("the launcher printed no link")
        return found[0]

    def is_listening(self) -> bool:
        """Return True if the web process accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def newest_turns(self) -> str:
        """The last turns in the database, one per line."""
        file = self.folder / "data" / "palimpsest.sqlite3"
        query = "SELECT datetime('now'), * FROM chats_turn ORDER BY queued_at DESC LIMIT 3"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return "\n".join(str(dict(row)) for row in database.execute(query))

    def close(self) -> None:
        """Stop it as Ctrl-C does, and delete the data."""
        self.program.terminate()
        shutil.rmtree(self.folder)
