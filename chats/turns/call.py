"""One model call: listen to its stream, keep what it says, and say it on."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import cast

from django.conf import settings

from chats.models import Message
from chats.providers.base import (
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
from contextpolicy.engine.messages import ToolCallPart

FINISHES: dict[str, str] = {
    "stop": Message.Finish.STOP,
    "refusal": Message.Finish.STOP,
    "length": Message.Finish.LENGTH,
    "tool_calls": Message.Finish.TOOL_CALLS,
    "none": Message.Finish.INCOMPLETE,
}
# Says one delta: its kind (text or reasoning), the delta, and the length before it.
Say = Callable[[str, str, int], None]


class Growing:
    """A text that arrives in pieces."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0

    def add(self, piece: str) -> int:
        """Append a piece; returns the length before it, in code points."""
        before = self.length
        self.pieces.append(piece)
        self.length += len(piece)
        return before

    def __str__(self) -> str:
        return "".join(self.pieces)


class Asking:
    """One tool call that arrives in pieces."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.name = Growing()
        self.arguments = Growing()

    def part(self) -> ToolCallPart:
        """As far as it has come."""
        return ToolCallPart(
            call_id=self.call_id, name=str(self.name), arguments=str(self.arguments)
        )


class Call:
    """What one model call answered so far: never more than this instance lets a reply have.

    Text, reasoning and tool calls share `REPLY_CHARS` code points: what is longer is cut there and
    ends as `limit`. Half a tool call is of no use to anybody, so there the limit is an error, and
    so is one tool call more than `TOOL_CALLS_PER_STEP`. In each case the call ends upstream.
    """

    def __init__(self, *, receipt_id: uuid.UUID, say: Say, clock: Callable[[], datetime]) -> None:
        self.receipt_id = receipt_id
        self.say = say
        self.clock = clock
        self.text = Growing()
        self.reasoning = Growing()
        self.asked: dict[int, Asking] = {}
        self.results: dict[int, str] = {}
        self.length = 0
        self.finish: str = Message.Finish.INCOMPLETE
        self.usage: dict[str, int] = {}
        self.error: ProviderError | None = None
        self.first_token_at: datetime | None = None
        # Something a person could read.
        self.has_text = False
        # A limit was reached: nothing more is listened to.
        self.is_full = False

    @property
    def is_useful(self) -> bool:
        """The answer counts: it has text or tool calls, had begun when it failed, or is full."""
        return self.has_text or bool(self.asked) or self.is_full

    @property
    def requests(self) -> dict[int, ToolCallPart]:
        """The tool calls, by their place."""
        return {index: asking.part() for index, asking in self.asked.items()}

    async def listen(
        self,
        provider: Provider,
        request: ProviderRequest,
        *,
        interrupted: asyncio.Event,
        seconds: float | None = None,
    ) -> None:
        """Hear the stream out, or until interrupted, which cancels the call upstream.

        After `seconds`, where they are given, the call counts as timed out.
        """
        hearing = asyncio.create_task(self.hear_all(provider, request))
        ending = asyncio.create_task(interrupted.wait())
        done, _ = await asyncio.wait(
            {hearing, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        hearing.cancel()
        ending.cancel()
        await asyncio.gather(hearing, ending, return_exceptions=True)
        if not done:
            self.error = ProviderError("provider_timeout")
        if not hearing.cancelled() and (error := hearing.exception()):
            raise error

    async def hear_all(self, provider: Provider, request: ProviderRequest) -> None:
        """Collect the events; a provider's error is kept, not raised."""
        try:
            # Every adapter is an async generator: closing it ends the call upstream.
            stream = cast(AsyncGenerator[ProviderEvent, None], provider.stream(request))
            async with aclosing(stream) as events:
                async for event in events:
                    self.hear(event)
                    if self.is_full:
                        self.finish = Message.Finish.LIMIT
                        return
        except ProviderError as error:
            self.error = error

    def hear(self, event: ProviderEvent) -> None:
        """One event: keep it and, if it is words, say it on."""
        match event:
            case TextDelta(text):
                self.grow("text", self.text, text)
            case ReasoningDelta(text):
                self.grow("reasoning", self.reasoning, text)
            case ToolCallDelta():
                self.request(event)
            case UsageReport():
                self.usage = {
                    "input": event.input_tokens,
                    "output": event.output_tokens,
                    "cached": event.cached_tokens,
                    "written": event.written_tokens,
                }
            case Finished(reason):
                self.finish = FINISHES[reason]

    def grow(self, kind: str, text: Growing, piece: str) -> None:
        """Append a delta and say it, with its offset."""
        if self.first_token_at is None:
            self.first_token_at = self.clock()
        piece = self.fitting(piece)
        if not piece:
            return
        offset = text.add(piece)
        if text is self.text and not self.has_text:
            if not piece.strip():
                # A call that never comes to words is silently made again: nothing was shown of it.
                return
            self.has_text = True
            piece, offset = str(text), 0
        self.say(kind, piece, offset)

    def fitting(self, piece: str) -> str:
        """As much of a piece as the reply has room for, in code points; what is left fills it."""
        room = settings.REPLY_CHARS - self.length
        self.is_full = len(piece) > room
        piece = piece[:room]
        self.length += len(piece)
        return piece

    def request(self, delta: ToolCallDelta) -> None:
        """More of one tool call."""
        asking = self.asked.get(delta.index)
        if asking is None:
            if len(self.asked) == settings.TOOL_CALLS_PER_STEP:
                self.is_full = True
                self.error = ProviderError("too_many_tool_calls")
                return
            asking = self.asked[delta.index] = Asking(self.fitting(delta.call_id))
        for text, piece in ((asking.name, delta.name), (asking.arguments, delta.arguments)):
            if not self.is_full:
                text.add(self.fitting(piece))
        if self.is_full:
            self.error = ProviderError("tool_call_too_long")

    def parts(self) -> list[dict[str, str]]:
        """The answer as a message's parts: reasoning, text, calls, their results."""
        found = []
        if self.reasoning.length:
            found.append({"type": "reasoning", "text": str(self.reasoning)})
        if self.text.length:
            found.append({"type": "text", "text": str(self.text)})
        requests = self.requests
        for call in requests.values():
            found.append(
                {
                    "type": "tool_call",
                    "call_id": call.call_id,
                    "name": call.name,
                    "arguments": call.arguments,
                }
            )
        for index, content in self.results.items():
            call = requests[index]
            found.append(
                {
                    "type": "tool_result",
                    "call_id": call.call_id,
                    "name": call.name,
                    "content": content,
                }
            )
        return found
