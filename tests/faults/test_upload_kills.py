"""Uploads and their readers are killed: no file is lost, stored twice or read into two texts."""

import hashlib
import io
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from chats.files.storage import UPLOAD_TIME
from tests.chats.files.sample_files import make_pdf
from tests.faults.client import Client
from tests.faults.harness import Tree
from tests.faults.programs import Program, until
from tests.faults.stores import count

KILLS = [
    pytest.param(4, id="some"),
    pytest.param(50, id="many", marks=[pytest.mark.whole, pytest.mark.timeout(900)]),
]
SEED = 20261128
PIECE = 64 * 1024
# By default a file that outlives three readers fails.
MANY_TRIES: dict[str, Any] = {"MAX_ATTEMPTS": "1000"}
# Beyond the lease and the due job of the tree: reading on a busy machine.
HEALED = 30


def make_text(number: int, *, size: int) -> bytes:
    """Return a text with a distinct word in each line."""
    line = f"The parcel P-{number} was weighed and noted. "
    return (line * (size // len(line) + 1))[:size].encode()


def make_report(number: int) -> bytes:
    """Return a PDF whose reading takes a moment."""
    return make_pdf(*(f"Report {number}, page {page}. " + "Words. " * 60 for page in range(120)))


class Sender:
    """Uploads a file slowly in a thread, so that the server can be killed before the end."""

    def __init__(self, alice: Client, data: bytes) -> None:
        self.alice, self.data = alice, data
        self.status = 0
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()

    def send(self) -> None:
        """Send the request; `status` stays 0 if the connection breaks."""
        edge = "a-line-between-parts"
        head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="p.txt"\r\n\r\n'
        headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}

        def pieces() -> Iterator[bytes]:
            yield head.encode()
            whole = io.BytesIO(self.data)
            while piece := whole.read(PIECE):
                yield piece
                time.sleep(0.001)
            yield f"\r\n--{edge}--\r\n".encode()

        try:
            answer = self.alice.http.post("/files", content=pieces(), headers=headers)
            self.status = answer.status_code
        except httpx2.HTTPError:
            return


def upload(alice: Client, data: bytes, *, name: str) -> dict[str, Any]:
    """Upload a file; the request must be accepted."""
    answer = alice.http.post("/files", files={"file": (name, data)})
    assert answer.status_code in {200, 201}, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_read(alice: Client, file_id: str) -> bool:
    """Return True if a file was read. It must not have failed."""
    found = alice.http.get(f"/files/{file_id}").json()
    assert found["state"] in {"pending", "ready"}, found
    return bool(found["state"] == "ready")


def wait_until_read(alice: Client, file_id: str) -> None:
    """Wait until a file was read."""
    until(lambda: is_read(alice, file_id), seconds=HEALED)


def list_stored_paths(tree: Tree) -> set[str]:
    """Return the paths of all files in the storage, relative to it."""
    place = tree.folder / "files"
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def interrupt_upload(tree: Tree, web: Program, data: bytes, *, seconds: float) -> int:
    """Kill the web process some time after an upload began; return the status, or 0."""
    with Client(tree) as alice:
        sender = Sender(alice, data)
        sender.thread.join(seconds)
        web.kill()
        sender.thread.join(10)
    return sender.status


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", KILLS)
def test_uploads_of_a_killed_web_process_are_whole_or_absent(tree: Tree, kills: int) -> None:
    dice = random.Random(SEED)  # noqa: S311  # repeatable kills
    sent: list[bytes] = []
    before = list_stored_paths(tree)
    statuses = []
    temporary = tree.folder / "temporary"
    temporary.mkdir()
    web = tree.web(TMPDIR=str(temporary))
    for number in range(kills):
        data = make_text(number, size=dice.randrange(1, 6) * 1024 * 1024)
        sent.append(data)
        statuses.append(interrupt_upload(tree, web, data, seconds=dice.random() * 0.6))
        # An upload that was arriving left no copy.
        assert list(temporary.iterdir()) == []
        web = tree.web(TMPDIR=str(temporary))
    assert 0 in statuses, "no upload was interrupted"
    assert set(statuses) <= {0, 201}
    with Client(tree) as alice:
        # The client repeats each upload, as it would after an error.
        ids = [upload(alice, data, name="p.txt")["id"] for data in sent]
        assert len(set(ids)) == kills
        for file_id, data in zip(ids, sent, strict=True):
            wait_until_read(alice, file_id)
            content = alice.http.get(f"/files/{file_id}/content").content
            assert hashlib.sha256(content).digest() == hashlib.sha256(data).digest()
    tree.clear("web")
    rows = tree.database.rows("SELECT path FROM chats_storedfile WHERE name = 'p.txt'")
    assert len(rows) == kills
    # Bytes without a row are in the list of bytes to remove, so a due job deletes them.
    left = list_stored_paths(tree) - before - {str(row["path"]) for row in rows}
    listed = {str(row["path"]) for row in tree.database.rows("SELECT path FROM chats_fileremoval")}
    assert left <= listed, left - listed
    tree.desk.ask("remove_bytes", hours=2 * UPLOAD_TIME.total_seconds() / 3600)
    assert not list_stored_paths(tree) & left


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", KILLS)
def test_a_file_whose_readers_are_killed_is_read_once(
    tree: Tree, alice: Client, web: Program, kills: int
) -> None:
    dice = random.Random(SEED)  # noqa: S311  # repeatable kills
    tree.clear("worker")
    ids = []
    for number in range(kills):
        worker = tree.worker(**MANY_TRIES)
        file_id = upload(alice, make_report(number), name=f"report {number}.pdf")["id"]
        ids.append(file_id)
        time.sleep(dice.random() * 0.8)
        worker.kill()
    tree.worker(**MANY_TRIES)
    for file_id in ids:
        wait_until_read(alice, file_id)
    for number, file_id in enumerate(ids):
        pages = tree.database.rows(
            "SELECT text FROM chats_filechunk WHERE file_id = %s ORDER BY number",
            [tree.key(file_id)],
        )
        text = " ".join(str(row["text"]) for row in pages)
        for page in range(120):
            assert text.count(f"Report {number}, page {page}.") == 1, (number, page)
        place = "CAST(data AS TEXT) LIKE %s"
        assert count(tree.database, "contextpolicy_auditevent", place, f"%{file_id}%") == 1


def test_a_slow_reading_keeps_its_lease(tree: Tree, alice: Client, web: Program) -> None:
    tree.clear("worker")
    # The scanner takes twice the lease of these workers.
    for _ in range(2):
        tree.worker(PALIMPSEST_FILE_SCAN="sh -c 'sleep 4'")
    file_id = upload(alice, b"some slow words", name="slow.txt")["id"]
    wait_until_read(alice, file_id)
    query = "SELECT tries FROM chats_storedfile WHERE id = %s"
    assert tree.database.rows(query, [tree.key(file_id)]) == [{"tries": 1}]
    # The settings of these workers are not those of other tests.
    tree.clear("worker")
