"""Sends files: a large one piece by piece, so it is never in memory as a whole."""

from collections.abc import AsyncIterator
from typing import IO
from weakref import finalize

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse

PIECE = 256 * 1024
ZIP = "application/zip"


def short(text: str, *, name: str, kind: str) -> HttpResponse:
    """Make the response that carries a text as a download; nothing on the way keeps it."""
    response = HttpResponse(text, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def answer(file: IO[bytes], *, name: str, kind: str = ZIP) -> StreamingHttpResponse:
    """Make the response that carries a file as a download, and closes it at its end."""
    response = StreamingHttpResponse(pieces(file), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    # Of a HEAD, or of a reader who left before the first piece, nothing is ever read.
    finalize(response, file.close)
    return response


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield a file piece by piece."""
    try:
        while piece := await sync_to_async(file.read)(PIECE):
            yield piece
    finally:
        file.close()
