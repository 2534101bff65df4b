"""Images in requests: stored with their message, sent to the model, shown, counted, erased."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions import branching, erasure
from chats.exchange.ui_chats import reply_to_ui_request
from chats.exchange.ui_requests import UIRequest, UnsupportedUIMessage
from chats.models import Chat, GatewayNode, Message, MessageImage, PassedOn, Receipt
from chats.prompt import sent_request
from chats.prompt.reconstruction import rebuild_request
from chats.prompt.stored_messages import verify_stored_messages
from chats.providers import registry
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import Finished, TextDelta
from chats.providers.wire import build_openai_body
from chats.streams.files import SANDBOX_POLICY
from contextpolicy.engine.messages.messages import format_image_text
from contextpolicy.engine.messages.ui_messages import parse_ui_message
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.gateway_clients import (
    GatewayClient,
    assistant,
    get_client_key,
    list_chat_messages,
    user,
)
from tests.support.gateway_files import PNG, build_image_message, build_image_url
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

KINDS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0 jpeg",
    "image/gif": b"GIF89a gif",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
}
TEXT = {"type": "text", "text": "Describe it."}
ADDRESS = "https://pictures.example/harbour.png?signature=1"


def sha(data: bytes) -> str:
    """Return the hash that identifies an image."""
    return hashlib.sha256(data).hexdigest()


def wire_of(program: GatewayClient) -> list[dict[str, Any]]:
    """Return the messages of the newest call in wire format."""
    messages: list[dict[str, Any]] = build_openai_body(program.requests[-1])["messages"]
    return messages


def test_the_detail_original_is_sent_on(program: GatewayClient) -> None:
    answer = program.ask([build_image_message(build_image_url(), detail="original")])
    assert answer.status == 200
    assert wire_of(program)[-1]["content"][1]["image_url"]["detail"] == "original"
    image = {"type": "input_image", "image_url": build_image_url(), "detail": "original"}
    said = [{"role": "user", "content": [{"type": "input_text", "text": "See"}, image]}]
    opened = program.open({"model": "demo", "input": said}, path="responses")
    program.work(opened["X-Context-Report-Id"])
    assert program.close(opened).status == 200
    assert wire_of(program)[-1]["content"][1]["image_url"]["detail"] == "original"


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_image_is_stored_with_its_message_and_sent_on(program: GatewayClient, kind: str) -> None:
    data = KINDS[kind]
    # The media type in the URL is ignored. The image data decides.
    answer = program.ask([build_image_message(build_image_url(data, "image/heic"), detail="low")])
    assert answer.status == 200
    assert wire_of(program)[-1]["content"] == [
        {"type": "text", "text": "Describe this."},
        {"type": "image_url", "image_url": {"url": build_image_url(data, kind), "detail": "low"}},
    ]
    message = Message.objects.get(role="user")
    assert message.parts[1] == {
        "type": "file",
        "media_type": kind,
        "name": "",
        "reference": f"image:tokens=1000&detail=low&sha256={sha(data)}&size={len(data)}",
    }
    assert (message.token_count or 0) > 1000
    image = MessageImage.objects.get()
    assert (image.message, image.media_type, bytes(image.data)) == (message, kind, data)


def test_responses_take_images_too(program: GatewayClient) -> None:
    content = [
        {"type": "input_text", "text": "Describe this."},
        {"type": "input_image", "image_url": build_image_url(), "detail": "auto"},
    ]
    body = {"model": "demo", "input": [{"role": "user", "content": content}]}
    response = program.open(body, path="responses")
    program.work(response["X-Context-Report-Id"])
    first = program.close(response).json
    body = {"model": "demo", "input": "And now?", "previous_response_id": first["id"]}
    response = program.open(body, path="responses")
    program.work(response["X-Context-Report-Id"])
    assert program.close(response).headers["X-Context-Decision"] == "continue"
    assert wire_of(program)[0]["content"][1]["image_url"] == {
        "url": build_image_url(),
        "detail": "auto",
    }
    assert MessageImage.objects.count() == 1


def test_an_address_is_passed_on_and_nothing_is_fetched(program: GatewayClient) -> None:
    program.ask([build_image_message(ADDRESS)])
    assert wire_of(program)[-1]["content"][1]["image_url"] == {"url": ADDRESS}
    assert not MessageImage.objects.exists()


def test_an_address_counts_as_many_tokens_as_its_line_can_have(
    program: GatewayClient, settings: Settings
) -> None:
    settings.GATEWAY_IMAGE_TOKENS = 10
    program.ask([build_image_message(f"{ADDRESS}&policy={'x9' * 700}")])
    # Models that accept no images get the address.
    assert (Message.objects.get(role="user").token_count or 0) > 1_400


def test_a_chat_is_found_again_by_its_image(program: GatewayClient) -> None:
    messages = program.talk(
        ["first"], [build_image_message(build_image_url()), assistant("A harbour.")]
    )
    chat = Chat.objects.get()
    program.talk(["second"], messages)
    assert Chat.objects.count() == 1
    # The image is stored once. A different image starts a different branch.
    assert MessageImage.objects.count() == 1
    other = [build_image_message(build_image_url(PNG + b"!")), *messages[1:], user("second")]
    program.ask(other)
    assert MessageImage.objects.count() == 2
    branches = {row.branch_id for row in Message.objects.filter(branch__chat=chat)}
    assert len(branches) + Chat.objects.count() > 2


def test_a_signature_in_an_address_that_changes_is_the_same_image(program: GatewayClient) -> None:
    first = program.ask([build_image_message(ADDRESS)])
    said = [build_image_message(ADDRESS.replace("=1", "=2")), assistant(first.text), user("And?")]
    assert program.ask(said).headers["X-Context-Decision"] == "continue"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (build_image_url(b"%PDF-1.7", "image/png"), "invalid_image"),
        (build_image_url(b"<svg onload=alert(1)>", "image/svg+xml"), "invalid_image"),
        (build_image_url(b"", "image/png"), "invalid_image"),
        ("data:image/png;base64,####", "invalid_image"),
        ("http://pictures.example/a.png", "invalid_image"),
        ("https://pictures.example/" + "a" * 8001, "invalid_image"),
        ("file:///etc/passwd", "invalid_image"),
        (None, "invalid_image"),
        (build_image_url(PNG + bytes(2000)), "image_too_large"),
    ],
)
def test_what_is_no_image_or_too_large_is_refused(
    program: GatewayClient, settings: Settings, url: Any, code: str
) -> None:
    settings.GATEWAY_IMAGE_BYTES = 1000
    answer = program.ask([build_image_message(url)])
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, code)
    assert error["param"] == "messages[0].content[1].image_url"
    assert set(error) == {"message", "type", "param", "code"}
    assert not Chat.objects.exists()


@pytest.mark.parametrize("role", ["system", "assistant", "tool"])
def test_only_a_message_of_the_user_has_images(program: GatewayClient, role: str) -> None:
    said = {**build_image_message(build_image_url()), "role": role}
    answer = program.ask([user("hi"), said, user("?")])
    assert answer.status == 400
    refused = program.ask([build_image_message(build_image_url(), detail="huge")])
    assert refused.json["error"]["code"] == "invalid_image"


def test_the_receipt_names_the_image_and_has_none_of_its_bytes(program: GatewayClient) -> None:
    program.ask([build_image_message(build_image_url())])
    receipt = Receipt.objects.get()
    found = rebuild_request(receipt)
    assert found.fault == ""
    line = f"[Image: image/png, {len(PNG)} bytes, SHA-256 {sha(PNG)}]"
    shown = sent_request.load_sent_request(receipt, sees_hidden=True)
    assert line in "".join(each.text for each in shown.lines)
    for form in sent_request.FORMS:
        text = sent_request.build_request_file(
            sent_request.load_sent_request(receipt, sees_hidden=True), form=form
        ).text
        assert line in json.dumps(text) or sha(PNG) in text
        assert base64.b64encode(PNG).decode() not in text
    assert sha(PNG) not in json.dumps(list(AuditEvent.objects.values("data")))


@pytest.mark.parametrize("said", [ADDRESS, build_image_url()])
def test_a_model_without_images_gets_a_line_for_each(
    program: GatewayClient, demo_model: ModelSpec, said: str
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(takes_images=False)
    program.ask([build_image_message(said)])
    line = wire_of(program)[-1]["content"][1]
    told = ADDRESS if said == ADDRESS else "bytes, SHA-256"
    assert (line["type"], told in line["text"]) == ("text", True)
    (block,) = build_anthropic_body(program.requests[-1])["messages"]
    assert block["content"][1]["text"] == line["text"]
    # Earlier versions sent the address of an image to every model.
    receipt = Receipt.objects.get()
    for takes_images in (False, said == ADDRESS):
        sent = replace(program.requests[-1], takes_images=takes_images)
        body = sent_request.serialise_body(build_openai_body(sent))
        receipt.body_sha256 = hashlib.sha256(body.encode()).hexdigest()
        found = rebuild_request(receipt)
        assert (found.fault, sent_request.compare_body_hash(found)) == ("", "same")


def test_an_image_in_a_file_part_keeps_its_name(program: GatewayClient) -> None:
    file = {"filename": "a/12:30.png", "file_data": base64.b64encode(PNG).decode()}
    program.ask([{"role": "user", "content": [TEXT, {"type": "file", "file": file}]}])
    (part,) = [part for part in Message.objects.get(role="user").parts if part["type"] == "file"]
    assert part["name"] == "12-30.png"
    assert "&line=2&pixels=0x0&" in part["reference"]
    (image,) = [image for wire in program.requests[-1].messages for _, image in wire.images]
    assert '[Image: "12-30.png", image/png, ' in format_image_text(image)


def page_of(owner: User) -> Client:
    """Return a signed-in browser."""
    client = Client()
    client.force_login(owner)
    return client


def test_the_owner_sees_it_in_the_chat_and_nobody_else(
    program: GatewayClient, alice: User, charlie: User
) -> None:
    answer = program.ask(
        [
            build_image_message(build_image_url()),
            assistant("A harbour."),
            build_image_message(ADDRESS, "And this?"),
        ]
    )
    chat = answer.chat
    message = Message.objects.filter(branch__chat=chat).earliest("seq")
    address = f"/chats/{chat.pk}/messages/{message.pk}/images/{sha(PNG)}"
    html = page_of(alice).get(f"/chats/{chat.pk}/").content.decode()
    assert f'src="{address}"' in html
    assert "pictures.example/harbour.png" in html
    assert 'src="https://' not in html
    image = page_of(alice).get(address)
    assert (image.status_code, image["Content-Type"], image.content) == (200, "image/png", PNG)
    assert image["X-Content-Type-Options"] == "nosniff"
    assert image["Content-Security-Policy"] == SANDBOX_POLICY
    assert {"default-src 'none'", "sandbox"} <= set(SANDBOX_POLICY.split("; "))
    assert "no-store" in image["Cache-Control"]
    assert page_of(alice).post(address).status_code == 405
    assert page_of(alice).get(address.replace(sha(PNG), "0" * 64)).status_code == 404
    assert page_of(charlie).get(address).status_code == 404
    assert Client().get(address).status_code in (302, 404)


def test_an_erased_message_takes_its_image_along(program: GatewayClient, alice: User) -> None:
    answer = program.ask([build_image_message(build_image_url())])
    message = Message.objects.get(role="user")
    erasure.erase_message(user=alice, message=message, now=timezone.now())
    assert not MessageImage.objects.exists()
    assert sha(PNG) not in json.dumps(list(Message.objects.values("parts")))
    assert not GatewayNode.objects.filter(seq=1).exists()
    address = f"/chats/{answer.chat.pk}/messages/{message.pk}/images/{sha(PNG)}"
    assert page_of(alice).get(address).status_code == 404


def test_an_erased_chat_takes_its_images_along(program: GatewayClient, alice: User) -> None:
    answer = program.ask([build_image_message(build_image_url())])
    erasure.erase_chat(user=alice, chat=answer.chat, now=timezone.now())
    assert not MessageImage.objects.exists()


def test_an_image_that_is_passed_on_is_not_stored(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([[TextDelta("A harbour."), Finished("stop")]])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "messages": [build_image_message(build_image_url())]}
    assert program.close(program.open(body)).text == "A harbour."
    sent = build_openai_body(provider.requests[0])["messages"][0]["content"]
    assert sent[1]["image_url"] == {"url": build_image_url()}
    assert not MessageImage.objects.exists()
    assert PassedOn.objects.count() == 1


def test_a_sealed_conversation_has_its_images(program: GatewayClient) -> None:
    content = [{"type": "input_image", "image_url": build_image_url()}]
    asked = {"model": "demo", "input": [{"role": "user", "content": content}]}
    sealed = program.close(program.open(asked, path="responses/compact")).json["output"]
    body = {"model": "demo", "input": [*sealed, {"role": "user", "content": "What is it?"}]}
    response = program.open(body, path="responses")
    program.work(response["X-Context-Report-Id"])
    assert program.close(response).status == 200
    assert wire_of(program)[0]["content"] == [
        {"type": "image_url", "image_url": {"url": build_image_url()}}
    ]
    assert list_chat_messages(Chat.objects.get())[0][1:] == ("user", "")


@pytest.mark.parametrize("data", [PNG + b"!", b""])
def test_verification_finds_changed_bytes_of_an_image(program: GatewayClient, data: bytes) -> None:
    program.ask([build_image_message(build_image_url())])
    assert [found.reason for found in verify_stored_messages(scope=None, tally=Counter())] == []
    MessageImage.objects.update(data=data)
    [found] = verify_stored_messages(scope=None, tally=Counter())
    message = Message.objects.get(role="user")
    assert found.reason.endswith(f"message {message.pk} was changed")


@pytest.mark.parametrize("times", [1, 2])
def test_an_edited_message_keeps_images_of_a_client(program: GatewayClient, times: int) -> None:
    image = {"type": "image_url", "image_url": {"url": build_image_url()}}
    remote = {"type": "image_url", "image_url": {"url": ADDRESS}}
    answer = program.ask([user([image] * times + [remote])])
    message = Message.objects.get(role="user")
    turn = branching.edit_message(
        user=answer.chat.owner, message=message, text="Describe it.", now=timezone.now()
    ).turn
    copy = Message.objects.get(pk=str(turn.trigger_id))
    assert copy.parts == [*message.parts, {"type": "text", "text": "Describe it."}]
    assert MessageImage.objects.filter(message=copy).count() == 1


def test_a_chat_that_began_with_an_image_gets_its_title_later(program: GatewayClient) -> None:
    image = user([{"type": "image_url", "image_url": {"url": build_image_url()}}])
    first = program.ask([image])
    assert first.chat.title == "…"
    second = program.ask([image, assistant("reply 1"), user("Which one?")])
    assert second.chat == first.chat
    assert second.chat.title == "Which one?"


def test_use_chat_shows_and_keeps_images_of_another_client(
    program: GatewayClient, client: Client, alice: User, work: Callable[..., Any]
) -> None:
    own = {"type": "image_url", "image_url": {"url": build_image_url()}}
    remote = {"type": "image_url", "image_url": {"url": ADDRESS}}
    chat = program.ask([user([own, remote])]).chat
    client.force_login(alice)
    (asked, _) = client.get(f"/api/v1/ui-chats/{chat.pk}").json()["messages"]
    first, second = (part["url"] for part in asked["parts"])
    assert (client.get(first)["Content-Type"], second) == ("image/png", ADDRESS)
    request = UIRequest(
        str(chat.pk),
        "submit-message",
        asked["id"],
        last=parse_ui_message({**asked, "parts": [*asked["parts"], TEXT]})[0],
    )
    reply = reply_to_ui_request(request, user=alice, now=timezone.now())
    copy = Message.objects.get(pk=str(reply.turn.trigger_id))
    assert [part["type"] for part in copy.parts] == ["file", "file", "text"]
    assert MessageImage.objects.filter(message=copy).count() == 1
    # The same request again, and another edit by a client that has the addresses of the first list.
    again = reply_to_ui_request(request, user=alice, now=timezone.now())
    assert again.turn == reply.turn
    work(reply.turn, [TextDelta("A harbour."), Finished("stop")])
    more = [*asked["parts"], {"type": "text", "text": "And the sky?"}]
    edit = replace(request, last=parse_ui_message({**asked, "parts": more})[0])
    edited = reply_to_ui_request(edit, user=alice, now=timezone.now()).turn
    assert MessageImage.objects.filter(message=edited.trigger_id).count() == 1
    other = {"type": "file", "mediaType": "image/png", "url": "https://example.com/other.png"}
    last = parse_ui_message({**asked, "parts": [other, TEXT]})[0]
    for message_id in (asked["id"], None):
        with pytest.raises(UnsupportedUIMessage):
            reply_to_ui_request(
                replace(request, last=last, message_id=message_id), user=alice, now=timezone.now()
            )
