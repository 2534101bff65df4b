"""Photos in imports: copies without metadata, damaged ones, and the limit on a user's files."""

import hashlib
import io
import json
import zipfile
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from PIL import Image
from pytest_django.fixtures import Settings

from chats.actions import erasure
from chats.exchange import importing
from chats.exchange.drafts import ChatDraft
from chats.files import reading
from chats.models import Chat, Message, MessageImage
from chats.record.images import format_data_url
from contextpolicy.engine.messages.images import Image as StoredImage
from tests.chats.api.bringing import bring, brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    PNG,
    PNG_HASH,
    build_pictured_chat,
    build_ui_message,
    export_chat,
    join_json_lines,
    zip_entries,
)
from tests.support.files_in_chats import dump_database

pytestmark = pytest.mark.usefixtures("streams")
PLACE = b"Alice lives in the harbour"


def make_photo() -> bytes:
    """Return a rotated photo that has its location in the metadata."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, PLACE.decode()
    held = io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(held, "JPEG", exif=exif)
    return held.getvalue()


def test_imported_photos_are_copies_without_their_place(
    of_alice: Program, settings: Settings
) -> None:
    photo, text = make_photo(), PLACE.decode()
    url = format_data_url("image/jpeg", photo)
    part = {"type": "file", "mediaType": "image/jpeg", "url": url, "filename": "home.jpg"}
    lines = join_json_lines({"id": "m", "role": "user", "parts": [part]})
    files = [{"type": "image", "url": url}]
    said = {"u": {"id": "u", "role": "user", "content": "Where?", "files": files}}
    webui = {"id": "w", "chat": {"history": {"currentId": "u", "messages": said}}}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("conversations.json", build_pictured_chat("file-service://file-Ab1"))
        archive.writestr("file-Ab1-home.jpg", photo)
    # Larger images than those of requests are copied too.
    settings.GATEWAY_IMAGE_BYTES = 100
    for data in (lines, json.dumps([webui]).encode(), held.getvalue()):
        chat = brought(of_alice, data)
        assert chat["losses"] == []
        (image,) = MessageImage.objects.filter(message__branch__chat=chat["chat"])
        assert PLACE not in bytes(image.data)
        assert hashlib.sha256(image.data).hexdigest() == image.sha256
        with Image.open(io.BytesIO(image.data)) as copy:
            assert copy.size == (30, 40)
        assert (bring(of_alice, data).row["added"], MessageImage.objects.count()) == (0, 1)
        assert image.sha256 in export_chat(of_alice, chat["chat"]).decode()
        assert url.partition(",")[2] not in dump_database()
        Chat.objects.all().delete()
    assert text not in dump_database()


def test_an_imported_photo_that_is_damaged_is_named(of_alice: Program) -> None:
    url = format_data_url("image/jpeg", make_photo()[:200])
    part = {"type": "file", "mediaType": "image/jpeg", "url": url, "filename": "home.jpg"}
    text = {"type": "text", "text": "Where?"}
    chat = brought(of_alice, join_json_lines({"id": "m", "role": "user", "parts": [text, part]}))
    assert [loss.partition(":")[0] for loss in chat["losses"]] == ["image_dropped"]
    assert not MessageImage.objects.exists()


def test_imported_images_over_the_limit_are_added_later(
    of_alice: Program, settings: Settings
) -> None:
    url = format_data_url("image/png", PNG)
    parts = [
        {"type": "text", "text": "Where?"},
        {"type": "file", "mediaType": "image/png", "url": url, "filename": "home.png"},
    ]
    data = join_json_lines({"id": "m", "role": "user", "parts": parts})
    settings.FILES_PER_USER_BYTES = len(PNG) - 1
    chat = brought(of_alice, data)
    assert [loss.partition(":")[0] for loss in chat["losses"]] == ["image_over_limit"]
    assert not MessageImage.objects.exists()
    settings.FILES_PER_USER_BYTES = len(PNG)
    bring(of_alice, data)
    assert bytes(MessageImage.objects.get().data) == PNG
    # The image that the chat already has needs no room.
    assert bring(of_alice, data).chats[0]["losses"] == []


@pytest.mark.parametrize("is_bundle", [True, False])
def test_an_import_measures_images_itself(
    *, is_bundle: bool, of_alice: Program, settings: Settings
) -> None:
    """A file can state any size for an image."""
    reference = StoredImage(85, sha256=PNG_HASH, size=0).reference
    urls = [reference] if is_bundle else [format_data_url("image/png", PNG), reference]
    parts = [{"type": "file", "mediaType": "image/png", "url": url} for url in urls]
    data = join_json_lines({"id": "m", "role": "user", "parts": parts})
    if is_bundle:
        entries = {f"images__{PNG_HASH}_dot_png": PNG, "meta_dot_json": b'{"version": 1}'}
        data = zip_entries(history_dot_jsonl=data, **entries)
    settings.FILES_PER_USER_BYTES = len(PNG) - 1
    chat = brought(of_alice, data)
    assert [loss.partition(":")[0] for loss in chat["losses"]] == ["image_over_limit"]
    assert not MessageImage.objects.exists()
    (row,) = Message.objects.all()
    assert {part["reference"].rpartition("&")[2] for part in row.parts} == {f"size={len(PNG)}"}
    settings.FILES_PER_USER_BYTES = len(PNG)
    (again,) = bring(of_alice, data).chats
    assert (again["losses"], MessageImage.objects.count()) == ([], 1)


def test_images_of_erased_messages_need_no_room(
    of_alice: Program, alice: User, settings: Settings
) -> None:
    """A repeated import does not store them again."""
    url = format_data_url("image/png", PNG)
    part = {"type": "file", "mediaType": "image/png", "url": url}
    first = {"id": "m", "role": "user", "metadata": {"chatId": "c"}, "parts": [part]}
    brought(of_alice, join_json_lines(first))
    erasure.erase_message(user=alice, message=Message.objects.get(), now=timezone.now())
    settings.FILES_PER_USER_BYTES = 1
    data = join_json_lines(first, build_ui_message("n", "Hello", "assistant"))
    (again,) = bring(of_alice, data).chats
    assert (again["messages"], again["losses"]) == (1, [])
    assert not MessageImage.objects.exists()


def build_photo_imports() -> dict[str, bytes]:
    """Return files of two formats and an archive, each with a chat that has three photos."""
    photos = [make_photo() + bytes(number) for number in range(3)]
    urls = [format_data_url("image/jpeg", photo) for photo in photos]
    parts = [{"type": "file", "mediaType": "image/jpeg", "url": url} for url in urls]
    files = [{"type": "image", "url": url} for url in urls]
    said = {"u": {"id": "u", "role": "user", "content": "Where?", "files": files}}
    webui = {"id": "w", "chat": {"history": {"currentId": "u", "messages": said}}}
    pointers = [f"file-service://file-Ab{number}" for number in range(3)]
    chat = build_pictured_chat(*pointers)
    entries = {f"file-Ab{number}-home_dot_jpg": photo for number, photo in enumerate(photos)}
    return {
        "lines": join_json_lines({"id": "m", "role": "user", "parts": parts}),
        "list": json.dumps([{"id": "m", "role": "user", "parts": parts}]).encode(),
        "webui": json.dumps(webui).encode(),
        "webui_list": json.dumps([webui]).encode(),
        "archive": zip_entries(conversations_dot_json=chat, **entries),
    }


@pytest.mark.parametrize("form", ["lines", "list", "webui", "webui_list", "archive"])
def test_the_lease_is_renewed_before_each_copy(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies of a chat can take longer than a lease lasts."""
    events: list[str] = []
    make_copy = reading.make_image_copy

    def record_copy(data: bytes) -> Any:
        events.append("copy")
        return make_copy(data)

    monkeypatch.setattr(reading, "make_image_copy", record_copy)
    with ExitStack() as kept:
        file = io.BytesIO(build_photo_imports()[form])
        source = importing.read_import_file(file, kept=kept, tick=lambda: events.append("tick"))
        (read,) = source.behind(0, (0, 0))
    assert isinstance(read.draft, ChatDraft)
    assert len(read.draft.images) >= 1
    copies = [place for place, event in enumerate(events) if event == "copy"]
    assert [events[place - 1] for place in copies] == ["tick"] * 3
