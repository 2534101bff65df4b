"""Request fields that are forwarded to the model server."""

import json
from dataclasses import replace
from typing import Any

import pytest

from chats.gateway import body, parameters
from chats.models import Chat, Turn
from chats.providers.anthropic_wire import build_anthropic_body
from contextpolicy.models import ModelSpec
from tests.support.gateway_clients import GatewayClient, user

pytestmark = pytest.mark.django_db

ROUTING = [
    "openai_api_base",
    "api_base_url",
    "base_uri",
    "endpoint",
    "proxy_url",
    "http_proxy",
    "default_headers",
    "X-Headers",
    "callbacks",
    "success_callback",
    "guardrails",
    "ssl_verify",
    "client_cert",
    "preset",
    "user_config",
    "num_retries",
    "request_timeout",
    "stream_timeout",
    "deployment",
    "region_name",
    "project_id",
    "vertex_project",
    "azure_ad_token",
    "bedrock_runtime",
    "router_settings",
    "webhook_url",
    "allowed_providers",
    "provider_options",
    "auth",
    "aws_secret_access_key",
    "apikey",
    "my_api_key",
    "credentials_path",
    "context_window_fallback_dict",
    "organization_id",
    "litellm_params",
    "mock_response",
]
# Stands for a malformed value.
ODD = "<odd>"
SEARCH = {"type": "web_search"}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
# Fields by path that are compared with known names or looked up by them.
NAMED: dict[str, list[dict[str, Any]]] = {
    "responses": [
        {"tools": [SEARCH], "tool_choice": {"type": ODD}},
        {"tools": [SEARCH], "tool_choice": ODD},
        {"tools": [{"type": ODD}]},
        {"tools": [{"type": "custom", "name": ODD}]},
        {"input": [{"type": ODD}]},
        {"input": [{"role": ODD, "content": "x"}]},
        {"input": [{"role": "user", "content": [{"type": ODD, "text": "x"}]}]},
        {"input": [{"type": "item_reference", "id": ODD}]},
        {"input": [{"type": "function_call_output", "call_id": ODD, "output": "x"}]},
        {"text": {"format": {"type": ODD}}},
        *({name: ODD} for name in ("truncation", "previous_response_id", "conversation", "n")),
    ],
    "chat/completions": [
        {"messages": [{"role": ODD, "content": "x"}]},
        {"messages": [user([{"type": ODD, "text": "x"}])]},
        {
            "messages": [
                user([{"type": "image_url", "image_url": {"url": "https://a", "detail": ODD}}])
            ]
        },
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "id": ODD}]}]},
        {"messages": [{"role": "tool", "tool_call_id": ODD, "content": "x"}]},
        {"tools": [{"type": ODD}]},
        {"stream_options": {"include_usage": ODD}, "stream": True},
        {"functions": [ODD]},
        *({name: ODD} for name in ("modalities", "model", "n")),
    ],
    "completions": [{name: ODD} for name in ("prompt", "best_of", "suffix", "logprobs")],
    "conversations": [{"items": [{"role": ODD, "content": "x"}]}, {"metadata": {"a": ODD}}],
}
UNKNOWN = ["user_configuration", "client_metadata", "keep_alive", "cache", "tags", "top_K", "ü"]


@pytest.mark.parametrize("name", ROUTING)
@pytest.mark.parametrize("path", ["chat/completions", "responses", "embeddings"])
def test_routing_words_are_refused_by_name(program: GatewayClient, name: str, path: str) -> None:
    said: Any = {"messages": [user("hi")]} if path == "chat/completions" else {"input": "hi"}
    answer = program.close(program.open({"model": "demo", **said, name: "x"}, path=path))
    error = answer.json["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert not Chat.objects.exists()


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_unknown_fields_are_left_out_and_named(program: GatewayClient, path: str) -> None:
    said: Any = {"messages": [user("hi")]} if path == "chat/completions" else {"input": "hi"}
    others = dict.fromkeys(UNKNOWN, "x")
    known = {"top_k": 5, "min_p": 0.1, "thinking": {"type": "enabled"}, "temperature": 1}
    response = program.open({"model": "demo", **said, **others, **known}, path=path)
    program.work(response["X-Context-Report-Id"])
    answer = program.close(response)
    assert answer.status == 200
    assert program.requests[-1].parameters == known
    told = answer.headers["X-Context-Parameters-Left-Out"]
    assert told == "user_configuration, client_metadata, keep_alive, cache, tags, top_K"


@pytest.mark.parametrize(
    "path", ["chat/completions", "completions", "responses", "responses/compact", "embeddings"]
)
def test_a_body_of_countless_values_is_refused_before_it_is_parsed(
    program: GatewayClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "load_strict_json", pytest.fail)
    sent = b'{"model": "demo", "input": [' + b"{}," * body.VALUES + b"{}]}"
    answer = program.close(program.open(sent, path=path))
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_json")
    assert f"{body.VALUES:,}" in answer.json["error"]["message"]


def test_names_that_no_header_takes_are_not_named() -> None:
    names = ["a\r\nSet-Cookie: x", "a b", "x" * 65, "ü", *(f"n{n}" for n in range(40))]
    assert parameters.list_dropped_fields(names) == tuple(f"n{n}" for n in range(20))
    assert parameters.build_dropped_headers(()) == {}


def test_no_known_option_looks_like_routing() -> None:
    for allowed in (parameters.CHAT, parameters.EMBEDDINGS):
        assert not [name for name in allowed if parameters.is_routing(name, allowed=allowed)]


@pytest.mark.parametrize("odd", ["[]", "{}", '{"type": []}', "1e400"])
@pytest.mark.parametrize("path", NAMED)
def test_malformed_names_are_refused(program: GatewayClient, path: str, odd: str) -> None:
    """Lists and objects cannot be looked up in sets, and no number is infinite."""
    ModelSpec.objects.update(hosted_tools="web_search")
    bodies: dict[str, dict[str, Any]] = {
        "responses": {"model": "demo", "input": "x"},
        "chat/completions": {"model": "demo", "messages": [user("x")]},
        "completions": {"model": "demo", "prompt": "x"},
        "conversations": {},
    }
    for fields in NAMED[path]:
        data = json.dumps({**bodies[path], **fields}).replace(json.dumps(ODD), odd).encode()
        answer = program.close(program.open(data, path=path))
        assert answer.status // 100 == 4, (fields, answer.body)
    assert not Turn.objects.exists()


@pytest.mark.parametrize("effort", [[], {}, 10**400])
def test_a_malformed_effort_is_left_out(program: GatewayClient, effort: Any) -> None:
    program.ask([user("hi")], reasoning_effort=effort)
    request = replace(program.requests[-1], thinking="adaptive")
    assert "output_config" not in build_anthropic_body(request)
