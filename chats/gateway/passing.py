"""Passes a conversation on as it came, and its reply back: no chat, no receipt, no stored words."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import cast

from django.http import HttpRequest, HttpResponseBase

from chats.gateway import direct, parameters
from chats.gateway.body import RequestFields
from chats.gateway.direct import DirectCall
from chats.gateway.opting_out import RequestRoute
from chats.gateway.placing import Sent
from chats.gateway.relay import PING, WaitingHead, Watch
from chats.gateway.wire import Form, Reply, TurnFailed
from chats.ground import cancelling
from chats.ground.refusals import Refusal
from chats.prompt import model_choice
from chats.providers import registry
from chats.providers.base import ProviderError, ProviderEvent, ProviderRequest
from chats.providers.collector import ReplyCollector
from chats.record import images
from chats.streams import connection
from contextpolicy.engine.messages import ToolSpec, WireMessage, parts_to_json, wires_of
from contextpolicy.models import ModelSpec

# How often a stream that says nothing looks at its key, and at the end of this process.
LOOK_SECONDS = 1.0
# Where a provider says nothing of the end, the reply was cut.
FINISHES = {"stop": "stop", "refusal": "stop", "length": "length", "tool_calls": "tool_calls"}


@dataclass(frozen=True, slots=True)
class Spoken:
    """A request on its way to a provider, and the form in which its reply goes back."""

    request: ProviderRequest
    form: Form
    is_stream: bool
    # The reply without its words.
    head: Reply
    key_id: uuid.UUID


def response(
    request: HttpRequest,
    *,
    sent: Sent,
    asked: RequestFields,
    way: RequestRoute,
    form: Form,
    head: Reply,
    kind: str,
) -> HttpResponseBase:
    """Return the response that carries the reply, with the headers that say why nothing is kept.

    Raises `ModelUnavailable`, `SecretUnreadable` and `TooManyPassedOn`.
    """
    model = way.choice.model
    call = direct.begin(key=sent.api_key, model=model, kind=kind, why=way.why)
    passed = request_for(sent, asked=asked, model=model)
    spoken = Spoken(passed, form, asked.stream, head, sent.api_key.pk)
    headers = {"X-Context-Decision": "off", "X-Context-Off": way.why, "X-Context-Status": "off"}
    if asked.left_out:
        headers["X-Context-Tools-Left-Out"] = ", ".join(asked.left_out)
    headers |= parameters.header_of(asked.dropped)
    return direct.response(
        request, call, partial(texts, spoken), is_stream=asked.stream, headers=headers
    )


def request_for(sent: Sent, *, asked: RequestFields, model: ModelSpec) -> ProviderRequest:
    """Return the request for the provider: what the program said, and nothing of ours."""
    said = sent.conversation
    wires = [WireMessage("system", text) for text in said.system]
    for item in said.items:
        wires += wires_of(item.role, item.parts)
    return ProviderRequest(
        model=model.name,
        messages=tuple(wires),
        tools=tuple(ToolSpec(**tool) for tool in asked.tools),
        max_output_tokens=asked.max_output or model.max_output,
        stream=not model.cannot_stream,
        parameters=asked.parameters,
        images=images_of(sent, wires),
        origin=model_choice.origin_of(model),
    )


class Voice:
    """The words of a reply that are not sent yet, and whether any were."""

    def __init__(self, spoken: Spoken) -> None:
        self.form, self.is_stream = spoken.form, spoken.is_stream
        self.waiting: list[str] = []
        # The words have begun; the response has, be it with a sign that it waits.
        self.is_open = self.has_begun = False

    def say(self, kind: str, piece: str, _offset: int) -> None:
        """Take more words of the reply; thoughts are not sent."""
        if kind == "text" and self.is_stream:
            self.waiting.append(piece)

    def more(self) -> str:
        """Return what a stream says next; nothing where there are no new words."""
        if not self.waiting:
            return ""
        said = self.opening() + self.form.text("".join(self.waiting))
        self.waiting.clear()
        return said

    def end(self, reply: Reply) -> str:
        """Return the end of a reply, or all of it."""
        return (
            self.opening() + self.form.ending(reply) if self.is_stream else self.form.whole(reply)
        )

    def wait(self) -> str:
        """Return the sign that the reply is still waited for."""
        self.has_begun = True
        return PING

    def break_off(self, refusal: Refusal, held: WaitingHead) -> str:
        """Return an error: with its own status, or as an event where a stream has begun."""
        return self.form.broken(refusal) if self.has_begun else held.fail(refusal)

    def opening(self) -> str:
        """Return the beginning of a stream, once."""
        begun = "" if self.is_open else self.form.opening()
        self.is_open = self.has_begun = True
        return begun


def images_of(sent: Sent, wires: Sequence[WireMessage]) -> dict[str, str]:
    """Return the images of a request, and of the response that it goes on from, by their hash."""
    stored = images.of_prompt(wires, chat=sent.chat) if sent.chat else {}
    brought = sent.conversation.images.items()
    return {**stored, **{sha256: image.data_url for sha256, image in brought}}


async def texts(spoken: Spoken, call: DirectCall, held: WaitingHead) -> AsyncGenerator[str, None]:
    """Yield the reply as it is written, or whole; or why there is none."""
    voice = Voice(spoken)
    collector = ReplyCollector(say=voice.say, folds_thoughts=False)
    watch = Watch(spoken.key_id)
    try:
        async with (
            aclosing(await stream(spoken, call)) as source,
            aclosing(with_silences(source)) as events,
        ):
            async for event in events:
                if event is not None:
                    collector.hear(event)
                is_silent = await watch.is_silent() and spoken.is_stream
                if said := voice.more():
                    watch.note_words()
                    yield said
                elif is_silent:
                    yield voice.wait()
                if collector.is_full or is_closing():
                    break
        reply = whole(spoken.head, collector)
    except (ProviderError, Refusal) as error:
        call.usage.update(collector.usage)
        yield voice.break_off(await call.fail(error), held)
        return
    call.usage.update(collector.usage)
    await call.end("ok")
    yield voice.end(reply)


async def with_silences(
    source: AsyncGenerator[ProviderEvent, None],
) -> AsyncGenerator[ProviderEvent | None, None]:
    """Yield the events, and None whenever none came for `LOOK_SECONDS`."""
    coming = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=LOOK_SECONDS)
            if not done:
                yield None
                continue
            event = coming.result()
            if event is None:
                return
            yield event
            coming = asyncio.ensure_future(anext(source, None))
    finally:
        # The source can be closed only when nothing waits for it any more.
        await cancelling.end(coming)


def is_closing() -> bool:
    """Tell whether this process ends: then a reply counts as cut."""
    return connection.STREAMS.closing.is_set()


async def stream(spoken: Spoken, call: DirectCall) -> AsyncGenerator[ProviderEvent, None]:
    """Return the events of the call. The adapter is loaded in a thread: that takes a second."""
    await asyncio.to_thread(registry.load_adapters, {call.account.kind})
    provider = registry.provider_for(call.account, timeouts=direct.timeouts())
    return cast(AsyncGenerator[ProviderEvent, None], provider.stream(spoken.request))


def whole(head: Reply, collector: ReplyCollector) -> Reply:
    """Return the reply that was collected. Raises `ProviderError` and `TurnFailed`."""
    if collector.error is not None:
        raise collector.error
    finish = "length" if collector.is_full else FINISHES.get(collector.reason)
    if finish is None:
        reason = "The model broke off before the end of its reply. Send the request again."
        raise TurnFailed(code="reply_incomplete", reason=reason)
    calls = [asking.part() for _, asking in sorted(collector.asked.items())]
    return Reply(
        id=head.id,
        model=head.model,
        created=head.created,
        text=str(collector.text),
        calls=parts_to_json(calls),
        thoughts=str(collector.reasoning),
        finish=finish,
        usage=collector.usage,
    )
