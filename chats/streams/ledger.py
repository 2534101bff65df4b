"""Sends an export of the ledger piece by piece; its end is recorded when it was reached."""

from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils import timezone

from chats.checkpoints import upkeep
from contextpolicy.audit.export import FORMS, ExportUnderWay, end, pieces


def streamed(export: ExportUnderWay) -> StreamingHttpResponse:
    """Make the response of an export; nothing of it is held in memory but a page."""
    response = StreamingHttpResponse(written(export), content_type=FORMS[export.form])
    response["Content-Disposition"] = f'attachment; filename="ledger.{export.form}"'
    response["Cache-Control"] = "no-store"
    return response


async def written(export: ExportUnderWay) -> AsyncIterator[bytes]:
    """Yield the file; its end is recorded when it was reached."""
    note = await sync_to_async(upkeep.last_note)()
    made = pieces(export, checkpoint=note)
    while (piece := await sync_to_async(lambda: next(made, None))()) is not None:
        if piece:
            yield piece
    await sync_to_async(end)(export, now=timezone.now())
