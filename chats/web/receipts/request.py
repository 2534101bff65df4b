"""The page "The request as sent": one model call, built again from what is stored."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.ground.refusals import NotFound, Refusal
from chats.models import Receipt
from chats.prompt.as_sent import FORMS, as_sent
from chats.record import access
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import ORIGINS


class RequestNotWhole(Refusal):
    """A request is asked for as a file that cannot be given whole."""

    code = "request_not_whole"
    status = 409
    sentence = (
        "This request cannot be given as a file: a part of it is hidden by the policy, was "
        "erased, or is no longer what was sent. Its page says which."
    )


@require_GET
@signed_in
def request_sent(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Show the request of the call `?call=`, or send it as the file `?as=`.

    Raises `NotFound` and `RequestNotWhole`.
    """
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    receipt = call_of(request.GET.get("call", ""), turn_id=turn.pk)
    sent = as_sent(receipt, sees_hidden=False)
    form = request.GET.get("as", "")
    if form not in FORMS:
        context = {
            "chat": turn.branch.chat,
            "turn": turn,
            "receipt": receipt,
            "sent": sent,
            "lines": [(line, [ORIGINS.get(o, o) for o in line.origins]) for line in sent.lines],
            "broken_by": ORIGINS.get(sent.prefix.broken_by, "") if sent.prefix else "",
        }
        return render(request, "chats/request.html", context)
    if sent.has_hidden or sent.found.fault:
        raise RequestNotWhole
    name, kind, write = FORMS[form]
    response = HttpResponse(write(sent.found), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def call_of(text: str, *, turn_id: uuid.UUID) -> Receipt:
    """Return a call of a turn. Raises `NotFound`."""
    rows = Receipt.objects.filter(turn=turn_id).select_related(
        "effective_policy", "turn__branch__chat__owner"
    )
    try:
        found = rows.filter(pk=uuid.UUID(text)).first()
    except ValueError:
        found = None
    if found is None:
        raise NotFound
    return found
