"""Request fields that are forwarded to the model server."""

from typing import Any

import pytest

from chats.gateway import body, parameters
from chats.models import Chat
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
    assert parameters.build_dropped_header(()) == {}


def test_no_known_option_looks_like_routing() -> None:
    for allowed in (parameters.CHAT, parameters.EMBEDDINGS):
        assert not [name for name in allowed if parameters.is_routing(name, allowed=allowed)]
