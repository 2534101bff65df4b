"""Collects a streamed reply, for turns and for summaries: text, reasoning, tool calls, usage."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import cast

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
    ToolCallDelta,
    UsageReport,
)
from chats.providers.think_tags import ThinkTags, split_unopened
from contextpolicy.engine.extras import CallExtras
from contextpolicy.engine.messages import ToolCallPart

# Sends one delta on: its kind (text or reasoning), the delta, and the length before it.
Say = Callable[[str, str, int], None]


def unsaid(_kind: str, _piece: str, _offset: int) -> None:
    """Send nothing on: nobody listens to this reply while it is written."""


class Growing:
    """A text that arrives in pieces."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0

    def add(self, piece: str) -> int:
        """Append a piece; return the length before it, in code points."""
        before = self.length
        self.pieces.append(piece)
        self.length += len(piece)
        return before

    def __str__(self) -> str:
        return "".join(self.pieces)


class PartialToolCall:
    """One tool call that arrives in pieces."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.name = Growing()
        self.arguments = Growing()
        # What its server wants back with it; the first call has that of its message, too.
        self.extras = CallExtras()

    def part(self, *, by: str = "") -> ToolCallPart:
        """Return the call as far as it has come; `by`: the model that made it."""
        return ToolCallPart(
            call_id=self.call_id,
            name=str(self.name),
            arguments=str(self.arguments),
            extra=replace(self.extras, by=by).written(),
        )


class ReplyCollector:
    """The reply of a model as far as it has come, and no longer than this instance allows.

    Text, reasoning and tool calls share `REPLY_CHARS` code points: what is longer is cut there, and
    the collector is full. Half a tool call is of no use to anybody, so there the limit is an error,
    and so is one tool call more than `TOOL_CALLS_PER_STEP`. In each case the call ends upstream.
    """

    def __init__(
        self,
        *,
        say: Say = unsaid,
        clock: Callable[[], datetime] | None = None,
        folds_thoughts: bool = True,
    ) -> None:
        self.say = say
        # Thoughts in the text are told from it, unless a program gets the text as it came.
        self.tags = ThinkTags() if folds_thoughts else None
        self.clock = clock
        self.text = Growing()
        self.reasoning = Growing()
        self.asked: dict[int, PartialToolCall] = {}
        self.length = 0
        # Why the provider ended: see `base.Finished`; "none" until it says so.
        self.reason = "none"
        self.usage: dict[str, int] = {}
        self.error: ProviderError | None = None
        self.first_token_at: datetime | None = None
        # Of the bytes that were sent; empty where none were, or nothing came back.
        self.body_sha256 = ""
        # The model that was asked, as the extras of its calls name it.
        self.origin = ""
        # Something a person could read.
        self.has_text = False
        # A limit was reached: nothing more is listened to.
        self.is_full = False

    async def hear_all(self, provider: Provider, request: ProviderRequest) -> None:
        """Collect the events; a provider's error is kept, not raised."""
        self.origin = request.origin
        try:
            # Every adapter is an async generator: closing it ends the call upstream.
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

    def hear(self, event: ProviderEvent) -> None:
        """Keep one event and, if it is words, send it on."""
        match event:
            case TextDelta(text):
                told = self.tags.push(text) if self.tags else [("text", text)]
                for kind, piece in told:
                    self.grow(kind, self.text if kind == "text" else self.reasoning, piece)
            case ReasoningDelta(text):
                self.grow("reasoning", self.reasoning, text)
            case ToolCallDelta():
                self.request(event)
            case ExtraFields(index, fields, thoughts):
                self.keep_extras(index, fields, thoughts=thoughts)
            case UsageReport():
                self.usage = {
                    "input": event.input_tokens,
                    "output": event.output_tokens,
                    "cached": event.cached_tokens,
                    "written": event.written_tokens,
                }
            case Finished(reason):
                self.take_rest()
                self.reason = reason

    def take_rest(self) -> None:
        """Take what was held back because it could have been the beginning of a tag."""
        for kind, piece in self.tags.flush() if self.tags else ():
            self.grow(kind, self.text if kind == "text" else self.reasoning, piece)
        if self.tags:
            self.move_unopened_thoughts()

    def move_unopened_thoughts(self) -> None:
        """Move thoughts that lack their opening tag from the text to the reasoning.

        Only the closing tag tells, so a live viewer has seen them as text until then; the stored
        reply has them as thoughts.
        """
        split = split_unopened(str(self.text))
        if split is None:
            return
        thoughts, answer = split
        self.reasoning.add(thoughts)
        self.text = Growing()
        self.text.add(answer)
        self.has_text = bool(answer.strip())

    def keep_extras(
        self, index: int | None, fields: Mapping[str, object], *, thoughts: str
    ) -> None:
        """Keep unknown fields with the call that has them, those of the message with the first."""
        first = min(self.asked, default=0)
        asking = self.asked.get(first if index is None else index)
        if asking is None:
            return
        if index is None:
            asking.extras = replace(asking.extras, message=fields, thoughts=thoughts)
        else:
            asking.extras = replace(asking.extras, call=fields)

    def grow(self, kind: str, text: Growing, piece: str) -> None:
        """Append a delta and send it on, with its offset."""
        if self.first_token_at is None and self.clock is not None:
            self.first_token_at = self.clock()
        piece = self.fitting(piece)
        if not piece:
            return
        offset = text.add(piece)
        if text is self.text and not self.has_text:
            if not piece.strip():
                # A call without any words is silently made again: nothing was shown of it.
                return
            self.has_text = True
            piece, offset = str(text), 0
        self.say(kind, piece, offset)

    def fitting(self, piece: str) -> str:
        """Return as much of a piece as the reply has room for, in code points.

        A piece that is cut fills the reply.
        """
        room = settings.REPLY_CHARS - self.length
        self.is_full = len(piece) > room
        piece = piece[:room]
        self.length += len(piece)
        return piece

    def request(self, delta: ToolCallDelta) -> None:
        """Append a piece of one tool call."""
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
