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


class Call:
    """What one model call answered so far."""

    def __init__(self, *, receipt_id: uuid.UUID, say: Say, clock: Callable[[], datetime]) -> None:
        self.receipt_id = receipt_id
        self.say = say
        self.clock = clock
        self.text = Growing()
        self.reasoning = Growing()
        self.requests: dict[int, ToolCallPart] = {}
        self.results: dict[int, str] = {}
        self.length = 0
        self.finish: str = Message.Finish.INCOMPLETE
        self.usage: dict[str, int] = {}
        self.error: ProviderError | None = None
        self.first_token_at: datetime | None = None
        # Something a person could read.
        self.has_text = False

    @property
    def is_useful(self) -> bool:
        """The answer counts: it has text or tool calls, or it had begun when it failed."""
        return self.has_text or bool(self.requests)

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
                    if self.length > settings.REPLY_CHARS:
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
        self.length += len(piece)
        offset = text.add(piece)
        if text is self.text and not self.has_text:
            if not piece.strip():
                # A call that never comes to words is silently made again: nothing was shown of it.
                return
            self.has_text = True
            piece, offset = str(text), 0
        self.say(kind, piece, offset)

    def request(self, delta: ToolCallDelta) -> None:
        """More of one tool call."""
        known = self.requests.get(delta.index)
        self.length += len(delta.name) + len(delta.arguments)
        self.requests[delta.index] = ToolCallPart(
            call_id=known.call_id if known else delta.call_id,
            name=(known.name if known else "") + delta.name,
            arguments=(known.arguments if known else "") + delta.arguments,
        )

    def parts(self) -> list[dict[str, str]]:
        """The answer as a message's parts: reasoning, text, calls, their results."""
        found = []
        if self.reasoning.length:
            found.append({"type": "reasoning", "text": str(self.reasoning)})
        if self.text.length:
            found.append({"type": "text", "text": str(self.text)})
        calls = list(self.requests.values())
        for call in calls:
            found.append(
                {
                    "type": "tool_call",
                    "call_id": call.call_id,
                    "name": call.name,
                    "arguments": call.arguments,
                }
            )
        for index, content in self.results.items():
            call = self.requests[index]
            found.append(
                {
                    "type": "tool_result",
                    "call_id": call.call_id,
                    "name": call.name,
                    "content": content,
                }
            )
        return found
