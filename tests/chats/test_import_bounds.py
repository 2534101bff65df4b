"""Imports limit memory, archive entries and values, whatever the file declares."""

import io
import json
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

import pytest
from pytest_django.fixtures import Settings

from benchmarks.imports import write_export
from chats.exchange import bounds, importing
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken

MIB = 1024 * 1024


def drafts_of(file: IO[bytes]) -> Iterator[ChatDraft | NotTaken]:
    """Return the chats of a file, read one at a time."""
    with ExitStack() as kept:
        source = importing.read_import_file(file, kept=kept)
        for read in source.behind(0, (0, 0)):
            yield read.draft


def peak(file: IO[bytes]) -> tuple[int, int]:
    """Return the chats of a file, and the peak memory in bytes while reading them."""
    tracemalloc.start()
    try:
        chats = sum(1 for draft in drafts_of(file) if isinstance(draft, ChatDraft))
        return chats, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_export_is_read_chat_by_chat() -> None:
    with tempfile.TemporaryFile() as file:
        write_export(file, chats=40, messages=2, megabytes=12)
        chats, memory = peak(file)
    assert chats == 40
    assert memory < 5 * MIB


def test_a_large_archive_is_read_chat_by_chat() -> None:
    held = io.BytesIO()
    with tempfile.TemporaryFile() as file, zipfile.ZipFile(held, "w") as archive:
        write_export(file, chats=20, messages=2, megabytes=8)
        archive.writestr("conversations.json", file.read())
    chats, memory = peak(held)
    assert (chats, memory < 5 * MIB) == (20, True)


def test_a_chat_above_its_limit_is_reported_and_holds_up_no_other(settings: Settings) -> None:
    settings.IMPORT_CHAT_BYTES = 100_000
    listed = [
        {"uuid": f"c{place}", "chat_messages": [{"uuid": "m", "sender": "human", "text": text}]}
        for place, text in enumerate(["One", "x" * 2_000_000, "Three"])
    ]
    found = list(drafts_of(io.BytesIO(json.dumps(listed).encode())))
    assert [isinstance(draft, ChatDraft) for draft in found] == [True, False, True]
    assert isinstance(found[1], NotTaken)
    assert found[1].code == "import_too_large"


@pytest.mark.parametrize("value", ["{}", "[]", "1", '{"role":"user","content":"x"}'])
def test_a_document_of_countless_values_takes_little_memory(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINES", 2_000)
    file = io.BytesIO(b"[" + b",".join([value.encode()] * 20_000) + b"]")
    tracemalloc.start()
    try:
        with pytest.raises(ImportRefused):
            list(drafts_of(file))
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert memory < 2 * MIB


def test_countless_values_in_one_chat_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "VALUES", 50_000)
    inner = b"[" + b",".join([b"[]"] * 100_000) + b"]"
    chat = b'[{"uuid":"c","chat_messages":[{"uuid":"m","sender":"human","text":"x","content":%s}]}]'
    good = b'{"uuid":"d","chat_messages":[{"uuid":"m","sender":"human","text":"Hello"}]}]'
    found, other = drafts_of(io.BytesIO(chat[:-1] % inner + b"," + good))
    assert isinstance(found, NotTaken)
    assert isinstance(other, ChatDraft)
    assert found.code == "import_too_many"


def archive_of(entries: int) -> bytes:
    """Return an archive with this number of empty entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for number in range(entries):
            archive.writestr(f"e{number}.txt", b"")
    return held.getvalue()


def test_the_entries_of_an_archive_are_counted_themselves(settings: Settings) -> None:
    settings.IMPORT_ENTRIES = 100
    good = archive_of(200)
    end = bytearray(good[-22:])
    # The end record has an invalid disk field and declares one entry instead of 200.
    end[4:8] = b"PK\x05\x06"
    end[8:12] = struct.pack("<2H", 1, 1)
    hidden = good[:-22] + bytes(end)
    few = bytearray(good)
    few[-14:-10] = struct.pack("<2H", 3, 3)
    for data in (good, hidden, bytes(few)):
        with pytest.raises(ImportRefused) as refused:
            bounds.open_archive(io.BytesIO(data))
        assert refused.value.code == "import_too_many"
    assert len(bounds.open_archive(io.BytesIO(archive_of(100))).namelist()) == 100


def test_a_comment_with_an_end_record_hides_no_entries(settings: Settings) -> None:
    settings.IMPORT_ENTRIES = 100
    data = bytearray(archive_of(200))
    comment = b"PK\x05\x06" + b"\1" * 18 + b"!"
    data[-2:] = struct.pack("<H", len(comment))
    with pytest.raises(ImportRefused):
        bounds.open_archive(io.BytesIO(bytes(data) + comment))


def test_a_list_of_entries_of_a_large_archive_is_counted_too(settings: Settings) -> None:
    settings.IMPORT_ENTRIES = 100
    data = archive_of(200)
    size = struct.unpack("<L", data[-10:-6])[0]
    at = len(data) - 22
    record = b"PK\x06\x06" + struct.pack("<Q4x2L4Q", 44, 0, 0, 200, 200, size, at - size)
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, at, 1)
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ImportRefused) as refused:
        bounds.check_entry_count(io.BytesIO(data[:at] + record + locator + end))
    assert refused.value.code == "import_too_many"
