"""Streams a list to API clients as JSON lines, read in parts as the client consumes them.

Between parts, it keeps only the position, without an open connection or transaction. A list that is
cut off ends with an error line that contains the cursor of the remainder.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from django.conf import settings
from django.http import StreamingHttpResponse
from django.utils import translation
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.streams import connection

CONTENT_TYPE = "application/x-ndjson"
# Reads the part after a position: its lines, and the next position. None: the list is complete.
ReadPart = Callable[[int], Awaitable[tuple[bytes, int | None]]]


class ListCut(Refusal):
    """The stream took too long, the server is restarting, or permission was withdrawn.

    Continue at the cursor.
    """

    code = "list_cut"
    status = 409
    sentence = gettext_noop(
        "The list was truncated. Request the rest with `next_cursor` as the `cursor`."
    )


def build_list_response(
    *,
    user_id: int,
    read: ReadPart,
    may_still: Callable[[], Awaitable[bool]],
    cursor_at: Callable[[int], str],
    after: int = 0,
) -> StreamingHttpResponse:
    body = stream_list_lines(
        user_id=user_id,
        read=read,
        may_still=may_still,
        cursor_at=cursor_at,
        after=after,
        language=translation.get_language(),
    )
    answer = StreamingHttpResponse(body, content_type=CONTENT_TYPE)
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


async def stream_list_lines(
    *,
    user_id: int,
    read: ReadPart,
    may_still: Callable[[], Awaitable[bool]],
    cursor_at: Callable[[int], str],
    after: int,
    language: str,
) -> AsyncIterator[bytes]:
    """Yield the lines of a list in parts. Checks permission before each part.

    `language`: the language of the error line.
    """
    loop = asyncio.get_running_loop()
    end_at = loop.time() + settings.STREAM_SECONDS
    place: int | None = after
    async with connection.STREAMS.place(user_id):
        while place is not None:
            is_late = connection.STREAMS.closing.is_set() or loop.time() >= end_at
            if is_late or not await may_still():
                with translation.override(language):
                    cut = {**ListCut().body(request_id=""), "next_cursor": cursor_at(place)}
                yield json.dumps(cut).encode() + b"\n"
                return
            part, place = await read(place)
            if part:
                yield part
