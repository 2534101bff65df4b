"""One model call: reads the stream, collects the reply and forwards it to viewers."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime

from chats.ground import cancelling
from chats.models import Message, ToolStep
from chats.providers.base import Provider, ProviderError, ProviderRequest
from chats.providers.collector import (
    PartialToolCall,
    ReplyCollector,
    Say,
    SayCall,
    discard_call_piece,
)
from chats.record.images import Bytes
from chats.turns.result_images import ResultImage
from contextpolicy.engine.messages.messages import ToolCallPart, parse_parts, serialize_parts

FINISHES: dict[str, str] = {
    "stop": Message.Finish.STOP,
    "refusal": Message.Finish.STOP,
    "length": Message.Finish.LENGTH,
    "tool_calls": Message.Finish.TOOL_CALLS,
    "none": Message.Finish.INCOMPLETE,
}


class ModelCall(ReplyCollector):
    """The reply of one model call, with its receipt and tool results."""

    def __init__(
        self,
        *,
        receipt_id: uuid.UUID,
        say: Say,
        clock: Callable[[], datetime],
        say_call: SayCall = discard_call_piece,
    ) -> None:
        super().__init__(say=say, say_call=say_call, clock=clock)
        self.receipt_id = receipt_id
        self.results: dict[int, str] = {}
        self.images: dict[int, Sequence[ResultImage]] = {}
        # A tool server was called, so the step is also stored separately.
        self.ran_servers = False
        # The reply is returned although it is empty.
        self.is_accepted = False
        # A `Message.Finish` value, set by code that interrupts the call.
        self.finish: str = Message.Finish.INCOMPLETE

    @property
    def is_useful(self) -> bool:
        """True if the reply has text or tool calls, or reached the length limit.

        A reply that failed after its first text counts too.
        """
        return self.has_text or bool(self.asked) or self.is_full

    @property
    def requests(self) -> dict[int, ToolCallPart]:
        return {index: asking.part(by=self.origin) for index, asking in self.asked.items()}

    async def listen(
        self,
        provider: Provider,
        request: ProviderRequest,
        *,
        interrupted: asyncio.Event,
        seconds: float | None = None,
    ) -> None:
        """Read the stream until it ends. Setting `interrupted` cancels the request.

        After `seconds`, if given, the call fails with `provider_timeout`.
        """
        hearing = asyncio.create_task(self.hear_all(provider, request))
        ending = asyncio.create_task(interrupted.wait())
        done, _ = await asyncio.wait(
            {hearing, ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        await cancelling.cancel_tasks(hearing, ending)
        if not done:
            self.error = ProviderError("provider_timeout")
        self.finish = Message.Finish.LIMIT if self.is_full else FINISHES[self.reason]
        if not hearing.cancelled() and (error := hearing.exception()):
            raise error

    def parts(self) -> list[dict[str, str]]:
        """Return the reply as message parts: reasoning, text, tool calls, tool results.

        The images of a result precede it.
        """
        found: list[dict[str, str]] = []
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
                    **({"extra": call.extra} if call.extra else {}),
                }
            )
        for index, content in self.results.items():
            call = requests[index]
            images = [image.build_part(call.call_id) for image in self.images.get(index, ())]
            found += serialize_parts(images)
            found.append(
                {
                    "type": "tool_result",
                    "call_id": call.call_id,
                    "name": call.name,
                    "content": content,
                }
            )
        return found

    def list_images(self) -> list[ResultImage]:
        """Return the images in the tool results."""
        return [image for images in self.images.values() for image in images]

    def collect_image_bytes(self) -> dict[str, Bytes]:
        """Return the bytes of the images in the tool results, by their hashes."""
        return {each.image.sha256: each.copy for each in self.list_images()}


class ResumedCall(ModelCall):
    """A reply that an earlier attempt received and stored. Only its tools remain to run."""

    def __init__(self, stored: ToolStep, *, say: Say, clock: Callable[[], datetime]) -> None:
        super().__init__(receipt_id=stored.receipt_id, say=say, clock=clock)
        self.usage = dict(stored.usage)
        self.body_sha256 = stored.body_sha256
        self.first_token_at = stored.first_token_at
        self.ran_servers = True
        self.reason, self.finish = "tool_calls", Message.Finish.TOOL_CALLS
        for part in stored.parts:
            if part["type"] in ("text", "reasoning"):
                is_text = part["type"] == "text"
                self.grow(part["type"], self.text if is_text else self.reasoning, part["text"])
        calls = [part for part in parse_parts(stored.parts) if isinstance(part, ToolCallPart)]
        self.stored = dict(enumerate(calls))
        self.asked = {place: PartialToolCall(call.call_id) for place, call in self.stored.items()}

    @property
    def requests(self) -> dict[int, ToolCallPart]:
        return self.stored
