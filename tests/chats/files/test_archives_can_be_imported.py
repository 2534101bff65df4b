"""The archive of a person's data stays complete during changes, and can be imported again."""

import io
import json
import posixpath
import struct
import uuid
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions import deletion, erasure, lifecycle
from chats.exchange import bounds, pictures, whole, writing
from chats.exchange.drafts import ImportRefused
from chats.models import Branch, Chat, Message, MessageImage, StoredFile, Turn
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import FilePart, serialize_parts
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.support.chat_messages import fill_with_every_kind
from tests.support.exchange_files import (
    PNG,
    PNG_HASH,
    build_ui_message,
    export_account,
    join_json_lines,
)
from tests.support.file_uploads import Read

pytestmark = pytest.mark.usefixtures("streams")
Work = Callable[..., Any]
# Compresses about 1000 to one.
UNIFORM = b"a" * (2 * bounds.MIB)


@pytest.fixture
def three(alice: User, now: datetime) -> list[Chat]:
    """Three chats of Alice with messages."""
    made = [lifecycle.create_chat(owner=alice, now=now, title=name) for name in "ABC"]
    for one in made:
        fill_with_every_kind(one, 4, now=now)
    return list(Chat.objects.order_by("created_at", "pk"))


def interfere(monkeypatch: pytest.MonkeyPatch, *, at: Chat, change: Callable[[], Any]) -> None:
    """Run a change once, when the export begins to write this chat."""
    done: list[Any] = []

    class Interfered(writing.Writer):
        def __init__(self, chat: Chat, *, scope: writing.Scope) -> None:
            if chat.pk == at.pk and not done:
                done.append(change())
            super().__init__(chat, scope=scope)

    monkeypatch.setattr(whole, "Writer", Interfered)


def list_titles(archive: bytes) -> tuple[list[str], list[str]]:
    """Return the titles of the live and of the deleted chats, after checking their entries."""
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        account = json.loads(held.read("account.json"))
        names = [row["file"] for row in account["chats"] + account["deleted_chats"]]
        entries = [n for n in held.namelist() if n.endswith(".jsonl")]
        assert sorted(names) == sorted(entries)
        assert all(held.read(name) for name in names)
    live, deleted = ([row["title"] for row in account[k]] for k in ("chats", "deleted_chats"))
    return live, deleted


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_chat_that_is_erased_during_an_export_is_skipped(
    three: list[Chat],
    alice: User,
    of_alice: Program,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
) -> None:
    def erase() -> None:
        erasure.erase_chat(user=alice, chat=three[place], now=timezone.now())

    left = [chat.title for chat in three if chat != three[place]]
    interfere(monkeypatch, at=three[min(place, 1)], change=erase)
    assert list_titles(export_account(of_alice)) == (left, [])


@pytest.mark.parametrize("place", [1, 2])
def test_a_chat_that_is_deleted_during_an_export_is_there_once(
    three: list[Chat],
    of_alice: Program,
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
    place: int,
) -> None:
    def delete() -> None:
        deletion.delete_chat(chat=three[place], actor="system", now=now)

    gone = three[place].title
    interfere(monkeypatch, at=three[1], change=delete)
    left = [chat.title for chat in three if chat.title != gone]
    assert list_titles(export_account(of_alice)) == (left, [gone])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_chat_that_is_restored_during_an_export_is_there_once(
    three: list[Chat],
    of_alice: Program,
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
    place: int,
) -> None:
    deleted = deletion.delete_chat(chat=three[place], actor="system", now=now)

    def restore() -> None:
        deletion.restore_chat(chat=deleted, actor="system", now=now)

    interfere(monkeypatch, at=three[place and 1], change=restore)
    assert list_titles(export_account(of_alice)) == ([chat.title for chat in three], [])


def test_the_export_of_a_chat_that_is_erased_meanwhile_is_not_found(
    three: list[Chat], of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = writing.record_export

    def erase(chat: Chat, **more: Any) -> None:
        recorded(chat, **more)
        erasure.erase_chat(user=chat.owner, chat=chat, now=timezone.now())

    monkeypatch.setattr(writing, "record_export", erase)
    assert of_alice.get(f"chats/{three[0].pk}/export", form="html").status_code == 404


def test_a_branch_that_is_created_during_an_export_is_exported(
    three: list[Chat], now: datetime
) -> None:
    writer = writing.Writer(three[0], scope="all")
    main = writer.branch
    fork = type(main).objects.create(
        chat=three[0], parent=main, fork_seq=2, last_seq=3, created_at=now
    )
    parts = [{"type": "text", "text": "Other"}]
    Message.objects.create(branch=fork, seq=3, accepted=5, role="user", parts=parts, created_at=now)
    lines = [json.loads(line) for part in writer.lines() for line in part.splitlines()]
    second = Message.objects.get(branch=main, seq=2)
    (other,) = [line for line in lines if line["parts"] == parts]
    assert other["metadata"]["parentId"] == str(second.pk)


def test_an_unused_upload_of_one_character_does_not_block_an_import(
    three: list[Chat], of_alice: Program, of_charlie: Program, read: Read
) -> None:
    read(UNIFORM, "a.txt")
    found = bring(of_charlie, export_account(of_alice))
    assert (found.row["state"], found.row["added"], found.not_taken) == ("done", 3, [])
    assert not StoredFile.objects.filter(owner__username="charlie").exists()


def test_an_attached_file_of_one_character_can_be_imported(
    chat: Chat, of_alice: Program, of_charlie: Program, read: Read, work: Work
) -> None:
    own = [read(UNIFORM, "a.txt")["id"]]
    answer = of_alice.post(f"chats/{chat.pk}/messages", {"text": "What?", "files": own})
    work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    found = bring(of_charlie, export_account(of_alice))
    assert (found.row["state"], found.row["added"], found.not_taken) == ("done", 1, [])
    assert StoredFile.objects.get(owner__username="charlie").size == len(UNIFORM)


def test_a_chat_of_one_character_can_be_imported(
    three: list[Chat], of_alice: Program, of_charlie: Program
) -> None:
    parts = [{"type": "text", "text": "a" * 600_000}]
    Message.objects.filter(branch__chat=three[0]).update(parts=parts)
    written = export_account(of_alice)
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        (large,) = [entry for entry in held.infolist() if entry.file_size > bounds.MIB]
        assert large.compress_size == large.file_size
    found = bring(of_charlie, written)
    assert (found.row["state"], found.row["added"], found.not_taken) == ("done", 3, [])


def test_files_of_deleted_chats_are_kept_apart(
    chat: Chat,
    alice: User,
    of_alice: Program,
    of_charlie: Program,
    read: Read,
    work: Work,
    now: datetime,
    settings: Settings,
) -> None:
    own = [read(UNIFORM, "a.txt")["id"]]
    answer = of_alice.post(f"chats/{chat.pk}/messages", {"text": "What?", "files": own})
    work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    deletion.delete_chat(chat=chat, actor="system", now=now)
    left = lifecycle.create_chat(owner=alice, now=now, title="Here")
    fill_with_every_kind(left, 2, now=now)
    # One entry for the chat that is left, one for the list.
    settings.IMPORT_ENTRIES, settings.IMPORT_UNPACKED_BYTES = 2, bounds.MIB
    written = export_account(of_alice)
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        (file,) = json.loads(held.read("account.json"))["files"]
        assert file["file"] == f"deleted_chats/files/{file['sha256']}"
        assert held.read(file["file"]) == UNIFORM
    found = bring(of_charlie, written)
    assert (found.row["added"], [code for _, code in found.not_taken]) == (1, ["import_deleted"])


@pytest.mark.parametrize("is_deleted", [False, True])
def test_markdown_links_to_the_images_of_its_folder(
    three: list[Chat], of_alice: Program, now: datetime, is_deleted: bool
) -> None:
    message = Message.objects.get(branch__chat=three[1], seq=1)
    image = FilePart("image/png", "", Image(1000, "low", sha256=PNG_HASH, size=len(PNG)).reference)
    message.parts = serialize_parts([image])
    message.save()
    MessageImage.objects.create(message=message, sha256=PNG_HASH, media_type="image/png", data=PNG)
    if is_deleted:
        deletion.delete_chat(chat=three[1], actor="system", now=now)
    with zipfile.ZipFile(io.BytesIO(export_account(of_alice, form="markdown"))) as held:
        account = json.loads(held.read("account.json"))
        row = account["deleted_chats"][0] if is_deleted else account["chats"][1]
        link = held.read(row["file"]).decode().partition("![Image](")[2].partition(")")[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(row["file"]), link))
        assert held.read(target) == PNG
        assert target.startswith("deleted_chats/") == is_deleted


def build_archive(*entries: tuple[str, bytes]) -> io.BytesIO:
    """Return a compressed archive."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return held


def build_account(**entries: bytes) -> io.BytesIO:
    """Return an account archive with one chat and more entries. `__` stands for a slash."""
    listed = {"chats": [{"id": str(uuid.uuid4()), "file": "chats/a.jsonl", "title": "A"}]}
    more = [(name.replace("__", "/"), data) for name, data in entries.items()]
    chat = ("chats/a.jsonl", join_json_lines(build_ui_message("m", "Hello")))
    return build_archive(chat, ("account.json", json.dumps(listed).encode()), *more)


@pytest.mark.parametrize(
    "name", ["deleted_chats__a.jsonl", "skills__a__SKILL.md", "uploads__a", "memory.json"]
)
def test_only_entries_that_an_import_opens_have_limits(name: str) -> None:
    assert bounds.open_archive(build_account(**{name: UNIFORM})).namelist()


@pytest.mark.parametrize("name", ["chats__b.jsonl", "files__a", "images__a.png", "other.json"])
def test_an_entry_that_an_import_may_open_keeps_its_limits(name: str) -> None:
    with pytest.raises(ImportRefused) as refused:
        bounds.open_archive(build_account(**{name: UNIFORM}))
    assert refused.value.code == "import_bad_archive"


def test_other_archives_keep_their_limits(settings: Settings) -> None:
    with pytest.raises(ImportRefused):
        bounds.open_archive(build_archive(("skills/conversations.json", UNIFORM)))
    settings.IMPORT_ENTRIES = 3
    with pytest.raises(ImportRefused):
        bounds.open_archive(build_archive(*((f"skills/{n}.json", b"") for n in range(4))))


def test_the_number_of_all_entries_is_limited(settings: Settings) -> None:
    settings.IMPORT_ENTRIES = 3
    skills = {f"skills__{n}": b"" for n in range(13)}
    assert len(bounds.open_archive(build_account(**skills)).namelist()) == 15
    skills["skills__14"] = b""
    with pytest.raises(ImportRefused) as refused:
        bounds.open_archive(build_account(**skills))
    assert refused.value.code == "import_too_many"


def test_an_archive_without_directory_entries_is_refused() -> None:
    data = bytearray(build_account().getvalue())
    size = struct.unpack("<L", data[-10:-6])[0]
    del data[-22 - size : -22]
    with pytest.raises(ImportRefused):
        bounds.open_archive(io.BytesIO(bytes(data)))


def test_chats_whose_short_ids_are_equal_have_different_entries(
    alice: User, of_alice: Program, now: datetime
) -> None:
    for number in range(2):
        chat = Chat(id=uuid.UUID(int=number + 1), owner=alice, created_at=now, updated_at=now)
        chat.title = f"聊天{number}"
        chat.active_branch = branch = Branch(chat=chat, created_at=now)
        chat.save(force_insert=True)
        branch.save(force_insert=True)
        fill_with_every_kind(chat, 2, now=now)
    assert list_titles(export_account(of_alice)) == (["聊天0", "聊天1"], [])


def test_the_lease_is_renewed_for_each_image() -> None:
    """A virus scanner can take longer for the images of a chat than a lease lasts."""
    ticks: list[int] = []
    with zipfile.ZipFile(held := io.BytesIO(), "w") as archive:
        archive.writestr(f"images/{PNG_HASH}.png", PNG)
        archive.writestr(f"images/{'0' * 64}.png", PNG)
    with zipfile.ZipFile(held) as archive:
        entries = pictures.index_archive_images(archive)
        found, losses = pictures.read_wanted_images(
            archive, entries, wanted=set(entries), tick=lambda: ticks.append(1)
        )
    assert (list(found), len(losses), len(ticks)) == ([PNG_HASH], 1, 2)
