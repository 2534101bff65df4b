"""Streams a turn as UI message chunks, version 1: the protocol of the AI SDK's `useChat`.

Each event is one JSON chunk; the last is `[DONE]`. All steps of a turn belong to one assistant
message, whose id is the turn's. The protocol cannot retract text: if a new attempt replaces text,
its part is closed, and a `data-discarded` chunk identifies it.

A turn that waits for consent to tool calls ends the stream with the requests. The client's answer
opens another one, which continues the client's message.
"""

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase
from django.utils import translation
from django.utils.translation import gettext

from chats.exchange.ui_approvals import NOTHING_KNOWN, KnownParts
from chats.exchange.ui_files import name_file_addresses
from chats.ground import databases, turn_notices
from chats.ground.live import Frame
from chats.models import Turn
from chats.record.history import select_step_messages
from chats.streams import connection
from chats.streams.api import FollowingPerson, can_follow_turn
from chats.streams.follow import (
    Beginning,
    CallProgress,
    Delta,
    Done,
    Reshaped,
    Snapshot,
    Thoughts,
    TurnNotice,
    TurnRow,
    Update,
    follow_turn,
    read_row_with_reply_and_thoughts,
)
from chats.streams.ui_tool_calls import (
    Chunk,
    LiveCalls,
    build_tool_chunks,
    load_kept_calls,
    serialize_step,
)
from chats.turns.consents import WaitingCall, list_waiting_calls
from chats.turns.tool_steps import find_tool_step
from contextpolicy.engine.messages.messages import parse_parts

# Clients recognise the protocol by this header.
PROTOCOL_HEADER = ("x-vercel-ai-ui-message-stream", "v1")
DONE = "data: [DONE]\n\n"

FINISH: Chunk = {"type": "finish"}


def build_ui_message_stream(
    viewer: FollowingPerson,
    *,
    chat_id: uuid.UUID,
    turn_id: uuid.UUID,
    known: KnownParts = NOTHING_KNOWN,
) -> HttpResponseBase:
    """Return the stream of a turn from its first chunk, even if the turn has ended.

    `known`: the parts of its message that the client has, which are not sent again.
    """
    read = sync_to_async(databases.close_connections_after(read_row_with_reply_and_thoughts))
    encoder = ChunkEncoder(turn_id, known=known)
    response = connection.build_stream_response(
        connection.stream_events(
            user_id=int(viewer.user.pk),
            updates=encoder.follow_until_over(
                follow_turn(
                    turn_id=turn_id,
                    row=read_row_with_reply_and_thoughts(turn_id),
                    hub=connection.STREAMS.hub,
                    read=read,
                    with_thoughts=True,
                    with_calls=True,
                )
            ),
            encode=encoder.encode,
            may_still=sync_to_async(
                databases.close_connections_after(
                    partial(can_follow_turn, viewer, chat_id=chat_id, turn_id=turn_id)
                )
            ),
            language=translation.get_language(),
            farewell=encoder.encode_interruption,
        )
    )
    response[PROTOCOL_HEADER[0]] = PROTOCOL_HEADER[1]
    return response


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The stored steps of a turn as UI message parts, with its model and outcome."""

    steps: Sequence[Sequence[Mapping[str, Any]]]
    finishes: Sequence[str]
    model: str
    # Sentence of a failed turn, in the active language.
    error: str
    # The requests for consent of the last step, whose tools have not run.
    asked: Sequence[WaitingCall] = ()
    # The ids of the running step's calls, if its reply is stored. A new attempt continues them.
    kept: frozenset[str] = frozenset()


NOTHING_STORED = StoredTurn(steps=(), finishes=(), model="", error="")


def load_stored_turn(turn_id: uuid.UUID) -> StoredTurn:
    """Return the turn's stored steps, and the step that waits for consent, if any.

    That step contains only the calls that wait, because the others have no result yet. A
    deleted turn has no steps.
    """
    turn = Turn.objects.filter(pk=turn_id).first()
    rows = list(select_step_messages(turn_id).select_related("branch")) if turn else []
    steps = [serialize_step(name_file_addresses(row, parse_parts(row.parts))) for row in rows]
    asked = list_waiting_calls(turn) if turn else []
    waiting = find_tool_step(turn) if turn and asked else None
    if waiting is not None:
        ids = {call.call_id for call in asked}
        own = serialize_step(parse_parts(waiting.parts))
        steps.append([part for part in own if part.get("toolCallId", "") in {"", *ids}])
    return StoredTurn(
        steps=steps,
        finishes=[row.finish for row in rows],
        model=turn.model_name if turn else "",
        error=turn.localized_error if turn else "",
        asked=asked if waiting is not None else (),
        kept=load_kept_calls(turn) if turn and turn.attempt + turn.begun_anew > 1 else frozenset(),
    )


class ChunkEncoder:
    """One client's position in a turn, and the chunks of each update."""

    def __init__(self, turn_id: uuid.UUID, *, known: KnownParts = NOTHING_KNOWN) -> None:
        self.turn_id = turn_id
        self.known = known
        self.beginning = Beginning()
        self.has_started = False
        self.is_over = False
        # Kind and id of the open text or reasoning part, and the number of parts so far.
        self.open: tuple[str, str] | None = None
        self.parts = 0
        # Code points of the running text already sent, and the ids of its parts.
        self.position = 0
        self.running: list[str] = []
        # Steps that are completely sent, and those whose text was streamed.
        self.complete = max(known.step - 1, 0)
        self.streamed: set[int] = set()
        self.live = LiveCalls(turn_id)

    async def follow_until_over(
        self, updates: AsyncIterator[list[Update]]
    ) -> AsyncGenerator[list[Update], None]:
        """Yield updates until this encoder has sent the last chunk."""
        async with aclosing(cast(AsyncGenerator[list[Update], None], updates)) as source:
            async for found in source:
                yield found
                if self.is_over:
                    return

    async def encode(self, update: Update) -> str:
        """Return the chunks of an update as events. Empty after the last chunk."""
        return "" if self.is_over else await self.encode_next(update)

    async def encode_next(self, update: Update) -> str:
        chunks: list[Chunk] = []
        if not self.has_started:
            self.has_started = True
            chunks.append({"type": "start", "messageId": str(self.turn_id)})
            chunks += [] if self.known.step else [{"type": "start-step"}]
        chunks += await self.build_chunks(update)
        return encode_chunks(chunks) + (DONE if self.is_over else "")

    async def build_chunks(self, update: Update) -> list[Chunk]:
        """Return the chunks of an update, without the start of the message."""
        match update:
            case Snapshot(beginning, text):
                return await self.take_snapshot(beginning, text)
            case Delta(text=text):
                return self.stream("text", text)
            case Thoughts(text=text):
                return self.stream("reasoning", text)
            case CallProgress(frame):
                return await self.take_call(frame)
            case TurnNotice(sentence):
                return [build_notice(turn_notices.localize_notice(sentence))]
            case Reshaped():
                # A snapshot follows.
                return []
            case Done(row):
                return await self.end(row)

    def encode_interruption(self) -> str:
        """Return the last chunks of a stream that ends before its turn.

        Empty if the last chunk was already sent.
        """
        if self.is_over:
            return ""
        sentence = gettext(
            "The connection ended before the reply was complete. Resume the stream or reload the"
            " messages."
        )
        return encode_chunks([*self.close(), {"type": "error", "errorText": sentence}]) + DONE

    async def take_snapshot(self, beginning: Beginning, text: str) -> list[Chunk]:
        """Start a text, or end the stream if the turn waits for consent."""
        # A turn without an attempt has no steps.
        stored = await self.load() if beginning.attempt else NOTHING_STORED
        if stored.asked:
            return self.ask(beginning, stored)
        return [*self.begin(beginning, stored), *self.stream("text", text)]

    def stream(self, kind: str, text: str) -> list[Chunk]:
        """Return more of the current step's text. Empty for a step that the client already has."""
        return self.add(kind, text) if self.beginning.step > self.known.step else []

    async def take_call(self, frame: Frame) -> list[Chunk]:
        """Return the chunks of a frame about a tool call. A call follows the text."""
        known = self.known.calls if self.beginning.step == self.known.step else ()
        chunks = await self.live.hear(frame, known=known, read=read_in_thread)
        return [*self.close(), *chunks] if chunks else []

    def ask(self, beginning: Beginning, stored: StoredTurn) -> list[Chunk]:
        """Return the rest of the step that waits for consent, its requests, and the end."""
        # The request starts the text again in the row. The streamed text stays.
        was_streamed = beginning == self.beginning._replace(anew=self.beginning.anew + 1)
        chunks = [] if was_streamed else self.begin(beginning, stored)
        self.is_over = True
        return [
            *chunks,
            *self.complete_steps(stored),
            *(
                {"type": "tool-approval-request", "approvalId": str(c.id), "toolCallId": c.call_id}
                for c in stored.asked
            ),
            {"type": "finish-step"},
            FINISH,
        ]

    def begin(self, beginning: Beginning, stored: StoredTurn) -> list[Chunk]:
        """Start the text of a step or attempt: complete the previous steps, or discard the text."""
        chunks: list[Chunk] = []
        if beginning.step > self.beginning.step:
            chunks += self.complete_steps(stored, until=beginning.step - 1)
        elif beginning != self.beginning:
            chunks += [*self.close(), *self.discard(), *self.live.discard(kept=stored.kept)]
        self.beginning, self.position, self.running = beginning, 0, []
        return chunks

    async def load(self) -> StoredTurn:
        found: StoredTurn = await read_in_thread(load_stored_turn, self.turn_id)
        return found

    def complete_steps(self, stored: StoredTurn, *, until: int | None = None) -> list[Chunk]:
        """Return the chunks of stored steps that were not sent yet.

        `until`: the last of these steps, after which the next one starts. If it is None, all steps
        are sent and the last one stays open.
        """
        last = len(stored.steps) if until is None else min(until, len(stored.steps))
        chunks = self.complete_text(stored, step=self.beginning.step)
        for number in range(self.complete + 1, last + 1):
            is_known = number == self.known.step
            for part in stored.steps[number - 1]:
                if part["type"] == "file":
                    # New in a known step, too: its tools ran after the answers of the client.
                    chunks += [*self.close(), build_file_chunk(part)]
                elif part["type"] not in ("text", "reasoning"):
                    chunks += self.complete_call(part, number=number)
                elif number not in self.streamed and not is_known:
                    chunks += [*self.add(part["type"], part["text"]), *self.close()]
            if number == self.beginning.step:
                chunks += self.live.discard()
                self.live.asking = None
            if until is not None or number < last:
                chunks += [{"type": "finish-step"}, {"type": "start-step"}]
        self.complete = max(self.complete, last)
        return chunks

    def complete_call(self, part: Mapping[str, Any], *, number: int) -> list[Chunk]:
        """Return the missing chunks of a stored call in the step with this number."""
        call_id = part["toolCallId"]
        has_call = number == self.known.step and call_id in self.known.calls
        sent = self.live.take(call_id) if number == self.beginning.step else None
        if sent is None:
            return build_tool_chunks(part, has_call=has_call)
        return sent.add_missing(part)

    def complete_text(self, stored: StoredTurn, *, step: int) -> list[Chunk]:
        """Return the unsent end of a streamed text, whose last frames may be lost, and close it."""
        rest = ""
        if step in self.streamed and self.complete < step <= len(stored.steps):
            texts = [part["text"] for part in stored.steps[step - 1] if part["type"] == "text"]
            rest = "".join(texts)[self.position :]
        return [*self.add("text", rest), *self.close()]

    def discard(self) -> list[Chunk]:
        """Return a chunk that names the text and reasoning parts that a new attempt replaces.

        Empty if the running step has none.
        """
        self.streamed.discard(self.beginning.step)
        if not self.running:
            return []
        return [{"type": "data-discarded", "data": {"parts": self.running}}]

    def add(self, kind: str, text: str) -> list[Chunk]:
        """Return more text or reasoning, in a new part if another kind is open."""
        if not text:
            return []
        chunks: list[Chunk] = []
        if self.open is None or self.open[0] != kind:
            chunks += self.close()
            self.parts += 1
            self.open = (kind, f"{kind}-{self.parts}")
            self.running = [*self.running, self.open[1]]
            chunks.append({"type": f"{kind}-start", "id": self.open[1]})
        if kind == "text":
            self.position += len(text)
        self.streamed.add(self.beginning.step)
        return [*chunks, {"type": f"{kind}-delta", "id": self.open[1], "delta": text}]

    def close(self) -> list[Chunk]:
        """End the open part, if there is one."""
        if self.open is None:
            return []
        (kind, part), self.open = self.open, None
        return [{"type": f"{kind}-end", "id": part}]

    async def end(self, row: TurnRow) -> list[Chunk]:
        self.is_over = True
        chunks: list[Chunk] = []
        has_text = self.beginning.step in self.streamed
        if has_text and (row.beginning != self.beginning or self.position > len(row.text)):
            # Less was stored than was streamed, or another attempt was.
            chunks += [*self.close(), *self.discard()]
        stored = await self.load()
        chunks += [*self.complete_steps(stored), *self.live.discard()]
        if row.status == Turn.Status.STOPPED:
            return [*chunks, {"type": "abort"}]
        if row.status == Turn.Status.ABSORBED:
            # A running turn accepted the message and answers it in its own stream.
            return [*chunks, {"type": "data-absorbed", "data": {}, "transient": True}, FINISH]
        if row.status != Turn.Status.COMPLETED:
            sentence = stored.error or gettext("The reply could not be loaded. Reload the page.")
            return [*chunks, {"type": "error", "errorText": sentence}]
        finish = stored.finishes[-1] if stored.finishes else ""
        metadata = {"model": stored.model, "finish": finish}
        chunks.append({"type": "finish-step"})
        return [*chunks, {"type": "finish", "messageMetadata": metadata}]


async def read_in_thread(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Run a database function in a thread, and close its connection if it is broken."""
    read = sync_to_async(databases.close_connections_after(function))
    return await read(*arguments, **more)


def build_notice(sentence: str) -> Chunk:
    """Return a notice about the turn. It is not stored in the client's message."""
    return {"type": "data-notice", "data": {"text": sentence}, "transient": True}


def build_file_chunk(part: Mapping[str, Any]) -> Chunk:
    """Return the chunk for a file in the reply, such as an image in a tool result."""
    return {"type": "file", "url": part["url"], "mediaType": part["mediaType"]}


def encode_chunks(chunks: Sequence[Chunk]) -> str:
    """Return the chunks as server-sent events without names."""
    return "".join(
        f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n"
        for chunk in chunks
    )
