"""Reading uploaded files in the background: text, limits, hostile files, killed workers."""

import io
import json
import signal
import struct
import subprocess
import sys
import zipfile
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import TestCase
from django.utils import timezone
from PIL import Image
from pytest_django.fixtures import Settings

from chats.background.due_jobs import DUE_JOBS
from chats.files import extractors, pdf_documents, reading, storage
from chats.ground import queue
from chats.ground.leases import LeaseLost
from chats.models import FileChunk, FileRemoval, StoredFile
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_docx, make_pdf, make_png, make_xlsx, replace_entry
from tests.support.file_uploads import Read, Upload, read_like_a_worker
from tests.support.files_in_chats import read_stored_text

committed = TestCase.captureOnCommitCallbacks
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(
        b'<!ENTITY %c "%s">' % (letter, (b"&%c;" % (letter - 1)) * 10)
        for letter in range(ord("b"), ord("k"))
    )
    + b"]>"
)
NAMESPACE = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def make_raw_png(width: int, height: int) -> bytes:
    """Return a PNG whose header states a size, with the data of one row."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(3 * width + 1))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_an_upload_is_read_by_a_worker(
    of_alice: Program, upload: Upload, sent: list[tuple[str, dict[str, str]]]
) -> None:
    with committed(execute=True):
        told = upload("Grüße from a note".encode(), "a.txt").json()
    assert (told["state"], told["characters"]) == ("pending", 0)
    assert sent == [(queue.READ_FILE, {"file_id": told["id"]})]
    read_like_a_worker(told["id"])
    told = of_alice.get(f"files/{told['id']}").json()
    assert (told["state"], told["code"], told["characters"]) == ("ready", "", 17)
    assert told["tokens"] > 3
    assert read_stored_text(told["id"]) == "Grüße from a note"


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        ("Grüße".encode("cp1252"), "a.txt", "Grüße"),
        ("Grüße".encode("utf-16"), "a.txt", "Grüße"),
        ("发票金额一百元".encode("gb18030"), "a.txt", "发票金额一百元"),
        (b"a,b\r\n1,2\r\n", "a.csv", "a,b\r\n1,2\r\n"),
        (
            b"<!DOCTYPE html><title>T</title><script>x('no')</script><p>One&amp;<b>two</b><p>3",
            "a.html",
            "T\nOne&two\n3",
        ),
        (make_docx("First line", "Second"), "a.docx", "First line\nSecond\n"),
        (
            make_xlsx(("Item", "Price"), ("Pen", 2.5)),
            "a.xlsx",
            "[Sheet Sheet]\nItem\tPrice\nPen\t2.5\n",
        ),
        (make_pdf("On one", "On two"), "a.pdf", "[Page 1]\nOn one\n\n[Page 2]\nOn two\n\n"),
    ],
    ids=["cp1252", "utf16", "gb18030", "csv", "html", "docx", "xlsx", "pdf"],
)
def test_the_text_of_each_kind(read: Read, data: bytes, name: str, text: str) -> None:
    told = read(data, name)
    assert (told["state"], told["code"], told["is_whole"]) == ("ready", "", True)
    assert read_stored_text(told["id"]) == text
    assert told["pages"] == (2 if name == "a.pdf" else 0)


def test_an_image_gets_a_smaller_upright_copy_without_metadata(read: Read) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # Rotated by 90 degrees.
    exif[0x010F] = "Camera of Alice"
    told = read(make_png(3000, 30, kind="JPEG", exif=exif), "a.jpg")
    assert told["state"] == "ready"
    row = StoredFile.objects.get(pk=told["id"])
    with storage.open_file_bytes(row, is_copy=True) as file:
        data = file.read()
    assert (row.copy_size, row.copy_type) == (len(data), "image/jpeg")
    assert b"Camera" not in data
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (row.width, row.height)
        assert (image.height, image.width < image.height) == (2048, True)
        assert not image.getexif()
    row.delete()
    paths = set(FileRemoval.objects.values_list("path", flat=True))
    assert paths == {row.path, row.copy_path}


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (make_raw_png(50_000, 50_000), "a.png", "image_too_many_pixels"),
        (make_png()[:40], "a.png", "file_damaged"),
        # A picture's first bytes, then a web page with a script.
        (b"GIF89a<!DOCTYPE html><script>alert(1)</script>", "a.gif", "file_damaged"),
        (b"%PDF-1.7 but nothing more", "a.pdf", "file_damaged"),
        (make_pdf(""), "a.pdf", "file_without_text"),
        (b"PK\x03\x04 word/document.xml", "a.docx", "file_damaged"),
    ],
    ids=["pixels", "cut", "polyglot", "pdf", "scan", "zip"],
)
def test_hostile_and_damaged_files_fail_with_a_sentence(
    read: Read, data: bytes, name: str, code: str
) -> None:
    told = read(data, name)
    assert (told["state"], told["code"]) == ("failed", code)
    assert told["reason"].endswith(".")
    assert not FileChunk.objects.exists()


@pytest.mark.parametrize(
    ("office", "entry"),
    [(make_docx("x"), "word/document.xml"), (make_xlsx((1,)), "xl/worksheets/sheet1.xml")],
    ids=["docx", "xlsx"],
)
def test_an_archive_that_unpacks_to_too_much_is_not_read(
    read: Read, office: bytes, entry: str
) -> None:
    with zipfile.ZipFile(held := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as bomb:
        with zipfile.ZipFile(io.BytesIO(office)) as old:
            for name in old.namelist():
                if name != entry:
                    bomb.writestr(name, old.read(name))
        with bomb.open(entry, "w", force_zip64=True) as file:
            for _ in range(201):
                file.write(b" " * 1024 * 1024)
    assert len(held.getvalue()) < 300_000
    told = read(held.getvalue(), "a.docx")
    assert (told["state"], told["code"]) == ("failed", "file_unpacks_too_large")


def test_xml_entities_are_not_expanded_and_load_nothing(read: Read, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret words")
    body = b"<w:document %s><w:body><w:p><w:r><w:t>Open &j;</w:t></w:r></w:p></w:body></w:document>"
    bomb = replace_entry(make_docx("x"), "word/document.xml", BOMB + body % NAMESPACE)
    told = read(bomb, "a.docx")
    assert told["characters"] < 100
    outer = b'<!DOCTYPE x [<!ENTITY j SYSTEM "file://%s">]>' % str(secret).encode()
    told = read(replace_entry(make_docx("x"), "word/document.xml", outer + body % NAMESPACE))
    assert "secret" not in read_stored_text(told["id"])
    sheet = BOMB + b"<worksheet><sheetData><row><c><v>&j;</v></c></row></sheetData></worksheet>"
    told = read(replace_entry(make_xlsx((1,)), "xl/worksheets/sheet1.xml", sheet))
    assert told["characters"] < 100


def test_scripts_in_a_pdf_are_not_run_and_no_text(read: Read) -> None:
    action = "/OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >>"
    told = read(make_pdf("Only this", catalog=action), "a.pdf")
    assert read_stored_text(told["id"]) == "[Page 1]\nOnly this\n\n"


def test_a_million_pages_and_characters_are_read_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf_documents, "MOST_PAGES", 3)
    path = tmp_path / "a.pdf"
    path.write_bytes(make_pdf(*(f"Words of {number}" for number in range(1, 6))))
    found = extractors.read_document("pdf", path)
    assert (found["pages"], found["whole"]) == (5, False)
    assert [page for page, _, _ in found["chunks"]] == [1, 2, 3]
    monkeypatch.setattr(extractors, "MOST_CHARACTERS", 5_000)
    path.write_text("words " * 2_000)
    found = extractors.read_document("text", path)
    assert not found["whole"]
    assert sum(len(text) for _, text, _ in found["chunks"]) == 5_000


def test_chunks_end_between_words_and_make_up_the_text() -> None:
    text = "\n\n".join(f"Paragraph {number} " + "word " * 60 for number in range(40)) + "x" * 3_000
    chunks, is_whole = extractors.build_chunks([(0, text)])
    assert is_whole
    assert "".join(part for _, part, _ in chunks) == text
    assert max(len(part) for _, part, _ in chunks) <= extractors.CHUNK_CHARACTERS
    assert all(part.endswith("\n\n") for _, part, _ in chunks[:10])
    assert "paragraph" in chunks[0][2].split()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import time; time.sleep(60)", "file_takes_long"),
        ("while True: pass", "file_takes_long"),
        ("x = bytearray(1 << 30)", "file_needs_memory"),
    ],
    ids=["sleep", "compute", "memory"],
)
def test_the_process_has_limits_on_time_and_memory(
    script: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractors, "SECONDS", 1)
    run = subprocess.run

    def run_script(command: list[str], **options: Any) -> Any:
        begin = "from chats.files import extractors; extractors.SECONDS = 1;"
        begin += "extractors.limit_resources()\n"
        return run([command[0], "-c", begin + script], **options)

    monkeypatch.setattr(subprocess, "run", run_script)
    found = reading.run_extractor("text", path=tmp_path / "a", copy=tmp_path / "b")
    assert found == {"code": code}


def test_time_on_the_processor_is_limited_by_a_signal_of_its_own() -> None:
    script = "from chats.files import extractors; extractors.SECONDS = 1;"
    script += "extractors.limit_resources()\nwhile True: pass"
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert ended.returncode == -signal.SIGXCPU


def test_the_process_gets_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    run = subprocess.run

    def run_script(command: list[str], **options: Any) -> Any:
        script = "import json, os; print(json.dumps(sorted(os.environ)))"
        return run([command[0], "-c", script], **options)

    monkeypatch.setattr(subprocess, "run", run_script)
    names = json.dumps(reading.run_extractor("text", path=tmp_path / "a", copy=tmp_path / "b"))
    assert "PYTHONPATH" in names
    assert "SECRET_KEY" not in names


def test_a_second_worker_does_nothing_and_a_late_one_stores_nothing(
    read: Read, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = upload(b"some words").json()
    first = reading.claim_file(told["id"])
    assert first is not None
    assert reading.claim_file(told["id"]) is None
    # The lease of the first ends; another worker reads the file.
    past = timezone.now() - timedelta(seconds=1)
    StoredFile.objects.filter(pk=told["id"]).update(lease_until=past)
    read_like_a_worker(told["id"])
    values, chunks = reading.read_content(first, counter=ApproximateCounter())
    with pytest.raises(LeaseLost):
        reading.store_content(first, values=values, chunks=chunks)
    assert read_stored_text(told["id"]) == "some words"


def test_the_sweep_finds_files_of_dead_workers_until_they_failed_too_often(
    upload: Upload, of_alice: Program, sent: list[Any], settings: Settings
) -> None:
    own = upload(b"some words").json()["id"]
    later = timezone.now() + timedelta(minutes=1)
    for _ in range(settings.MAX_ATTEMPTS):
        sent.clear()
        with committed(execute=True):
            assert DUE_JOBS["unread_files"](later) == 1
        assert sent == [(queue.READ_FILE, {"file_id": own})]
        # The worker dies.
        assert reading.claim_file(own) is not None
        assert DUE_JOBS["unread_files"](later) == 0
        past = timezone.now() - timedelta(seconds=1)
        StoredFile.objects.filter(pk=own).update(lease_until=past)
    read_like_a_worker(own)
    told = of_alice.get(f"files/{own}").json()
    assert (told["state"], told["code"]) == ("failed", "worker_lost")
    # Another upload of the file is another try.
    assert upload(b"some words").json()["state"] == "pending"
    read_like_a_worker(own)
    assert of_alice.get(f"files/{own}").json()["state"] == "ready"
