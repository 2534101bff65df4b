"""A scanner of the operator refuses files, and repeated uploads of files that failed."""

import socketserver
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import TestCase
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.files import extractors, reading, scanning, storage
from chats.models import FileChunk, StoredFile
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import Read, Upload, read_like_a_worker
from tests.support.streamed_responses import read_stream

committed = TestCase.captureOnCommitCallbacks
SCANNER = """
import sys
data = open(sys.argv[1], "rb").read()
sys.exit(3 if b"broken" in data else 1 if b"virus" in data else 0)
"""


class Clamd(socketserver.BaseRequestHandler):
    """The INSTREAM command of ClamAV, which finds the word `virus`."""

    def handle(self) -> None:
        with self.request.makefile("rb") as sent:
            assert sent.read(10) == b"zINSTREAM\0"
            data = b""
            while size := int.from_bytes(sent.read(4), "big"):
                data += sent.read(size)
        found = b"stream: OK"
        if b"virus" in data:
            found = b"stream: Test.Virus FOUND"
        elif b"broken" in data:
            found = b"INSTREAM size limit exceeded. ERROR"
        self.request.sendall(found + b"\0")


@pytest.fixture(params=["command", "socket", "port"])
def scanner(request: Any, settings: Settings, tmp_path: Path) -> Iterator[None]:
    if request.param == "command":
        program = tmp_path / "scan it.py"
        program.write_text(SCANNER)
        settings.FILE_SCAN = f"{sys.executable} '{program}'"
        yield
        return
    if request.param == "socket":
        path = str(tmp_path / "clamd.ctl")
        server: Any = socketserver.ThreadingUnixStreamServer(path, Clamd)
        settings.FILE_SCAN = f"clamav:{path}"
    else:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Clamd)
        settings.FILE_SCAN = f"clamav://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("scanner")
def test_a_clean_file_is_read(read: Read) -> None:
    assert read(b"words " * 40_000)["state"] == "ready"


@pytest.mark.usefixtures("scanner")
@pytest.mark.parametrize(
    ("data", "name"),
    [(b"a virus", "a.txt"), (make_png() + b"virus", "a.png")],
    ids=["text", "image"],
)
def test_a_refused_file_is_never_read_and_its_bytes_are_deleted(
    data: bytes, name: str, of_alice: Program, read: Read
) -> None:
    with committed(execute=True):
        found = read(data, name)
    assert (found["state"], found["code"]) == ("failed", "file_refused")
    row = StoredFile.objects.get()
    assert not FileChunk.objects.exists()
    assert not row.copy_path
    assert not storage.get_file_storage().exists(row.path)
    assert of_alice.get(f"files/{row.pk}/content").status_code == 404
    event = AuditEvent.objects.get(type="file.refused")
    assert event.data == {"file": str(row.pk), "bytes": len(data), "kind": row.kind}


@pytest.mark.usefixtures("scanner")
def test_a_file_that_cannot_be_scanned_is_not_read_until_it_can(
    of_alice: Program, read: Read, upload: Upload, settings: Settings
) -> None:
    found = read(b"broken")
    assert (found["state"], found["code"]) == ("failed", "scanner_unavailable")
    assert not FileChunk.objects.exists()
    assert read_stream(of_alice.get(f"files/{found['id']}/content")) == b"broken"
    # Attached again, it is scanned again.
    settings.FILE_SCAN = ""
    assert upload(b"broken").json()["id"] == found["id"]
    read_like_a_worker(found["id"])
    assert of_alice.get(f"files/{found['id']}").json()["state"] == "ready"


@pytest.mark.parametrize(
    "setting",
    [
        "clamav:/nowhere/clamd.ctl",
        "clamav://127.0.0.1:1",
        "/nowhere/scan",
        "'unclosed",
        "clamav://127.0.0.1:x",
    ],
)
def test_without_the_scanner_no_file_is_read(setting: str, read: Read, settings: Settings) -> None:
    settings.FILE_SCAN = setting
    assert read(b"words")["code"] == "scanner_unavailable"


def test_a_slow_scanner_does_not_hold_the_worker(
    read: Read, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "SECONDS", 0.2)
    settings.FILE_SCAN = f"{sys.executable} -c 'import time; time.sleep(60)'"
    assert read(b"words")["code"] == "scanner_unavailable"


def test_the_process_that_reads_files_never_starts_for_a_refused_one(
    read: Read, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractors, "SECONDS", 0)
    settings.FILE_SCAN = f"{sys.executable} -c 'import sys; sys.exit(1)'"
    assert read(b"words")["code"] == "file_refused"


def test_a_refused_file_does_not_count_towards_the_quota(
    read: Read, upload: Upload, settings: Settings
) -> None:
    settings.FILES_PER_USER_BYTES = 10
    settings.FILE_SCAN = f"{sys.executable} -c 'import sys; sys.exit(1)'"
    assert read(b"10 bytes..")["code"] == "file_refused"
    assert upload(b"ten bytes.").status_code == 201
    assert upload(b"x").json()["error"]["code"] == "file_quota_exceeded"


@pytest.mark.parametrize(
    ("data", "name", "scan", "code"),
    [
        (b"%PDF-1.7 no", "a.pdf", "", "file_damaged"),
        (b"some words.", "a.txt", "/nowhere/scan", "scanner_unavailable"),
    ],
)
def test_a_file_that_was_not_read_but_is_stored_counts_until_it_is_deleted(
    data: bytes,
    name: str,
    scan: str,
    code: str,
    of_alice: Program,
    read: Read,
    upload: Upload,
    settings: Settings,
) -> None:
    settings.FILES_PER_USER_BYTES = len(data)
    settings.FILE_SCAN = scan
    found = read(data, name)
    assert found["code"] == code
    assert upload(b"x").json()["error"]["code"] == "file_quota_exceeded"
    assert of_alice.call("DELETE", f"files/{found['id']}").status_code == 204
    assert upload(b"x").status_code == 201


REFUSES = f"{sys.executable} -c 'import sys; sys.exit(1)'"


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    ("data", "name"), [(b"words", "a.txt"), (make_png(), "a.png")], ids=["text", "image"]
)
def test_a_refused_file_can_be_uploaded_again_once_the_scanner_accepts_it(
    data: bytes,
    name: str,
    encrypts: bool,
    of_alice: Program,
    read: Read,
    upload: Upload,
    settings: Settings,
) -> None:
    settings.FILE_ENCRYPTION = encrypts
    settings.FILE_SCAN = REFUSES
    with committed(execute=True):
        first = read(data, name)
    assert first["code"] == "file_refused"
    # Still refused: its bytes are deleted again.
    again = upload(data, name)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert again.json()["state"] == "pending"
    with committed(execute=True):
        read_like_a_worker(first["id"])
    row = StoredFile.objects.get()
    assert row.code == "file_refused"
    assert not storage.get_file_storage().exists(row.path)
    settings.FILE_SCAN = ""
    upload(data, f"new {name}")
    read_like_a_worker(first["id"])
    found = of_alice.get(f"files/{first['id']}").json()
    assert (found["state"], found["code"], found["name"]) == ("ready", "", f"new {name}")
    assert read_stream(of_alice.get(f"files/{first['id']}/content")) == data
    # The removals of the earlier bytes do not delete the new ones.
    storage.remove_due_bytes(now=timezone.now() + timedelta(hours=2))
    assert read_stream(of_alice.get(f"files/{first['id']}/content")) == data
    assert AuditEvent.objects.filter(type="file.uploaded").count() == 3


def test_a_refused_file_counts_towards_the_quota_when_it_is_uploaded_again(
    read: Read, upload: Upload, settings: Settings
) -> None:
    settings.FILES_PER_USER_BYTES = 10
    settings.FILE_SCAN = REFUSES
    read(b"10 bytes..")
    settings.FILE_SCAN = ""
    assert upload(b"ten bytes.").status_code == 201
    assert upload(b"10 bytes..").json()["error"]["code"] == "file_quota_exceeded"


@pytest.mark.parametrize("limit", ["MOST_PIXELS", "SECONDS"])
def test_a_file_that_exceeded_a_limit_is_read_again_after_another_upload(
    limit: str,
    of_alice: Program,
    read: Read,
    upload: Upload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_given: object, **_named: object) -> dict[str, str]:
        return {"code": "image_too_many_pixels" if limit == "MOST_PIXELS" else "file_takes_long"}

    with monkeypatch.context() as patched:
        patched.setattr(reading, "run_extractor", fail)
        found = read(make_png(), "a.png")
    assert found["state"] == "failed"
    upload(make_png(), "a.png")
    read_like_a_worker(found["id"])
    assert of_alice.get(f"files/{found['id']}").json()["state"] == "ready"


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
def test_an_upload_restores_bytes_that_the_storage_lost(
    encrypts: bool, of_alice: Program, read: Read, upload: Upload, settings: Settings
) -> None:
    settings.FILE_ENCRYPTION = encrypts
    data = make_png()
    found = read(data, "a.png")
    row = StoredFile.objects.get()
    storage.get_file_storage().delete(row.path)
    assert of_alice.get(f"files/{found['id']}/content").status_code == 404
    assert upload(data, "a.png").json()["state"] == "ready"
    assert read_stream(of_alice.get(f"files/{found['id']}/content")) == data
    row.refresh_from_db()
    with storage.open_file_bytes(row, is_copy=True) as copy:
        assert copy.read(4) == b"\x89PNG"
