"""Collects a streamed reply for turns and summaries: text, reasoning, tool calls, usage."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Protocol, cast

from django.conf import settings

from chats.providers.base import (
    ExtraFields,
    Finished,
    Provider,
    ProviderError,
    ProviderEvent,
    ProviderRequest,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.logprobs import TokenLog
from chats.providers.prefill import ReplyOpening
from chats.providers.think_tags import ThinkTags, split_unopened
from contextpolicy.engine.messages.extras import CallExtras
from contextpolicy.engine.messages.messages import ToolCallPart


class Say(Protocol):
    """Forwards one delta: its kind (text or reasoning), the delta, and its offset.

    `logprobs` has the entries of `TokenLog.take_entries`, if the request asks for them.
    """

    def __call__(self, kind: str, text: str, offset: int, logprobs: str = "", /) -> None: ...


def discard_piece(_kind: str, _piece: str, _offset: int, _logprobs: str = "") -> None:
    """Ignore a piece, because this reply has no live viewers."""


class SayCall(Protocol):
    """Forwards a piece of a call: its position among the calls, the call so far, more arguments."""

    def __call__(self, place: int, call: "PartialToolCall", piece: str, /) -> None: ...


def discard_call_piece(_place: int, _call: "PartialToolCall", _piece: str) -> None:
    """Ignore a piece of a tool call, because this reply has no live viewers."""


class Growing:
    """Text that grows piece by piece, with its length in code points."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0

    def add(self, piece: str) -> int:
        """Append a piece. Return the previous length, in code points."""
        before = self.length
        self.pieces.append(piece)
        self.length += len(piece)
        return before

    def __str__(self) -> str:
        return "".join(self.pieces)


class PartialToolCall:
    """A tool call as received so far."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.name = Growing()
        self.arguments = Growing()
        # Fields that the model's server requires back. The first call also holds those of the
        # message.
        self.extras = CallExtras()

    def part(self, *, by: str = "") -> ToolCallPart:
        """Return the call as received so far. `by` is the model that made it."""
        return ToolCallPart(
            call_id=self.call_id,
            name=str(self.name),
            arguments=str(self.arguments),
            extra=replace(self.extras, by=by).written(),
        )


class ReplyCollector:
    """A model's reply as received so far, within the limits of this instance.

    Text, reasoning and tool calls share `REPLY_CHARS` code points. Longer text is cut at the limit,
    and the collector is full. A partial tool call is useless, so a tool call beyond the limit is an
    error. More than `TOOL_CALLS_PER_STEP` tool calls are an error too. In each case the request is
    ended.
    """

    def __init__(
        self,
        *,
        say: Say = discard_piece,
        say_call: SayCall = discard_call_piece,
        clock: Callable[[], datetime] | None = None,
        splits_thoughts: bool = True,
    ) -> None:
        self.say = say
        self.say_call = say_call
        # Separates thinking from text, unless an API client gets the text unchanged.
        self.tags = ThinkTags() if splits_thoughts else None
        self.clock = clock
        self.text = Growing()
        self.reasoning = Growing()
        self.asked: dict[int, PartialToolCall] = {}
        self.length = 0
        # The reason why the provider ended the reply, see `base.Finished`. "none" until it reports
        # a reason.
        self.reason = "none"
        self.usage: dict[str, int] = {}
        self.error: ProviderError | None = None
        self.first_token_at: datetime | None = None
        # SHA-256 of the bytes sent. Empty if none were sent, or no response arrived.
        self.body_sha256 = ""
        # Options of the request that the server refused otherwise, see `learned_options`.
        self.learned: Mapping[str, object] = {}
        # The requested model, as named in the extras of its calls.
        self.origin = ""
        # The beginning of the reply, if a client wrote it.
        self.opening = ReplyOpening()
        # The reply has visible text.
        self.has_text = False
        # A limit was reached, so reading stops.
        self.is_full = False
        # Log probabilities of the text, if the request asks for them.
        self.log: TokenLog | None = None

    async def hear_all(self, provider: Provider, request: ProviderRequest) -> None:
        """Collect all events. A provider's error is stored, not raised."""
        self.origin = request.origin
        self.prepare_log(request)
        if request.prefill:
            text = request.messages[-1].content
            self.opening = ReplyOpening(text, may_repeat=request.prefill == "marked")
        try:
            # All adapters are async generators: closing one ends the request.
            stream = cast(AsyncGenerator[ProviderEvent, None], provider.stream(request))
            async with aclosing(stream) as events:
                async for event in events:
                    self.hear(event)
                    if self.is_full:
                        return
        except ProviderError as error:
            self.error = error
        finally:
            self.take_rest()
            self.body_sha256 = request.sent.sha256
            self.learned = request.sent.learned

    def prepare_log(self, request: ProviderRequest) -> None:
        """Prepare the collection of log probabilities if the request asks for them."""
        if request.parameters.get("logprobs") is True:
            self.log = TokenLog(limit=settings.GATEWAY_LOGPROB_BYTES)

    def hear(self, event: ProviderEvent) -> None:
        """Store one event, and forward it if it is text or reasoning."""
        match event:
            case TextDelta(text):
                self.receive_text(text)
            case ReasoningDelta(text):
                self.grow("reasoning", self.reasoning, text)
            case TokenLogprobs():
                self.receive_logprobs(event)
            case ToolCallDelta():
                self.request(event)
            case ExtraFields(index, fields, thoughts):
                self.keep_extras(index, fields, thoughts=thoughts)
            case UsageReport():
                self.note_usage(event)
            case Finished(reason):
                self.take_rest()
                self.reason = reason

    def note_usage(self, report: UsageReport) -> None:
        """Store the usage, unless a count is missing, which makes the cost of the call unknown.

        A count is missing if the server reports no tokens for the prompt, or none for a reply with
        output.
        """
        has_output = bool(self.length or self.asked)
        if not report.input_tokens or (has_output and not report.output_tokens):
            return
        self.usage = {
            "input": report.input_tokens,
            "output": report.output_tokens,
            "cached": report.cached_tokens,
            "written": report.written_tokens,
            **({"reasoning": report.reasoning_tokens} if report.reasoning_tokens else {}),
        }

    def receive_text(self, text: str) -> None:
        """Add text as the provider sent it."""
        if self.log is not None:
            self.log.add_text(text)
        self.add_text(self.opening.push(text))

    def receive_logprobs(self, event: TokenLogprobs) -> None:
        """Store log probabilities, unless the request did not ask for them."""
        if self.log is not None:
            self.log.add_entries(event.entries, is_mixed=event.is_mixed)

    def add_text(self, text: str) -> None:
        """Add text of the reply, which may contain thinking in tags."""
        told = self.tags.push(text) if self.tags else [("text", text)]
        for kind, piece in told:
            self.grow(kind, self.text if kind == "text" else self.reasoning, piece)

    def take_rest(self) -> None:
        """Add text that was held back as a possible repetition or start of a tag."""
        if rest := self.opening.flush():
            self.add_text(rest)
        for kind, piece in self.tags.flush() if self.tags else ():
            self.grow(kind, self.text if kind == "text" else self.reasoning, piece)
        if self.log is not None:
            # Log probabilities that arrived after their text.
            self.log.take_entries(upto=self.text.length)
        if self.tags:
            self.move_unopened_thoughts()

    def move_unopened_thoughts(self) -> None:
        """Move thinking without an opening tag from the text to the reasoning.

        Such thinking is recognised only at its closing tag, so live viewers have seen it as
        text until then. The stored reply has it as reasoning.
        """
        split = split_unopened(str(self.text))
        if split is None:
            return
        thoughts, answer = split
        if self.log is not None:
            self.log.remove_start(self.text.length - len(answer))
        self.reasoning.add(thoughts)
        self.text = Growing()
        self.text.add(answer)
        self.has_text = bool(answer.strip())

    def keep_extras(
        self, index: int | None, fields: Mapping[str, object], *, thoughts: str
    ) -> None:
        """Store unknown fields of a tool call with the call.

        Unknown fields of the message are stored with the first call.
        """
        first = min(self.asked, default=0)
        asking = self.asked.get(first if index is None else index)
        if asking is None:
            return
        if index is None:
            asking.extras = replace(asking.extras, message=fields, thoughts=thoughts)
        else:
            asking.extras = replace(asking.extras, call=fields)

    def grow(self, kind: str, text: Growing, piece: str) -> None:
        """Append a piece of text or reasoning and forward it with its offset in code points."""
        if self.first_token_at is None and self.clock is not None:
            self.first_token_at = self.clock()
        log = self.log if text is self.text else None
        if log is not None:
            log.place_text(at=text.length, size=len(piece))
        piece = self.fitting(piece)
        if not piece:
            return
        offset = text.add(piece)
        if text is self.text and not self.has_text:
            if not piece.strip():
                # A call without text is retried silently, so nothing may be shown of it.
                return
            self.has_text = True
            piece, offset = str(text), 0
        if log is None:
            self.say(kind, piece, offset)
        else:
            self.say(kind, piece, offset, log.take_entries(upto=text.length))

    def fitting(self, piece: str) -> str:
        """Return the beginning of a piece that still fits into the reply.

        Cutting a piece marks the collector as full.
        """
        room = settings.REPLY_CHARS - self.length
        self.is_full = len(piece) > room
        piece = piece[:room]
        self.length += len(piece)
        return piece

    def request(self, delta: ToolCallDelta) -> None:
        """Append a piece of a tool call: first its id and name, then pieces of its arguments."""
        asking = self.asked.get(delta.index)
        if asking is None:
            if len(self.asked) == settings.TOOL_CALLS_PER_STEP:
                self.is_full = True
                self.error = ProviderError("too_many_tool_calls")
                return
            asking = self.asked[delta.index] = PartialToolCall(self.fitting(delta.call_id))
        for text, piece in ((asking.name, delta.name), (asking.arguments, delta.arguments)):
            if not self.is_full:
                text.add(self.fitting(piece))
        if self.is_full:
            self.error = ProviderError("tool_call_too_long")
        else:
            self.say_call(delta.index, asking, delta.arguments)
