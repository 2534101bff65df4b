"""Export and import of chats over REST: UI messages, bundles, documents, refusals."""

import base64
import hashlib
import io
import json
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from chats.actions import branching, erasure
from chats.exchange import bounds, jsonstream
from chats.models import (
    Branch,
    Chat,
    Compaction,
    FileImport,
    FilePiece,
    ImportedChat,
    Message,
    MessageImage,
)
from chats.prompt.stored_messages import MATCHED
from contextpolicy.engine.messages.images import Image, parse_image_reference
from contextpolicy.engine.messages.messages import FilePart, serialize_parts
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.bringing import bring, brought, refused, send
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.chat_messages import activate_compaction, fill_with_every_kind
from tests.support.exchange_files import (
    PNG,
    PNG_HASH,
    build_ui_message,
    export_chat,
    join_json_lines,
    read_body,
    zip_entries,
)

pytestmark = pytest.mark.usefixtures("streams")

CALL = [
    {"type": "reasoning", "text": "hm"},
    {"type": "tool-look_up", "toolCallId": "c1", "state": "output-available", "input": {"of": 1}},
]


@pytest.fixture
def told(chat: Chat, now: datetime) -> Chat:
    """A chat of 20 messages with tools, a pin, an exclusion, and a summary of the first eight."""
    branch = fill_with_every_kind(chat, 20, now=now)
    activate_compaction(branch, 8, now=now, exceptions=[3])
    return Chat.objects.get(pk=chat.pk)


@pytest.mark.requirement("S4.1", by="integrator")
def test_S4_1_a_chat_is_a_list_of_ui_messages_with_the_summary_in_it(
    told: Chat, of_alice: Program
) -> None:
    listed = [json.loads(line) for line in export_chat(of_alice, told.pk).splitlines()]
    summary, kept = listed[0], listed[1:]
    rows = list(Message.objects.order_by("seq"))
    assert summary["role"] == "assistant"
    assert summary["parts"][0]["text"].startswith("## Facts")
    assert summary["metadata"]["kind"] == "summary"
    assert summary["metadata"]["sourceRange"] == {
        "fromId": str(rows[0].pk),
        "toId": str(rows[7].pk),
        "count": 8,
    }
    # The pinned exception is listed separately.
    assert [m["id"] for m in kept] == [
        str(row.pk) for row in rows if row.seq == 3 or (row.seq or 0) > 8
    ]
    assert {m["role"] for m in listed} == {"user", "assistant"}
    tool = next(m for m in kept if m["parts"][0]["type"] == "tool-look_up" or len(m["parts"]) > 1)
    assert tool["parts"][0]["state"] == "output-available"
    known = kept[0]["metadata"]
    assert known["chatId"] == str(told.pk)
    assert (known["username"], known["channel"], known["kind"]) == ("alice", "palimpsest", "normal")
    assert known["ts"] == int(rows[2].created_at.timestamp() * 1000)
    event = AuditEvent.objects.get(type="chat.exported")
    assert event.data == {"form": "ui", "scope": "active"}


@pytest.mark.requirement("S4.8", by="integrator")
@pytest.mark.parametrize("scope", ["active", "full", "all"])
def test_S4_8_out_in_and_out_again_is_the_same_to_the_byte(
    scope: str, told: Chat, alice: User, of_alice: Program, now: datetime
) -> None:
    third = Message.objects.get(branch__chat=told, seq=13)
    branching.branch_from_message(user=alice, message=third, now=now)
    branch = Branch.objects.filter(chat=told).exclude(parent=None).get()
    Message.objects.create(
        branch=branch,
        seq=14,
        accepted=21,
        role="user",
        parts=[{"type": "text", "text": "Another way"}],
        created_at=now,
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=14)
    first = export_chat(of_alice, told.pk, scope=scope)
    made = brought(of_alice, first)
    again = export_chat(of_alice, made["chat"], scope=scope)
    assert again == first
    assert made["chat"] != str(told.pk)
    ids = {json.loads(line)["id"] for line in first.splitlines()}
    new = set(Message.objects.filter(branch__chat=made["chat"]).values_list("pk", flat=True))
    assert made["messages"] == len(ids) == len(new)
    assert not ids & {str(pk) for pk in new}
    assert Branch.objects.filter(chat=made["chat"]).count() == (2 if scope == "all" else 1)
    if scope == "all":
        shown = Chat.objects.get(pk=made["chat"]).active_branch
        assert shown is not None
        assert shown.last_seq == 14


@pytest.mark.requirement("S4.8", by="integrator")
def test_S4_8_a_bundle_comes_back_with_its_summary_in_force(
    told: Chat, of_alice: Program, with_summaries: None
) -> None:
    Chat.objects.filter(pk=told.pk).update(title="Eva", system_text="Be kind.")
    first = export_chat(of_alice, told.pk, form="bundle")
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
        meta = json.loads(archive.read("meta.json"))
        archived = json.loads(archive.read(names[2]))
    assert names[:2] == ["history.jsonl", "meta.json"]
    assert names[2].startswith("archive/")
    assert names[2].endswith("-1-8.json")
    assert (meta["version"], meta["title"], meta["cursor"]["count"]) == (1, "Eva", 8)
    assert len(archived) == 8
    made = brought(of_alice, first)
    assert (made["messages"], made["losses"]) == (20, [])
    assert export_chat(of_alice, made["chat"], form="bundle") == first
    row = Compaction.objects.get(branch__chat=made["chat"])
    assert (row.status, row.from_seq, row.to_seq, row.exceptions) == ("published", 1, 8, [3])
    context = of_alice.get(f"chats/{made['chat']}/context", form="text").json()
    assert "Conversation (summary):\n## Facts" in context["text"]
    assert Chat.objects.get(pk=made["chat"]).system_text == "Be kind."


def test_a_bundle_with_large_archived_messages_comes_back(
    told: Chat, of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export_chat(of_alice, told.pk, form="bundle")
    monkeypatch.setattr(jsonstream, "WHOLE", 64)
    monkeypatch.setattr(jsonstream, "LARGE", 16)
    made = brought(of_alice, first)
    assert (made["messages"], made["losses"]) == (20, [])


def test_S21_the_same_file_again_adds_nothing(told: Chat, of_alice: Program) -> None:
    data = export_chat(of_alice, told.pk, scope="full")
    made = brought(of_alice, data)
    before = Message.objects.count()
    again = bring(of_alice, data)
    assert (again.row["added"], again.row["were_here"], again.row["messages"]) == (0, 1, 0)
    assert again.chats == [{**made, "messages": 0, "was_here": True}]
    assert (again.row["messages_imported"], again.row["grown"]) == (made["messages"], 0)
    assert Message.objects.count() == before
    assert AuditEvent.objects.filter(type="chat.imported").count() == 1


def test_what_a_chat_was_is_kept(told: Chat, of_alice: Program) -> None:
    made = brought(of_alice, export_chat(of_alice, told.pk, scope="full"))
    rows = Message.objects.filter(branch__chat=made["chat"])
    old = Message.objects.filter(branch__chat=told)
    fields = ("seq", "role", "parts", "excluded", "finish", "created_at")
    assert list(rows.order_by("seq").values(*fields)) == list(old.order_by("seq").values(*fields))
    assert [row.seq for row in rows.filter(pinned_at__isnull=False).order_by("seq")] == [3, 13]
    assert not rows.filter(token_count=None).exists()
    assert ImportedChat.objects.get().source_id == str(told.pk)


META = b'{"version": 1}'
GOOD = join_json_lines(build_ui_message("a", "Hello"))
DEEP = b'{"id":"a","role":"user","parts":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "import_empty"),
    "blank": (b"\n\n", "import_empty"),
    "no JSON": (b'{"id": \n', "import_malformed"),
    "no UTF-8": (b'{"id": "\xff"}\n', "import_malformed"),
    "cut": (join_json_lines(build_ui_message("a", "x"))[:-20], "import_malformed"),
    "NaN": (b'{"id":"a","role":"user","parts":[],"metadata":{"x":NaN}}', "import_malformed"),
    "system": (join_json_lines({"id": "a", "role": "system", "parts": []}), "import_malformed"),
    "twice": (
        join_json_lines(build_ui_message("a", "x"), build_ui_message("a", "y")),
        "import_malformed",
    ),
    "NUL": (join_json_lines(build_ui_message("a", "x\0")), "import_malformed"),
    "unknown parent": (
        join_json_lines(build_ui_message("a", "x", parentId="z")),
        "import_malformed",
    ),
    "later parent": (
        join_json_lines(build_ui_message("a", "x", parentId="b"), build_ui_message("b", "y")),
        "import_malformed",
    ),
    "error at its end": (GOOD + b'{"error": {"code": "list_cut"}}\n', "import_malformed"),
    "deep": (DEEP, "import_too_deep"),
    "deep document": (b"[" * 100_000, "import_too_deep"),
    "another document": (b'[{"name": "x"}]', "import_unknown_form"),
    "no archive": (b"PK\x03\x04 but nothing else", "import_bad_archive"),
    "another archive": (zip_entries(readme_dot_txt=b"x"), "import_unknown_form"),
    "no meta": (zip_entries(history_dot_jsonl=GOOD), "import_bad_archive"),
    "stranger": (
        zip_entries(history_dot_jsonl=GOOD, meta_dot_json=META, other=b"x"),
        "import_bad_archive",
    ),
    "traversal": (
        zip_entries(history_dot_jsonl=GOOD, meta_dot_json=META, **{"../x": b"x"}),
        "import_bad_archive",
    ),
    "bomb": (
        zip_entries(history_dot_jsonl=b" " * 30_000_000, meta_dot_json=META),
        "import_bad_archive",
    ),
    "another version": (
        zip_entries(history_dot_jsonl=GOOD, meta_dot_json=b'{"version": 2}'),
        "import_malformed",
    ),
    "many entries": (
        zip_entries(**{f"e{number}": b"" for number in range(20_001)}),
        "import_too_many",
    ),
}


@pytest.mark.parametrize("name", ["nothing", "bomb", "traversal", "many entries", "no archive"])
def test_S21_what_no_word_has_to_be_read_for_is_refused_at_once(
    name: str, of_alice: Program
) -> None:
    data, code = REFUSED[name]
    answer = send(of_alice, data)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (422, code, "file")
    assert not FileImport.objects.exists()


@pytest.mark.parametrize("name", list(REFUSED))
def test_S21_a_hostile_file_is_refused_with_a_sentence_and_leaves_nothing(
    name: str, of_alice: Program
) -> None:
    data, code = REFUSED[name]
    told, sentence = refused(of_alice, data)
    assert told == code
    assert sentence.endswith((".", ". "))
    assert not Chat.objects.exists()
    assert not FilePiece.objects.exists()
    assert not AuditEvent.objects.filter(type="chat.imported").exists()


def test_S21_limits_are_refused_whole(
    of_alice: Program, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code(data: bytes) -> str:
        return refused(of_alice, data)[0]

    three = join_json_lines(
        build_ui_message("a", "x"),
        build_ui_message("b", "y", "assistant"),
        build_ui_message("c", "z"),
    )
    monkeypatch.setattr(bounds, "LINES", 2)
    assert code(three) == "import_too_many"
    monkeypatch.setattr(bounds, "LINES", 3)
    settings.MESSAGES_PER_CHAT = 2
    assert code(three) == "chat_full"
    monkeypatch.setattr(bounds, "LINE_BYTES", 200)
    assert (
        code(join_json_lines(build_ui_message("a", "x"), build_ui_message("b", "y" * 200)))
        == "import_too_large"
    )
    settings.IMPORT_FILE_BYTES = 30
    assert code(three) == "request_too_large"
    settings.CHATS_PER_USER = 0
    monkeypatch.undo()
    settings.IMPORT_FILE_BYTES = 10_000
    settings.MESSAGES_PER_CHAT = 200
    assert code(three) == "too_many_chats"
    assert not Chat.objects.exists()


def test_S22_nobody_exports_what_is_somebody_elses(
    told: Chat, of_charlie: Program, program: Callable[..., Program], alice: User
) -> None:
    assert of_charlie.get(f"chats/{told.pk}/export").status_code == 404
    reader = program(alice, scopes=("chats:read",))
    assert send(reader, GOOD).status_code == 403


@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_S22_a_chat_is_read_as_a_document(
    form: str, chat: Chat, of_alice: Program, now: datetime
) -> None:
    branch = fill_with_every_kind(chat, 12, now=now)
    first = Message.objects.get(branch=branch, seq=1)
    first.parts = [{"type": "text", "text": "See <script>alert(1)</script> **this**"}]
    first.save()
    answer = of_alice.get(f"chats/{chat.pk}/export", form=form)
    assert "attachment" in answer["Content-Disposition"]
    text = read_body(answer).decode()
    assert "Message 2 asks for Eva" in text
    assert "look_up" in text
    if form == "html":
        assert "<script" not in text
        assert "<strong>this</strong>" in text
        assert "default-src 'none'" in text
        assert "src=" not in text.replace("default-src=", "")
        assert "href=" not in text
    if form == "json":
        assert len(json.loads(text)["messages"]) == 12


ENTRY = f"images/{PNG_HASH}.png"


@pytest.fixture
def pictured(chat: Chat, now: datetime) -> Chat:
    """A chat whose first and third messages have the same image."""
    Chat.objects.filter(pk=chat.pk).update(title="Pictures")
    branch = fill_with_every_kind(chat, 12, now=now)
    image = Image(1000, "low", sha256=PNG_HASH, size=len(PNG))
    for seq in (1, 3):
        row = Message.objects.get(branch=branch, seq=seq)
        row.parts = [{"type": "text", "text": "This:"}, *serialize_parts([part_of(image)])]
        row.save()
        MessageImage.objects.create(message=row, sha256=PNG_HASH, media_type="image/png", data=PNG)
    return chat


def test_messages_as_lines_name_an_image_by_its_hash(pictured: Chat, of_alice: Program) -> None:
    written = export_chat(of_alice, pictured.pk)
    made = brought(of_alice, written)
    row = Message.objects.get(branch__chat=made["chat"], seq=1)
    assert row.parts == Message.objects.get(branch__chat=pictured, seq=1).parts
    assert (b"the picture" in written, row.images.exists()) == (False, False)
    assert export_chat(of_alice, made["chat"]) == written
    # Without the image data, the model gets a text line in its place. Exports show the same line.
    context = of_alice.get(f"chats/{made['chat']}/context", form="text").json()
    told = f"Image: image/png, {len(PNG)} bytes"
    assert f"[{told}]" in context["text"]
    assert told in read_body(of_alice.get(f"chats/{pictured.pk}/export", form="markdown")).decode()


def test_a_bundle_takes_images_out_and_in_again(pictured: Chat, of_alice: Program) -> None:
    written = export_chat(of_alice, pictured.pk, form="bundle")
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        assert archive.namelist() == ["history.jsonl", "meta.json", ENTRY]
        assert archive.read(ENTRY) == PNG
    made = brought(of_alice, written)
    assert made["losses"] == []
    rows = MessageImage.objects.filter(message__branch__chat=made["chat"])
    assert [(row.sha256, row.media_type, bytes(row.data)) for row in rows] == [
        (PNG_HASH, "image/png", PNG)
    ] * 2
    assert export_chat(of_alice, made["chat"], form="bundle") == written


def test_a_bundle_may_have_thousands_of_images(of_alice: Program) -> None:
    pictures = [PNG + str(number).encode() for number in range(1_100)]
    hashes = [hashlib.sha256(data).hexdigest() for data in pictures]
    parts = [
        {"type": "file", "mediaType": "image/png", "url": part_of(Image(1, sha256=one)).reference}
        for one in hashes
    ]
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(
            "history.jsonl", join_json_lines({"id": "a", "role": "user", "parts": parts})
        )
        archive.writestr("meta.json", META)
        for one, data in zip(hashes, pictures, strict=True):
            archive.writestr(f"images/{one}.png", data)
    made = brought(of_alice, held.getvalue())
    assert made["losses"] == []
    assert MessageImage.objects.filter(message__branch__chat=made["chat"]).count() == 1_100


@pytest.mark.parametrize("has_bytes", [True, False])
@pytest.mark.parametrize(
    ("claimed", "name", "expected", "pixels"),
    [
        (Image(1, sha256=PNG_HASH, size=1), "", 1_000, ""),
        (Image(999_999, "low", sha256=PNG_HASH, size=1), "", 1_000, ""),
        (Image(0, url="https://example.com/a.png"), "", 1_000, ""),
        (Image(1, sha256=PNG_HASH, size=1, line=2), "a.png", 1_000, "0x0"),
        (Image(1, sha256=PNG_HASH, size=1, line=2, width=1, height=1), "a.png", 1_706, "1600x800"),
        (
            Image(1, sha256=PNG_HASH, size=1, line=2, width=99_999, height=99_999),
            "a.png",
            1_706,
            "1600x800",
        ),
    ],
)
def test_an_import_counts_the_tokens_of_images_itself(
    has_bytes: bool, claimed: Image, name: str, expected: int, pixels: str, of_alice: Program
) -> None:
    data = make_png(1_600, 800)
    claimed = replace(claimed, sha256=claimed.sha256 and hashlib.sha256(data).hexdigest())
    part = {"type": "file", "mediaType": "image/png", "filename": name, "url": claimed.reference}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(
            "history.jsonl", join_json_lines({"id": "a", "role": "user", "parts": [part]})
        )
        archive.writestr("meta.json", META)
        if has_bytes and claimed.sha256:
            archive.writestr(f"images/{claimed.sha256}.png", data)
    made = brought(of_alice, held.getvalue())
    row = Message.objects.get(branch__chat=made["chat"])
    image = parse_image_reference(row.parts[0]["reference"])
    assert image is not None
    if not has_bytes and claimed.width:
        # Only the limit of copies is known.
        side = min(claimed.width, 2_048)
        expected, pixels = max(side * side // 750, 90), f"{side}x{side}"
    assert image.tokens == expected
    assert pixels in row.parts[0]["reference"]
    assert not (has_bytes and claimed.sha256) or image.size == len(data)
    assert row.token_count is not None
    assert row.token_count >= expected


def with_entries(bundle: bytes, **entries: bytes) -> bytes:
    """Replace the image of a bundle with other entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(bundle)) as old, zipfile.ZipFile(held, "w") as new:
        for name in ("history.jsonl", "meta.json"):
            new.writestr(name, old.read(name))
        for name, data in entries.items():
            new.writestr(name, data)
    return held.getvalue()


@pytest.mark.parametrize("why", ["other bytes", "no image", "no message", "too large"])
def test_an_image_that_is_not_what_it_says_stays_out(
    why: str, pictured: Chat, of_alice: Program, settings: Settings
) -> None:
    words = b"<script>alert(1)</script>"
    false = {
        "other bytes": (ENTRY, PNG + b"more"),
        "no image": (f"images/{hashlib.sha256(words).hexdigest()}.png", words),
        "no message": (f"images/{'0' * 64}.png", PNG),
        "too large": (ENTRY, PNG),
    }
    if why == "too large":
        settings.GATEWAY_IMAGE_BYTES = len(PNG) - 1
    bundle = export_chat(of_alice, pictured.pk, form="bundle")
    if why == "no image":
        Message.objects.filter(branch__chat=pictured, seq=1).update(
            parts=serialize_parts(
                [part_of(Image(1, sha256=hashlib.sha256(words).hexdigest(), size=len(words)))]
            )
        )
        bundle = export_chat(of_alice, pictured.pk, form="bundle")
    name, data = false[why]
    made = brought(of_alice, with_entries(bundle, **{name: data}))
    assert made["losses"] == [f"image_dropped:{name[7:19]}"]
    assert not MessageImage.objects.filter(message__branch__chat=made["chat"]).exists()


def test_an_erased_image_goes_out_no_more(
    pictured: Chat, alice: User, of_alice: Program, now: datetime
) -> None:
    for seq in (1, 3):
        row = Message.objects.get(branch__chat=pictured, seq=seq)
        erasure.erase_message(user=alice, message=row, now=now)
    assert PNG not in export_chat(of_alice, pictured.pk, form="bundle")
    assert b"<img" not in export_chat(of_alice, pictured.pk, form="html")


def test_a_page_has_its_images_in_it(pictured: Chat, of_alice: Program) -> None:
    html = export_chat(of_alice, pictured.pk, form="html").decode()
    assert html.count(f'src="data:image/png;base64,{base64.b64encode(PNG).decode()}"') == 2
    assert "img-src data:" in html


@pytest.mark.parametrize("form", ["ui", "markdown", "json", "html"])
def test_the_archive_of_everything_has_each_image_once(
    form: str, pictured: Chat, of_alice: Program
) -> None:
    with zipfile.ZipFile(io.BytesIO(read_body(of_alice.get("export", form=form)))) as archive:
        names = archive.namelist()
        (chat,) = [name for name in names if name.startswith("chats/")]
        text = archive.read(chat).decode()
    assert (names.count(ENTRY), "data:image" in text) == (
        (0, True) if form == "html" else (1, False)
    )
    assert (f"![Image](../{ENTRY})" in text) == (form == "markdown")


def part_of(image: Image) -> FilePart:
    """Return the image part of a message."""
    return FilePart("image/png", "", image.reference)


def test_everything_of_a_person_is_one_archive(
    told: Chat, of_alice: Program, of_charlie: Program
) -> None:
    with zipfile.ZipFile(io.BytesIO(read_body(of_alice.get("export")))) as archive:
        account = json.loads(archive.read("account.json"))
        (chat,) = account["chats"]
        history = archive.read(chat["file"])
    assert (account["name"], chat["id"]) == ("alice", str(told.pk))
    assert "plm_" not in json.dumps(account).replace(account["api_keys"][0]["prefix"], "")
    assert history == export_chat(of_alice, told.pk, scope="all")
    with zipfile.ZipFile(io.BytesIO(read_body(of_charlie.get("export")))) as archive:
        assert archive.namelist() == ["memory.json", "account.json"]


def test_an_imported_summary_is_witnessed_and_all_goes_with_the_chat(
    told: Chat, alice: User, of_alice: Program, with_summaries: None
) -> None:
    made = brought(of_alice, export_chat(of_alice, told.pk, form="bundle"))
    # The original chat was inserted directly, without events.
    call_command("ledger_verify", scope=f"chat:{made['chat']}")
    first = Message.objects.get(branch__chat=made["chat"], seq=9)
    assert of_alice.post(f"chats/{made['chat']}/messages/{first.pk}/erase", {}).status_code == 200
    first.refresh_from_db()
    assert (first.parts, list(first.metadata)) == ([], ["erasedId"])
    data = export_chat(of_alice, made["chat"], scope="full")
    assert b"Message 9 tells" not in data
    again = json.loads(data.splitlines()[8])
    assert again["parts"] == [{"type": "text", "text": ""}]
    assert again["metadata"]["erased"] is True
    assert of_alice.post(f"chats/{made['chat']}/erase", {}).status_code == 200
    assert not ImportedChat.objects.exists()
    # The original chat was inserted directly, without events.
    call_command("ledger_verify", scope=f"chat:{made['chat']}")


def test_a_policy_that_keeps_summaries_to_itself_gets_none_from_a_file(
    told: Chat, of_alice: Program, now: datetime
) -> None:
    values = {"strategy": "dynamic_summary", "turn_threshold": None, "edit_right": "nobody"}
    made = create_policy(slug="q", name="Q", values=values, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)
    chat = brought(of_alice, export_chat(of_alice, told.pk, form="bundle"))
    assert chat["losses"] == ["summary_left_out:not_allowed_by_policy"]
    assert not Compaction.objects.filter(branch__chat=chat["chat"]).exists()
    assert Message.objects.filter(branch__chat=chat["chat"]).count() == 20


def verify_chat(chat_id: object) -> str:
    """Return the output of `ledger_verify` for a chat. A break raises CommandError."""
    out = io.StringIO()
    call_command("ledger_verify", scope=f"chat:{chat_id}", stdout=out)
    return out.getvalue()


@pytest.mark.tampers
@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("how", ["changed", "removed", "emptied", "added", "without seals"])
def test_a_message_of_an_import_that_is_changed_by_sql_is_found(
    of_alice: Program, now: datetime, count: int, how: str
) -> None:
    said = [
        build_ui_message(f"m{n}", f"Message {n}", "user" if n % 2 else "assistant")
        for n in range(count)
    ]
    chat = brought(of_alice, join_json_lines(*said))["chat"]
    assert f"{MATCHED}: {count}" in verify_chat(chat)
    rows = Message.objects.filter(branch__chat=chat)
    second = rows.get(seq=2)
    if how == "changed":
        rows.filter(seq=2).update(parts=[{"type": "text", "text": "Another"}])
    elif how == "removed":
        rows.filter(seq=2).delete()
    elif how == "emptied":
        rows.filter(seq=2).update(parts=[], salt="", erased_at=now)
    elif how == "added" and count > 20:
        second.pk, second.seq = uuid.uuid4(), count + 1
        Branch.objects.filter(chat=chat).update(last_seq=count + 1)
        rows.filter(seq=3).update(accepted=count + 1)
        second.accepted = 3
        second.save(force_insert=True)
    else:
        rows.update(salt="", commitment="")
    with pytest.raises(CommandError):
        verify_chat(chat)


def test_an_erased_message_of_an_import_and_an_extension_stay_accepted(of_alice: Program) -> None:
    said = [
        build_ui_message(f"m{n}", f"Message {n}", "user" if n % 2 else "assistant")
        for n in range(60)
    ]
    chat = brought(of_alice, join_json_lines(*said[:30]))["chat"]
    assert bring(of_alice, join_json_lines(*said)).row["grown"] == 1
    assert f"{MATCHED}: 60" in verify_chat(chat)
    for seq in (7, 50):
        row = Message.objects.get(branch__chat=chat, seq=seq)
        assert of_alice.post(f"chats/{chat}/messages/{row.pk}/erase", {}).status_code == 200
    assert f"{MATCHED}: 58" in verify_chat(chat)
