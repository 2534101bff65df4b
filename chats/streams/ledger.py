"""Streams an export of the ledger.

The end of the export is recorded only if it is sent completely.
"""

from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils import timezone

from chats.checkpoints import upkeep
from contextpolicy.audit.export import (
    FORMS,
    ExportUnderWay,
    finish_ledger_export,
    stream_ledger_export,
)


def build_export_response(export: ExportUnderWay) -> StreamingHttpResponse:
    """Return the response of an export. At most one page is held in memory."""
    response = StreamingHttpResponse(stream_export_file(export), content_type=FORMS[export.form])
    response["Content-Disposition"] = f'attachment; filename="ledger.{export.form}"'
    response["Cache-Control"] = "no-store"
    return response


async def stream_export_file(export: ExportUnderWay) -> AsyncIterator[bytes]:
    """Yield the file. Records the end once it is reached."""
    note = await sync_to_async(upkeep.load_last_note)()
    made = stream_ledger_export(export, checkpoint=note)
    while (piece := await sync_to_async(lambda: next(made, None))()) is not None:
        if piece:
            yield piece
    await sync_to_async(finish_ledger_export)(export, now=timezone.now())
