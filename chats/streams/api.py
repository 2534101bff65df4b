"""Streams the events of a turn to API clients: JSON, with ids to resume from.

Text positions are code points of the running step's text, so that a client can detect gaps. The
HTML counterpart for pages is `chats.streams.web`.
"""

import json
import uuid
from dataclasses import dataclass
from functools import partial
from typing import cast

from asgiref.sync import sync_to_async
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone, translation
from django.utils.translation import gettext_noop
from django.views.decorators.csrf import csrf_exempt

from chats.ground import databases, turn_notices
from chats.ground.refusals import NotFound, Refusal
from chats.people import keys, signin
from chats.record.access import check_turn
from chats.streams import connection
from chats.streams.follow import (
    Beginning,
    CallProgress,
    Delta,
    Done,
    Reshaped,
    Snapshot,
    StreamPosition,
    Thoughts,
    TurnNotice,
    TurnRow,
    Update,
    follow_turn,
    read_row_with_reply,
)
from chats.streams.web import get_session_cookie, load_session_user


class StreamRefused(Refusal):
    """The request has neither a key nor a session."""

    code = "not_authenticated"
    status = 401
    sentence = gettext_noop("Sign in, or send an API key as “Authorization: Bearer plm_…”.")


class OnlyGet(Refusal):
    """The event stream supports GET only."""

    code = "method_not_allowed"
    status = 405
    sentence = gettext_noop("This endpoint accepts GET requests only.")


@dataclass(frozen=True, slots=True)
class FollowingPerson:
    """The viewer of a turn: a user, with the API key or session cookie of the request."""

    user: AbstractBaseUser
    key_id: uuid.UUID | None = None
    cookie: str = ""


@csrf_exempt  # lets a POST reach the JSON error; nothing here changes data
def turn_events(request: HttpRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponseBase:
    """Stream one turn of the user's chat, starting at `Last-Event-ID` if given.

    Raises `OnlyGet`, `NotFound`, `TooManyStreams` and the refusals of `authenticate_viewer`.
    """
    viewer = authenticate_viewer(request)
    if request.method != "GET":
        raise OnlyGet
    check_turn(user=viewer.user, chat_id=chat_id, turn_id=turn_id)
    check_stream_limit(viewer)
    seen = connection.place_from(request.headers.get("Last-Event-ID", ""))
    return build_turn_stream(viewer, chat_id=chat_id, turn_id=turn_id, seen=seen)


def check_stream_limit(viewer: FollowingPerson) -> None:
    """Raise `TooManyStreams` if the viewer may not open another stream."""
    connection.STREAMS.check_room(int(viewer.user.pk))


def build_turn_stream(
    viewer: FollowingPerson,
    *,
    chat_id: uuid.UUID,
    turn_id: uuid.UUID,
    seen: StreamPosition | None = None,
    greeting: str = "",
) -> HttpResponseBase:
    """Return the event stream of a turn, after an optional greeting of encoded events."""
    updates = follow_turn(
        turn_id=turn_id,
        row=read_row_with_reply(turn_id),
        hub=connection.STREAMS.hub,
        read=sync_to_async(databases.close_connections_after(read_row_with_reply)),
        seen=seen,
    )
    program = ApiFollower(turn_id=turn_id, seen=seen)
    check = partial(can_follow_turn, viewer, chat_id=chat_id, turn_id=turn_id)
    return connection.build_stream_response(
        connection.stream_events(
            user_id=int(viewer.user.pk),
            updates=updates,
            encode=program.encode,
            may_still=sync_to_async(databases.close_connections_after(check)),
            language=translation.get_language(),
            greeting=greeting,
        )
    )


def authenticate_viewer(request: HttpRequest) -> FollowingPerson:
    """Return the key's owner, or the session's user without an `Authorization` header.

    Raises `StreamRefused` without either, `KeyInAddress`, `InsufficientScope`, and the refusals of
    `keys.get_key_from_header`.
    """
    keys.refuse_in_address(request.META.get("QUERY_STRING", ""))
    authorization = request.headers.get("Authorization")
    if authorization is None:
        if not request.user.is_authenticated:
            raise StreamRefused
        return FollowingPerson(user=request.user, cookie=get_session_cookie(request))
    address = signin.resolve_client_address(
        remote_addr=request.META.get("REMOTE_ADDR", ""),
        forwarded_for=request.headers.get("X-Forwarded-For", ""),
    )
    key = keys.get_key_from_header(authorization=authorization, address=address, now=timezone.now())
    keys.require_scope(key=key, scope="chats:read")
    return FollowingPerson(user=key.owner, key_id=key.pk)


def can_follow_turn(viewer: FollowingPerson, *, chat_id: uuid.UUID, turn_id: uuid.UUID) -> bool:
    """Return True if the key or session is valid and the user may still read the chat."""
    user = load_viewer_user(viewer)
    if user is None:
        return False
    try:
        check_turn(user=user, chat_id=chat_id, turn_id=turn_id)
    except NotFound:
        return False
    return True


def load_viewer_user(viewer: FollowingPerson) -> AbstractBaseUser | None:
    """Return the current user of the key or session.

    None if the key was revoked or has expired. Anonymous if the session has ended.
    """
    if viewer.key_id is None:
        return cast(AbstractBaseUser, load_session_user(viewer.cookie))
    return viewer.user if keys.is_living(key_id=viewer.key_id, now=timezone.now()) else None


class ApiFollower:
    """One API client that follows a turn: its position, and the events that it gets."""

    def __init__(self, *, turn_id: uuid.UUID, seen: StreamPosition | None) -> None:
        self.turn_id = turn_id
        self.beginning = seen.beginning if seen else Beginning()
        self.position = seen.position if seen else 0

    async def encode(self, update: Update) -> str:
        match update:
            case Snapshot(beginning, text):
                self.beginning = beginning
                return self.text("snapshot", offset=0, text=text)
            case Delta(offset=offset, text=text):
                return self.text("delta", offset=offset, text=text)
            case TurnNotice(sentence):
                return self.event("state", text=turn_notices.localize_notice(sentence))
            case Thoughts() | CallProgress():
                # Only the gateway and UI message streams send them.
                return ""
            case Reshaped(beginning):
                return self.begin_anew(beginning)
            case Done(row):
                return self.end(row)

    def begin_anew(self, beginning: Beginning) -> str:
        """Return the `reshaped` event, which makes the client discard the text of the step."""
        self.beginning, self.position = beginning, 0
        return self.event("reshaped")

    def end(self, row: TurnRow) -> str:
        """Return the unsent remainder of the stored reply, and the end event."""
        rest = ""
        if row.beginning != self.beginning or self.position > len(row.text):
            # Less was stored than was streamed: a dead worker's turn ended, or an erasure happened.
            rest = self.begin_anew(row.beginning) if self.position else ""
            self.beginning = row.beginning
            rest += self.text("snapshot", offset=0, text=row.text)
        elif row.text[self.position :]:
            rest = self.text("delta", offset=self.position, text=row.text[self.position :])
        return rest + self.event("done", marked=True, status=row.status, code=row.code)

    def text(self, event: str, *, offset: int, text: str) -> str:
        """Return a text event and move the position to the end of its text."""
        self.position = offset + len(text)
        return self.event(event, marked=True, offset=offset, text=text)

    def event(
        self,
        event: str,
        *,
        marked: bool = False,
        offset: int | None = None,
        text: str = "",
        **more: str,
    ) -> str:
        """Return one event. `marked` adds the current position as its id."""
        data = {
            "turn": str(self.turn_id),
            "attempt": self.beginning.attempt,
            "step": self.beginning.step,
            "offset": self.position if offset is None else offset,
            "text": text,
            **more,
        }
        event_id = (
            connection.format_event_id(StreamPosition(self.beginning, self.position))
            if marked
            else ""
        )
        return connection.format_sse_event(event, json.dumps(data), event_id=event_id)
