"""Streams a list to programs: one JSON object a line, read part by part as the client takes them.

Between two parts nothing is held but the place in the list: no connection, no transaction. A list
that is ended early says so in its last line, which is an error with the cursor of the rest.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from django.conf import settings
from django.http import StreamingHttpResponse

from chats.ground.refusals import Refusal
from chats.streams import connection

CONTENT_TYPE = "application/x-ndjson"
# Reads the part of the list behind a place: its lines, and its end. None: there is no more.
ReadPart = Callable[[int], Awaitable[tuple[bytes, int | None]]]


class ListCut(Refusal):
    """A list took too long, the server restarts, or whoever reads it may not any more."""

    code = "list_cut"
    status = 409
    sentence = "The list was ended before its end. Ask for the rest with this `cursor`."


def response(
    *,
    user_id: int,
    read: ReadPart,
    may_still: Callable[[], Awaitable[bool]],
    cursor_at: Callable[[int], str],
    after: int = 0,
) -> StreamingHttpResponse:
    """Make the response that carries a list from behind a place on."""
    body = lines(user_id=user_id, read=read, may_still=may_still, cursor_at=cursor_at, after=after)
    answer = StreamingHttpResponse(body, content_type=CONTENT_TYPE)
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


async def lines(
    *,
    user_id: int,
    read: ReadPart,
    may_still: Callable[[], Awaitable[bool]],
    cursor_at: Callable[[int], str],
    after: int,
) -> AsyncIterator[bytes]:
    """Yield the lines of a list, part by part; permission is checked again before each."""
    loop = asyncio.get_running_loop()
    end_at = loop.time() + settings.STREAM_SECONDS
    place: int | None = after
    async with connection.STREAMS.place(user_id):
        while place is not None:
            is_late = connection.STREAMS.closing.is_set() or loop.time() >= end_at
            if is_late or not await may_still():
                cut = {**ListCut().body(request_id=""), "next_cursor": cursor_at(place)}
                yield json.dumps(cut).encode() + b"\n"
                return
            part, place = await read(place)
            if part:
                yield part
