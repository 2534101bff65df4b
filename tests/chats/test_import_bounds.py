"""Imports limit memory, archive entries and values, whatever the file declares."""

import io
import json
import struct
import tempfile
import tracemalloc
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

import pytest
from pytest_django.fixtures import Settings

from benchmarks.imports import write_export
from chats.exchange import bounds, everything, importing, jsonstream
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


def write_sessions(*, number: int) -> IO[bytes]:
    """Return an archive of sessions of Codex, each with a message of 1 MiB."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for session in range(number):
            content = [{"type": "input_text", "text": f"{session}".ljust(MIB, "x")}]
            item = {"type": "message", "role": "user", "content": content}
            lines = [
                {"type": "session_meta", "payload": {"id": f"s{session}"}},
                {"type": "response_item", "payload": item},
            ]
            archive.writestr(f"{session:02}.jsonl", "\n".join(map(json.dumps, lines)))
    return held


def test_the_sessions_of_an_archive_are_read_one_by_one() -> None:
    chats, memory = peak(write_sessions(number=24))
    assert (chats, memory < 12 * MIB) == (24, True)


def test_sessions_that_were_scanned_before_are_read_when_they_are_needed() -> None:
    file = write_sessions(number=3)
    outline: dict[str, Any] = {}
    with ExitStack() as kept:
        importing.read_import_file(file, kept=kept, outline=outline)
        # As in the database between two tasks.
        outline = json.loads(json.dumps(outline))
        source = importing.read_import_file(file, kept=kept, outline=outline)
        (read,) = source.behind(2, (1, 0))
    assert isinstance(read.draft, ChatDraft)
    assert (source.form, source.total, read.form, read.draft.source) == ("codex", 3, "codex", "s2")


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


def write_bundle(messages: list[dict[str, object]], **metadata: object) -> IO[bytes]:
    """Return a bundle with a summary of these messages, and one message with this metadata."""
    summary = {"id": "s", "role": "assistant", "parts": [{"type": "text", "text": "Both."}]}
    last = {**ui_message("last", "And now?"), "metadata": metadata}
    lines = [{**summary, "metadata": {"kind": "summary"}}, last]
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("history.jsonl", "\n".join(map(json.dumps, lines)))
        archive.writestr("meta.json", json.dumps({"version": 1, "chatId": "c"}))
        archive.writestr("archive/1-1-2.json", json.dumps(messages))
    return held


def ui_message(own: str, text: str) -> dict[str, object]:
    return {"id": own, "role": "user", "parts": [{"type": "text", "text": text}]}


# A document above 2 MiB, in which values above 64 KiB are parsed on access.
LONG = "x" * (jsonstream.LARGE + 1)
FILL = "y" * jsonstream.WHOLE
BODIES: dict[str, object] = {
    "ui": {"messages": [ui_message("a", FILL), ui_message("b", LONG)]},
    "plain": {"messages": [{"role": "user", "content": FILL}, {"role": "user", "content": LONG}]},
    "claude": {
        "uuid": "c",
        "chat_messages": [
            {"uuid": "a", "sender": "human", "text": FILL},
            {
                "uuid": "b",
                "sender": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t", "name": "draw", "input": {"text": LONG}},
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"found": LONG}]},
                ],
            },
        ],
    },
    "librechat": {
        "conversationId": "c",
        "messages": [
            {"messageId": "a", "isCreatedByUser": True, "text": FILL},
            {
                "messageId": "b",
                "parentMessageId": "a",
                "content": [
                    {"type": "tool_call", "tool_call": {"name": "draw", "output": {"text": LONG}}}
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("form", BODIES)
def test_long_values_of_a_large_document_are_complete(form: str) -> None:
    (draft,) = drafts_of(io.BytesIO(json.dumps(BODIES[form]).encode()))
    assert isinstance(draft, ChatDraft)
    assert (draft.losses, draft.lost, len(draft.nodes)) == ((), 0, 2)
    for text, node in zip((FILL, LONG), draft.nodes, strict=True):
        assert text in repr(tuple(node.parts))


def test_a_bundle_with_long_messages_is_read_completely() -> None:
    (draft,) = drafts_of(write_bundle([ui_message("a", FILL), ui_message("b", LONG)]))
    assert isinstance(draft, ChatDraft)
    assert [node.id for node in draft.nodes] == ["a", "b", "last"]


def test_a_long_system_text_in_a_long_list_of_chats_is_complete() -> None:
    chat = {"id": str(uuid.UUID(int=1)), "file": "chats/a.jsonl", "title": "A"}
    account = {"chats": [{**chat, "system_text": LONG}, {**chat, "system_text": FILL}]}
    with zipfile.ZipFile(io.BytesIO(), "w") as archive:
        archive.writestr("account.json", json.dumps(account))
        listed = everything.read_chat_list(archive)
    assert [chat.system_text for chat in listed] == [LONG, FILL]


@pytest.mark.parametrize("metadata", [{}, {"parentId": "a"}, {"parentId": None}])
def test_a_summary_covers_only_the_messages_that_it_summarises(metadata: dict[str, object]) -> None:
    """Otherwise, it would cover the messages at the same positions of another branch."""
    messages = [ui_message("a", "One?"), ui_message("b", "Two.")]
    (draft,) = drafts_of(write_bundle(messages, **metadata))
    assert isinstance(draft, ChatDraft)
    is_left_out = draft.losses == ("summary_left_out:not_on_path",)
    assert (draft.summary is None, is_left_out) == (bool(metadata), bool(metadata))
    assert len(draft.nodes) == 3
