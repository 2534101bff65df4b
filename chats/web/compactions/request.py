"""The page of a summary's model request, rebuilt from stored data."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.compaction.reconstruction import (
    build_summary_request_file,
    compare_with_previous_call,
    number_in,
)
from chats.prompt.sent_request import FORMS
from chats.record import access
from chats.streams import files
from chats.web.auth import PersonRequest, signed_in
from chats.web.receipt_labels import ORIGINS


@require_GET
@signed_in
def summary_request_page(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Show a request of a summary (the first, or `?call=`), or send it as the file `?as=`.

    For an unavailable request, the page shows the reason. Raises `NotFound` and `RequestNotWhole`.
    """
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    found = compare_with_previous_call(row, number=number_in(request.GET.get("call", ""), row))
    form = request.GET.get("as", "")
    if form in FORMS:
        file = build_summary_request_file(found, form=form)
        return files.build_text_download(file.text, name=file.name, kind=file.kind)
    context = {
        "chat": access.get_chat(user=request.user, chat_id=chat_id),
        "compaction": row,
        "found": found,
        "lines": [(line, [str(ORIGINS.get(o, o)) for o in line.origins]) for line in found.lines],
        "broken_by": ORIGINS.get(found.prefix.broken_by, "") if found.prefix else "",
    }
    return render(request, "chats/summary_request.html", context)
