"""Streams of a chat's messages as lines. Each line has a cursor to resume from."""

from collections.abc import Callable
from functools import partial

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase
from rest_framework.request import Request

from chats.api.messages import follower
from chats.api.pages import read_cursor, write_cursor
from chats.ground import databases
from chats.models import Chat
from chats.record import access
from chats.streams import lines
from chats.streams.api import user_of

# Takes a position. Returns the lines after it and the next position, None at the end.
Part = Callable[[int], tuple[bytes, int | None]]


def streamed(
    request: Request, chat: Chat, part: Part, *, name: str, cursor: str
) -> HttpResponseBase:
    """Stream the named list from a cursor, as long as the user may see the chat.

    Raises `InvalidCursor` and `TooManyStreams`.
    """
    viewer = follower(request)
    after = int(read_cursor(cursor, name=name, length=1)[0]) if cursor else 0

    def may_still() -> bool:
        user = user_of(viewer)
        return user is not None and access.chats_visible_to(user=user).filter(pk=chat.pk).exists()

    return lines.response(
        user_id=int(viewer.user.pk),
        read=sync_to_async(databases.briefly(part)),
        may_still=sync_to_async(databases.briefly(may_still)),
        cursor_at=partial(cursor_of, name=name),
        after=after,
    )


def cursor_of(place: int, *, name: str) -> str:
    """Return the cursor of the lines after a position."""
    return write_cursor([place], name=name)
