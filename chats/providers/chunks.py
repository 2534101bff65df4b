"""Reads the chunks of an OpenAI-type reply as our events, alike for streams and whole replies.

Written for what servers really send, not for the schema: tool calls without ids or with one index
for all of them, reasoning under two names, usage in every chunk, error objects in a good stream.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from chats.providers.base import (
    Finished,
    FinishReason,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.failures import failure_in_stream
from chats.providers.sse import TextJoiner

# A reason not listed here counts as none, so that the reply never passes for complete.
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "refusal": "refusal",
}
# The provider's filter ended the reply: OpenAI and Azure, Zhipu, Bedrock, Cohere, and Gemini, which
# also writes "content_filter: RECITATION".
_FILTERED = frozenset(
    {
        "content_filter",
        "content_filtered",
        "sensitive",
        "guardrail_intervened",
        "error_toxic",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
    }
)
CUT_BY_FILTER = (
    "The model provider's content filter ended this reply. What came before that is kept, but "
    "later prompts leave it out unless you keep it. Edit your message or choose another model."
)
END_MARK = b"[DONE]"


class ReplyReader:
    """Reads one reply, chunk by chunk.

    `has_output`: something was said; `is_finished`: a finish reason came; `is_ended`: the end mark.
    """

    def __init__(self) -> None:
        self.has_output = False
        self.is_finished = False
        self.is_ended = False
        self._is_silent = True
        self._reason: FinishReason = "none"
        self._refused = False
        self._is_filtered = False
        self._has_words = False
        self._usage: UsageReport | None = None
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._calls = _ToolCalls()

    def read(self, payload: bytes) -> Iterator[ProviderEvent]:
        """Yield the events of one chunk. Raises ProviderError for errors and unreadable chunks."""
        if self.is_ended:
            return
        self._is_silent = False
        if payload.strip() == END_MARK:
            self.is_ended = True
            return
        for event in self._events(parsed(payload)):
            self.has_output = True
            yield event

    def finish(self) -> Iterator[ProviderEvent]:
        """Yield what is left when the stream is over: held-back text, the usage, how it finished.

        Raises ProviderError when not a single chunk came (this was no model server), and when a
        content filter ended the reply.
        """
        if self._is_silent:
            raise ProviderError("provider_protocol")
        if text := self._text.flush():
            yield TextDelta(text)
        if self._usage is not None:
            yield self._usage
        if self._is_filtered:
            raise ProviderError(
                "content_filtered", sentence=CUT_BY_FILTER if self._has_words else ""
            )
        yield Finished(self._final_reason())

    def _events(self, chunk: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        if chunk.get("error") or chunk.get("object") == "error":
            raise failure_in_stream(chunk)
        usage = chunk.get("usage") or mapping(chunk.get("x_groq")).get("usage")
        if isinstance(usage, dict):
            self._usage = _usage_report(usage)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ProviderError("provider_protocol")
        # Only one choice is ever asked for; a chunk without any carries usage or filter results.
        for choice in choices[:1]:
            yield from self._choice(mapping(choice))

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        delta = mapping(choice.get("delta") or choice.get("message"))
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if thought := self._reasoning.push(text_of(reasoning)):
            yield ReasoningDelta(thought)
        refusal = text_of(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        if text := self._text.push(text_of(delta.get("content")) + refusal):
            self._has_words = self._has_words or bool(text.strip())
            yield TextDelta(text)
        for call in delta.get("tool_calls") or []:
            yield self._calls.delta(mapping(call))
        if reason := choice.get("finish_reason"):
            self._end(str(reason).lower())

    def _end(self, reason: str) -> None:
        if reason == "error":
            raise ProviderError("provider_error")
        self.is_finished = True
        self._reason = _REASONS.get(reason, "none")
        # A model that declines in words of its own has replied; without words a filter ended it.
        self._is_filtered = (
            not self._refused if reason == "refusal" else reason.partition(":")[0] in _FILTERED
        )

    def _final_reason(self) -> FinishReason:
        if self._reason == "stop" and self._refused:
            return "refusal"
        # Ollama and Gemini say "stop" although tools are to be called.
        if self._reason == "stop" and self._calls.any:
            return "tool_calls"
        return self._reason


class _ToolCalls:
    """Gives every tool call of a reply an index and an id of its own."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._slot_of: dict[object, int] = {}
        self._joiners: list[TextJoiner] = []

    @property
    def any(self) -> bool:
        return bool(self._ids)

    def delta(self, call: Mapping[str, Any]) -> ToolCallDelta:
        function = mapping(call.get("function"))
        name = text_of(function.get("name"))
        slot = self._slot(call.get("index"), text_of(call.get("id")), has_name=bool(name))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        joined = self._joiners[slot].push(text_of(arguments))
        return ToolCallDelta(index=slot, call_id=self._ids[slot], name=name, arguments=joined)

    def _slot(self, index: object, given_id: str, *, has_name: bool) -> int:
        slot = self._slot_of.get(index)
        # Gemini numbers parallel calls all 0 and tells them apart by id; others send neither, and
        # then a name begins a new call.
        is_new = slot is None or (
            given_id != self._ids[slot] if given_id else index is None and has_name
        )
        if slot is None or is_new:
            slot = len(self._ids)
            self._slot_of[index] = slot
            self._ids.append(given_id or f"call_{uuid.uuid4().hex[:24]}")
            self._joiners.append(TextJoiner())
        return slot


def parsed(payload: bytes) -> Mapping[str, Any]:
    """Return the object in a payload. Raises ProviderError if it is none."""
    try:
        chunk = json.loads(payload.decode())
    except (ValueError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if not isinstance(chunk, dict):
        raise ProviderError("provider_protocol")
    return chunk


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """Return text given as a string, or as the list of parts that some servers send instead."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text_of(mapping(part).get("text")) for part in value)
    return ""


def _usage_report(usage: Mapping[str, Any]) -> UsageReport:
    details = mapping(usage.get("prompt_tokens_details"))
    return UsageReport(
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        cached_tokens=count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        written_tokens=count(
            details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens")
        ),
    )


def count(value: object) -> int:
    """Return a number of tokens, or 0 for anything else."""
    return value if isinstance(value, int) and value > 0 else 0
