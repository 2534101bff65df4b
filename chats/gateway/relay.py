"""Sends the reply of a turn to the program that asked, as it is written or when it is whole.

The status is true: nothing is sent before the first words are there, so a failure before them is an
error with its own status (`project.middleware.HeldHead` holds the head back until then). What
breaks off later ends with an error event, never as if it were complete. A program that closes its
connection stops its turn, which is how OpenAI's clients stop a reply. Nothing else does: after a
restart, a lost worker or an absent database the turn goes on, and a repeated request gets its
reply.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from chats.gateway import statements, wire
from chats.gateway.refused import DatabaseUnavailable
from chats.gateway.wire import Form, TurnFailed
from chats.ground import cancelling, databases
from chats.ground.refusals import Refusal
from chats.models import Branch, Receipt, Turn
from chats.people import keys
from chats.streams import connection
from chats.streams.follow import (
    Delta,
    Done,
    Reshaped,
    Snapshot,
    StreamPosition,
    TurnRow,
    Update,
    follow,
    read_row,
)
from chats.turns import stop as stops

# The key of a request's scope that tells the server to hold the head of the response.
HELD = "palimpsest.held"
# A stream that has nothing to say for so long says that it waits: proxies give up on silence.
SILENCE_SECONDS = 20.0
PING = ": waiting\n\n"


@dataclass(slots=True)
class WaitingHead:
    """The head of a response that is not sent yet: its status, and headers that it gets."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def fail(self, refusal: Refusal) -> str:
        """Make it the head of an error; return the body."""
        self.status = refusal.status
        self.headers["Content-Type"] = "application/json"
        if refusal.retry_after is not None:
            self.headers["Retry-After"] = str(refusal.retry_after)
        return json.dumps(wire.error(refusal))


class HeldResponse(StreamingHttpResponse):
    """A response whose status is known when its first bytes are."""

    held: WaitingHead


@dataclass(frozen=True, slots=True)
class Asker:
    """The person and the key that asked for a turn, and the form in which the reply goes back."""

    user: User
    key_id: uuid.UUID
    turn_id: uuid.UUID
    model: str
    form: Form
    is_stream: bool
    # The turn as it was just stored; None where it may have come further.
    row: TurnRow | None = None


def response(request: HttpRequest, asker: Asker, *, headers: dict[str, str]) -> HeldResponse:
    """Return the response that carries the reply."""
    return held_response(
        request, partial(bytes_of, asker), is_stream=asker.is_stream, headers=headers
    )


def held_response(
    request: HttpRequest,
    body: Callable[[WaitingHead], AsyncIterator[bytes]],
    *,
    is_stream: bool,
    headers: Mapping[str, str],
) -> HeldResponse:
    """Return a response whose body decides its head with its first bytes."""
    held = WaitingHead()
    kind = "text/event-stream; charset=utf-8" if is_stream else "application/json"
    answer = HeldResponse(body(held), content_type=kind)
    answer.held = held
    for name, value in {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers}.items():
        answer[name] = value
    scope = getattr(request, "scope", None)
    if scope is not None:
        scope[HELD] = held
    return answer


async def bytes_of(asker: Asker, held: WaitingHead) -> AsyncIterator[bytes]:
    """Yield the body; the turn is stopped if the program closes the connection before its end."""
    relay = Relay(asker, held)
    try:
        async for text in relay.texts():
            yield text.encode()
    finally:
        if not (relay.is_over or relay.goes_on or connection.STREAMS.closing.is_set()):
            with suppress(OperationalError, InterfaceError):
                await in_database(partial(stop, asker))


def stop(asker: Asker) -> None:
    """Stop the turn that nobody waits for any more."""
    turn = Turn.objects.filter(pk=asker.turn_id).first()
    if turn is not None:
        with suppress(stops.TurnIsOver):
            stops.stop(user=asker.user, turn=turn, now=timezone.now())


async def in_database(call: Callable[[], Any]) -> Any:
    """Call a database function from the loop, and leave no connection behind."""
    return await sync_to_async(databases.briefly(call))()


class Watch:
    """The clock of one response: its key is looked at again and again, and a silence is noticed."""

    def __init__(self, key_id: uuid.UUID) -> None:
        self.key_id = key_id
        now = asyncio.get_running_loop().time()
        self.silent_at = now + SILENCE_SECONDS
        self.check_at = now + settings.STREAM_RECHECK_SECONDS

    def note_words(self) -> None:
        """Begin the silence anew: something was said."""
        self.silent_at = asyncio.get_running_loop().time() + SILENCE_SECONDS

    async def is_silent(self) -> bool:
        """Tell whether nothing was said for too long, once for each such time.

        Raises `InvalidKey` once the key was revoked or has expired.
        """
        now = asyncio.get_running_loop().time()
        if now >= self.check_at:
            self.check_at = now + settings.STREAM_RECHECK_SECONDS
            if not await in_database(
                partial(keys.is_living, key_id=self.key_id, now=timezone.now())
            ):
                raise keys.InvalidKey
        if now < self.silent_at:
            return False
        self.note_words()
        return True


class Relay:
    """One reply on its way to its program."""

    def __init__(self, asker: Asker, held: WaitingHead) -> None:
        self.asker, self.held = asker, held
        self.place: StreamPosition | None = None
        self.sent = 0
        self.is_open = self.is_over = False
        # The response ends before the turn does, and not because the program left.
        self.goes_on = False
        # The turn with its reply and the state of its prompt, once it is over.
        self.ended: tuple[Turn | None, str] = (None, "")
        self.watch = Watch(asker.key_id)

    async def texts(self) -> AsyncIterator[str]:
        """Yield the texts of the body, of which the first decides the head."""
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
            self.goes_on = not isinstance(refusal, keys.InvalidKey)
            yield self.failure(refusal)
        except (OperationalError, InterfaceError):
            self.goes_on = True
            yield self.failure(DatabaseUnavailable())

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Yield the updates of the turn until it is over, however slowly they are read."""
        read = sync_to_async(databases.briefly(self.read))
        row = self.asker.row or await read(self.asker.turn_id)
        while not self.is_over:
            source = follow(
                turn_id=self.asker.turn_id,
                row=row,
                hub=connection.STREAMS.hub,
                read=read,
                seen=self.place,
            )
            async with aclosing(cast(AsyncGenerator[list[Update], None], source)) as updates:
                async for each in updates:
                    yield each
            row = await read(self.asker.turn_id)

    def read(self, turn_id: uuid.UUID) -> TurnRow:
        """Read the turn's row; of one that is over also what its end tells, in the same thread."""
        row = read_row(turn_id)
        if row.is_over:
            self.ended = ended(turn_id)
        return row

    async def is_silent(self) -> bool:
        """Look at the clock between updates; tell whether a stream has to say that it waits.

        Raises `TurnFailed` when this process ends, and `InvalidKey`.
        """
        if cancelling.is_lost():
            # The program is gone: nobody would read the rest.
            raise asyncio.CancelledError
        if connection.STREAMS.closing.is_set():
            raise TurnFailed(code="server_restarting", reason=RESTARTING)
        is_silent = await self.watch.is_silent() and self.asker.is_stream
        self.is_open = self.is_open or is_silent
        return is_silent

    def hear(self, update: Update) -> str:
        """Return what an update sends. Raises `TurnFailed`."""
        match update:
            case Snapshot(beginning, text):
                self.place = StreamPosition(beginning, len(text))
                return self.more(text[self.sent :])
            case Delta(offset=offset, text=text):
                if self.place is not None:
                    self.place = StreamPosition(self.place.beginning, offset + len(text))
                return self.more(text)
            case Reshaped():
                if self.sent:
                    # What was sent cannot be taken back.
                    raise TurnFailed(code="reply_restarted", reason=RESTARTED)
                return ""
            case Done():
                return self.end()
        return ""

    def more(self, text: str) -> str:
        """Return more words of a stream; a whole reply waits for its end."""
        form = self.asker.form
        if not self.asker.is_stream or not text:
            return ""
        opening = "" if self.sent else form.opening()
        self.sent += len(text)
        self.is_open = True
        self.watch.note_words()
        return opening + form.text(text)

    def end(self) -> str:
        """Return the end of the reply. Raises `TurnFailed` if it is none."""
        turn, status = self.ended
        self.is_over = True
        if turn is None:
            raise TurnFailed(code="chat_gone", reason="The chat was deleted.")
        self.held.headers["X-Context-Status"] = status
        reply = wire.reply_of(turn, model=self.asker.model)
        form = self.asker.form
        if not self.asker.is_stream:
            return form.whole(reply)
        if len(reply.text) < self.sent:
            raise TurnFailed(code="reply_restarted", reason=RESTARTED)
        rest = self.more(reply.text[self.sent :])
        opening = "" if self.sent else form.opening()
        return rest + opening + form.ending(reply)

    def failure(self, refusal: Refusal) -> str:
        """Return an error: with its own status, or as an event where a stream has begun."""
        if self.is_open:
            return self.asker.form.broken(refusal)
        return self.held.fail(refusal)


RESTARTING = (
    "The server restarts. The reply goes on: send the request again, with the same Idempotency-Key."
)
RESTARTED = (
    "The reply had to begin anew after its first words were sent. It goes on: send the request "
    "again, with the same Idempotency-Key."
)


def ended(turn_id: uuid.UUID) -> tuple[Turn | None, str]:
    """Return a turn that is over, with its reply, and what its prompt had of the history."""
    turn = statements.ENDED_TURN.first(turn=turn_id)
    return turn, status_of(statements.LAST_RECEIPT.first(turn=turn_id))


def status_of(receipt: Receipt | None) -> str:
    """Return the state of a prompt: `full`, `summarised`, `windowed`, or `pending` a summary.

    `pending`: messages are left out, and a summary of them can follow.
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
    """Return True if summaries are written in the chat of a turn.

    There are none while a chat is provisional, and none on a branch whose client leaves messages
    out itself or whose compaction is paused.
    """
    branch = Branch.objects.select_related("chat").get(turns=turn_id)
    is_left_alone = branch.client_windowed or branch.compaction_paused
    return not is_left_alone and not branch.chat.is_provisional
