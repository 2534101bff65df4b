"""The legacy completions endpoint: a prompt as one message, the reply in its own format."""

from typing import Any

import pytest
from django.test import Client

from chats.models import Chat, PassedOn, Receipt
from chats.prompt.reconstruction import rebuild_request
from chats.providers import registry
from chats.providers.base import Finished, ReasoningDelta, TextDelta
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    USAGE,
    Answer,
    GatewayClient,
    MakeClient,
    get_client_key,
    list_chat_messages,
    user,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

SCRIPT = (TextDelta(" upon"), TextDelta(" a time"), USAGE, Finished("stop"))


def complete(program: GatewayClient, *script: Any, headers: Any = None, **body: Any) -> Answer:
    """Send a request to /v1/completions, and let the model reply."""
    made = {"model": "demo", "prompt": "Once", **body}
    response = program.open(made, path="completions", **(headers or {}))
    if response.streaming:
        program.work(response["X-Context-Report-Id"], *(script or SCRIPT))
    return program.close(response)


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_a_prompt_is_completed_in_a_chat(program: GatewayClient, prompt: Any) -> None:
    answer = complete(program, prompt=prompt, temperature=0.5, stop=["."], max_tokens=9)
    turn = answer.turn
    assert answer.json == {
        "id": f"cmpl-{turn.pk.hex}",
        "object": "text_completion",
        "created": int(turn.queued_at.timestamp()),
        "model": "demo",
        "choices": [
            {"index": 0, "text": " upon a time", "logprobs": None, "finish_reason": "stop"}
        ],
        "usage": {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }
    assert program.prompt == [("user", "Once")]
    request = program.requests[-1]
    assert request.parameters == {"temperature": 0.5, "stop": ["."]}
    assert request.max_output_tokens == 9
    assert list_chat_messages(answer.chat) == [
        (1, "user", "Once"),
        (2, "assistant", " upon a time"),
    ]
    assert rebuild_request(Receipt.objects.get()).fault == ""


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_has_the_same_text(program: GatewayClient, echo: bool) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    thinking = (ReasoningDelta("Hm."), *SCRIPT)
    answer = complete(program, *thinking, echo=echo, **options)
    *chunks, usage = answer.chunks
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    told = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert told == ("Once" if echo else "") + " upon a time"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] == "stop"
    assert not any(reasons[:-1])
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 29)
    assert answer.body.endswith("data: [DONE]\n\n")
    whole = complete(program, echo=echo).json["choices"][0]["text"]
    assert whole == told


def test_a_limit_ends_it(program: GatewayClient) -> None:
    answer = complete(program, TextDelta(" upon"), Finished("length"))
    assert answer.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_field"),
        ({"prompt": ""}, "prompt", "missing_field"),
        ({"prompt": ["a", "b"]}, "prompt", "unsupported_content"),
        ({"prompt": [1, 2]}, "prompt", "unsupported_content"),
        ({"prompt": [[1, 2]]}, "prompt", "unsupported_content"),
        ({"prompt": "x" * 300_000}, "prompt", "message_too_long"),
        ({"suffix": "end"}, "suffix", "unsupported_parameter"),
        ({"best_of": 2}, "best_of", "unsupported_parameter"),
        ({"messages": [user("x")]}, "messages", "unsupported_parameter"),
        ({"tools": [{}]}, "tools", "unsupported_parameter"),
        ({"base_url": "https://x.example"}, "base_url", "unsupported_parameter"),
        ({"echo": "yes"}, "echo", "invalid_value"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"model": "other"}, "model", "model_not_found"),
    ],
)
def test_what_a_message_cannot_express_is_refused(
    program: GatewayClient, changes: dict[str, Any], param: str, code: str
) -> None:
    answer = complete(program, **changes)
    error = answer.json["error"]
    assert answer.status in (400, 404, 422)
    assert (error["param"], error["code"]) == (param, code)
    assert not Chat.objects.exists()


def test_values_that_change_nothing_are_accepted(program: GatewayClient) -> None:
    same = {"n": 1, "best_of": 1, "logprobs": None, "suffix": None, "echo": False}
    assert complete(program, **same).status == 200
    assert program.requests[-1].parameters == {}


def test_a_named_chat_is_continued(program: GatewayClient) -> None:
    chat = program.ask([user("Hello")]).chat
    answer = complete(program, model=f"chat:{chat.pk}")
    assert (answer.chat, answer.headers["X-Context-Decision"]) == (chat, "continue")


def test_a_key_needs_the_scope_and_the_right_owner(
    program: GatewayClient, make: MakeClient, charlie: Any
) -> None:
    assert complete(make(charlie, scopes=("chats:read",))).status == 403
    chat = program.ask([user("Hello")]).chat
    assert complete(make(charlie), model=f"chat:{chat.pk}").status == 404
    assert Client().post("/v1/completions", {}).status_code == 401


def test_a_failure_before_the_first_text_has_its_status(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(allowed_models=[])
    assert complete(program).json["error"]["code"] == "model_not_allowed"


def test_the_same_idempotency_key_returns_the_same_completion(program: GatewayClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = complete(program, headers=headers)
    response = program.open({"model": "demo", "prompt": "Once"}, path="completions", **headers)
    again = program.close(response)
    assert again.json == first.json
    assert again.headers["X-Context-Decision"] == "repeat"


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_passed_through(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([list(SCRIPT)])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "prompt": "Once", "stream": stream, "echo": True}
    answer = program.close(program.open(body, path="completions"))
    pieces = answer.chunks if stream else [answer.json]
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == "Once upon a time"
    assert not Chat.objects.exists()
    row = PassedOn.objects.get()
    assert (row.outcome, row.usage["output"]) == ("ok", 9)


def test_a_dry_run_stores_nothing(program: GatewayClient) -> None:
    answer = complete(program, headers={"X-Context-Dry-Run": "true"})
    assert answer.json["decision"] == "new"
    assert not Chat.objects.exists()
