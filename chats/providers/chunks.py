"""Converts chunks of an OpenAI-style reply to our events, both streams and whole replies.

Handles what servers really send, beyond the schema: tool calls without ids or all with one index,
reasoning under two names, usage in each chunk, error objects within a stream.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_noop

from chats.ground.texts import read_server_json
from chats.providers.base import (
    ExtraFields,
    Finished,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    UsageReport,
)
from chats.providers.extras import FieldsSoFar
from chats.providers.failures import parse_minimax_failure, parse_stream_failure
from chats.providers.sse import TextJoiner
from chats.providers.stream_end import StreamEnd
from chats.providers.tool_calls import ToolCalls
from contextpolicy.engine.messages.extras import THOUGHTS, select_unknown_message_fields
from contextpolicy.engine.policy.costs import is_count

# The provider's filter ended the reply: OpenAI and Azure, Zhipu, Bedrock, Cohere, and Gemini, which
# also sends "content_filter: RECITATION".
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
        "image_safety",
        "model_armor",
    }
)
CUT_BY_FILTER = gettext_noop(
    "The model provider’s content filter ended this reply. The text so far is saved, but later "
    "prompts leave it out unless you keep it. Edit your message or choose another model."
)
END_MARK = b"[DONE]"
# Higher numbers in data may be the status of an error.
LOWEST_STATUS = 100
# Other marks of servers, without a meaning.
_MARK = re.compile(rb"\[[A-Za-z][A-Za-z_ -]*\]")


class ReplyReader:
    """Reads one reply, chunk by chunk. `end` tracks its progress."""

    def __init__(self) -> None:
        self.end = StreamEnd()
        self._is_silent = True
        self._refused = False
        self._has_words = False
        self._usage: UsageReport | None = None
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._calls = ToolCalls()
        self._message = WholeMessage()
        self._unknown = FieldsSoFar()
        self._thoughts_in = ""

    def read(self, payload: bytes) -> Iterator[ProviderEvent]:
        """Yield the events of one chunk. Raises ProviderError for errors and unreadable chunks."""
        chunk = decode_payload(payload, end=self.end)
        if chunk is not None:
            yield from self._chunk(chunk)
        elif self.end.is_marked or not payload.strip():
            # An empty payload or the end mark also shows that this is a model server.
            self._is_silent = False

    def finish(self) -> Iterator[ProviderEvent]:
        """Yield the remaining events at the end: held-back text, the usage, the finish reason.

        Raises ProviderError if no chunk with choices arrived (not a model server), or if a content
        filter ended the reply.
        """
        if self._is_silent:
            raise ProviderError("provider_protocol")
        if text := self._text.flush():
            yield TextDelta(text)
        yield from self._calls.flush()
        if self._calls.any:
            fields = self._unknown.fields
            if fields or self._thoughts_in:
                yield ExtraFields(None, fields, self._thoughts_in)
            yield from self._calls.extras()
        if self._usage is not None:
            yield self._usage
        # A model that declines in its own words has replied. Without text, a filter ended the
        # reply.
        is_filtered = (
            not self._refused
            if self.end.reason == "refusal"
            else self.end.reason.partition(":")[0] in _FILTERED
        )
        if is_filtered:
            raise ProviderError(
                "content_filtered", sentence=CUT_BY_FILTER if self._has_words else ""
            )
        reason = self.end.finish_reason(has_calls=self._calls.any)
        yield Finished("refusal" if reason == "stop" and self._refused else reason)

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        groq = coerce_mapping(chunk.get("x_groq"))
        # Groq's place for the reason of an early stop.
        for place in (chunk, groq):
            raise_error(place)
        self._note_usage(chunk.get("usage") or groq.get("usage"))
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ProviderError("provider_protocol")
        # Other documents, such as {"detail": "Not Found"}, are not replies.
        self._is_silent = self._is_silent and not isinstance(chunk.get("choices"), list)
        # Only one choice is requested. A chunk without any has usage or filter results.
        for choice in map(coerce_mapping, choices[:1]):
            raise_error(choice)
            # Moonshot's place.
            self._note_usage(choice.get("usage"))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason.lower() == "error":
                raise ProviderError("provider_error")
            has_output = False
            for event in self._choice(choice):
                has_output = True
                yield event
            self.end.note_chunk(has_output=has_output, reason=reason)

    def _note_usage(self, usage: object) -> None:
        """Store a server's usage. Each report replaces the previous one."""
        if isinstance(usage, dict) and usage:
            self._usage = _usage_report(usage)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        delta = coerce_mapping(choice.get("delta"))
        if choice.get("logprobs"):
            yield from _token_logprobs(choice)
        yield from self._pieces(delta)
        self._message.note_delta(delta)
        self._unknown.add(select_unknown_message_fields(delta))
        if message := coerce_mapping(choice.get("message")):
            self._unknown.add_missing(select_unknown_message_fields(message))
            yield from self._pieces(self._message.missing(message))

    def _pieces(self, delta: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        if thought := self._reasoning.push(extract_delta_reasoning(delta)):
            self._thoughts_in = next((name for name in THOUGHTS if delta.get(name)), "")
            yield ReasoningDelta(thought)
        refusal = coerce_text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        if text := self._text.push(coerce_text(delta.get("content")) + refusal):
            self._has_words = self._has_words or bool(text.strip())
            yield TextDelta(text)
        for call in extract_delta_calls(delta):
            if piece := self._calls.delta(call):
                yield piece


class WholeMessage:
    """The parts of a choice's `message` that its deltas did not contain.

    Some servers send the whole reply as `message` in the last chunk, or everything so far in each
    chunk. Others send pieces there instead of in `delta`.
    """

    def __init__(self) -> None:
        self._by_delta: set[str] = set()
        self._sent: dict[str, str] = {}

    def note_delta(self, delta: Mapping[str, Any]) -> None:
        """Record the content of a delta, to compare it with a later `message`."""
        said = {
            "content": coerce_text(delta.get("content")),
            "thoughts": extract_delta_reasoning(delta),
        }
        said["refusal"] = coerce_text(delta.get("refusal"))
        self._by_delta |= {name for name, text in said.items() if text}
        if extract_delta_calls(delta):
            self._by_delta.add("tool_calls")

    def missing(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the missing parts of a message, as a delta."""
        texts = {
            "content": coerce_text(message.get("content")),
            "thoughts": extract_delta_reasoning(message),
            "refusal": coerce_text(message.get("refusal")),
        }
        found: dict[str, Any] = {}
        for name, text in texts.items():
            before = self._sent.get(name, "")
            if not text or name in self._by_delta:
                continue
            is_longer = text.startswith(before)
            found[name] = text[len(before) :] if is_longer else text
            self._sent[name] = text if is_longer else before + text
        if "thoughts" in found:
            name = next((name for name in THOUGHTS if message.get(name)), THOUGHTS[0])
            found[name] = found.pop("thoughts")
        if "tool_calls" not in self._by_delta:
            # Each entry of a whole list is another call, even without an index.
            calls = enumerate(extract_delta_calls(message))
            found["tool_calls"] = [{"index": n, **call} for n, call in calls]
        return found


def parse_chunk(payload: bytes) -> Mapping[str, Any]:
    """Parse a payload as an object. Raises ProviderError."""
    try:
        chunk = read_server_json(payload)
    except (ValueError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if not isinstance(chunk, dict):
        raise ProviderError("provider_protocol")
    return chunk


def decode_payload(payload: bytes, *, end: StreamEnd) -> Mapping[str, Any] | None:
    """Parse a payload as an object. None for an empty payload, for the end marker, and after it.

    None also for a payload that only keeps the connection open.

    Raises ProviderError for an error reported after the marker, and for unreadable payloads.
    """
    payload = payload.strip()
    if end.is_marked:
        raise_late_error(payload)
        return None
    # Some servers quote the mark, and some send empty events to keep the connection open.
    if payload.strip(b'"').upper() == END_MARK:
        end.note_mark()
        return None
    return parse_chunk(payload) if payload and not is_keep_alive(payload) else None


def is_keep_alive(payload: bytes) -> bool:
    """Return True if a payload only keeps the connection open.

    Servers and proxies send comments, single values or marks such as `[END]` as data.
    """
    if payload.startswith((b":", b"{")):
        return payload.startswith(b":")
    try:
        found = read_server_json(payload)
    except (ValueError, RecursionError):
        return bool(_MARK.fullmatch(payload)) and b"ERR" not in payload.upper()
    # A text or a status code may be an error.
    is_counter = type(found) is int and 0 <= found < LOWEST_STATUS
    return found is None or found in ("", []) or is_counter


def raise_late_error(payload: bytes) -> None:
    """Raise the ProviderError in a payload after the end marker. Ignores anything else."""
    with suppress(ValueError, RecursionError):
        chunk = read_server_json(payload)
        if isinstance(chunk, dict):
            raise_error(chunk)


def raise_error(chunk: Mapping[str, Any]) -> None:
    """Raise the ProviderError in a chunk or a choice, if any."""
    if chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type")):
        raise parse_stream_failure(chunk)
    # MiniMax reports errors with status 200, with empty choices.
    status = coerce_mapping(chunk.get("base_resp")).get("status_code")
    if isinstance(status, int) and status:
        raise parse_minimax_failure(status)
    # An error in the form of no API, such as {"code": 500, "message": "…"}.
    has_reply = "choices" in chunk or isinstance(chunk.get("message"), dict)
    if not has_reply and chunk.get("code") and isinstance(chunk.get("message"), str):
        raise parse_stream_failure(chunk)


def extract_delta_reasoning(delta: Mapping[str, Any]) -> str:
    """Return the reasoning in a delta or message.

    Providers send it as `reasoning_content`, as `reasoning`, or as `thinking` in content parts.
    """
    content = delta.get("content")
    parts = content if isinstance(content, list) else []
    return coerce_text(delta.get("reasoning_content") or delta.get("reasoning")) or "".join(
        coerce_text(coerce_mapping(part).get("thinking")) for part in parts
    )


def extract_delta_calls(delta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = delta.get("tool_calls")
    listed = calls if isinstance(calls, list) else [calls]
    found: list[Mapping[str, Any]] = [call for call in listed if isinstance(call, dict)]
    # The older form of a tool call. Some servers send both forms.
    older = delta.get("function_call")
    return [{"function": older}] if isinstance(older, dict) and not found else found


def coerce_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def coerce_text(value: object) -> str:
    """Return text given as a string, or as the list of parts that some servers send.

    Returns an empty string for any other value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(coerce_text(coerce_mapping(part).get("text")) for part in value)
    return ""


def _token_logprobs(choice: Mapping[str, Any]) -> Iterator[TokenLogprobs]:
    """Yield the log probabilities of a choice, unless they belong to output other than text."""
    found = coerce_mapping(choice.get("logprobs"))
    lists = [found.get(name) for name in ("content", "refusal")]
    entries = [entry for listed in lists if isinstance(listed, list) for entry in listed]
    said = [coerce_mapping(choice.get(name)) for name in ("delta", "message")]
    is_mixed = any(extract_delta_reasoning(each) or extract_delta_calls(each) for each in said)
    has_text = any(coerce_text(each.get("content") or each.get("refusal")) for each in said)
    if entries and (has_text or not is_mixed):
        yield TokenLogprobs(entries, is_mixed)


def _usage_report(usage: Mapping[str, Any]) -> UsageReport | None:
    """Return a server's usage. None if both counts are missing, or if one is invalid."""
    details = coerce_mapping(usage.get("prompt_tokens_details"))
    sent, said = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    sizes = [parse_token_count(size) for size in (sent, said) if size is not None]
    if None in sizes or not sizes:
        return None
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    written = details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens")
    report = _add_uncounted_tokens(
        UsageReport(
            input_tokens=parse_token_count(sent) or 0,
            output_tokens=parse_token_count(said) or 0,
            cached_tokens=parse_token_count(cached) or 0,
            written_tokens=parse_token_count(written) or 0,
        ),
        usage=usage,
    )
    said_details = coerce_mapping(usage.get("completion_tokens_details"))
    reasoning = parse_token_count(said_details.get("reasoning_tokens")) or 0
    return replace(report, reasoning_tokens=min(reasoning, report.output_tokens))


def _add_uncounted_tokens(report: UsageReport, *, usage: Mapping[str, Any]) -> UsageReport:
    """Return the usage with the tokens that only the server's total contains.

    These are reasoning tokens (xAI's and Gemini's models) or cached tokens.
    """
    total = parse_token_count(usage.get("total_tokens")) or 0
    more = total - report.input_tokens - report.output_tokens
    if more <= 0:
        return report
    if more == report.cached_tokens + report.written_tokens:
        return replace(report, input_tokens=report.input_tokens + more)
    thoughts = coerce_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")
    if thoughts and thoughts != more:
        # Something else. Thoughts that are counted already would be counted twice.
        return report
    return replace(report, output_tokens=report.output_tokens + more)


def parse_token_count(value: object) -> int | None:
    """Return a token count, or None for an invalid one. A whole number may be a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and is_count(value) else None
