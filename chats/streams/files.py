"""Sends files in pieces, so that a large file is never completely in memory."""

from collections.abc import AsyncIterator
from typing import IO
from weakref import finalize

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header

PIECE = 256 * 1024
ZIP = "application/zip"
# For the bytes of users: opened directly, they must not run or load anything. The middleware adds
# `nosniff` and the other response headers.
SANDBOX_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)


def build_text_download(text: str, *, name: str, kind: str) -> HttpResponse:
    """Return text as a download. Disables caching."""
    response = HttpResponse(text, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def build_file_download(file: IO[bytes], *, name: str, kind: str = ZIP) -> StreamingHttpResponse:
    """Return a file as a download. Closes the file at the end.

    The file name may contain any characters.
    """
    response = StreamingHttpResponse(read_file_pieces(file), content_type=kind)
    header = content_disposition_header(as_attachment=True, filename=name)
    response["Content-Disposition"] = header or "attachment"
    response["Cache-Control"] = "no-store"
    # A HEAD request, or a client that disconnects early, never reads the body.
    finalize(response, file.close)
    return response


async def read_file_pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the contents of a file and close it."""
    try:
        while piece := await sync_to_async(file.read)(PIECE):
            yield piece
    finally:
        file.close()
