"""The event stream of a turn for the page: fragments of HTML, snapshot first."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from importlib import import_module

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest, HttpResponseBase
from django.utils.html import escape

from chats.access import check_turn
from chats.refusals import NotFound
from chats.rendering.blocks import closed_blocks
from chats.rendering.fragments import delta_fragments, snapshot_fragments
from chats.streams import connection
from chats.streams.follow import (
    Beginning,
    Delta,
    Done,
    Place,
    Reshaped,
    Snapshot,
    State,
    Update,
    follow,
    read_row,
)

# Longer texts are rendered in a thread, so that one long block does not hold up every stream.
THREAD_FROM = 2000


def turn_stream(request: HttpRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponseBase:
    """Follow one turn of one's own chat; a page that comes back never sees less than it had.

    Raises `NotFound` and `TooManyStreams`.
    """
    user_id = request.user.pk or 0
    check_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    connection.STREAMS.check_room(user_id)
    updates = follow(
        turn_id=turn_id,
        row=read_row(turn_id),
        hub=connection.STREAMS.hub,
        read=sync_to_async(read_row),
        seen=connection.place_from(request.headers.get("Last-Event-ID", "")),
        whole=True,
    )
    check = partial(still, request, chat_id=chat_id, turn_id=turn_id)
    return connection.response(
        connection.events(
            user_id=user_id,
            updates=updates,
            encode=Page().encode,
            may_still=sync_to_async(check),
        )
    )


def still(request: HttpRequest, *, chat_id: uuid.UUID, turn_id: uuid.UUID) -> bool:
    """Whether the session lives and the chat is still theirs."""
    try:
        check_turn(user=user_now(cookie_of(request)), chat_id=chat_id, turn_id=turn_id)
    except NotFound:
        return False
    return True


def cookie_of(request: HttpRequest) -> str:
    """The session that a request names; empty without one."""
    return request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")


def user_now(cookie: str) -> AbstractBaseUser | AnonymousUser:
    """Whose session the cookie is at this moment: it may have ended since."""
    fresh = HttpRequest()
    fresh.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie or None)
    return get_user(fresh)


class Page:
    """One page's view of a reply: which part of the text is still open, and where it stands."""

    def __init__(self) -> None:
        self.open = ""
        self.place = Place(Beginning(), 0)

    async def encode(self, update: Update) -> str:
        """The events of one update."""
        match update:
            case Snapshot(beginning, text):
                self.place = Place(beginning, len(text))
                fragments = await rendered(snapshot_fragments, text)
                self.open = text[closed_blocks(text) :]
                return self.events(fragments)
            case Delta(offset, text):
                self.place = Place(self.place.beginning, offset + len(text))
                return await self.grow(text)
            case State(sentence):
                return connection.sse("state", escape(sentence))
            case Reshaped():
                return connection.sse("refresh", "")
            case Done():
                return connection.sse("refresh", "") + connection.sse("done", "")

    async def grow(self, text: str) -> str:
        """More text: as text, and as finished HTML once a block closes."""
        before, after = self.open, self.open + text
        fragments = await rendered(delta_fragments, before, after)
        closed = any(event == "block" for event, _ in fragments)
        self.open = after[closed_blocks(after) :] if closed else after
        return self.events(fragments)

    def events(self, fragments: list[tuple[str, str]]) -> str:
        """The fragments of one update; the page has come to its place with the last of them."""
        if not fragments:
            return ""
        *others, (event, html) = fragments
        last = connection.sse(event, html, event_id=connection.event_id_of(self.place))
        return "".join(connection.sse(*fragment) for fragment in others) + last


async def rendered(
    render: Callable[..., list[tuple[str, str]]], *texts: str
) -> list[tuple[str, str]]:
    """The fragments, made in a thread when the text is long."""
    if sum(map(len, texts)) < THREAD_FROM:
        return render(*texts)
    return await asyncio.to_thread(render, *texts)
