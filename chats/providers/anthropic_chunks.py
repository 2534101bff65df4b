"""Converts replies of Anthropic's Messages API to our events, both streams and whole replies.

Thinking is stored as reasoning for display. With tool calls, the signed or encrypted thinking
blocks are stored too (as `thinking_blocks`, a name that other software uses), because the API
requires them while the calls are answered.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chats.ground.texts import sanitise_text
from chats.providers.base import (
    ExtraFields,
    Finished,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.chunks import (
    CUT_BY_FILTER,
    coerce_mapping,
    coerce_text,
    decode_payload,
    parse_token_count,
    raise_error,
)
from chats.providers.sse import TextJoiner
from chats.providers.stream_end import StreamEnd
from chats.providers.tool_calls import NUMBERED_ID

# The field of a message that stores its thinking blocks.
THINKING_BLOCKS = "thinking_blocks"
# The provider's filter ended the reply. A model that declines in its own words sends `end_turn`.
_FILTERED = "refusal"
# Input tokens without the cache's, output tokens, tokens read from the cache, tokens written to it.
COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


@dataclass(slots=True)
class _Call:
    """A tool call that arrives in pieces."""

    slot: int
    call_id: str
    joiner: TextJoiner = field(default_factory=TextJoiner)
    has_arguments: bool = False
    # The block began with all arguments. Some servers send them again in pieces.
    is_whole: bool = False


@dataclass(slots=True)
class _Thought:
    """A thinking block: signed text, or `data` that only its server can read."""

    signature: str = ""
    data: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def is_signed(self) -> bool:
        """True if the server accepts the block in later requests."""
        return bool(self.signature or self.data)

    def block(self) -> dict[str, str]:
        """Return the block in the request's format."""
        if self.data:
            return {"type": "redacted_thinking", "data": sanitise_text(self.data)}
        return {
            "type": "thinking",
            "thinking": sanitise_text("".join(self.pieces)),
            "signature": sanitise_text(self.signature),
        }


class MessageReader:
    """Reads one reply, event by event. `end` tracks its progress."""

    def __init__(self) -> None:
        self.end = StreamEnd()
        self._is_silent = True
        self._has_words = False
        self._usage: dict[str, int | None] = {}
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        # The keys are block indexes, which texts, thinking and calls share.
        self._calls: dict[object, _Call] = {}
        self._thoughts: dict[object, _Thought] = {}

    def read(self, payload: bytes) -> Iterator[ProviderEvent]:
        """Yield the events of one payload.

        Raises ProviderError for errors and unreadable payloads.
        """
        event = decode_payload(payload, end=self.end)
        if event is None:
            return
        raise_error(event)
        index, kind = event.get("index"), event.get("type")
        index = index if isinstance(index, int) else None
        # Other events, such as pings, carry no part of the reply.
        if kind == "content_block_start":
            yield from self._open(index, coerce_mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            yield from self._delta(index, coerce_mapping(event.get("delta")))
        elif kind == "content_block_stop":
            yield from self._close(index)
        elif kind == "message":
            yield from self._whole(event)
        else:
            self._frame(str(kind), event)

    def finish(self) -> Iterator[ProviderEvent]:
        """Yield the remaining events at the end: held-back text, the usage, the finish reason.

        Raises ProviderError if no message arrived (the server has another API), or if a content
        filter ended the reply.
        """
        if self._is_silent:
            raise ProviderError("provider_protocol")
        if text := self._text.flush():
            yield TextDelta(text)
        blocks = [thought.block() for thought in self._thoughts.values() if thought.is_signed]
        if self._calls and blocks:
            yield ExtraFields(None, {THINKING_BLOCKS: blocks}, "")
        if self._usage and (report := self._report()) is not None:
            yield report
        if self.end.reason == _FILTERED:
            raise ProviderError(
                "content_filtered", sentence=CUT_BY_FILTER if self._has_words else ""
            )
        yield Finished(self.end.finish_reason(has_calls=bool(self._calls)))

    def _frame(self, kind: str, event: Mapping[str, Any]) -> None:
        """Process an event outside of content blocks."""
        if kind == "message_start":
            self._begin(coerce_mapping(event.get("message")))
        elif kind == "message_delta":
            self._end(coerce_mapping(event.get("delta")), event.get("usage"))
        elif kind == "message_stop":
            self.end.note_mark()

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._is_silent = False
        self._note(message.get("usage"))

    def _end(self, delta: Mapping[str, Any], usage: object) -> None:
        self._note(usage)
        self.end.note_chunk(has_output=False, reason=delta.get("stop_reason"))

    def _whole(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        self._begin(message)
        content = message.get("content")
        if not isinstance(content, list):
            raise ProviderError("provider_protocol")
        for index, block in enumerate(content):
            yield from self._open(index, coerce_mapping(block))
            yield from self._close(index)
        self._end(message, None)
        self.end.note_mark()

    def _open(self, index: object, block: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        # Thinking with withheld text also shows that the server is alive.
        self.end.note_chunk(has_output=True)
        match block.get("type"):
            case "text":
                yield from self._read_text(coerce_text(block.get("text")))
            case "thinking":
                self._thoughts[index] = _Thought(signature=coerce_text(block.get("signature")))
                yield from self._thought(index, coerce_text(block.get("thinking")))
            case "redacted_thinking":
                self._thoughts[index] = _Thought(data=coerce_text(block.get("data")))
            case "tool_use":
                call = _Call(slot=len(self._calls), call_id=self._new_id(block.get("id")))
                self._calls[index] = call
                name = sanitise_text(coerce_text(block.get("name")))
                yield ToolCallDelta(call.slot, call.call_id, name, "")
                if given := block.get("input"):
                    call.is_whole = True
                    yield from self._read_arguments(call, json.dumps(given, ensure_ascii=False))

    def _new_id(self, given: object) -> str:
        """Return the id of a new call: the server's, unless it is missing, taken or a number."""
        call_id = sanitise_text(coerce_text(given))
        is_taken = any(call.call_id == call_id for call in self._calls.values())
        is_usable = call_id and not is_taken and not NUMBERED_ID.fullmatch(call_id)
        return call_id if is_usable else f"call_{uuid.uuid4().hex[:24]}"

    def _delta(self, index: object, delta: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        self.end.note_chunk(has_output=True)
        match delta.get("type"):
            case "text_delta":
                yield from self._read_text(coerce_text(delta.get("text")))
            case "thinking_delta":
                yield from self._thought(index, coerce_text(delta.get("thinking")))
            case "signature_delta" if index in self._thoughts:
                self._thoughts[index].signature += coerce_text(delta.get("signature"))
            case "input_json_delta" if index in self._calls and not self._calls[index].is_whole:
                yield from self._read_arguments(
                    self._calls[index], coerce_text(delta.get("partial_json"))
                )

    def _close(self, index: object) -> Iterator[ProviderEvent]:
        """End a block. A call without arguments gets an empty object."""
        call = self._calls.get(index)
        if call is not None and not call.has_arguments:
            yield from self._read_arguments(call, "{}")

    def _read_text(self, piece: str) -> Iterator[ProviderEvent]:
        if text := self._text.push(piece):
            self._has_words = self._has_words or bool(text.strip())
            yield TextDelta(text)

    def _thought(self, index: object, piece: str) -> Iterator[ProviderEvent]:
        if index in self._thoughts:
            self._thoughts[index].pieces.append(piece)
        if thought := self._reasoning.push(piece):
            yield ReasoningDelta(thought)

    def _read_arguments(self, call: _Call, piece: str) -> Iterator[ProviderEvent]:
        if arguments := call.joiner.push(piece):
            call.has_arguments = True
            yield ToolCallDelta(call.slot, call.call_id, "", arguments)

    def _note(self, usage: object) -> None:
        """Store usage counts. Each is a running total, and later reports may omit some."""
        said = coerce_mapping(usage)
        self._usage |= {
            name: parse_token_count(said[name]) for name in COUNTS if said.get(name) is not None
        }

    def _report(self) -> UsageReport | None:
        """Return the usage in our convention: cache reads and writes are part of the input.

        This API reports the three separately. None if a count is invalid.
        """
        sent, said, cached, written = (self._usage.get(name, 0) for name in COUNTS)
        if sent is None or said is None or cached is None or written is None:
            return None
        return UsageReport(
            input_tokens=sent + cached + written,
            output_tokens=said,
            cached_tokens=cached,
            written_tokens=written,
        )
