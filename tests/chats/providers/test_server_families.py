"""How each family of model servers ends a reply, and how it is interpreted; see `docs/servers.md`.

`FAMILIES` is the table of that page. Its streams are short texts in the format of a recording, or
of the server's public source. `Family.source` says which.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ProviderRequest,
    ReasoningDelta,
    TextDelta,
    Timeouts,
    ToolCallDelta,
)
from tests.fakes.calls import ADAPTERS, asked, collect, text_in
from tests.fakes.http_server import stub_server

PAGE = Path(__file__).parents[3] / "docs" / "servers.md"
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
SAID = "The lamp is lit."


def event(chunk: dict[str, Any]) -> bytes:
    """Return one event of a stream."""
    return f"data: {json.dumps(chunk)}\n\n".encode()


def piece(reason: object = None, /, **delta: Any) -> bytes:
    """Return a chunk with a delta and a finish reason."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def called(index: int | None, arguments: str, **fields: Any) -> bytes:
    """Return a chunk with a fragment of a tool call."""
    name = {"name": fields.pop("name")} if "name" in fields else {}
    place = {} if index is None else {"index": index}
    call = {**place, **fields, "function": {**name, "arguments": arguments}}
    return piece(tool_calls=[call])


def usage(**more: Any) -> bytes:
    """Return the last chunk of a server that reports usage."""
    counts = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return event({"choices": [], "usage": counts, **more})


def typed(kind: str, **fields: Any) -> bytes:
    """Return an event of Anthropic's API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


WORDS = (piece(role="assistant", content=""), piece(content="The lamp "))
LAST = piece(content="is lit.")
TAIL = (usage(), DONE)
FAILED = event({"error": {"message": "The engine died.", "type": "server_error"}})
MESSAGE = (
    typed("message_start", message={"role": "assistant", "usage": {"input_tokens": 9}}),
    typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    typed("ping"),
    typed("content_block_delta", index=0, delta={"type": "text_delta", "text": SAID}),
    typed("content_block_stop", index=0),
)
STOPPED = typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4})


@dataclass(frozen=True)
class Family:
    """One row of the table: a server family, the source of its streams, and its reply endings."""

    name: str
    source: str
    reason: str
    end: str
    # A whole reply, fragments of the body, and a body with a server error.
    whole: tuple[bytes, ...]
    failed: tuple[bytes, ...]
    kind: str = "openai"
    finish: str = "stop"
    # Finish reasons of this family for a server that gave up.
    gave_up: tuple[str, ...] = ()


FAMILIES = (
    Family(
        name="OpenAI",
        source="Recording",
        reason="In a separate chunk after the text",
        end="Usage, then `[DONE]`",
        whole=(*WORDS, LAST, piece("stop"), *TAIL),
        failed=(*WORDS, FAILED),
    ),
    Family(
        name="Azure OpenAI",
        source="Public recording (`simple_chat.ts` of dto-btn/ssc-assistant)",
        reason="In a separate chunk after the text",
        end="`[DONE]`; filter results come in chunks without a choice or a delta",
        whole=(
            event({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
            *WORDS,
            LAST,
            piece("stop"),
            event({"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}]}),
            *TAIL,
        ),
        failed=(*WORDS, piece("content_filter"), DONE),
    ),
    Family(
        name="vLLM",
        source="Public source (`serving_chat.py`)",
        reason="With the last text",
        end="Usage, then `[DONE]`; an error comes as a chunk before `[DONE]`",
        whole=(*WORDS, piece("stop", content="is lit."), *TAIL),
        failed=(*WORDS, FAILED, DONE),
        gave_up=("abort",),
    ),
    Family(
        name="SGLang",
        source="Public source (`serving_chat.py`)",
        reason="In a separate chunk after the text",
        end="Usage, then `[DONE]`; an error comes as a chunk before `[DONE]`",
        whole=(*WORDS, LAST, piece("stop"), *TAIL),
        failed=(*WORDS, FAILED, DONE),
        gave_up=("abort",),
    ),
    Family(
        name="Text Generation Inference",
        source="Public source (`router/src/chat.rs`, `server.rs`)",
        reason="With the last token",
        end="`[DONE]`; an error comes as a chunk before `[DONE]`",
        whole=(*WORDS, piece("eos_token", content="is lit."), *TAIL),
        failed=(
            *WORDS,
            event({"message": "Request failed", "object": "error", "http_status_code": 424}),
            DONE,
        ),
    ),
    Family(
        name="llama.cpp",
        source="Public source and issues (`tools/server`); forks leave out `[DONE]`",
        reason="In a separate chunk after the text",
        end="`[DONE]`, or the connection closes properly without it",
        whole=(*WORDS, LAST, piece("stop"), usage(timings={"predicted_n": 4})),
        failed=(*WORDS, event({"error": {"code": 500, "message": "No.", "type": "server_error"}})),
    ),
    Family(
        name="Ollama",
        source="Public source (`openai/openai.go`, `middleware/openai.go`)",
        reason="In a separate chunk after the text",
        end="Usage, then `[DONE]`",
        whole=(*WORDS, LAST, piece("stop", content=""), *TAIL),
        failed=(*WORDS, FAILED),
    ),
    Family(
        name="LM Studio",
        source="Public documentation; not confirmed",
        reason="In a separate chunk after the text",
        end="`[DONE]`; an error comes as an `error` event",
        whole=(*WORDS, LAST, piece("stop"), DONE),
        failed=(*WORDS, b'event: error\ndata: {"error": {"message": "Model unloaded."}}\n\n'),
    ),
    Family(
        name="Gemini (OpenAI form)",
        source="Recording (tool calls); public report (python-genai issue 2868)",
        reason="With the last text; `stop` also for tool calls",
        end="`[DONE]`",
        whole=(
            *WORDS,
            piece(content="is lit."),
            piece(
                "stop",
                tool_calls=[
                    {"index": 0, "id": "a", "function": {"name": "dim", "arguments": "{}"}},
                    {"index": 0, "id": "b", "function": {"name": "lit", "arguments": "{}"}},
                ],
            ),
            DONE,
        ),
        failed=(*WORDS, b'data: [{"error": {"code": 503, "message": "Busy."}}]\n\n'),
        finish="tool_calls",
        gave_up=("malformed_function_call",),
    ),
    Family(
        name="DeepSeek",
        source="Recording",
        reason="In a separate chunk after the text, together with the usage",
        end="`[DONE]`; comments keep a waiting stream open",
        whole=(
            b": keep-alive\n\n",
            piece(content=None, reasoning_content="Hm."),
            *WORDS,
            LAST,
            event(
                {
                    "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 4},
                }
            ),
            DONE,
        ),
        failed=(*WORDS, FAILED),
        gave_up=("insufficient_system_resource",),
    ),
    Family(
        name="Mistral",
        source="Public recording (`Mistral/streaming.md` of M-Lai-ai/LLM-Provider-reference)",
        reason="With the last text",
        end="`[DONE]`; the usage comes with the finish reason",
        whole=(
            piece(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
            *WORDS,
            event(
                {
                    "choices": [
                        {"index": 0, "delta": {"content": "is lit."}, "finish_reason": "stop"}
                    ],
                    "usage": {"prompt_tokens": 9, "total_tokens": 13, "completion_tokens": 4},
                }
            ),
            DONE,
        ),
        failed=(*WORDS, piece("error"), DONE),
    ),
    Family(
        name="OpenRouter",
        source="Recording",
        reason="Sometimes with several chunks, and followed by a chunk without one",
        end="Usage, then `[DONE]`; an error may follow the finish reason",
        whole=(
            b": OPENROUTER PROCESSING\n\n",
            *WORDS,
            piece("stop", content="is lit."),
            piece("stop", content=""),
            piece(None, content=""),
            *TAIL,
        ),
        failed=(
            *WORDS,
            piece("length"),
            event({"error": {"code": 400, "message": "Limit"}, "choices": []}),
            DONE,
        ),
    ),
    Family(
        name="LiteLLM",
        source="Public source (`proxy_server.py`)",
        reason="In a separate chunk after the text",
        end="`[DONE]`; an error comes as a chunk before it",
        whole=(*WORDS, LAST, piece("stop"), *TAIL),
        failed=(*WORDS, event({"error": {"message": "x", "type": "None", "code": "500"}})),
    ),
    Family(
        name="Open WebUI",
        source="Public source (`backend/open_webui/functions.py`)",
        reason="As the server behind it; of a function in a separate chunk, or with every chunk",
        end="`[DONE]`, of a function without a line break after it",
        whole=(
            piece("stop", content="The lamp "),
            piece("stop", content="is lit."),
            piece("stop", content=""),
            b"data: [DONE]",
        ),
        failed=(*WORDS, event({"error": {"detail": "The function failed."}})),
    ),
    Family(
        name="Anthropic",
        source="Recording",
        reason="`message_delta` after the last block",
        end="`message_stop`; an error comes as an `error` event",
        whole=(*MESSAGE, STOPPED, typed("message_stop")),
        failed=(*MESSAGE, typed("error", error={"type": "overloaded_error", "message": "x"})),
        kind="anthropic",
        gave_up=("pause_turn",),
    ),
)
BY_NAME = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
CLOSED = b"0\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """Return a chunk of a body in HTTP encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def served(
    pieces: tuple[bytes, ...],
    *,
    kind: str = "openai",
    closing: bytes | None = CLOSED,
    label: bytes = b"text/event-stream",
    pause: tuple[int, float] = (-1, 0.0),
    gap: float = 0.4,
) -> tuple[str, list[ProviderEvent]]:
    """Return outcome and events of a call whose response consists of these pieces.

    `closing` ends the body, `b""` breaks the connection, and None keeps it open. `pause` gives a
    piece and the seconds to wait before it.
    """

    async def answer(writer: Any) -> None:
        writer.write(HEAD % label)
        for number, data in enumerate(pieces):
            if number == pause[0]:
                await asyncio.sleep(pause[1])
            writer.write(chunked(data))
            await writer.drain()
        if closing is None:
            await asyncio.sleep(5)
        writer.write(closing or b"")

    events: list[ProviderEvent] = []
    async with stub_server(answer) as port:
        timeouts = Timeouts(connect=2, first_token=2, gap=gap, total=8)
        provider = ADAPTERS[kind](
            base_url=f"http://127.0.0.1:{port}/v1"
            if kind == "openai"
            else f"http://127.0.0.1:{port}",
            api_key="k",
            timeouts=timeouts,
            allowed_private=[f"127.0.0.1:{port}"],
        )
        request: ProviderRequest = asked("Hello")
        try:
            await collect(provider, request, events)
        except ProviderError as error:
            return error.code, events
        finally:
            await provider.aclose()
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reason, events


def outcome(pieces: tuple[bytes, ...], **changes: Any) -> tuple[str, str]:
    """Return outcome and text of a response."""
    ended, events = asyncio.run(served(pieces, **changes))
    return ended, text_in(events)


@BY_NAME
def test_whole_reply_of_each_family_is_whole(family: Family) -> None:
    assert outcome(family.whole, kind=family.kind) == (family.finish, SAID)


@BY_NAME
def test_error_of_each_family_is_never_swallowed(family: Family) -> None:
    ended, _ = outcome(family.failed, kind=family.kind)
    assert ended not in {"stop", "length", "tool_calls", "none"}


@BY_NAME
def test_reply_of_each_family_that_breaks_off_before_its_end_is_incomplete(family: Family) -> None:
    pieces = tuple(data for data in family.whole if data != DONE and b"message_stop" not in data)
    assert outcome(pieces, kind=family.kind, closing=b"")[0] == "provider_unavailable"


@pytest.mark.parametrize(
    ("kind", "reason"),
    sorted({(family.kind, reason) for family in FAMILIES for reason in family.gave_up}),
)
def test_server_that_gave_up_sent_no_complete_reply(kind: str, reason: str) -> None:
    if kind == "anthropic":
        gave_up = typed("message_delta", delta={"stop_reason": reason})
        assert outcome((*MESSAGE, gave_up, typed("message_stop")), kind=kind)[0] == "none"
    else:
        assert outcome((*WORDS, LAST, piece(reason), DONE))[0] == "none"


def test_the_page_has_this_table() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows[1:]]
    assert cells == [(f.name, f.reason, f.end, f.source) for f in FAMILIES]


# The rules behind the table. A pause is longer than the wait after a finish reason.


@pytest.mark.parametrize("reason", ["stop", "STOP", "length", "something_new", "tool_calls"])
def test_finish_reason_with_every_chunk_cuts_nothing(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chats.providers.reading.AFTER_FINISH_SECONDS", 0.05)
    words = ("The ", "lamp ", "is ", "lit.")
    pieces = tuple(piece(reason, content=word) for word in words)
    for place in (1, 2, 3):
        ended, text = outcome((*pieces, DONE), pause=(place, 0.2))
        assert (ended, text) == ("stop" if reason == "something_new" else ended, SAID)
        assert ended in {"stop", "length", "tool_calls"}


def test_finish_reason_with_thoughts_does_not_end_the_reply_before_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chats.providers.reading.AFTER_FINISH_SECONDS", 0.05)
    thoughts = (piece("stop", reasoning_content="Hm, "), piece("stop", reasoning_content="yes."))
    for count in (1, 2):
        pieces = (*thoughts[:count], piece("stop", content=SAID), DONE)
        assert outcome(pieces, pause=(count, 0.2)) == ("stop", SAID)


def test_server_whose_finish_reasons_mean_nothing_has_to_end_its_stream() -> None:
    pieces = tuple(piece("stop", content=word) for word in ("The ", "lamp "))
    assert outcome(pieces, closing=None)[0] == "provider_timeout"
    assert outcome(pieces, closing=b"")[0] == "provider_unavailable"
    assert outcome(pieces, closing=CLOSED) == ("stop", "The lamp ")


def test_text_after_the_finish_reason_has_no_finish_reason() -> None:
    assert outcome((*WORDS, piece("stop"), LAST)) == ("none", SAID)
    assert outcome((*WORDS, piece("stop"), LAST, DONE)) == ("stop", SAID)


@pytest.mark.parametrize("reason", ["", None, "null", "something_new", 7])
def test_end_mark_after_text_is_an_end_whatever_the_finish_reason(reason: object) -> None:
    pieces = (piece(reason, content="The lamp "), piece(reason, content="is lit."))
    assert outcome((*pieces, DONE)) == ("stop", SAID)
    assert outcome(pieces)[0] == "none"
    assert outcome(pieces, closing=b"")[0] == "provider_unavailable"


def test_end_mark_after_tool_calls_without_a_finish_reason_asks_for_the_tools() -> None:
    pieces = (called(0, "{}", id="a", name="dim"), DONE)
    assert outcome(pieces)[0] == "tool_calls"


def test_end_mark_without_any_output_is_no_reply() -> None:
    assert outcome((piece(role="assistant", content=""), DONE))[0] == "none"


@pytest.mark.parametrize("place", [-2, -1, 9])
def test_error_near_the_end_is_not_swallowed(place: int) -> None:
    pieces = [*WORDS, piece("stop"), usage(), DONE]
    pieces.insert(len(pieces) + place if place < 0 else place, FAILED)
    assert outcome(tuple(pieces))[0] == "provider_unavailable"


@pytest.mark.parametrize(
    "failed",
    [
        b'event: error\ndata: {"message": "The engine died."}\n\n',
        b'event: error\ndata: {"detail": "The engine died."}\n\n',
        b"event: error\ndata: The engine died.\n\n",
        b'error: {"code": 500, "message": "The engine died."}\n\n',
        b'{"error": {"message": "The engine died."}}\n',
        event({"type": "error", "message": "The engine died."}),
        event({"code": 500, "message": "The engine died."}),
        event({"choices": [{"delta": {}, "error": {"code": 502, "message": "The engine died."}}]}),
    ],
    ids=["message", "detail", "text", "field", "no field", "type", "code", "choice"],
)
def test_error_in_another_form_is_not_swallowed(failed: bytes) -> None:
    for pieces in ((*WORDS, failed, DONE), (*WORDS, LAST, piece("stop"), failed)):
        assert outcome(pieces)[0].startswith("provider_")


def test_silent_server_that_said_it_was_done_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chats.providers.reading.AFTER_FINISH_SECONDS", 0.05)
    for pieces in ((*WORDS, LAST, piece("stop")), (*WORDS, piece("stop", content="is lit."))):
        assert outcome(pieces, closing=None) == ("stop", SAID)


WHOLE = json.dumps(
    {"choices": [{"index": 0, "message": {"content": SAID}, "finish_reason": "stop"}]}
)
PRETTY = json.dumps(json.loads(WHOLE), indent=2)
LINES = "".join(
    json.dumps({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": reason}]})
    + "\n"
    for word, reason in (("The lamp ", None), ("is lit.", "stop"))
)


@pytest.mark.parametrize(
    "body",
    [
        b"".join((*WORDS, LAST, piece("stop"), *TAIL)),
        b"".join((*WORDS, LAST, piece("stop"), DONE)).replace(b"\n\n", b"\n"),
        f": waiting\n\n: waiting\n\n{PRETTY}\n\ndata: [DONE]\n\n".encode(),
        b"\xef\xbb\xbf" + b"".join((*WORDS, LAST, piece("stop"), *TAIL)),
        b": waiting\n\n" + b"".join((*WORDS, LAST, piece("stop"), DONE)),
        WHOLE.encode(),
        f"\n \n{WHOLE}\n".encode(),
        f"{WHOLE}\ndata: [DONE]\n\n".encode(),
        PRETTY.encode(),
        f"{PRETTY}\n\ndata: [DONE]\n\n".encode(),
        LINES.encode(),
    ],
    ids=[
        "events",
        "no blank lines",
        "comments+pretty",
        "bom",
        "comment",
        "whole",
        "blanks",
        "whole+done",
        "pretty",
        "pretty+done",
        "lines",
    ],
)
@pytest.mark.parametrize(
    ("label", "size"),
    [(b"application/json", 1), (b"text/event-stream", 7), (b"text/plain", 10_000)],
)
def test_first_bytes_decide_what_a_body_is(label: bytes, body: bytes, size: int) -> None:
    pieces = tuple(body[start : start + size] for start in range(0, len(body), size))
    assert outcome(pieces, label=label, gap=5) == ("stop", SAID)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"is \xff.", "is \ufffd."),
        (b"is\tlit.", "is\tlit."),
        (b"is \x00.", "is \ufffd."),
        (rb"is \ud83d.", "is \ufffd."),
    ],
)
def test_damaged_text_is_repaired(said: bytes, text: str) -> None:
    damaged = b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % said
    assert outcome((*WORDS, damaged, piece("stop"), DONE)) == ("stop", f"The lamp {text}")


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"-" + b"9" * 999])
def test_impossible_number_ends_no_reply(number: bytes) -> None:
    chunk = b'data: {"created": %b, "usage": {"prompt_tokens": %b, "completion_tokens": 1}}\n\n'
    pieces = (*WORDS, chunk % (number, number), LAST, piece("stop"), DONE)
    assert outcome(pieces) == ("stop", SAID)
    whole = WHOLE.replace('"stop"', f'"stop", "logprobs": {number.decode()}').encode()
    assert outcome((whole,)) == ("stop", SAID)


def message(reason: str | None, text: str, /, *, delta: object = None, **more: Any) -> bytes:
    """Return a chunk with a whole message, and optionally a delta."""
    said = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": said, "finish_reason": reason}
    return event({"choices": [choice | ({} if delta is None else {"delta": delta})]})


CALLS = [{"id": "a", "function": {"name": "dim", "arguments": "{}"}}]


@pytest.mark.parametrize(
    "pieces",
    [
        (*WORDS, LAST, message("stop", SAID), DONE),
        (*WORDS, LAST, message("stop", SAID, delta={}), DONE),
        (*WORDS, LAST, message("stop", SAID, delta={"content": ""}), DONE),
        (
            message(None, "The lamp ", delta={"content": "The lamp "}),
            message("stop", SAID, delta={"content": "is lit."}),
            DONE,
        ),
        (message(None, "The lamp "), message("stop", SAID), DONE),
        (message(None, "The lamp "), message("stop", "is lit."), DONE),
        (message("stop", SAID), DONE),
    ],
    ids=["last", "empty delta", "empty text", "both", "so far", "in pieces", "alone"],
)
def test_message_beside_deltas_repeats_no_text(pieces: tuple[bytes, ...]) -> None:
    assert outcome(pieces) == ("stop", SAID)


def test_message_brings_what_no_delta_brought() -> None:
    pieces = (*WORDS, LAST, message("stop", SAID, tool_calls=CALLS, reasoning="Hm."), DONE)
    ended, events = asyncio.run(served(pieces))
    assert (ended, text_in(events)) == ("tool_calls", SAID)
    assert calls_in(events) == [("dim", "{}")]


def calls_in(events: list[ProviderEvent]) -> list[tuple[str, str]]:
    """Return name and arguments of each tool call."""
    found: dict[int, list[str]] = {}
    for each in events:
        if isinstance(each, ToolCallDelta):
            name, arguments = found.setdefault(each.index, ["", ""])
            found[each.index] = [name + each.name, arguments + each.arguments]
    return [(name, arguments) for name, arguments in found.values()]


Q = ('{"que', 'ry": "la', 'mp"}')


@pytest.mark.parametrize(
    "pieces",
    [
        [called(0, part, id="a", name="search") for part in Q],
        [called(0, part, id=f"call_{n}", name="search") for n, part in enumerate(Q)],
        [called(0, Q[0], id="call_0", name="search"),
         *(called(0, part, id=f"call_{n}", name=None) for n, part in enumerate(Q[1:], 1))],
        [called(None, part, id=f"call_{n}", name="search") for n, part in enumerate(Q)],
        [called(None, part, name="search") for part in Q],
        [called(0, "", id="a", name="search"), called(0, "".join(Q), id="a", name="search")],
        [called(0, "".join(Q), id="a", name="search")] * 2,
        [called(0, "", id="a", name="sea"), called(0, "", id="a", name="search"),
         called(0, "".join(Q), id="a")],
    ],
    ids=["same id", "other ids", "other ids, no name", "no index", "neither", "late", "twice",
         "growing name"],
)  # fmt: skip
def test_pieces_of_one_call_are_one_call(pieces: list[bytes]) -> None:
    ended, events = asyncio.run(served((*pieces, piece("tool_calls"), DONE)))
    calls = calls_in(events)
    assert ended == "tool_calls"
    assert [arguments for _, arguments in calls] == ['{"query": "lamp"}']
    assert calls[0][0] in {"search", "sea"}


def test_thoughts_among_the_parts_of_the_content_are_thoughts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts = [thinking, {"type": "text", "text": SAID}]
    _, events = asyncio.run(served((piece("stop", content=parts), DONE)))
    assert events == [ReasoningDelta("Hm."), TextDelta(SAID), Finished("stop")]


def test_index_that_is_no_number_tears_nothing() -> None:
    call = {"index": {"n": 0}, "id": "a", "function": {"name": "dim", "arguments": "{}"}}
    assert outcome((piece(tool_calls=[call]), piece("tool_calls"), DONE))[0] == "tool_calls"


def test_text_is_sent_on_before_the_end() -> None:
    _, events = asyncio.run(served((*WORDS, LAST, piece("stop"), DONE)))
    assert [each for each in events if isinstance(each, TextDelta)] == [
        TextDelta("The lamp "),
        TextDelta("is lit."),
    ]
