"""Images of clients with metadata or many pixels: a copy is stored and sent instead."""

import base64
import hashlib
import io
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image
from pytest_django.fixtures import Settings

from chats.actions import erasure
from chats.files import reading, uploads
from chats.files.image_metadata import needs_image_copy
from chats.gateway import given_images
from chats.models import Chat, Message, MessageImage, OwnedImage
from chats.providers import registry
from chats.providers.base import Finished, TextDelta
from chats.providers.wire import build_openai_body
from chats.record.images import Bytes, create_image
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.file_uploads import read_like_a_worker
from tests.support.files_in_chats import dump_database
from tests.support.gateway_clients import GatewayClient, assistant, get_client_key, user
from tests.support.gateway_files import PNG, build_image_message, build_image_url
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db
UPGRADE = import_module("chats.migrations.0089_documents_and_image_owners")
SECRET = b"Alice lives in the harbour"


def make_photo(size: tuple[int, int] = (400, 300), seed: int = 0) -> bytes:
    """Return a rotated photo that has its location in the metadata."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, SECRET.decode()
    exif.get_ifd(0x8825)[1] = "N"
    held = io.BytesIO()
    Image.new("RGB", size, (seed, 90, 90)).save(held, "JPEG", exif=exif)
    return held.getvalue()


PHOTO = make_photo()


def get_all_sent_images(program: GatewayClient) -> list[bytes]:
    """Return the bytes of the images of the newest request to the model."""
    messages: list[dict[str, Any]] = build_openai_body(program.requests[-1])["messages"]
    return [
        base64.b64decode(part["image_url"]["url"].partition(",")[2])
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]


def get_sent_image(program: GatewayClient) -> bytes:
    """Return the bytes of the only image of the newest request to the model."""
    (image,) = get_all_sent_images(program)
    return image


def ask_about_photo(data: bytes = PHOTO, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request with an image."""
    return [build_image_message(build_image_url(data)), *more]


def test_the_copy_of_a_photo_is_stored_and_sent(program: GatewayClient) -> None:
    assert program.ask(ask_about_photo()).status == 200
    sent = get_sent_image(program)
    assert SECRET in PHOTO
    assert SECRET not in sent
    assert not needs_image_copy(sent)
    with Image.open(io.BytesIO(sent)) as image:
        assert (image.size, dict(image.getexif())) == ((300, 400), {})
    stored = MessageImage.objects.get()
    assert (bytes(stored.data), stored.media_type) == (sent, "image/jpeg")
    (part,) = (part for part in Message.objects.get(role="user").parts if part["type"] == "file")
    assert f"sha256={stored.sha256}&size={len(sent)}" in part["reference"]


def test_a_large_image_is_resized(program: GatewayClient) -> None:
    held = io.BytesIO()
    Image.new("RGB", (4_000, 30), "teal").save(held, "PNG")
    program.ask(ask_about_photo(held.getvalue()))
    with Image.open(io.BytesIO(get_sent_image(program))) as image:
        assert image.size == (2_048, 15)


def test_a_chat_is_found_again_by_its_photo_which_is_read_once(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = program.ask(ask_about_photo())
    monkeypatch.setattr(reading, "copy_image_without_storing", lambda *_args: 1 / 0)
    again = ask_about_photo(PHOTO, assistant(first.text), user("And now?"))
    assert program.ask(again).headers["X-Context-Decision"] == "continue"
    assert SECRET not in get_sent_image(program)
    # Front ends that load the chat from here send the copy.
    copy = bytes(MessageImage.objects.get().data)
    second = program.ask(ask_about_photo(copy, *again[1:], assistant("Yes."), user("Thanks")))
    assert second.headers["X-Context-Decision"] in {"continue", "branch"}
    assert Chat.objects.count() == 1


def test_a_chat_with_a_photo_of_an_earlier_version_is_still_found(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(given_images, "needs_image_copy", lambda _data: False)
        first = program.ask(ask_about_photo())
    again = ask_about_photo(PHOTO, assistant(first.text), user("And now?"))
    assert program.ask(again).headers["X-Context-Decision"] == "continue"
    assert MessageImage.objects.count() == 1


def test_tool_results_and_file_parts_have_copies_too(program: GatewayClient) -> None:
    data = {"file_data": build_image_url(PHOTO, "image/jpeg"), "filename": "home.jpg"}
    program.ask([user([{"type": "file", "file": data}, {"type": "text", "text": "Where?"}])])
    assert SECRET not in get_sent_image(program)
    (part,) = (part for part in Message.objects.get(role="user").parts if part["type"] == "file")
    assert part["name"] == "home.jpg"
    assert SECRET.decode() not in dump_database()


def test_a_damaged_photo_is_refused(program: GatewayClient) -> None:
    response = program.ask(ask_about_photo(PHOTO[:200]))
    assert (response.status, response.json["error"]["code"]) == (409, "file_not_read")
    assert not Chat.objects.exists()


def test_a_policy_limits_the_image_that_the_client_sent(program: GatewayClient) -> None:
    now = timezone.now()
    policy = create_policy(
        slug="tiny", name="Tiny", values={"file_mebibytes": 1}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    response = program.ask(ask_about_photo(PHOTO + bytes(1_100_000) + b"x"))
    assert response.json["error"]["code"] == "file_too_large_for_policy"


def test_a_policy_limits_the_original_of_a_known_image_too(program: GatewayClient) -> None:
    photo = PHOTO + bytes(1_100_000) + b"x"
    first = program.ask(ask_about_photo(photo))
    assert MessageImage.objects.get().owned.size < 1_000_000
    now = timezone.now()
    # The lowest limit of all levels applies.
    group = Group.objects.create(name="All")
    group.user_set.add(first.chat.owner)
    targets: list[tuple[str, int, dict[str, Any]]] = [
        ("tiny", 1, {}),
        ("large", 20, {"group": group}),
    ]
    for slug, number, target in targets:
        values = {"file_mebibytes": number, "files_per_message": number}
        policy = create_policy(slug=slug, name=slug, values=values, actor="system", now=now)
        level = "group" if target else "instance"
        assign_policy(policy=policy, level=level, actor="system", now=now, **target)
    again = [user("Something else"), assistant("Yes?"), *ask_about_photo(photo)]
    assert program.ask(again).json["error"]["code"] == "file_too_large_for_policy"
    # Messages that are stored already stay.
    again = ask_about_photo(photo, assistant(first.text), user("And now?"))
    assert program.ask(again).headers["X-Context-Decision"] == "continue"
    several = build_image_message(build_image_url(PNG))
    several["content"].append({"type": "image_url", "image_url": {"url": build_image_url()}})
    several["content"].append(
        {"type": "image_url", "image_url": {"url": build_image_url(PNG + b"1")}}
    )
    assert program.ask([several]).json["error"]["code"] == "too_many_files"


def test_a_request_that_is_passed_through_stays_unchanged(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([[TextDelta("A harbour."), Finished("stop")]])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "messages": ask_about_photo()}
    assert program.close(program.open(body)).text == "A harbour."
    sent = build_openai_body(provider.requests[0])["messages"][0]["content"]
    assert sent[1]["image_url"]["url"] == build_image_url(PHOTO, "image/jpeg")
    assert not MessageImage.objects.exists()


def test_each_stored_image_counts_towards_the_files_of_its_owner(
    program: GatewayClient, alice: User, settings: Settings
) -> None:
    first = program.ask(ask_about_photo(PNG))
    program.ask(ask_about_photo(PNG, assistant(first.text), user("And now?")))
    program.ask([user("Something else"), assistant("Yes?"), *ask_about_photo(PNG)])
    assert MessageImage.objects.count() == 2
    with CaptureQueriesContext(connection) as used:
        assert uploads.measure_message_images(alice.pk) == 2 * len(PNG)
    assert [query["sql"].startswith("SELECT SUM(") for query in used] == [True]
    settings.FILES_PER_USER_BYTES = 2 * len(PNG) + 10
    with pytest.raises(uploads.FileQuotaExceeded):
        uploads.accept_upload(
            io.BytesIO(b"eleven char"), name="a.txt", owner=alice, now=timezone.now()
        )
    # A new message stores the same image once more, a continued chat does not.
    for message in (PNG, PNG + b"01234567890"):
        refused = program.ask([user("Once more"), *ask_about_photo(message)])
        assert (refused.status, refused.json["error"]["code"]) == (409, "file_quota_exceeded")
    assert MessageImage.objects.count() == 2
    again = ask_about_photo(PNG, assistant(first.text), user("And then?"))
    assert program.ask(again).status == 200
    for row in Message.objects.filter(images__isnull=False):
        erasure.erase_message(user=alice, message=row, now=timezone.now())
    assert not OwnedImage.objects.exists()
    assert uploads.measure_message_images(alice.pk) == 0
    assert program.ask(ask_about_photo(PNG + b"01234567890")).status == 200


def test_the_copy_of_an_upload_counts_where_it_is_stored(
    program: GatewayClient, alice: User, settings: Settings
) -> None:
    row, _ = uploads.accept_upload(
        io.BytesIO(PHOTO), name="home.jpg", owner=alice, now=timezone.now()
    )
    read_like_a_worker(str(row.pk))
    row.refresh_from_db()
    part = {"type": "file", "file": {"file_id": str(row.pk)}}
    program.ask([user([part, {"type": "text", "text": "Where?"}])])
    assert OwnedImage.objects.count() == 1
    assert uploads.measure_message_images(alice.pk) == row.copy_size
    settings.FILES_PER_USER_BYTES = row.size + 2 * row.copy_size + 1
    uploads.check_quota(alice.pk, name="a", size=1)
    with pytest.raises(uploads.FileQuotaExceeded):
        uploads.check_quota(alice.pk, name="a", size=2)


def store_known_photos(row: Message, *, number: int) -> list[bytes]:
    """Store the copies of photos with a message. Return the photos as clients send them."""
    photos = [make_photo((400 + width, 300)) for width in range(number)]
    for photo in photos:
        copy = PNG + hashlib.sha256(photo).digest()
        image = Bytes("image/png", copy, hashlib.sha256(photo).hexdigest())
        sha256 = hashlib.sha256(copy).hexdigest()
        create_image(row, image, sha256=sha256, owner_id=row.branch.chat.owner_id)
    return photos


@pytest.mark.parametrize("number", [1, 12])
def test_the_known_images_of_a_request_are_loaded_with_one_query(
    number: int, program: GatewayClient, settings: Settings
) -> None:
    settings.GATEWAY_IMAGE_TOKENS = 100
    chat = program.ask([user("Hello")]).chat
    row = Message.objects.select_related("branch__chat").get(branch__chat=chat, role="user")
    photos = store_known_photos(row, number=number)
    message = user(
        [{"type": "image_url", "image_url": {"url": build_image_url(photo)}} for photo in photos]
    )
    with CaptureQueriesContext(connection) as used:
        assert program.ask([message]).status == 200
    read = [query["sql"] for query in used if 'FROM "chats_messageimage"' in query["sql"]]
    # One loads the copies, one the images of the prompt.
    assert len([sql for sql in read if sql.startswith("SELECT")]) == 2
    assert get_all_sent_images(program) == [
        bytes(image.data) for image in MessageImage.objects.filter(message=row).order_by("pk")
    ]


def test_the_upgrade_counts_earlier_images(program: GatewayClient, alice: User) -> None:
    program.ask(ask_about_photo(PNG))
    OwnedImage.objects.all().delete()
    assert uploads.measure_message_images(alice.pk) == 0
    UPGRADE.store_image_owners(apps, None)
    (row,) = OwnedImage.objects.all()
    assert (row.owner, row.size, row.sha256) == (alice, len(PNG), row.image.sha256)
    assert uploads.measure_message_images(alice.pk) == len(PNG)
