"""Imports of archives that were unpacked and packed again by a file manager."""

import io
import zipfile
from datetime import datetime
from typing import Any

import pytest

from chats.models import Branch, Chat, Message, MessageImage
from tests.chats.api.bringing import bring, refused
from tests.chats.api.programs import Program
from tests.support.exchange_files import PNG, build_pictured_chat, zip_entries
from tests.support.streamed_responses import read_content

pytestmark = pytest.mark.usefixtures("streams")


@pytest.fixture
def herons(chat: Chat, now: datetime) -> Chat:
    """A pinned chat with one message."""
    branch = Branch.objects.get(chat=chat)
    parts = [{"type": "text", "text": "The heron"}]
    Message.objects.create(
        branch=branch, seq=1, accepted=1, role="user", parts=parts, created_at=now
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=1)
    Chat.objects.filter(pk=chat.pk).update(title="Herons", pinned=True)
    return chat


def repack(data: bytes, *, folder: str, is_macos: bool) -> bytes:
    """Return an archive with the same files, their folders, and the files that macOS adds."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w") as new:
        folders = {folder, *(folder + n.rpartition("/")[0] + "/" for n in old.namelist())}
        for name in sorted(folders - {"", "/"}):
            new.writestr(name, b"")
        for name in old.namelist():
            new.writestr(folder + name, old.read(name))
            if is_macos:
                inside, _, last = (folder + name).rpartition("/")
                new.writestr(f"__MACOSX/{inside}/._{last}", b"\0\5\x16\7")
        if is_macos:
            new.writestr(f"{folder}.DS_Store", b"Bud1")
    return held.getvalue()


@pytest.mark.parametrize("folder", ["", "palimpsest/"])
@pytest.mark.parametrize("is_macos", [True, False])
def test_an_archive_of_all_data_is_imported(
    of_alice: Program, of_charlie: Program, herons: Chat, folder: str, is_macos: bool
) -> None:
    data = read_content(of_alice.get("export"))
    found = bring(of_charlie, repack(data, folder=folder, is_macos=is_macos))
    assert (found.row["state"], found.row["found"], found.row["added"]) == ("done", 1, 1)
    own = Chat.objects.get(owner__username="charlie")
    assert (own.title, own.pinned) == ("Herons", True)


@pytest.mark.parametrize("folder", ["", "Herons/"])
@pytest.mark.parametrize("is_macos", [True, False])
def test_a_bundle_is_imported(
    of_alice: Program, of_charlie: Program, herons: Chat, folder: str, is_macos: bool
) -> None:
    data = read_content(of_alice.get(f"chats/{herons.pk}/export", form="bundle"))
    found = bring(of_charlie, repack(data, folder=folder, is_macos=is_macos))
    assert [told["title"] for told in found.chats] == ["Herons"]
    assert found.not_taken == []


def rename_entries(data: bytes, *, before: str = "", slash: str = "/", **added: bytes) -> bytes:
    """Return an archive whose entries have this folder and slash, with further entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w") as new:
        for name in old.namelist():
            new.writestr((before + name).replace("/", slash), old.read(name))
        for name, content in added.items():
            new.writestr(name.replace("_dot_", "."), content)
    return held.getvalue()


REPACKED = {
    "backslashes": {"slash": "\\"},
    "a folder and backslashes": {"before": "data/", "slash": "\\"},
    "two folders": {"before": "Downloads/data/"},
    "a folder and another file": {"before": "data/", "note_dot_txt": b"mine"},
    "a folder and another chat": {"before": "data/", "a_dot_json": b"[]"},
}


@pytest.mark.parametrize("change", REPACKED.values(), ids=REPACKED)
@pytest.mark.parametrize("form", ["account", "bundle"])
def test_a_repacked_archive_is_imported_as_itself(
    of_alice: Program, of_charlie: Program, herons: Chat, change: dict[str, Any], form: str
) -> None:
    answer = (
        of_alice.get("export")
        if form == "account"
        else of_alice.get(f"chats/{herons.pk}/export", form="bundle")
    )
    found = bring(of_charlie, rename_entries(read_content(answer), **change))
    assert found.row["form"] == ("everything" if form == "account" else "bundle")
    assert ([told["title"] for told in found.chats], found.not_taken) == (["Herons"], [])


def test_two_archives_in_one_are_refused(of_alice: Program, herons: Chat) -> None:
    data = read_content(of_alice.get("export"))
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w") as new:
        for folder in ("a/", "b/"):
            for name in old.namelist():
                new.writestr(folder + name, old.read(name))
    code, reason = refused(of_alice, held.getvalue())
    assert code == "import_bad_archive"
    assert "several archives" in reason


def test_a_foreign_account_list_is_refused_and_not_imported_in_part(of_alice: Program) -> None:
    said = b'{"id":"a","role":"user","parts":[{"type":"text","text":"x"}]}'
    data = zip_entries(x__account_dot_json=b"{}", x__chats__c_dot_jsonl=said)
    code, _ = refused(of_alice, data)
    assert code == "import_malformed"


CHATGPT = build_pictured_chat("sediment://file_1a")
UNRELATED: dict[str, dict[str, bytes]] = {
    "an account": {"user-files/account.json": b"{}"},
    "an account with a list of chats": {"user-files/account.json": b'{"chats": []}'},
    "two accounts": {"a/account.json": b'{"chats": []}', "b/account.json": b'{"chats":[]}'},
    "a history": {"f/history.jsonl": b"{}", "f/meta.json": b"{}"},
    "a history of a bundle": {"f/history.jsonl": b"{}", "f/meta.json": b'{"version":1}'},
}


@pytest.mark.parametrize("folder", ["", "export/"])
@pytest.mark.parametrize("added", UNRELATED.values(), ids=UNRELATED)
def test_the_chats_of_another_product_are_imported_beside_an_unrelated_file(
    of_alice: Program, added: dict[str, bytes], folder: str
) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in {"conversations.json": CHATGPT, **added}.items():
            archive.writestr(folder + name, content)
    found = bring(of_alice, held.getvalue())
    assert (found.row["form"], len(found.chats), found.not_taken) == ("chatgpt", 1, [])


def test_an_account_list_beside_the_chats_of_another_product_is_not_used(
    of_alice: Program,
) -> None:
    data = zip_entries(x__account_dot_json=b'{"uuid": "1"}', x__conversations_dot_json=CHATGPT)
    assert len(bring(of_alice, data).chats) == 1


def test_the_history_of_another_product_is_no_bundle(of_alice: Program) -> None:
    line = b'{"role":"user","content":"x"}'
    found = bring(of_alice, zip_entries(x__history_dot_jsonl=line))
    assert len(found.chats) == 1


def test_pictures_in_an_archive_with_backslashes_are_imported(of_alice: Program) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("export\\conversations.json", build_pictured_chat("sediment://file_1a"))
        archive.writestr("export\\user-1\\file_1a-cat.png", PNG)
    found = bring(of_alice, held.getvalue())
    assert found.chats[0]["losses"] == []
    assert bytes(MessageImage.objects.get().data) == PNG


IGNORED = ("__MACOSX/../._x", "__MACOSX\\..\\._x", "../.DS_Store", "C:\\Thumbs.db", "../")


@pytest.mark.parametrize("name", IGNORED)
def test_the_path_of_an_ignored_entry_does_not_matter(of_alice: Program, name: str) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("conversations.json", CHATGPT)
        archive.writestr(name, b"x")
    assert len(bring(of_alice, held.getvalue()).chats) == 1


@pytest.mark.parametrize("name", ["../x.json", "..\\x.json", "/x.json"])
def test_a_path_that_leads_outside_is_refused(of_alice: Program, name: str) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("conversations.json", CHATGPT)
        archive.writestr(name, b"x")
    code, reason = refused(of_alice, held.getvalue())
    assert (code, "outside" in reason) == ("import_bad_archive", True)
