"""Failures of model servers over a real connection (rows F12 to F20)."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    Timeouts,
)
from chats.providers.discovery import list_models
from chats.providers.openai import OpenAIProvider
from tests.fakes.calls import QUICK, ROOMY, adapter_to, asked, call, collect, text_in
from tests.fakes.fake_server import FakeServer
from tests.fakes.http_server import stub_server
from tests.faults.impostor import own_certificate

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"

# Fault, code, retryable, text fragments received before the fault.
FAILING = [
    ("401", "provider_auth", False, 0),
    ("402", "provider_rejected", False, 0),
    ("403", "provider_rejected", False, 0),
    ("404", "provider_rejected", False, 0),
    ("429", "provider_rate_limited", True, 0),
    ("quota", "provider_rejected", False, 0),
    ("500", "provider_unavailable", True, 0),
    ("502", "provider_unavailable", True, 0),
    ("503", "provider_unavailable", True, 0),
    ("redirect", "provider_rejected", False, 0),
    ("compressed", "provider_protocol", False, 0),
    ("bigheaders", "provider_protocol", False, 0),
    ("hang", "provider_timeout", True, 0),
    ("context", "context_overflow", False, 0),
    ("context413", "context_overflow", False, 0),
    ("context429", "context_overflow", False, 0),
    ("context200", "context_overflow", False, 2),
    ("stall", "provider_timeout", True, 2),
    ("cut", "provider_unavailable", True, 2),
    ("error_event", "provider_unavailable", True, 2),
    ("malformed", "provider_protocol", False, 2),
    ("bigline", "provider_protocol", False, 2),
]


@pytest.mark.parametrize(("fault", "code", "retryable", "pieces"), FAILING)
def test_failed_call_has_its_code_and_keeps_what_came_before(
    server: FakeServer, fault: str, code: str, retryable: bool, pieces: int
) -> None:
    events: list[ProviderEvent] = []
    timeouts = QUICK if code == "provider_timeout" else ROOMY
    with pytest.raises(ProviderError) as caught:
        call(
            adapter_to(server, timeouts=timeouts), asked(f"[[fake after=2 fault={fault}]]"), events
        )
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert len(events) == pieces
    assert all(isinstance(event, TextDelta) for event in events)


@pytest.mark.parametrize("fault", ["401", "429", "500", "context", "cut", "stall"])
def test_adapter_itself_never_repeats_a_call(server: FakeServer, fault: str) -> None:
    timeouts = QUICK if fault == "stall" else ROOMY
    with pytest.raises(ProviderError):
        call(adapter_to(server, timeouts=timeouts), asked(f"[[fake after=2 fault={fault}]]"))
    assert len(server.requests()) == 1


@pytest.mark.parametrize("fault", ["nodone", "crlf", "bom", "comments", "multiline"])
def test_unusual_form_changes_nothing(server: FakeServer, fault: str) -> None:
    text = "Grüße 🦊🇺🇳 世界, done."
    server.configure(replies=[{"text": text}])
    events = call(adapter_to(server), asked(f"[[fake fault={fault} split=9]]"))
    assert text_in(events) == text
    assert events[-1] == Finished("stop")


def test_end_without_a_finish_reason_is_not_complete(server: FakeServer) -> None:
    events = call(adapter_to(server), asked("[[fake tokens=4 fault=nofinish]]"))
    assert events[-1] == Finished("none")
    assert len(text_in(events).split(";")) == 5


@pytest.mark.parametrize(
    ("fault", "text", "reason"),
    [
        ("empty", "", "stop"),
        ("whitespace", " \n", "stop"),
        ("reasoning_only", "", "stop"),
        ("refusal", "I cannot help with that.", "refusal"),
    ],
)
def test_reply_without_an_answer_is_told_apart(
    server: FakeServer, fault: str, text: str, reason: str
) -> None:
    if (server.kind, fault) == ("anthropic", "refusal"):
        # With this API, a model that declines in its own words has replied normally.
        reason = "stop"
    events = call(adapter_to(server), asked(f"[[fake reasoning=2 fault={fault}]]"))
    thoughts = [event.text for event in events if isinstance(event, ReasoningDelta)]
    assert thoughts == [" thought 0", " thought 1"]
    assert text_in(events) == text
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == reason


def test_length_is_reported(server: FakeServer) -> None:
    events = call(adapter_to(server), asked("[[fake fault=length]]"))
    assert events[-1] == Finished("length")


def test_overflow_names_its_numbers(server: FakeServer) -> None:
    server.configure(context_limit=10)
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("x" * 400))
    assert (caught.value.limit, caught.value.actual) == (10, 104)


def test_overflow_is_counted_in_real_tokens_when_the_server_does() -> None:
    with FakeServer(counter="o200k") as exact:
        exact.configure(context_limit=10)
        # The format of a message takes four tokens.
        assert text_in(call(adapter_to(exact), asked(" word" * 6)))
        with pytest.raises(ProviderError) as caught:
            call(adapter_to(exact), asked(" word" * 7))
    assert (caught.value.limit, caught.value.actual) == (10, 11)


@pytest.mark.parametrize(("given", "seconds"), [("7", 7.0), ("90", 90.0), ("soon", None)])
def test_wait_that_the_provider_asks_for_is_passed_on(
    server: FakeServer, given: str, seconds: float | None
) -> None:
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked(f"[[fake fault=429 retry_after={given}]]"))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("timeouts", "options", "longest"),
    [
        (Timeouts(first_token=0.2, gap=5, total=5), "fault=hang", 0.2),
        (Timeouts(first_token=0.2, gap=5, total=5), "ttft=3000", 0.2),
        (Timeouts(first_token=5, gap=0.2, total=5), "fault=stall", 0.2),
        (Timeouts(first_token=5, gap=5, total=0.4), "tokens=1000 ms=20", 0.4),
        (Timeouts(first_token=5, gap=5, total=0.4), "fault=hang", 0.4),
    ],
)
def test_each_timeout_is_kept(
    server: FakeServer, timeouts: Timeouts, options: str, longest: float
) -> None:
    began = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server, timeouts=timeouts), asked(f"[[fake {options}]]"))
    assert caught.value.code == "provider_timeout"
    assert longest <= time.monotonic() - began < longest + 1.5


def test_comments_keep_a_silent_stream_open_no_longer_than_the_first_token_time() -> None:
    """A server that sends only keep-alive comments has not started to answer."""

    async def only_comments(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(b": working\n\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    with pytest.raises(ProviderError) as caught:
        asyncio.run(_ask_stub(only_comments, QUICK))
    assert caught.value.code == "provider_timeout"


def test_comments_after_the_finish_reason_keep_no_reply_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lingering(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        writer.write(b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n')
        while True:
            writer.write(b": working\n\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    monkeypatch.setattr("chats.providers.reading.AFTER_FINISH_SECONDS", 0.3)
    events = asyncio.run(asyncio.wait_for(_ask_stub(lingering, QUICK), 10))
    assert text_in(events) == "Hi"


def test_finished_reply_does_not_wait_for_a_server_that_never_ends() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        writer.write(b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n')
        writer.write(b"data: [DONE]\n\n")
        await asyncio.sleep(2)

    began = time.monotonic()
    assert asyncio.run(_ask_stub(endless)) == [TextDelta("Hi"), Finished("stop")]
    assert time.monotonic() - began < 1


def test_closed_port_is_unavailable() -> None:
    with pytest.raises(ProviderError) as caught:
        call(_adapter_on(1), asked("Hello"))
    assert (caught.value.code, caught.value.retryable) == ("provider_unavailable", True)


def test_name_that_does_not_resolve_is_unavailable() -> None:
    provider = OpenAIProvider(
        base_url="https://nowhere.invalid/v1",
        api_key="",
        timeouts=QUICK,
        allowed_private=[],
    )
    with pytest.raises(ProviderError) as caught:
        call(provider, asked("Hello"))
    assert caught.value.code == "provider_unavailable"


def test_server_that_speaks_no_tls_fails_within_the_connect_time(server: FakeServer) -> None:
    provider = OpenAIProvider(
        base_url=f"https://{server.host}/v1",
        api_key="",
        timeouts=Timeouts(connect=0.2, first_token=20),
        allowed_private=[server.host],
    )
    began = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        call(provider, asked("Hello"))
    assert caught.value.code == "provider_timeout"
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 40_000 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
    ids=["error broken off", "bad chunk", "long header", "no http", "nothing"],
)
def test_response_that_is_no_whole_http_is_unavailable(answer: bytes) -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    with pytest.raises(ProviderError) as caught:
        asyncio.run(_ask_stub(write))
    assert caught.value.code == "provider_unavailable"


def test_certificate_that_nobody_vouches_for_is_told_apart(tmp_path: Path) -> None:
    """The TLS handshake uses the checked address and the host name. No request follows it."""
    names: list[str | None] = []
    heard: list[asyncio.StreamReader] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path))
    context.sni_callback = lambda _, name, __: names.append(name)

    async def local(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def run() -> list[ProviderError]:
        server = await asyncio.start_server(
            lambda reader, _: heard.append(reader), "127.0.0.1", 0, ssl=context
        )
        async with server:
            host = f"named.example:{server.sockets[0].getsockname()[1]}"
            provider = OpenAIProvider(
                base_url=f"https://{host}/v1",
                api_key="sk-canary",
                timeouts=ROOMY,
                allowed_private=[host],
                resolve=local,
            )
            with pytest.raises(ProviderError) as called:
                await collect(provider, asked("Hello"))
            await provider.aclose()
            with pytest.raises(ProviderError) as listed:
                await list_models(
                    f"https://{host}/v1", "sk-canary", allowed_private=[host], resolve=local
                )
        return [called.value, listed.value]

    for error in asyncio.run(run()):
        assert (error.code, error.retryable) == ("provider_unavailable", False)
        assert "certificate" in error.sentence
    assert names == ["named.example", "named.example"]
    assert not heard


def test_page_that_is_no_model_server_is_a_protocol_error() -> None:
    async def page(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
        )

    with pytest.raises(ProviderError) as caught:
        asyncio.run(_ask_stub(page))
    assert caught.value.code == "provider_protocol"


def test_cancelling_closes_the_call_upstream(server: FakeServer) -> None:
    async def run() -> None:
        provider = adapter_to(server)
        reading = asyncio.create_task(collect(provider, asked("[[fake tokens=500 ms=20]]")))
        await asyncio.sleep(0.2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await asyncio.to_thread(server.wait_for_outcome, "client_gone")
        await provider.aclose()

    asyncio.run(run())
    assert 0 < server.requests()[-1]["tokens_sent"] < 100


def test_leaving_the_stream_early_closes_the_call_upstream(server: FakeServer) -> None:
    async def run() -> None:
        provider = adapter_to(server)
        stream = cast(
            "AsyncGenerator[ProviderEvent]", provider.stream(asked("[[fake tokens=500 ms=20]]"))
        )
        async with contextlib.aclosing(stream) as events:
            async for _ in events:
                break
        await asyncio.to_thread(server.wait_for_outcome, "client_gone")
        await provider.aclose()

    asyncio.run(run())


def test_whole_reply_is_not_held_to_the_first_token_time(server: FakeServer) -> None:
    timeouts = Timeouts(first_token=0.1, gap=0.1, total=5)
    request = asked("[[fake tokens=10 ms=40]]", stream=False)
    assert text_in(call(adapter_to(server, timeouts=timeouts), request))


async def _ask_stub(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]], timeouts: Timeouts = ROOMY
) -> list[ProviderEvent]:
    """Return the events of a call. Only timeout tests use short limits: busy machines are slow."""
    async with stub_server(answer) as port:
        provider = _adapter_on(port, timeouts)
        try:
            return await collect(provider, asked("Hello"))
        finally:
            await provider.aclose()


def _adapter_on(port: int, timeouts: Timeouts = ROOMY) -> OpenAIProvider:
    return OpenAIProvider(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="",
        timeouts=timeouts,
        allowed_private=[f"127.0.0.1:{port}"],
    )
