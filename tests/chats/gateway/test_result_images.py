"""Images in tool results: stored with the reply that called the tool, sent in place, limited."""

import base64
import hashlib
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions import erasure
from chats.models import Chat, Message, MessageImage, Receipt
from chats.prompt import sent_request
from chats.prompt.reconstruction import rebuild_request
from chats.providers import registry
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import Finished, TextDelta
from chats.providers.wire import build_openai_body
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    Answer,
    GatewayClient,
    Messages,
    assistant,
    call,
    calling,
    get_client_key,
    user,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

PNG = b"\x89PNG\r\n\x1a\n" + b"a map of Oslo"
JPEG = b"\xff\xd8\xff\xe0 the same map"
ADDRESS = "https://maps.example/oslo.png"


def url_of(data: bytes = PNG, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def shown(call_id: str, *content: Any) -> dict[str, Any]:
    """Return a tool result of several parts."""
    return {"role": "tool", "tool_call_id": call_id, "content": list(content)}


def tooled(program: GatewayClient, *results: Any, **more: Any) -> tuple[Messages, Answer]:
    """Let the model call a tool for each result, and send the results."""
    ids = [each["tool_call_id"] for each in results]
    said = [user("Show me Oslo")]
    program.ask(said, *calling(*ids), tools=TOOLS, **more)
    said += [assistant(None, *map(call, ids)), *results]
    return said, program.ask(said, tools=TOOLS, **more)


def wire_of(program: GatewayClient, **options: bool) -> list[dict[str, Any]]:
    """Return the messages of the newest call in wire format."""
    body = build_openai_body(program.requests[-1], **options)  # type: ignore[arg-type]  # flags
    messages: list[dict[str, Any]] = body["messages"]
    return messages


RESULT = shown("c1", text("Before"), image(url_of()), text("After"))


def test_the_model_gets_the_image_in_its_place(program: GatewayClient) -> None:
    _, answer = tooled(program, RESULT)
    assert (answer.status, answer.headers["X-Context-Decision"]) == (200, "continue")
    assert wire_of(program)[-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [text("Before"), image(url_of()), text("After")],
    }
    reply = Message.objects.get(role="assistant", seq=2)
    assert [part["type"] for part in reply.parts] == ["tool_call", "file", "tool_result"]
    assert (reply.token_count or 0) > 1000
    stored = MessageImage.objects.get()
    assert (stored.message, bytes(stored.data)) == (reply, PNG)
    receipt = Receipt.objects.latest("created_at")
    assert rebuild_request(receipt).fault == ""
    lines = sent_request.load_sent_request(receipt, sees_hidden=True).lines
    assert hashlib.sha256(PNG).hexdigest() in "".join(line.text for line in lines)


def test_other_servers_get_it_in_their_form(program: GatewayClient) -> None:
    tooled(program, RESULT, shown("c2", image(url_of(JPEG, "image/jpeg"))))
    *_, first, second, below = wire_of(program, takes_result_images=False)
    assert [first["role"], second["role"], below["role"]] == ["tool", "tool", "user"]
    assert isinstance(first["content"], str)
    assert first["content"].startswith("Before")
    assert [part["type"] for part in below["content"]] == ["text", "image_url", "image_url"]
    results = build_anthropic_body(program.requests[-1])["messages"][-1]["content"]
    kinds = [[block["type"] for block in each["content"]] for each in results]
    assert kinds == [["text", "image", "text"], ["image"]]


def test_the_same_conversation_continues(program: GatewayClient) -> None:
    said, answer = tooled(program, RESULT)
    said += [assistant(answer.text), user("And Bergen?")]
    again = program.ask(said, tools=TOOLS)
    assert again.headers["X-Context-Decision"] == "continue"
    assert (Chat.objects.count(), MessageImage.objects.count()) == (1, 1)
    assert wire_of(program)[2]["content"][1] == image(url_of())
    # Another image is another result: the conversation branches before it.
    other = [*said[:2], shown("c1", text("Before"), image(url_of(JPEG)), text("After"))]
    branched = program.ask(other, tools=TOOLS)
    assert branched.headers["X-Context-Decision"] == "branch"
    assert MessageImage.objects.count() == 2


def test_a_new_chat_stores_the_images_of_its_history(program: GatewayClient) -> None:
    said = [user("Show me"), assistant(None, call("c1")), RESULT, assistant("Oslo"), user("And?")]
    program.ask(said, tools=TOOLS)
    assert MessageImage.objects.get().message.seq == 2
    assert wire_of(program)[2]["content"][1] == image(url_of())


def test_an_address_is_passed_on(program: GatewayClient) -> None:
    tooled(program, shown("c1", image(ADDRESS)))
    assert wire_of(program)[-1]["content"] == [image(ADDRESS)]
    assert not MessageImage.objects.exists()


def test_a_model_without_images_gets_a_line(program: GatewayClient, demo_model: ModelSpec) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(takes_images=False)
    tooled(program, RESULT)
    content = wire_of(program)[-1]["content"]
    assert isinstance(content, str)
    assert "[Image: image/png" in content
    assert [wire["role"] for wire in wire_of(program, takes_result_images=False)][-1] == "tool"


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_it_is_passed_through(program: GatewayClient, monkeypatch: Any, path: str) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([[TextDelta("Oslo"), Finished("stop")]])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    said = [user("Show me"), assistant(None, call("c1")), RESULT]
    made: dict[str, Any] = {"messages": said} if path != "responses" else {"input": ITEMS}
    program.close(program.open({"model": "demo", **made}, path=path))
    body = build_openai_body(provider.requests[0])
    assert image(url_of())["image_url"] in [
        part.get("image_url") for part in body["messages"][-1]["content"]
    ]
    assert not MessageImage.objects.exists()


ITEMS: list[Any] = [
    {"role": "user", "content": "Show me"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": "Oslo"},
            {"type": "input_image", "image_url": url_of()},
        ],
    },
]


def respond(program: GatewayClient, *script: Any, **body: Any) -> Answer:
    """Send a request to /v1/responses, and let the model reply."""
    response = program.open({"model": "demo", **body}, path="responses")
    program.work(response["X-Context-Report-Id"], *script)
    return program.close(response)


def test_responses_take_them_and_list_them(program: GatewayClient) -> None:
    first = respond(program, *calling("c1"), input="Show me Oslo").json
    second = respond(program, input=ITEMS[2:], previous_response_id=first["id"])
    assert second.headers["X-Context-Decision"] == "continue"
    assert [part["type"] for part in wire_of(program)[-1]["content"]] == ["text", "image_url"]
    # Another request may bring another result of the same call.
    other = {**ITEMS[2], "output": [{"type": "input_image", "image_url": url_of(JPEG)}]}
    third = respond(program, input=[other], previous_response_id=first["id"])
    assert third.headers["X-Context-Decision"] == "branch"
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    listed = client.get(f"/v1/responses/{second.json['id']}/input_items?order=asc").json()["data"]
    output = next(item for item in listed if item["type"] == "function_call_output")["output"]
    assert output[0] == {"type": "input_text", "text": "Oslo"}
    assert output[1]["image_url"] == url_of()


def test_a_compaction_item_has_them(program: GatewayClient) -> None:
    sealed = program.close(
        program.open({"model": "demo", "input": ITEMS}, path="responses/compact")
    )
    respond(program, input=[*sealed.json["output"], {"role": "user", "content": "Where?"}])
    assert wire_of(program)[2]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": url_of()},
    }


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (url_of(b"%PDF-1.7"), "invalid_image"),
        ("http://maps.example/a.png", "invalid_image"),
        (url_of(PNG + bytes(2000)), "image_too_large"),
    ],
)
def test_the_limits_of_images_apply(
    program: GatewayClient, settings: Settings, url: str, code: str
) -> None:
    settings.GATEWAY_IMAGE_BYTES = 1000
    _, answer = tooled(program, shown("c1", image(url)))
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, code)
    assert error["param"] == "messages[2].content[0].image_url"


@pytest.mark.parametrize("is_new", [False, True])
def test_a_policy_limits_them(program: GatewayClient, set_policy: SetPolicy, is_new: bool) -> None:
    set_policy(file_kinds=["pdf"])
    if is_new:
        answer = program.ask([user("Show me"), assistant(None, call("c1")), RESULT], tools=TOOLS)
    else:
        _, answer = tooled(program, RESULT)
    assert (answer.status, answer.json["error"]["code"]) == (422, "file_kind_not_allowed")
    assert not MessageImage.objects.exists()


@pytest.mark.parametrize("kind", ["input_audio", "file"])
def test_other_parts_are_refused(program: GatewayClient, kind: str) -> None:
    _, answer = tooled(program, shown("c1", {"type": kind, kind: {"file_data": url_of()}}))
    assert (answer.status, answer.json["error"]["code"]) == (400, "unsupported_content")


def test_a_rule_that_omits_a_result_omits_its_image(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(strategy="sliding_window", tool_output_rules={"weather": {"keep_newest": 0}})
    said, answer = tooled(program, RESULT)
    program.ask([*said, assistant(answer.text), user("And?")], tools=TOOLS)
    assert isinstance(wire_of(program)[2]["content"], str)


def test_a_text_layout_leaves_out_the_result_and_its_image(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(strategy="sliding_window", layout="A")
    said, answer = tooled(program, RESULT)
    assert wire_of(program)[-1]["content"][1] == image(url_of())
    program.ask([*said, assistant(answer.text), user("And?")], tools=TOOLS)
    assert "[Image" not in program.prompt[-1][1]


def test_the_owner_sees_it_and_erases_it(program: GatewayClient, alice: User) -> None:
    _, answer = tooled(program, RESULT)
    page = Client()
    page.force_login(alice)
    reply = Message.objects.get(role="assistant", seq=2)
    address = f"/chats/{answer.chat.pk}/messages/{reply.pk}/images/"
    html = page.get(f"/chats/{answer.chat.pk}/").content.decode()
    assert f'src="{address}{hashlib.sha256(PNG).hexdigest()}"' in html
    assert ":c1" not in html
    erasure.erase_message(user=alice, message=reply, now=timezone.now())
    assert not MessageImage.objects.exists()
