"""Forwards pass-through requests without creating a chat or receipt, and without storing text."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import cast

from django.db import InterfaceError, OperationalError, transaction
from django.http import HttpRequest, HttpResponseBase

from chats.gateway import parameters
from chats.gateway.body import RequestFields
from chats.gateway.held_response import WaitingHead, build_held_response
from chats.gateway.logprobs import LogprobCursor, parse_logprobs
from chats.gateway.merge_choices import merge_bodies
from chats.gateway.passthrough import provider_call
from chats.gateway.passthrough.provider_call import DirectCall
from chats.gateway.passthrough.rules import RequestRoute
from chats.gateway.request_types import Sent
from chats.gateway.watch import PING, Watch
from chats.gateway.wire import Form, Reply, TurnFailed, build_usage_header
from chats.ground import cancelling
from chats.ground.refusals import Refusal
from chats.prompt import model_choice
from chats.providers import registry
from chats.providers.base import PrefillStyle, ProviderError, ProviderEvent, ProviderRequest
from chats.providers.collector import ReplyCollector
from chats.providers.stored_options import get_learned_options
from chats.record import images
from chats.streams import connection
from contextpolicy.engine.messages.messages import (
    ToolSpec,
    WireMessage,
    convert_parts_to_wires,
    serialize_parts,
)
from contextpolicy.engine.messages.tokens import count_wire_tokens
from contextpolicy.models import ModelSpec

# Seconds between an idle stream's checks of its API key and of the shutdown of the process.
LOOK_SECONDS = 1.0
# A stream without a finish reason was truncated.
FINISHES = {"stop": "stop", "refusal": "stop", "length": "length", "tool_calls": "tool_calls"}


@dataclass(frozen=True, slots=True)
class Spoken:
    """A pass-through request to a provider, and the format of its response."""

    request: ProviderRequest
    form: Form
    is_stream: bool
    # The reply without its text.
    head: Reply
    key_id: uuid.UUID


def build_passthrough_response(
    request: HttpRequest,
    *,
    sent: Sent,
    asked: RequestFields,
    way: RequestRoute,
    form: Callable[[], Form],
    head: Reply,
    kind: str,
) -> HttpResponseBase:
    """Return a pass-through response, with headers that give the reason for pass-through.

    Each choice is a separate call. Raises `ModelUnavailable`, `SecretUnreadable`,
    `TooManyPassthroughRequests` and `quotas.QuotaExceeded`.
    """
    model = way.choice.model
    passed = build_passthrough_request(sent, asked=asked, model=model)
    meter = provider_call.build_call_meter(
        sent.api_key,
        model=model,
        values=way.choice.values,
        count=lambda counter: sum(count_wire_tokens(wire, counter) for wire in passed.messages),
    )
    with transaction.atomic():
        calls = [
            provider_call.begin_direct_call(
                key=sent.api_key, model=model, meter=meter, kind=kind, why=way.why
            )
            for _ in range(asked.count)
        ]
    bodies = [
        partial(
            provider_call.stream_direct_call,
            call,
            partial(
                stream_passthrough_reply,
                Spoken(passed, form(), asked.stream, head, sent.api_key.pk),
            ),
        )
        for call in calls
    ]
    headers = {"X-Context-Decision": "off", "X-Context-Off": way.why, "X-Context-Status": "off"}
    headers |= parameters.build_dropped_headers(
        asked.dropped, tools=asked.left_out, items=sent.conversation.left_out
    )
    merged = merge_bodies(bodies, is_stream=asked.stream)
    return build_held_response(request, merged, is_stream=asked.stream, headers=headers)


def build_passthrough_request(
    sent: Sent, *, asked: RequestFields, model: ModelSpec
) -> ProviderRequest:
    """Return the provider request, with only the client's messages."""
    conversation = sent.conversation
    wires = [WireMessage("system", text) for text in conversation.system]
    for item in conversation.items:
        wires += convert_parts_to_wires(item.role, item.parts)
    prefill: PrefillStyle = ""
    if conversation.prefill:
        wires.append(WireMessage("assistant", conversation.prefill))
        prefill = "marked" if conversation.is_marked else "plain"
    return ProviderRequest(
        model=model.name,
        messages=tuple(wires),
        prefill=prefill,
        tools=tuple(ToolSpec(**tool) for tool in asked.tools),
        max_output_tokens=asked.max_output or model.max_output,
        stream=not model.cannot_stream,
        parameters=asked.parameters,
        images=collect_request_images(sent, wires),
        origin=model_choice.get_model_origin(model),
        known=get_learned_options(model),
    )


class Voice:
    """The received text and reasoning of a reply that is not yet sent to the client."""

    def __init__(self, spoken: Spoken) -> None:
        self.form, self.is_stream = spoken.form, spoken.is_stream
        # Pieces of text and reasoning, in order, with the log probabilities of the text.
        self.waiting: list[tuple[str, str, str]] = []
        self.cursor = LogprobCursor()
        # `is_open`: the reply has started. `has_begun`: the response has, possibly with a ping.
        self.is_open = self.has_begun = False

    def say(self, kind: str, piece: str, _offset: int, logprobs: str = "") -> None:
        """Add a piece of text or reasoning to the queue."""
        if self.is_stream:
            self.waiting.append((kind, piece, logprobs))

    def more(self) -> str:
        """Return the queued stream output and clear the queue; empty if nothing is queued."""
        if not self.waiting:
            return ""
        said = self.opening()
        for kind, group in groupby(self.waiting, key=itemgetter(0)):
            pieces = list(group)
            words = "".join(piece for _, piece, _ in pieces)
            if kind == "text":
                lines = ",".join(logprobs for _, _, logprobs in pieces if logprobs)
                said += self.form.text(words, self.cursor.take(lines))
            else:
                said += self.form.thoughts(words)
        self.waiting.clear()
        return said

    def end(self, reply: Reply) -> str:
        """Return the end of the stream, or the complete reply without streaming."""
        if not self.is_stream:
            return self.form.whole(reply)
        rest = self.cursor.rest(reply.logprobs)
        late = self.form.text("", rest) if rest else ""
        return self.opening() + late + self.form.ending(reply)

    def wait(self) -> str:
        """Return a ping, which keeps the connection open."""
        self.has_begun = True
        return PING

    def break_off(self, refusal: Refusal, held: WaitingHead) -> str:
        """Return an error response, or an error event if the stream has started."""
        return self.form.broken(refusal) if self.has_begun else held.fail(refusal)

    def opening(self) -> str:
        """Return the opening of the stream on the first call, later an empty string."""
        begun = "" if self.is_open else self.form.opening()
        self.is_open = self.has_begun = True
        return begun


def collect_request_images(sent: Sent, wires: Sequence[WireMessage]) -> dict[str, str]:
    """Return the images in a request and in its previous response, by SHA-256."""
    stored = images.load_prompt_images(wires, chat=sent.chat) if sent.chat else {}
    brought = sent.conversation.images.items()
    return {**stored, **{sha256: image.data_url for sha256, image in brought}}


async def stream_passthrough_reply(
    spoken: Spoken, call: DirectCall, held: WaitingHead
) -> AsyncGenerator[str, None]:
    """Yield the reply, streamed or complete, or the error."""
    voice = Voice(spoken)
    collector = ReplyCollector(say=voice.say, splits_thoughts=False)
    collector.origin = spoken.request.origin
    # The end of the call stores the received text, also if the client disconnects.
    call.reply = collector
    collector.prepare_log(spoken.request)
    watch = Watch(spoken.key_id)
    try:
        async with (
            aclosing(await open_provider_stream(spoken, call)) as source,
            aclosing(add_idle_ticks(source)) as events,
        ):
            async for event in events:
                if event is not None:
                    collector.hear(event)
                is_silent = await is_ping_due(watch) and spoken.is_stream
                if frame := voice.more():
                    watch.note_words()
                    yield frame
                elif is_silent:
                    yield voice.wait()
                if collector.is_full or is_closing():
                    break
        reply = build_collected_reply(spoken.head, collector)
        if collector.log is not None and collector.log.is_partial:
            held.headers["X-Context-Logprobs"] = "partial"
        held.headers |= build_usage_header(reply)
    except (ProviderError, Refusal) as error:
        yield voice.break_off(await call.fail(error), held)
        return
    await call.end("ok")
    yield voice.end(reply)


async def is_ping_due(watch: Watch) -> bool:
    """Return True if the stream needs a ping. Raises `InvalidKey` if the key was revoked.

    While the database is unavailable, the reply continues; the key is checked again later.
    """
    try:
        return await watch.is_silent()
    except (OperationalError, InterfaceError):
        return False


async def add_idle_ticks(
    source: AsyncGenerator[ProviderEvent, None],
) -> AsyncGenerator[ProviderEvent | None, None]:
    """Yield the events, and None after every `LOOK_SECONDS` without an event."""
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
        # The source cannot be closed while a task waits for it.
        await cancelling.cancel_tasks(coming)


def is_closing() -> bool:
    """Return True if this process is shutting down, which truncates the reply."""
    return connection.STREAMS.closing.is_set()


async def open_provider_stream(
    spoken: Spoken, call: DirectCall
) -> AsyncGenerator[ProviderEvent, None]:
    """Return the events of the provider call.

    Opens the stream in a thread, because loading the adapter takes a second.
    """
    await asyncio.to_thread(registry.load_adapters, {call.account.kind})
    provider = registry.get_provider(call.account, timeouts=provider_call.build_provider_timeouts())
    return cast(AsyncGenerator[ProviderEvent, None], provider.stream(spoken.request))


def build_collected_reply(head: Reply, collector: ReplyCollector) -> Reply:
    """Return the collected reply. Raises `ProviderError` and `TurnFailed`."""
    if collector.error is not None:
        raise collector.error
    finish = "length" if collector.is_full else FINISHES.get(collector.reason)
    if finish is None:
        reason = "The model stopped before the end of its reply. Send the request again."
        raise TurnFailed(code="reply_incomplete", reason=reason)
    calls = [asking.part(by=collector.origin) for _, asking in sorted(collector.asked.items())]
    logprobs = collector.log.dump_entries() if collector.log is not None else ""
    return Reply(
        id=head.id,
        model=head.model,
        created=head.created,
        text=str(collector.text),
        calls=serialize_parts(calls),
        thoughts=str(collector.reasoning),
        finish=finish,
        usage=collector.usage,
        logprobs=parse_logprobs(logprobs) or None,
        is_refusal=collector.reason == "refusal",
    )
