"""Sends the reply of a turn to the client, streamed or complete.

Nothing is sent before the first text, so an earlier failure still gets its own HTTP status
(`project.request_limits.HeldHead` delays the head until then). A later failure ends the stream with
an error event. OpenAI's clients cancel a reply by disconnecting, so a disconnect stops the turn,
unless the client has already repeated its request with the same key. After a restart, a lost worker
or a database failure, the turn continues, and a repeated request gets its reply.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from chats.gateway import statements, wire
from chats.gateway.held_response import WaitingHead
from chats.gateway.logprobs import LogprobCursor, StoredLogprobs, load_logprobs
from chats.gateway.watch import PING, Watch, call_database
from chats.gateway.wire import Form, TurnFailed
from chats.ground import cancelling, databases
from chats.ground.refusals import Refusal
from chats.models import Branch, Receipt, Turn
from chats.people import keys
from chats.providers.think_tags import split_unopened, strip_partial_closing
from chats.record.idempotency import IdempotentRequest
from chats.streams import connection
from chats.streams.follow import (
    Delta,
    Done,
    Reshaped,
    Snapshot,
    StreamPosition,
    Thoughts,
    TurnRow,
    Update,
    follow_turn,
    read_row,
    read_row_with_thoughts,
)
from chats.turns import stop as stops


@dataclass(frozen=True, slots=True)
class Asker:
    """The user, the API key and the reply format of a request."""

    user: User
    key_id: uuid.UUID
    turn_id: uuid.UUID
    model: str
    form: Form
    is_stream: bool
    # The turn as just stored. None if it may have progressed since.
    row: TurnRow | None = None
    # The idempotency key, and the number of this repetition of its request.
    keyed: IdempotentRequest | None = None
    repeat: int = 0
    # The beginning of the reply, which the client has already. It is not sent back.
    prefill: str = ""
    # The request asks for log probabilities of the reply.
    wants_logprobs: bool = False
    # Shared by the choices of one response.
    group: "ChoiceGroup | None" = None


@dataclass(slots=True)
class ChoiceGroup:
    """The choices of one response. `goes_on`: the response ended early, but the turns continue."""

    goes_on: bool = False


async def stream_relayed_reply(asker: Asker, held: WaitingHead) -> AsyncIterator[bytes]:
    """Yield the body. Stops the turn if the client disconnects early."""
    relay = Relay(asker, held)
    try:
        async for text in relay.texts():
            yield text.encode()
    finally:
        group = asker.group or ChoiceGroup()
        group.goes_on |= relay.goes_on
        if not (relay.is_over or group.goes_on or connection.STREAMS.closing.is_set()):
            with suppress(OperationalError, InterfaceError):
                await call_database(partial(stop_disconnected_turn, asker))


def stop_disconnected_turn(asker: Asker) -> None:
    """Stop a turn after its client disconnected, unless the client has repeated its request."""
    now = timezone.now()
    if asker.keyed is not None and asker.keyed.is_repeated(after=asker.repeat, now=now):
        return
    turn = Turn.objects.filter(pk=asker.turn_id).first()
    if turn is not None:
        with suppress(stops.TurnIsOver):
            stops.stop_turn(user=asker.user, turn=turn, now=now)


class Relay:
    """Follows one turn and sends its reply to the client, streamed or complete."""

    def __init__(self, asker: Asker, held: WaitingHead) -> None:
        self.asker, self.held = asker, held
        self.place: StreamPosition | None = None
        # Characters sent of the text, and of the reasoning of the running step.
        self.sent = self.thought = 0
        # The text sent so far, in pieces.
        self.pieces: list[str] = []
        self.has_begun = False
        self.is_open = self.is_over = False
        # The response ends before the turns, for a reason other than a disconnect or a failed turn.
        self.goes_on = False
        # The finished turn with its reply, and the status of its prompt.
        self.ended: tuple[Turn | None, str] = (None, "")
        self.logprobs = StoredLogprobs()
        self.cursor = LogprobCursor()
        self.watch = Watch(asker.key_id)

    async def texts(self) -> AsyncIterator[str]:
        """Yield the body in pieces. The head is sent with the first one."""
        try:
            async for updates in self.updates():
                for update in updates:
                    if text := self.hear(update):
                        yield text
                if self.is_over:
                    return
                if await self.is_silent():
                    yield PING
        except Refusal as refusal:
            self.goes_on = self.is_continued_after(refusal)
            yield self.failure(refusal)
        except (OperationalError, InterfaceError) as error:
            self.goes_on = True
            yield self.failure(databases.build_database_refusal(error))

    def is_continued_after(self, refusal: Refusal) -> bool:
        """Return True if the turns of the response continue after this refusal.

        If this turn failed, the other choices are stopped. A repeated request gets the replies of
        turns that continue.
        """
        has_failed = self.is_over and refusal.code != RESTARTED_CODE
        return not (has_failed or isinstance(refusal, keys.InvalidKey))

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Yield the updates of the turn until it ends.

        If the client reads so slowly that updates are lost, the relay starts again from the turn's
        row.
        """
        read = sync_to_async(databases.close_connections_after(self.read))
        row = self.asker.row or await read(self.asker.turn_id)
        while not self.is_over:
            source = follow_turn(
                turn_id=self.asker.turn_id,
                row=row,
                hub=connection.STREAMS.hub,
                read=read,
                seen=self.place,
                with_thoughts=self.asker.is_stream,
            )
            async with aclosing(cast(AsyncGenerator[list[Update], None], source)) as updates:
                async for each in updates:
                    yield each
            row = await read(self.asker.turn_id)

    def read(self, turn_id: uuid.UUID) -> TurnRow:
        """Load the turn's row and, if it has ended, its reply, in the same database thread."""
        row = read_row_with_thoughts(turn_id) if self.asker.is_stream else read_row(turn_id)
        if row.is_over:
            self.ended = load_ended_turn(turn_id)
            if self.asker.wants_logprobs:
                prefill = len(self.asker.prefill)
                self.logprobs = load_logprobs(turn_id, prefill=prefill)
        return row

    async def is_silent(self) -> bool:
        """Return True if the stream needs a ping. Called between updates.

        Raises `TurnFailed` when this process shuts down, `InvalidKey`, and CancelledError if the
        client has disconnected.
        """
        if cancelling.is_lost():
            # The client disconnected.
            raise asyncio.CancelledError
        if connection.STREAMS.closing.is_set():
            raise TurnFailed(code="server_restarting", reason=RESTARTING)
        is_silent = await self.watch.is_silent() and self.asker.is_stream
        self.is_open = self.is_open or is_silent
        return is_silent

    def hear(self, update: Update) -> str:
        """Return the text that an update adds to the stream. Raises `TurnFailed`."""
        match update:
            case Snapshot(beginning, text):
                self.place = StreamPosition(beginning, len(text))
                return self.more(remove_prefill(text, self.asker.prefill)[self.sent :])
            case Delta(offset=offset, text=text, logprobs=logprobs):
                if self.place is not None:
                    self.place = StreamPosition(self.place.beginning, offset + len(text))
                known = self.sent + len(self.asker.prefill)
                text = text[max(known - offset, 0) :] if self.asker.prefill else text
                return self.more(text, logprobs=logprobs if self.asker.wants_logprobs else "")
            case Thoughts(offset=offset, text=text):
                return self.more_thoughts(text[max(self.thought - offset, 0) :])
            case Reshaped():
                self.thought = 0
                if self.sent:
                    # Sent text cannot be withdrawn.
                    raise TurnFailed(code=RESTARTED_CODE, reason=RESTARTED)
                return ""
            case Done():
                return self.end()
        return ""

    def more(self, text: str, *, logprobs: str = "") -> str:
        """Return the stream events for more text; empty if the client does not stream."""
        form = self.asker.form
        if not self.asker.is_stream or not text:
            return ""
        self.sent += len(text)
        self.pieces.append(text)
        opening = self.opening()
        if not logprobs:
            return opening + form.text(text)
        found = self.cursor.take(logprobs, prefill=len(self.asker.prefill))
        return opening + form.text(text, found)

    def more_thoughts(self, text: str) -> str:
        """Return the stream events for more reasoning; empty if the client does not stream."""
        if not self.asker.is_stream or not text:
            return ""
        self.thought += len(text)
        return self.opening() + self.asker.form.thoughts(text)

    def opening(self) -> str:
        """Return the opening of the stream on the first call, later an empty string."""
        self.is_open = True
        self.watch.note_words()
        if self.has_begun:
            return ""
        self.has_begun = True
        return self.asker.form.opening()

    def end(self) -> str:
        """Return the end of the reply. Raises `TurnFailed` if the turn has no complete reply."""
        turn, status = self.ended
        self.is_over = True
        if turn is None:
            raise TurnFailed(code="chat_gone", reason="The chat was deleted.")
        self.held.headers["X-Context-Status"] = status
        reply = wire.build_turn_reply(turn, model=self.asker.model)
        text, found = remove_prefill(reply.text, self.asker.prefill), self.logprobs.found
        reply = replace(reply, text=text, logprobs=found or None)
        self.held.headers |= {**self.logprobs.headers, **wire.build_usage_header(reply)}
        form = self.asker.form
        if not self.asker.is_stream:
            return form.whole(reply)
        if (rest := self.rest_of_unopened(reply)) is not None:
            moved = self.sent + len(rest) - len(reply.text)
            return self.more(rest) + self.more_logprobs(reply, moved=moved) + form.ending(reply)
        if len(reply.text) < self.sent:
            raise TurnFailed(code=RESTARTED_CODE, reason=RESTARTED)
        thoughts = self.more_thoughts(reply.thoughts[self.thought :])
        rest = self.more(reply.text[self.sent :]) + self.more_logprobs(reply)
        return thoughts + rest + self.opening() + form.ending(reply)

    def more_logprobs(self, reply: wire.Reply, *, moved: int = 0) -> str:
        """Return the log probabilities that were not sent with their text."""
        found = self.cursor.rest(reply.logprobs, moved=moved)
        return self.asker.form.text("", found) if found else ""

    def rest_of_unopened(self, reply: wire.Reply) -> str | None:
        """Return the unsent text of a reply whose thinking was sent as text; otherwise None.

        Such thinking has only a closing tag (`think_tags.split_unopened`), so it is recognised only
        at its end.
        """
        text = "".join(self.pieces)
        if not text or reply.text.startswith(text):
            return None
        if split := split_unopened(text):
            return reply.text[len(split[1]) :] if reply.text.startswith(split[1]) else None
        # The last piece may end within the tag.
        begun = strip_partial_closing(text).lstrip("\n")
        if not reply.thoughts or not reply.thoughts.startswith(begun):
            return None
        return f"{reply.thoughts[len(begun) :]}\n</think>\n\n{reply.text}"

    def failure(self, refusal: Refusal) -> str:
        """Return an error response, or an error event if the stream has started."""
        if self.is_open:
            return self.asker.form.broken(refusal)
        return self.held.fail(refusal)


def remove_prefill(text: str, prefill: str) -> str:
    """Return the text of a reply without the prefill that the client wrote."""
    return text.removeprefix(prefill) if len(text) >= len(prefill) else ""


RESTARTING = (
    "The server is restarting, and the reply continues. Send the request again with the same "
    "Idempotency-Key."
)
RESTARTED_CODE = "reply_restarted"
RESTARTED = (
    "The reply was restarted after its first words were sent, and it continues. Send the "
    "request again with the same Idempotency-Key."
)


def load_ended_turn(turn_id: uuid.UUID) -> tuple[Turn | None, str]:
    """Return a finished turn with its reply, and the status of its prompt."""
    turn = statements.ENDED_TURN.first(turn=turn_id)
    return turn, determine_prompt_status(statements.LAST_RECEIPT.first(turn=turn_id))


def determine_prompt_status(receipt: Receipt | None) -> str:
    """Return the status of a prompt: `full`, `summarised`, `windowed`, `pending` or `none`.

    `windowed`: messages are left out without a summary. `pending`: a summary of them can follow.
    `none`: the turn has no receipt.
    """
    if receipt is None:
        return "none"
    if any(segment[0] == "summary" for segment in receipt.segments):
        return "summarised"
    waits = receipt.compaction_need.get("action") in ("prepare", "swap")
    if receipt.left_out:
        return "pending" if waits and is_summarised(receipt.turn_id) else "windowed"
    return "full"


def is_summarised(turn_id: uuid.UUID) -> bool:
    """Return True if the turn's chat gets summaries.

    False for provisional chats, and for branches whose client truncates the history or whose
    compaction is paused.
    """
    branch = Branch.objects.select_related("chat").get(turns=turn_id)
    is_left_alone = branch.client_windowed or branch.compaction_paused
    return not is_left_alone and not branch.chat.is_provisional
