"""Images in results of tool servers: copied like uploads, sent in place, shown, and erased."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from PIL import Image
from pytest_django import Settings

from chats.actions import erasure, retention
from chats.models import Chat, Message, MessageImage, Receipt, ToolStep, Turn
from chats.people import keys
from chats.prompt.reconstruction import rebuild_request
from chats.providers.base import Finished, TextDelta
from chats.record.images import format_data_url
from chats.tool_servers.results import IMAGE_REASONS
from chats.turns.follow_up_turns import retry_turn
from chats.turns.recover import release_lost_turn
from chats.turns.start import start_turn
from contextpolicy.engine.messages.messages import (
    FilePart,
    parse_parts,
    parse_result_image,
)
from contextpolicy.engine.messages.tokens import count_uncut_tokens
from contextpolicy.models import ModelSpec, ToolServer
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.fakes.tool_server import FakeToolServer
from tests.support.exchange_files import export_account
from tests.support.tool_calls import call_echo, list_tool_results
from tests.support.ui_streams import UI_CHATS, build_user_message, read_chunks

Connect = Callable[..., ToolServer]
Allow = Callable[..., None]
Ask = Callable[..., tuple[Turn, Any]]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]

DONE = [TextDelta("Done."), Finished("stop")]


def image_block(data: bytes, kind: str = "image/png") -> dict[str, str]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind}


def make_photo() -> bytes:
    """Return a photo with the location and the camera in its metadata."""
    held, exif = io.BytesIO(), Image.Exif()
    exif[0x010F] = "Secret camera"
    Image.new("RGB", (40, 30), "teal").save(held, "JPEG", exif=exif)
    return held.getvalue()


@pytest.fixture
def ready(connect: Connect, allow: Allow) -> None:
    connect()
    allow(tools=["files/*"])


@pytest.mark.usefixtures("ready")
def test_the_model_gets_the_image_in_its_place_without_metadata(
    ask: Ask, server: FakeToolServer
) -> None:
    server.content = [
        {"type": "text", "text": "Before"},
        image_block(make_photo(), "image/jpeg"),
        {"type": "text", "text": "After"},
    ]
    turn, worker = ask(call_echo("map"), DONE)
    request = worker.scripted.requests[-1]
    wire = next(wire for wire in request.messages if wire.role == "tool")
    before, part, after = wire.pieces()
    assert (before.split("\n")[2:], after.split("\n")[:2]) == (["Before", ""], ["", "After"])
    assert "not shown" not in wire.content
    (url,) = request.images.values()
    data = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
    assert b"Secret camera" in make_photo()
    assert b"Secret camera" not in data
    assert Image.open(io.BytesIO(data)).size == (40, 30)
    row = MessageImage.objects.get(message__turn=turn)
    assert (row.sha256, bytes(row.data)) == (hashlib.sha256(data).hexdigest(), data)
    assert part.image.sha256 == row.sha256
    # Counted with the message, named in the receipt, and the same bytes as sent.
    message = Message.objects.get(pk=row.message_id)
    plain = [part for part in parse_parts(message.parts) if not hasattr(part, "reference")]
    tokens = count_uncut_tokens(plain, "assistant", worker.counter)
    assert message.token_count == tokens + part.image.tokens
    receipt = Receipt.objects.filter(turn=turn).order_by("step").last()
    assert receipt is not None
    found = rebuild_request(receipt)
    assert any(row.sha256 in wire.shown(by_hash=True) for wire in found.messages)
    assert not ToolStep.objects.exists()


@pytest.mark.usefixtures("ready")
def test_a_model_without_images_gets_the_kind_and_the_size(
    ask: Ask, server: FakeToolServer
) -> None:
    ModelSpec.objects.update(takes_images=False)
    server.content = [image_block(make_png())]
    turn, worker = ask(call_echo("map"), DONE)
    request = worker.scripted.requests[-1]
    wire = next(wire for wire in request.messages if wire.role == "tool")
    assert request.images == {}
    size = len(bytes(MessageImage.objects.get(message__turn=turn).data))
    assert f"[Image: image/png, 4 × 3 pixels, {size:,} bytes]" in wire.shown()


@pytest.mark.usefixtures("ready")
def test_a_resource_with_an_image_is_an_image_and_other_blocks_are_named(
    ask: Ask, server: FakeToolServer
) -> None:
    blob = base64.b64encode(make_png()).decode()
    pdf = base64.b64encode(b"%PDF-1.4 abcd").decode()
    server.content = [
        {"type": "resource", "resource": {"uri": "file:///a.png", "blob": blob}},
        {
            "type": "resource",
            "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": pdf},
        },
        {"type": "audio", "data": "AAAAAA==", "mimeType": "audio/wav"},
        {
            "type": "resource_link",
            "uri": "https://example.com/x",
            "name": "plan.docx",
            "mimeType": "text/plain",
        },
        image_block(b"<svg/>", "image/svg+xml"),
        {"type": "image", "data": "no base64", "mimeType": "image/png"},
    ]
    turn, _ = ask(call_echo("all"), DONE)
    (result,) = list_tool_results(turn)
    assert MessageImage.objects.filter(message__turn=turn).count() == 1
    for line in (
        "[resource file:///a.pdf, application/pdf, 13 bytes, not shown]",
        "[audio, audio/wav, 4 bytes, not shown]",
        "[link to plan.docx, https://example.com/x, text/plain]",
        "[image, image/svg+xml, 6 bytes, not shown]",
        "[image, image/png, 6 bytes, not shown]",
    ):
        assert line in result
    assert "a.png" not in result


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"file_kinds": ["pdf"]}, "does not allow images"),
        ({"files_per_message": 1}, "maximum number of images"),
        ({"file_models": ()}, IMAGE_REASONS["file_model_not_allowed"]),
    ],
)
def test_the_policy_limits_the_images(
    connect: Connect,
    allow: Allow,
    ask: Ask,
    server: FakeToolServer,
    values: dict[str, Any],
    reason: str,
) -> None:
    connect()
    allow(tools=["files/*"], **values)
    server.content = [image_block(make_png(4, 3)), image_block(make_png(5, 3))]
    # Two calls: the number is that of the reply.
    turn, _ = ask(call_echo("one", "two"), DONE)
    results = "".join(list_tool_results(turn))
    stored = values.get("files_per_message", 0)
    assert MessageImage.objects.filter(message__turn=turn).count() == stored
    assert results.count(reason) == 4 - stored


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("fault", ["damaged", "pixels", "large"])
def test_an_unusable_image_is_a_line_and_the_text_stays(
    ask: Ask, server: FakeToolServer, settings: Settings, fault: str
) -> None:
    data = make_png()
    if fault == "damaged":
        data = data[:20]
    if fault == "pixels":
        data = make_png(10_000, 6_000)
    if fault == "large":
        settings.FILE_BYTES = 10
    server.content = [image_block(data), {"type": "text", "text": "the text"}]
    turn, _ = ask(call_echo("map"), DONE)
    (result,) = list_tool_results(turn)
    assert turn.status == "completed"
    assert f"[image, image/png, {len(data):,} bytes, not shown: " in result
    assert "the text" in result
    assert not MessageImage.objects.exists()


class WorkerDied(BaseException):
    """The process ends here."""


def die(*_args: Any, **_named: Any) -> None:
    raise WorkerDied


@pytest.mark.usefixtures("ready")
def test_a_lost_worker_loses_no_image(
    alice: User,
    chat: Chat,
    server: FakeToolServer,
    work: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.content = [image_block(make_png())]
    turn = start_turn(user=alice, chat=chat, text="Do it", now=timezone.now()).turn
    with monkeypatch.context() as patch:
        patch.setattr("chats.turns.reply_steps.store_step", die)
        with pytest.raises(WorkerDied):
            work(turn, call_echo("one"))
    turn.refresh_from_db()
    assert release_lost_turn(turn, now=timezone.now()) == 1
    worker = work(turn, DONE)
    assert len(server.calls) == 1
    (url,) = worker.scripted.requests[-1].images.values()
    row = MessageImage.objects.get(message__turn=turn)
    assert url == format_data_url(row.media_type, bytes(row.data))


@pytest.mark.usefixtures("ready", "built_again")
def test_a_retry_of_a_lost_turn_has_its_image(
    alice: User,
    chat: Chat,
    server: FakeToolServer,
    work: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    server.content = [image_block(make_png())]
    turn = start_turn(user=alice, chat=chat, text="Do it", now=timezone.now()).turn
    with monkeypatch.context() as patch:
        patch.setattr("chats.turns.reply_steps.store_step", die)
        with pytest.raises(WorkerDied):
            work(turn, call_echo("one"))
    turn.refresh_from_db()
    settings.MAX_ATTEMPTS = 1
    release_lost_turn(turn, now=timezone.now())
    turn.refresh_from_db()
    worker = work(retry_turn(user=alice, turn=turn, now=timezone.now()), DONE)
    (url,) = worker.scripted.requests[-1].images.values()
    row = MessageImage.objects.get(message__turn=turn)
    assert url == format_data_url(row.media_type, bytes(row.data))


@pytest.mark.usefixtures("ready")
def test_the_person_sees_the_image_and_an_erasure_deletes_it(
    ask: Ask, server: FakeToolServer, chat: Chat, alice: User, client: Client, charlie: User
) -> None:
    server.content = [image_block(make_png())]
    turn, _ = ask(call_echo("map"), DONE)
    row = MessageImage.objects.get(message__turn=turn)
    address = f"/chats/{chat.pk}/messages/{row.message_id}/images/{row.sha256}"
    client.force_login(alice)
    page = client.get(f"/chats/{chat.pk}/").content.decode()
    assert page.count(f'src="{address}"') == 1
    assert page.index("tool__call") < page.index(f'src="{address}"')
    assert client.get(address).content == bytes(row.data)
    client.force_login(charlie)
    assert client.get(address).status_code == 404
    erasure.erase_message(user=alice, message=row.message, now=timezone.now())
    assert not MessageImage.objects.exists()


@pytest.mark.usefixtures("ready", "bus")
def test_front_ends_and_clients_get_the_address_of_the_image(
    server: FakeToolServer, work: Callable[..., Any], alice: User, charlie: User
) -> None:
    server.content = [{"type": "text", "text": "Oslo"}, image_block(make_png())]
    program = build_program(alice)
    program.post(UI_CHATS, {"id": "front-end 1", "messages": [build_user_message("one")]})
    turn = Turn.objects.get()
    work(turn, call_echo("map"), DONE)
    row = MessageImage.objects.get()
    address = f"chats/{turn.branch.chat_id}/messages/{row.message_id}/images/{row.sha256}"
    (reply,) = (
        message
        for message in program.get(f"{UI_CHATS}/front-end%201").json()["messages"]
        if message["role"] == "assistant"
    )
    listed = next(part for part in reply["parts"] if part["type"] == "file")
    assert listed == {"type": "file", "mediaType": "image/png", "url": f"/api/v1/{address}"}
    sent = program.post(UI_CHATS, {"id": "front-end 1", "messages": [build_user_message("one")]})
    chunks = read_chunks(sent)
    assert {"type": "file", "url": f"/api/v1/{address}", "mediaType": "image/png"} in chunks
    assert chunks[-1]["type"] == "finish"
    found = program.get(address)
    assert (found.status_code, found.content) == (200, bytes(row.data))
    assert found["Content-Disposition"].startswith("attachment")
    assert build_program(charlie).get(address).status_code == 404


def test_retention_erases_the_image_with_its_reply(
    connect: Connect, allow: Allow, ask: Ask, server: FakeToolServer
) -> None:
    connect()
    allow(tools=["files/*"], retention_days=30)
    server.content = [image_block(make_png())]
    old, _ = ask(call_echo("old"), DONE)
    Message.objects.update(created_at=timezone.now() - timedelta(days=31))
    new, _ = ask(call_echo("new"), DONE)
    retention.start_retention_run(actor="system", now=timezone.now())
    retention.continue_retention_run(clock=timezone.now, is_closing=lambda: False)
    assert not MessageImage.objects.filter(message__turn=old).exists()
    assert MessageImage.objects.filter(message__turn=new).count() == 1
    assert list_tool_results(old) == []


@pytest.mark.usefixtures("ready", "streams")
def test_an_archive_contains_the_image_and_an_import_restores_it(
    ask: Ask, server: FakeToolServer, alice: User, charlie: User, client: Client
) -> None:
    server.content = [{"type": "text", "text": "Oslo"}, image_block(make_png())]
    ask(call_echo("map"), DONE)
    row = MessageImage.objects.get()
    archive = export_account(build_program(alice))
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        assert held.read(f"images/{row.sha256}.png") == bytes(row.data)
    bring(build_program(charlie), archive)
    copy = MessageImage.objects.get(message__branch__chat__owner=charlie)
    assert (copy.sha256, bytes(copy.data)) == (row.sha256, bytes(row.data))
    # In its place in the result, as in the original.
    (place,) = list_image_places(row.message)
    assert place[0] == "call-0"
    assert list_image_places(copy.message) == [place]
    client.force_login(charlie)
    chat_id = copy.message.branch.chat_id
    address = f"/chats/{chat_id}/messages/{copy.message_id}/images/{copy.sha256}"
    assert client.get(f"/chats/{chat_id}/").content.decode().count(f'src="{address}"') == 1


def list_image_places(message: Message) -> list[tuple[str, int]]:
    """Return the call and the offset in its result of each image of a message."""
    parts = parse_parts(message.parts)
    return [parse_result_image(part) for part in parts if isinstance(part, FilePart)]


def build_program(user: User) -> Program:
    """A client with a key of this person."""
    _, secret = keys.create_key(owner=user, name="k", scopes=keys.SCOPES, now=timezone.now())
    return Program(secret)


@pytest.mark.usefixtures("ready")
def test_the_images_of_a_result_count_together(
    ask: Ask, server: FakeToolServer, settings: Any
) -> None:
    server.content = [image_block(make_png()), image_block(make_png())]
    settings.FILES_PER_USER_BYTES = 2 * len(make_png()) - 1
    turn, worker = ask(call_echo("map"), DONE)
    assert MessageImage.objects.filter(message__turn=turn).count() == 1
    wire = next(w for w in worker.scripted.requests[-1].messages if w.role == "tool")
    assert sum(not isinstance(piece, str) for piece in wire.pieces()) == 1
