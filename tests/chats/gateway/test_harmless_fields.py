"""Fields and messages without an effect, which clients send by default."""

from typing import Any

import pytest

from chats.models import Message
from chats.providers.wire import build_openai_body
from tests.support.gateway_clients import GatewayClient, assistant, call, result, system, user
from tests.support.gateway_files import PNG, build_image_message, build_image_url
from tests.support.gateway_responses import create_response

pytestmark = pytest.mark.django_db
SAID = [user("Hi")]


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": None, "timeout": None, "fallbacks": None, "base_url": None},
        {"functions": [], "function_call": "none"},
        {"functions": None, "function_call": None, "audio": None},
    ],
)
def test_fields_that_ask_for_nothing_are_accepted(
    program: GatewayClient, fields: dict[str, Any]
) -> None:
    for answer in (program.ask(SAID, **fields), create_response(program, "Hi", **fields)):
        assert answer.status == 200
        assert "X-Context-Parameters-Left-Out" not in answer.headers
        assert not {*fields} & {*program.requests[-1].parameters}


@pytest.mark.parametrize("fields", [{"provider": {}}, {"timeout": 5}, {"base_url": ""}])
def test_other_values_are_still_refused(program: GatewayClient, fields: dict[str, Any]) -> None:
    answer = program.ask(SAID, **fields)
    assert (answer.status, answer.json["error"]["code"]) == (400, "unsupported_parameter")


@pytest.mark.parametrize("content", ["", None, [], "  ", [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("before", [[], [assistant("Yes"), user("And?")]])
def test_an_empty_last_reply_is_left_out(
    program: GatewayClient, content: Any, before: list[Any]
) -> None:
    said = [system("Be brief"), *SAID, *before]
    answer = program.ask([*said, {"role": "assistant", "content": content}])
    assert answer.status == 200
    assert program.prompt[-1] == ("user", said[-1]["content"])


def test_an_empty_last_reply_is_left_out_of_responses(program: GatewayClient) -> None:
    answer = create_response(program, [*SAID, {"role": "assistant", "content": ""}])
    assert (answer.status, program.prompt[-1]) == (200, ("user", "Hi"))


@pytest.mark.parametrize("said", [[assistant("")], [user("Hi"), assistant("Yes"), assistant("")]])
def test_a_request_without_a_question_is_still_refused(
    program: GatewayClient, said: list[Any]
) -> None:
    assert program.ask(said).status == 400


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}], "closed": True}
PARTS = [THINKING, {"type": "thinking", "thinking": "rain?"}, {"type": "text", "text": "Yes"}]


@pytest.mark.parametrize("has_call", [False, True])
def test_thinking_parts_of_a_reply_become_reasoning(program: GatewayClient, has_call: bool) -> None:
    calls = [call("call_9fk2")] if has_call else []
    reply = {**assistant("", *calls), "content": PARTS}
    said = [*SAID, reply, *([result("call_9fk2", "ok")] if has_call else []), user("And?")]
    assert program.ask(said).status == 200
    row = Message.objects.get(seq=2)
    texts = [part for part in row.parts if part["type"] in ("reasoning", "text")]
    assert texts[0] == {"type": "reasoning", "text": "Hm, rain?"}
    assert row.text == "Yes"
    sent = build_openai_body(program.requests[-1])["messages"]
    assert [each["content"] for each in sent if each["role"] == "assistant"] == ["Yes"]


def test_other_parts_are_refused_by_their_place(program: GatewayClient) -> None:
    reply = {"role": "assistant", "content": [THINKING, {"type": "audio"}]}
    answer = program.ask([*SAID, reply, user("And?")])
    assert answer.json["error"]["param"] == "messages[1].content[1]"


@pytest.mark.parametrize(
    "url",
    [
        "https://pictures.example/a.png?signature=" + "a" * 7000,
        build_image_url(PNG).replace(";base64", ";name=a.png;base64"),
        build_image_url(PNG).replace(";base64", ";charset=utf-8;name=a.png;base64"),
    ],
)
def test_signed_addresses_and_parameters_of_data_are_accepted(
    program: GatewayClient, url: str
) -> None:
    assert program.ask([build_image_message(url)]).status == 200
    sent = build_openai_body(program.requests[-1])["messages"][-1]["content"][1]["image_url"]
    assert sent["url"] == (url if url.startswith("https") else build_image_url(PNG))
