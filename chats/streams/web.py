"""Streams to a user's pages: HTML fragments of their replies, and the ids of changed chats."""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest, HttpResponseBase
from django.utils import translation
from django.utils.html import escape
from django.views.decorators.http import require_GET

from chats.ground import databases, turn_notices
from chats.ground.refusals import NotFound
from chats.models import Turn
from chats.record.access import is_turn_owner
from chats.rendering.blocks import find_closed_offset
from chats.rendering.fragments import build_delta_fragments, build_snapshot_fragments
from chats.rendering.spoken import SpokenSoFar
from chats.streams import connection
from chats.streams.follow import (
    GONE,
    Beginning,
    CallProgress,
    Delta,
    Done,
    Reshaped,
    Snapshot,
    StreamPosition,
    Thoughts,
    TurnFollower,
    TurnNotice,
    Update,
    read_row,
)
from chats.streams.person import (
    ChatChanged,
    FollowedTurn,
    NoticesLost,
    PersonUpdate,
    TurnUpdate,
    follow_person,
)

# Longer texts are rendered in a thread, so that one block does not delay other streams.
THREAD_FROM = 2000
# Maximum number of replies per stream. A user has fewer at once.
MOST_TURNS = 20


@require_GET
def stream_chat_updates(request: HttpRequest) -> HttpResponseBase:
    """Stream the user's chat changes, and the replies shown in the browser's tabs.

    Each `turn` in the query is a reply's id, optionally followed by `~` and the browser's position.
    `since` is the time of the last known change, in milliseconds. Replies of other people are
    reported as deleted. Raises `NotFound` without a session, and `TooManyStreams`.
    """
    user = request.user
    if not user.is_authenticated:
        raise NotFound
    connection.STREAMS.check_room(user.pk)
    read = sync_to_async(databases.close_connections_after(read_row))
    asked = parse_requested_turns(request.GET.getlist("turn"))
    turns = [
        FollowedTurn(
            viewer=TurnFollower(turn_id=turn_id, read=read),
            row=read_row(turn_id) if is_turn_owner(user=user, turn_id=turn_id) else GONE,
            seen=seen,
        )
        for turn_id, seen in asked
    ]
    updates = follow_person(
        user_id=user.pk, turns=turns, since=parse_query_time(request.GET.get("since", "")),
        hub=connection.STREAMS.hub,
    )  # fmt: skip
    return connection.build_stream_response(
        connection.stream_events(
            user_id=user.pk,
            updates=updates,
            encode=PersonView(load_agent_names([turn_id for turn_id, _ in asked])).encode,
            may_still=sync_to_async(
                databases.close_connections_after(partial(is_session_valid, request))
            ),
            language=translation.get_language(),
        )
    )


def parse_requested_turns(values: list[str]) -> list[tuple[uuid.UUID, StreamPosition | None]]:
    """Return at most `MOST_TURNS` requested replies with positions. Invalid ids are left out."""
    found = {}
    for value in values[:MOST_TURNS]:
        turn, _, place = value.partition("~")
        try:
            found[uuid.UUID(turn)] = connection.place_from(place)
        except ValueError:
            continue
    return list(found.items())


def load_agent_names(turn_ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the agents' names by reply. Replies without an agent are left out."""
    if not turn_ids:
        return {}
    rows = Turn.objects.filter(pk__in=turn_ids, agent__isnull=False)
    return dict(rows.values_list("pk", "agent__name"))


def parse_query_time(text: str) -> int:
    """Parse a Unix time in milliseconds from the query; 0 if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def is_session_valid(request: HttpRequest) -> bool:
    """Return True if the session cookie is still valid and belongs to the same user."""
    return bool(load_session_user(get_session_cookie(request)).pk == request.user.pk)


def get_session_cookie(request: HttpRequest) -> str:
    """Return the session cookie of a request, or an empty string."""
    return request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")


def load_session_user(cookie: str) -> AbstractBaseUser | AnonymousUser:
    """Return the current user of a session cookie; anonymous if the session has ended."""
    fresh = HttpRequest()
    fresh.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie or None)
    return get_user(fresh)


class PersonView:
    """The state of a user's pages: the replies that they show."""

    def __init__(self, names: Mapping[uuid.UUID, str]) -> None:
        self.names = names
        self.replies: dict[uuid.UUID, ReplyView] = {}

    async def encode(self, update: PersonUpdate) -> str:
        match update:
            case TurnUpdate(turn_id, told):
                reply = self.replies.get(turn_id)
                if reply is None:
                    reply = ReplyView(turn_id, name=self.names.get(turn_id, ""))
                    self.replies[turn_id] = reply
                return await reply.encode(told)
            case ChatChanged(chat_id, at):
                return connection.format_sse_event(
                    "changed", json.dumps({"chat": chat_id, "at": at})
                )
            case NoticesLost():
                return connection.format_sse_event("lost", "")


class ReplyView:
    """One reply on the pages: the open part of its text, and the position.

    Its event names start with the turn's id and a dot. Its event ids are positions from which to
    resume.
    """

    def __init__(self, turn_id: uuid.UUID, *, name: str = "") -> None:
        self.turn_id = turn_id
        self.open = ""
        # Name of the agent, whose labels and markers are hidden. A page that resumes has the start
        # of the text.
        self.name = name
        self.words = SpokenSoFar(name, at_start=False) if name else None
        self.place = StreamPosition(Beginning(), 0)

    async def encode(self, update: Update) -> str:
        match update:
            case Snapshot(beginning, text):
                self.place = StreamPosition(beginning, len(text))
                if self.name:
                    self.words = SpokenSoFar(self.name)
                    text = self.words.take(text)
                fragments = await render_fragments(build_snapshot_fragments, text)
                self.open = text[find_closed_offset(text) :]
                return self.events(fragments)
            case Delta(offset, text):
                self.place = StreamPosition(self.place.beginning, offset + len(text))
                return await self.grow(text)
            case TurnNotice(sentence):
                return self.event("state", escape(turn_notices.localize_notice(sentence)))
            case Thoughts() | CallProgress():
                # Only the gateway and UI message streams send them.
                return ""
            case Reshaped():
                return self.event("refresh", "")
            case Done():
                return self.event("refresh", "") + self.event("done", "")

    async def grow(self, text: str) -> str:
        """Return the events for added text: the text, and final HTML once a block closes."""
        if self.words is not None:
            text = self.words.take(text)
        before, after = self.open, self.open + text
        fragments = await render_fragments(build_delta_fragments, before, after)
        closed = any(event == "block" for event, _ in fragments)
        self.open = after[find_closed_offset(after) :] if closed else after
        return self.events(fragments)

    def events(self, fragments: list[tuple[str, str]]) -> str:
        """Return the events of one update. The last one carries the new position."""
        if not fragments:
            return ""
        *others, (event, html) = fragments
        last = self.event(event, html, event_id=self.event_id)
        return "".join(self.event(*fragment) for fragment in others) + last

    @property
    def event_id(self) -> str:
        """The id of the current position, to resume from."""
        return f"{self.turn_id}~{connection.format_event_id(self.place)}"

    def event(self, name: str, data: str, *, event_id: str = "") -> str:
        return connection.format_sse_event(f"{self.turn_id}.{name}", data, event_id=event_id)


async def render_fragments(
    render: Callable[..., list[tuple[str, str]]], *texts: str
) -> list[tuple[str, str]]:
    """Render the fragments, in a thread if the text is long."""
    if sum(map(len, texts)) < THREAD_FROM:
        return render(*texts)
    return await asyncio.to_thread(render, *texts)
