"""Uploads: kinds by content, limits, one row per content, download, deletion, crashes."""

import io
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import FileSystemStorage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import TestCase
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.background.due_jobs import DUE_JOBS
from chats.files import storage, uploads
from chats.files.detection import FileKindRefused, clean_file_name, detect_file_kind
from chats.models import FileRemoval, StoredFile
from contextpolicy import holds
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_docx, make_pdf, make_png, make_xlsx
from tests.support.file_uploads import Upload, send_upload
from tests.support.streamed_responses import read_stream

SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>x()</script></svg>'
committed = TestCase.captureOnCommitCallbacks


def stored_paths() -> list[Path]:
    """Return the stored bytes of all files."""
    place = storage.get_configured_storage()
    assert isinstance(place, FileSystemStorage)
    return [path for path in Path(place.base_location).rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("data", "name", "kind", "media_type"),
    [
        (make_png(), "a.png", "image", "image/png"),
        (make_png(kind="JPEG"), "a.png", "image", "image/jpeg"),
        (make_png(kind="GIF"), "a.gif", "image", "image/gif"),
        (make_png(kind="WEBP"), "a.webp", "image", "image/webp"),
        (make_pdf("Hello"), "a.pdf", "pdf", "application/pdf"),
        (b"a,b\n1,2\n", "a.csv", "csv", "text/csv"),
        (b"# Title", "a.md", "text", "text/markdown"),
        (b"print('hi')", "a.py", "text", "text/plain"),
        ("Grüße".encode("utf-16"), "a.txt", "text", "text/plain"),
        ("Grüße".encode("cp1252"), "a.txt", "text", "text/plain"),
        (b"<!DOCTYPE html><p>Hi", "a.txt", "html", "text/html"),
        # A wrong extension decides nothing.
        (b"plain words", "a.exe", "text", "text/plain"),
        (make_pdf("Hello"), "a.docx", "pdf", "application/pdf"),
    ],
    ids=["png", "jpeg", "gif", "webp", "pdf", "csv", "md", "py", "16", "1252", "html", "exe", "as"],
)
def test_the_content_decides_the_kind(
    upload: Upload, data: bytes, name: str, kind: str, media_type: str
) -> None:
    answer = upload(data, name)
    told = answer.json()
    assert answer.status_code == 201, told
    assert (told["kind"], told["media_type"], told["size"]) == (kind, media_type, len(data))


@pytest.mark.parametrize(
    ("data", "kind"), [(make_docx("Hi"), "docx"), (make_xlsx((1,)), "xlsx")], ids=["docx", "xlsx"]
)
def test_office_files_are_detected_by_their_entries(upload: Upload, data: bytes, kind: str) -> None:
    assert upload(data, "a.zip").json()["kind"] == kind


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (SVG, "picture.svg"),
        (b"<!-- x -->" + SVG[21:], "picture.png"),
        (b"MZ\x90\x00" + bytes(60), "notes.txt"),
        (b"\x7fELF\x02\x01\x01" + bytes(60), "notes.txt"),
        (b"words and \x00 more", "notes.txt"),
        (b"words" * 20_000 + b"\x01", "notes.txt"),
        (b"PK\x03\x04" + bytes(200), "a.docx"),
        # Claims to be two kinds of document at once.
        (b"PK\x03\x04 word/document.xml xl/workbook.xml", "a.docx"),
    ],
    ids=["svg", "comment", "windows", "linux", "nul", "control", "zip", "both"],
)
def test_other_content_is_refused_whatever_its_name(upload: Upload, data: bytes, name: str) -> None:
    answer = upload(data, name)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (422, "file_kind_refused", "file")
    assert name in error["message"]
    assert not StoredFile.objects.exists()
    assert not stored_paths()


@pytest.mark.parametrize(
    "piece",
    [b"<!---->", b"<!-- a -->\n", b"<?xml?>", b"<!doctype a [ ] >", b"<?xml?><!---->"],
)
def test_repeated_comments_take_no_exponential_time(piece: bytes) -> None:
    # Each piece once doubled the time: 26 took seconds, 300 bytes stopped the process.
    begin = time.monotonic()
    found = detect_file_kind(io.BytesIO(piece * 26 + b"words"), name="a.txt")
    assert time.monotonic() - begin < 0.5
    assert found.kind == "text"
    with pytest.raises(FileKindRefused):
        detect_file_kind(io.BytesIO(piece * 3000 + b"<svg>"), name="a.txt")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_markup_is_detected_in_each_encoding(encoding: str) -> None:
    for page in (
        "<!-- a --><!doctype html><p>Hi",
        '<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "a"><html><p>Hi',
    ):
        assert detect_file_kind(io.BytesIO(page.encode(encoding)), name="a.txt").kind == "html"
    for image in ("<svg/>", '<!DOCTYPE svg [<!ENTITY a "b">]><svg/>'):
        with pytest.raises(FileKindRefused):
            detect_file_kind(io.BytesIO(image.encode(encoding)), name="a.txt")


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("a\r\nSet-Cookie: b.txt", "a Set-Cookie: b.txt"),
        ("invoice\u202efdp.exe", "invoice fdp.exe"),
        ("..", "file"),
        ("\x00", "file"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("报告.pdf", "报告.pdf"),
    ],
)
def test_names_have_no_folders_and_no_control_characters(name: str, clean: str) -> None:
    assert clean_file_name(name) == clean


def test_a_large_or_empty_file_is_refused_with_its_limit(
    upload: Upload, settings: Settings
) -> None:
    settings.FILE_BYTES = 1024 * 1024
    answer = upload(b"x" * (1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "file_too_large")
    assert "1 MiB" in answer.json()["error"]["message"]
    answer = upload(b"")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "file_empty")


def test_a_person_has_a_quota_and_others_have_their_own(
    upload: Upload, of_charlie: Program, settings: Settings
) -> None:
    settings.FILES_PER_USER_BYTES = 10
    assert upload(b"sixteen").status_code == 201
    answer = upload(b"more")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "file_quota_exceeded")
    assert send_upload(of_charlie, b"more").status_code == 201
    assert len(stored_paths()) == 2


def test_a_text_that_is_uploaded_again_as_a_table_is_a_table(upload: Upload) -> None:
    first = upload(b"a,b\n1,2\n", "notes.txt").json()
    again = upload(b"a,b\n1,2\n", "costs.csv").json()
    assert (again["id"], again["kind"], again["media_type"]) == (first["id"], "csv", "text/csv")
    assert upload(b"a,b\n1,2\n", "costs.json").json()["media_type"] == "application/json"


def test_the_same_content_is_stored_once_for_a_person_and_never_shared(
    upload: Upload, of_charlie: Program
) -> None:
    first, again = upload(b"words", "a.txt"), upload(b"words", "b.txt")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert again.json()["name"] == "b.txt"
    other = send_upload(of_charlie, b"words", "a.txt")
    assert other.json()["id"] != first.json()["id"]
    assert len(stored_paths()) == 2


def test_a_body_without_one_file_is_refused(of_alice: Program) -> None:
    files = [SimpleUploadedFile("a.txt", b"a"), SimpleUploadedFile("b.txt", b"b")]
    for body in ({}, {"file": "text"}, {"file": files}, {"file": files[0], "x": "1"}):
        answer = of_alice.client.post("/api/v1/files", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "upload_malformed")
    answer = of_alice.post("files", {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "upload_malformed")
    broken = of_alice.client.generic(
        "POST", "/api/v1/files", b"--x\r\n", content_type="multipart/form-data"
    )
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "upload_malformed")


def test_a_download_is_never_opened_by_a_browser(
    of_alice: Program, of_charlie: Program, upload: Upload
) -> None:
    page = b"<!DOCTYPE html><script>alert(1)</script>"
    own = upload(page, 'evil".html').json()["id"]
    answer = of_alice.get(f"files/{own}/content")
    assert read_stream(answer) == page
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert answer["Content-Length"] == str(len(page))
    for path in (f"files/{own}", f"files/{own}/content"):
        assert of_charlie.get(path).status_code == 404
    assert of_charlie.call("DELETE", f"files/{own}").status_code == 404


def test_deleting_a_file_deletes_its_bytes_and_is_recorded_in_numbers(
    of_alice: Program, upload: Upload
) -> None:
    told = upload(b"secret words").json()
    with committed(execute=True):
        assert of_alice.call("DELETE", f"files/{told['id']}").status_code == 204
    assert not stored_paths()
    assert not FileRemoval.objects.exists()
    events = AuditEvent.objects.filter(type__startswith="file.").order_by("pk")
    assert [(event.type, event.data) for event in events] == [
        ("file.uploaded", {"file": told["id"], "bytes": 12, "kind": "text"}),
        ("file.deleted", {"file": told["id"], "bytes": 12, "reason": "asked"}),
    ]


def test_a_legal_hold_keeps_the_files_of_a_person(
    of_alice: Program, alice: User, upload: Upload
) -> None:
    own = upload(b"evidence").json()["id"]
    now = timezone.now()
    holds.place_hold(
        level="user", user=alice, case="7", reason="Case seven", actor="system", now=now
    )
    answer = of_alice.call("DELETE", f"files/{own}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "under_legal_hold")
    later = now + timedelta(days=30)
    assert DUE_JOBS["unused_files"](later) == 0
    assert StoredFile.objects.filter(pk=own).exists()


def test_the_sweep_deletes_what_no_message_used_for_a_day(alice: User, upload: Upload) -> None:
    upload(b"words")
    now = timezone.now()
    assert DUE_JOBS["unused_files"](now + timedelta(hours=23)) == 0
    with committed(execute=True):
        assert DUE_JOBS["unused_files"](now + timedelta(hours=25)) == 1
    assert not StoredFile.objects.exists()
    assert not stored_paths()


def test_an_upload_killed_between_bytes_and_row_leaves_nothing(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(row: StoredFile, **_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(uploads, "store_upload", die)
    with pytest.raises(SystemExit):
        uploads.accept_upload(io.BytesIO(b"words"), name="a.txt", owner=alice, now=now)
    assert len(stored_paths()) == 1
    assert DUE_JOBS["removed_files"](now + timedelta(minutes=59)) == 0
    assert DUE_JOBS["removed_files"](now + timedelta(minutes=61)) == 1
    assert not stored_paths()
    # The person uploads it again.
    monkeypatch.undo()
    row, is_new = uploads.accept_upload(io.BytesIO(b"words"), name="a.txt", owner=alice, now=now)
    assert is_new
    assert DUE_JOBS["removed_files"](now + timedelta(days=9)) == 0
    assert b"".join(storage.iter_file_bytes(row)) == b"words"


def test_bytes_are_deleted_later_if_the_storage_does_not_answer(
    of_alice: Program, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = upload(b"words").json()["id"]

    def fail(self: object, name: str) -> None:
        raise OSError("storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemStorage, "delete", fail)
        with committed(execute=True):
            assert of_alice.call("DELETE", f"files/{own}").status_code == 204
        assert len(stored_paths()) == 1
    assert DUE_JOBS["removed_files"](timezone.now()) == 1
    assert not stored_paths()


def test_a_deleted_account_leaves_no_bytes(alice: User, upload: Upload) -> None:
    upload(b"words")
    with committed(execute=True):
        alice.delete()
    assert not stored_paths()
