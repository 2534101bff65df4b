"""A strange name of an entry keeps no archive out."""

import io
import json
import zipfile
from typing import Any

import pytest

from chats.models import MessageImage
from tests.chats.api.bringing import bring, refused
from tests.chats.api.programs import Program
from tests.support.exchange_files import PNG, build_pictured_chat

pytestmark = pytest.mark.usefixtures("streams")
SAID = json.dumps([{"role": "user", "content": "Hi"}]).encode()


def pack(entries: dict[str, bytes]) -> bytes:
    """Return an archive with these entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return held.getvalue()


def list_titles(found: Any) -> list[str]:
    """Return the titles of the imported chats."""
    return [told["title"] for told in found.chats]


STRANGE = ["a\u202ab.png", "a\x7fb.png", f"{'x' * 400}.png", f"{'d' * 400}/x", "\u200b/\u200b"]


@pytest.mark.parametrize("name", STRANGE)
def test_an_entry_with_a_strange_name_is_no_obstacle(name: str, of_alice: Program) -> None:
    data = pack({"conversations.json": build_pictured_chat(), name: b"x"})
    assert list_titles(bring(of_alice, data)) == ["C"]


def test_a_picture_with_a_strange_name_is_imported(of_alice: Program) -> None:
    chat = build_pictured_chat("sediment://file_1a")
    for name in (f"file_1a-{'cat' * 200}.png", "file_1a-\u202acat.png"):
        MessageImage.objects.all().delete()
        data = chat.replace(b'"g"', json.dumps(name).encode())
        found = bring(of_alice, pack({"conversations.json": data, f"user/{name}": PNG}))
        assert found.chats[0]["losses"] == []
        assert bytes(MessageImage.objects.get().data) == PNG


def test_chats_whose_names_become_equal_are_all_imported(of_alice: Program) -> None:
    entries = {
        f"{name}.json": SAID.replace(b"Hi", f"Hi {place}".encode())
        for place, name in enumerate(["a\x7f", "a\x80", "a ", "y" * 400, "y" * 401])
    }
    found = bring(of_alice, pack(entries))
    assert (found.row["added"], found.not_taken) == (5, [])


@pytest.mark.parametrize("name", ["../\u202aout", "/etc/x", "a/../../b", "..\\b", "C:\\x"])
def test_a_path_that_leads_outside_is_refused_by_its_name(name: str, of_alice: Program) -> None:
    code, reason = refused(of_alice, pack({"conversations.json": b"[]", name: b"x"}))
    assert code == "import_bad_archive"
    assert name.replace("\u202a", " ") in reason
