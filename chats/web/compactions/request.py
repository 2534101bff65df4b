"""Page of a summary's request to the model, rebuilt from stored data."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.compaction.rebuilt import beside_the_call_before, number_in, summary_file
from chats.prompt.as_sent import FORMS
from chats.record import access
from chats.streams import files
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import ORIGINS


@require_GET
@signed_in
def summary_asked(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Show a request of a summary (the first or `?call=`), or send it as the file `?as=`.

    An unavailable request shows the reason. Raises `NotFound` and `RequestNotWhole`.
    """
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    found = beside_the_call_before(row, number=number_in(request.GET.get("call", ""), row))
    form = request.GET.get("as", "")
    if form in FORMS:
        file = summary_file(found, form=form)
        return files.short(file.text, name=file.name, kind=file.kind)
    context = {
        "chat": access.chat_for(user=request.user, chat_id=chat_id),
        "compaction": row,
        "found": found,
        "lines": [(line, [str(ORIGINS.get(o, o)) for o in line.origins]) for line in found.lines],
        "broken_by": ORIGINS.get(found.prefix.broken_by, "") if found.prefix else "",
    }
    return render(request, "chats/summary_request.html", context)
