"""The "Request as sent" page: one model call, rebuilt from stored data."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.ground.refusals import NotFound
from chats.prompt.sent_request import FORMS, build_request_file, load_sent_request
from chats.record import access
from chats.streams import files
from chats.web.auth import PersonRequest, signed_in
from chats.web.receipt_labels import ORIGINS


@require_GET
@signed_in
def request_sent(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Show the request of the call `?call=`, or send it as the file `?as=`.

    Raises `NotFound` and `RequestNotWhole`.
    """
    try:
        receipt_id = uuid.UUID(request.GET.get("call", ""))
    except ValueError:
        raise NotFound from None
    receipt = access.get_receipt(
        user=request.user, chat_id=chat_id, turn_id=turn_id, receipt_id=receipt_id
    )
    sent = load_sent_request(receipt, sees_hidden=False)
    form = request.GET.get("as", "")
    if form not in FORMS:
        context = {
            "chat": receipt.turn.branch.chat,
            "turn": receipt.turn,
            "receipt": receipt,
            "sent": sent,
            "lines": [
                (line, [str(ORIGINS.get(o, o)) for o in line.origins]) for line in sent.lines
            ],
            "broken_by": ORIGINS.get(sent.prefix.broken_by, "") if sent.prefix else "",
        }
        return render(request, "chats/request.html", context)
    file = build_request_file(sent, form=form)
    return files.build_text_download(file.text, name=file.name, kind=file.kind)
