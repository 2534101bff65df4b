"""Keep-alives in data, and documents with status 200 that are not replies."""

import json
from typing import Any

import pytest

from chats.providers.anthropic_chunks import MessageReader
from chats.providers.base import ErrorCode, Finished, ProviderError, ProviderEvent, TextDelta
from chats.providers.chunks import ReplyReader
from chats.providers.sse import BodyParser
from tests.fakes.calls import adapter_to, asked, call, text_in
from tests.fakes.fake_server import FakeServer

KEEP_ALIVES = [
    b"data: : keepalive\n\n",
    b"data: : OPENROUTER PROCESSING\n\n",
    b"event: ping\ndata: ping\n\n",
    b"event: heartbeat\ndata: 2026-01-01 10:00\n\n",
    b"event: keepalive\ndata:\n\n",
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b"data: null\n\n",
    b'data: ""\n\n',
    b"data: 1\n\n",
    b"data: []\n\n",
    b"data: [END]\n\n",
    # The blank line after the event is missing.
    b"event: ping\ndata: ping\n",
]
TEXT: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]},
    ],
    "anthropic": [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "b"},
        },
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
}
READERS: dict[str, type[ReplyReader] | type[MessageReader]] = {
    "openai": ReplyReader,
    "anthropic": MessageReader,
}


def read(kind: str, body: bytes) -> list[ProviderEvent]:
    """Return the events of a response body."""
    parser, reader = BodyParser(), READERS[kind]()
    events: list[ProviderEvent] = []
    for payload in (*parser.feed(body), *parser.close()):
        events += reader.read(payload)
    return [*events, *reader.finish()]


@pytest.mark.parametrize("keep_alive", KEEP_ALIVES)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_keep_alive_in_data_changes_no_reply(kind: str, keep_alive: bytes) -> None:
    events = [f"data: {json.dumps(each)}\n\n".encode() for each in TEXT[kind]]
    body = keep_alive + keep_alive.join(events)
    assert read(kind, body) == [TextDelta("a"), TextDelta("b"), Finished("stop")]


@pytest.mark.parametrize(
    "broken",
    [
        b'{"choices": [',
        b"nonsense",
        b'[{"a": 1}]',
        b"\xff",
        b'"Internal Server Error"',
        b"[ERROR]",
        b"500",
        b'"rate limit exceeded, try later"',
    ],
)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_broken_data_still_fails(kind: str, broken: bytes) -> None:
    events = b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in TEXT[kind][:2])
    with pytest.raises(ProviderError) as caught:
        read(kind, events + b"data: " + broken + b"\n\ndata: [DONE]\n\n")
    assert caught.value.code == "provider_protocol"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"detail": "Not Found"}, "provider_protocol"),
        ({"success": False, "message": "No such route"}, "provider_protocol"),
        ({"choices": None}, "provider_protocol"),
        ({"choices": None, "base_resp": {"status_code": 1000}}, "provider_error"),
        ({"choices": None, "base_resp": {"status_code": 1002}}, "provider_rate_limited"),
        ({"choices": None, "base_resp": {"status_code": 1004}}, "provider_auth"),
        ({"choices": None, "base_resp": {"status_code": 1008}}, "provider_rejected"),
        ({"choices": [], "base_resp": {"status_code": 1027}}, "content_filtered"),
        ({"usage": {"prompt_tokens": 3}}, "provider_protocol"),
    ],
)
def test_a_document_without_a_reply_is_an_error(answer: dict[str, Any], code: ErrorCode) -> None:
    for body in (json.dumps(answer), f"data: {json.dumps(answer)}\n\n"):
        with pytest.raises(ProviderError) as caught:
            read("openai", body.encode())
        assert caught.value.code == code


def test_a_successful_status_in_the_body_is_no_error() -> None:
    chunk = {**TEXT["openai"][1], "base_resp": {"status_code": 0, "status_msg": ""}}
    assert read("openai", json.dumps(chunk).encode()) == [TextDelta("b"), Finished("stop")]


def test_groqs_early_stop_is_an_error() -> None:
    chunks = [
        TEXT["openai"][0],
        {"choices": [], "x_groq": {"id": "req_1", "error": "over_capacity"}},
    ]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)
    with pytest.raises(ProviderError) as caught:
        read("openai", f"{body}data: [DONE]\n\n".encode())
    assert caught.value.code == "provider_error"


def test_keep_alives_over_a_connection(server: FakeServer) -> None:
    events = call(adapter_to(server), asked("[[fake tokens=3 fault=keepalives]]"))
    assert len(text_in(events).split(";")) == 4
    assert events[-1] == Finished("stop")
