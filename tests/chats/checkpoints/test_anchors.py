"""Anchors outside the database: an append-only list, a webhook and a timestamp."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from chats.checkpoints import timestamps as checkpoint_timestamps
from chats.checkpoints import upkeep
from chats.ground import queue
from chats.models import WebhookDelivery
from chats.webhooks import managing, stamping
from chats.webhooks.managing import EventNotAllowed
from contextpolicy.audit import timestamps
from contextpolicy.models import LedgerCheckpoint, LedgerTimestamp
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.people import person, signed_in
from tests.faults.programs import needed
from tests.support.ledger_checkpoints import (
    CHECKPOINT_PAGE,
    LEDGER_CHATS,
    OFFLINE_PAGE,
    download_file,
    list_documented_commands,
    list_ledger_warnings,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("said")]
Sign = Callable[..., LedgerCheckpoint]
HOUR = timedelta(hours=1)


@pytest.fixture
def listed(settings: Settings, tmp_path: Path) -> Path:
    """Configure an append-only list and return its path."""
    path = tmp_path / "checkpoints.jsonl"
    settings.LEDGER_CHECKPOINT_LIST = str(path)
    return path


def notes_in(path: Path) -> list[str]:
    """Return the notes in a list."""
    return [json.loads(line)["note"] for line in path.read_text().splitlines() if line[:1] == "{"]


def test_every_checkpoint_is_appended_and_nothing_is_taken_away(
    sign: Sign, listed: Path, now: datetime
) -> None:
    made = [sign(now=now + number * HOUR).note for number in range(3)]
    assert notes_in(listed) == made
    begins = listed.read_bytes()
    made.append(sign(now=now + 3 * HOUR).note)
    assert listed.read_bytes().startswith(begins)
    assert notes_in(listed) == made


def test_what_could_not_be_written_comes_with_the_next_one(
    sign: Sign, settings: Settings, tmp_path: Path, now: datetime
) -> None:
    path = tmp_path / "away" / "checkpoints.jsonl"
    settings.LEDGER_CHECKPOINT_LIST = str(path)
    first = sign().note
    assert "list_incomplete" in list_ledger_warnings(now)
    path.parent.mkdir()
    second = sign(now=now + HOUR).note
    assert notes_in(path) == [first, second]
    assert "list_incomplete" not in list_ledger_warnings(now + HOUR)


def test_behind_a_line_that_a_crash_cut_off_a_new_one_begins(
    sign: Sign, listed: Path, now: datetime
) -> None:
    first = sign().note
    with listed.open("a") as file:
        file.write('{"signed_at": "20')
    second = sign(now=now + HOUR).note
    whole = [line for line in listed.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["note"] for line in whole] == [first, second]


def test_a_webhook_of_an_auditor_hears_the_note_itself(sign: Sign, alice: User) -> None:
    url, events, now = "https://siem.example/in", ["checkpoint.signed"], timezone.now()
    with pytest.raises(EventNotAllowed):
        managing.create_webhook(owner=alice, url=url, events=events, now=now)
    priya = person("priya", AUDITOR)
    managing.create_webhook(owner=priya, url=url, events=events, now=now)
    made = sign()
    (row,) = WebhookDelivery.objects.filter(event="checkpoint.signed")
    told = json.loads(row.body)["data"]
    assert told == {"origin": made.origin.name, "size": made.size, "note": made.note}


def run(folder: Path, *arguments: str) -> None:
    """Run OpenSSL in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)  # noqa: S607  # the one of the system


CONFIGURATION = """
[tsa]
dir = .
serial = ./serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ordering = yes
tsa_name = yes
ess_cert_id_chain = no
[ext]
extendedKeyUsage = critical,timeStamping
"""


class Authority(HTTPServer):
    """A time-stamping authority with one key. `answer` replaces its response."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Door)
        self.folder = folder
        self.asked = 0
        self.answer: tuple[int, bytes] | None = None

    def reply(self, query: bytes) -> tuple[int, bytes]:
        """Return the response to a request."""
        self.asked += 1
        if self.answer is not None:
            return self.answer
        (self.folder / "query.tsq").write_bytes(query)
        arguments = ["-queryfile", "query.tsq", "-signer", "tsa.pem", "-inkey", "tsa.key"]
        settings = ["-config", "tsa.cnf", "-section", "tsa", "-out", "reply.tsr"]
        run(self.folder, "ts", "-reply", *arguments, *settings)
        return 200, (self.folder / "reply.tsr").read_bytes()


class Door(BaseHTTPRequestHandler):
    """The HTTP handler of the authority."""

    def do_POST(self) -> None:
        """Respond to a request."""
        assert isinstance(self.server, Authority)
        assert self.headers["Content-Type"] == "application/timestamp-query"
        status, body = self.server.reply(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def authority(tmp_path: Path, settings: Settings) -> Iterator[Authority]:
    """A time-stamping authority on the private network, set by the operator."""
    needed("openssl")
    (tmp_path / "tsa.cnf").write_text(CONFIGURATION)
    (tmp_path / "serial").write_text("01")
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=tsa"]
    end = ["-addext", "extendedKeyUsage=critical,timeStamping"]
    run(tmp_path, *new, *end, "-keyout", "tsa.key", "-out", "tsa.pem")
    server = Authority(tmp_path)
    thread = Thread(target=server.serve_forever)
    thread.start()
    settings.LEDGER_TSA_HOST = f"127.0.0.1:{server.server_port}"
    settings.LEDGER_TSA_URL = f"http://{settings.LEDGER_TSA_HOST}/tsa"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_authority_stamps_the_newest_checkpoint_and_openssl_verifies_it(
    sign: Sign, authority: Authority, tmp_path: Path, now: datetime
) -> None:
    assert not checkpoint_timestamps.is_timestamp_due(now=now)
    made = sign()
    assert checkpoint_timestamps.is_timestamp_due(now=now)
    stamping.request_due_timestamp(clock=lambda: now)
    row = LedgerTimestamp.objects.get()
    assert (row.checkpoint, row.problem, row.received_at) == (made, "", now)
    stamping.request_due_timestamp(clock=lambda: now + HOUR)
    assert authority.asked == 1

    auditor = signed_in(person("priya", AUDITOR))
    assert 'data-note="last-timestamp"' in auditor.get(CHECKPOINT_PAGE).content.decode()
    for name in ("stamped.txt", "stamped.tsr"):
        (tmp_path / name).write_bytes(
            download_file(auditor, OFFLINE_PAGE, {"file": name, "scope": ""})
        )
    assert (tmp_path / "stamped.txt").read_text() == made.note
    shutil.copy(tmp_path / "tsa.pem", tmp_path / "tsa-ca.pem")
    command = list_documented_commands()[5]
    verified = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)  # noqa: S607  # the one of the system
    assert "Verification: OK" in verified.stdout + verified.stderr
    (tmp_path / "stamped.txt").write_text(made.note.replace("ledger", "lodger"))
    changed = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)  # noqa: S607  # the one of the system
    assert changed.returncode != 0


def test_signing_waits_for_no_authority_and_a_failure_is_tried_again(
    sign: Sign, authority: Authority, now: datetime
) -> None:
    faults = {
        (503, b""): "refused",
        (200, b"<html>"): "unreadable",
        # Status 2: rejection.
        (200, bytes.fromhex("30053003020102")): "refused",
        (200, bytes.fromhex("30053003020100")): "of_something_else",
    }
    sign()
    for number, (answer, problem) in enumerate(faults.items()):
        authority.answer = answer
        stamping.request_due_timestamp(clock=lambda at=now + number * HOUR: at)  # type: ignore[misc]  # a default binds it
        assert LedgerTimestamp.objects.get().problem == problem
        assert not checkpoint_timestamps.is_timestamp_due(now=now + number * HOUR)
    assert authority.asked == len(faults)
    later = now + 7 * HOUR
    sign(now=later)
    stamping.request_due_timestamp(clock=lambda: later)
    assert "timestamp_late" in list_ledger_warnings(later)
    authority.answer = None
    stamping.request_due_timestamp(clock=lambda: later + HOUR)
    assert LedgerTimestamp.objects.exclude(response="").count() == 1
    assert "timestamp_late" not in list_ledger_warnings(later + HOUR)


def test_an_address_that_nobody_may_reach_is_not_asked(
    sign: Sign, settings: Settings, now: datetime
) -> None:
    settings.LEDGER_TSA_URL, settings.LEDGER_TSA_HOST = "http://169.254.169.254/", ""
    sign()
    stamping.request_due_timestamp(clock=lambda: now)
    assert LedgerTimestamp.objects.get().problem == "address_refused"


def test_the_sweep_sends_the_task_only_where_an_authority_is_named(
    sign: Sign, settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(queue, "enqueue", lambda task, **_ids: sent.append(task))
    sign()
    upkeep.enqueue_due(now=now)
    assert queue.STAMP_LEDGER not in sent
    stamping.request_due_timestamp(clock=lambda: now)
    assert not LedgerTimestamp.objects.exists()
    settings.LEDGER_TSA_URL = "https://tsa.example/"
    upkeep.enqueue_due(now=now)
    assert sent[-1] == queue.STAMP_LEDGER


def test_the_request_is_what_openssl_would_ask(authority: Authority, tmp_path: Path) -> None:
    digest = bytes(range(32))
    query = timestamps.build_timestamp_request(digest, nonce=2**62 + 5)
    (tmp_path / "own.tsq").write_bytes(query)
    shown = subprocess.run(
        ["openssl", "ts", "-query", "-in", "own.tsq", "-text"],  # noqa: S607  # the one of the system
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Hash Algorithm: sha256" in shown
    assert "Nonce: 0x4000000000000005" in shown
    assert "Certificate required: yes" in shown
    reply = authority.reply(query)[1]
    assert timestamps.find_response_fault(reply, digest=digest, nonce=2**62 + 5) == ""
    assert timestamps.find_response_fault(reply, digest=digest, nonce=4) == "of_something_else"
    assert timestamps.find_response_fault(reply[:-1], digest=digest, nonce=4) == "unreadable"


def test_checkpoints_and_proofs_are_read_over_rest(sign: Sign, alice: User, now: datetime) -> None:
    first, second = sign(), sign(now=now + HOUR)
    LedgerTimestamp.objects.create(
        checkpoint=first,
        authority="https://tsa.example/",
        tried_at=now,
        received_at=now,
        response="MAA=",
    )
    auditor, root = signed_in(person("priya", AUDITOR)), "/api/v1/audit"
    told = auditor.get(f"{root}/checkpoints").json()["data"]
    assert [(row["note"], row["size"]) for row in told] == [
        (second.note, second.size),
        (first.note, first.size),
    ]
    assert told[0]["timestamp"] is None
    assert told[1]["timestamp"]["response"] == "MAA="
    chain = f"chat:{LEDGER_CHATS[4]}"
    proof = auditor.get(f"{root}/proof", {"scope": chain})
    assert proof.content == download_file(
        auditor, OFFLINE_PAGE, {"file": "chain.tlog-proof", "scope": chain}
    )
    none = auditor.get(f"{root}/proof", {"scope": "chat:none"})
    assert (none.status_code, none.json()["error"]["code"]) == (404, "no_proof")
    for path in ("checkpoints", f"proof?scope={chain}"):
        assert signed_in(alice).get(f"{root}/{path}").status_code == 404
