"""Imports of archives that were unpacked and packed again by a file manager."""

import io
import zipfile
from datetime import datetime

import pytest

from chats.models import Branch, Chat, Message
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
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
