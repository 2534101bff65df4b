"""Streams of a chat's messages as JSON lines. Each line has a cursor to resume from."""

from collections.abc import Callable
from functools import partial

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase
from rest_framework.request import Request

from chats.api.chats.messages import build_follower
from chats.api.core.pages import read_cursor, write_cursor
from chats.ground import databases
from chats.models import Chat
from chats.record import access
from chats.streams import lines
from chats.streams.api import load_viewer_user

# Takes a position and returns the lines after it with the next position; None at the end.
Part = Callable[[int], tuple[bytes, int | None]]


def stream_lines(
    request: Request, chat: Chat, part: Part, *, name: str, cursor: str
) -> HttpResponseBase:
    """Return a stream of the named list from a cursor, open while the user may see the chat.

    Raises `InvalidCursor`, `TooManyStreams`, and `InsufficientScope` for a key without
    `chats:read`.
    """
    viewer = build_follower(request)
    after = int(read_cursor(cursor, name=name, length=1)[0]) if cursor else 0

    def may_still() -> bool:
        user = load_viewer_user(viewer)
        return user is not None and access.get_visible_chats(user=user).filter(pk=chat.pk).exists()

    return lines.build_list_response(
        user_id=int(viewer.user.pk),
        read=sync_to_async(databases.close_connections_after(part)),
        may_still=sync_to_async(databases.close_connections_after(may_still)),
        cursor_at=partial(build_line_cursor, name=name),
        after=after,
    )


def build_line_cursor(place: int, *, name: str) -> str:
    """Return the cursor of the lines after a position."""
    return write_cursor([place], name=name)
