"""The page of one compaction: numbers, facts, text and editor."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from chats.compaction.people import revise
from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction
from chats.record import access
from chats.web.auth import PersonRequest, signed_in
from chats.web.compactions.originals import build_originals_page
from chats.web.compactions.report import Weight, insert_lost_fact, measure_summary, report_of
from chats.web.compactions.view import build_compaction_view, list_other_summaries
from chats.web.drawing import get_render_time_ms
from chats.web.thread.compaction_request import load_request_notice
from chats.web.thread.composer import list_offered_models
from chats.web.thread.rows import load_active_branch
from chats.web.thread.updates import parse_seq


@require_GET
@signed_in
def compaction_page(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Show a compaction with its numbers, text, originals, lost facts, changes and ledger rows."""
    return render_compaction_page(request, chat_id, compaction_id)


def render_compaction_page(
    request: PersonRequest,
    chat_id: uuid.UUID,
    compaction_id: uuid.UUID,
    *,
    text: str | None = None,
    refusal: Refusal | None = None,
    notice: Refusal | None = None,
) -> HttpResponse:
    """Render the page.

    `text` stays in the editor, with its `refusal`. `notice`: the refusal of another action.
    """
    drawn_at = get_render_time_ms()
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    report = report_of(row)
    view = build_compaction_view(row, chat=chat, user=request.user, report=report)
    if text is None and "edit" in request.GET and view.can_edit:
        text = insert_lost_fact(row, report=report, number=parse_seq(request, "add"))
    others = list_other_summaries(row, chat=chat)
    refused = refusal or notice
    context = {
        "chat": chat,
        "compaction": row,
        "view": view,
        "others": others,
        "comparison": build_summary_comparison(request, chat=chat, row=row, others=others),
        "models": list_offered_models(user=request.user, chat=chat),
        "text": text,
        "weight": measure_edited_text(row, chat=chat, text=text) if text is not None else None,
        "refusal": refusal,
        "answer": load_request_notice(load_active_branch(chat)),
        "drawn_at": drawn_at,
        "notice": notice,
        **build_originals_page(row, page=1, go="", ground=view.ground),
    }
    return render(
        request, "chats/compaction.html", context, status=refused.status if refused else 200
    )


def build_summary_comparison(
    request: PersonRequest, *, chat: Chat, row: Compaction, others: list[Compaction]
) -> revise.Comparison | None:
    """Compare this summary with the chosen one, the older one first.

    Without a choice, compare it with the one that it revises or continues, or that it displaced.
    None if there is no such summary, or if this one has no text.
    """
    wanted = request.GET.get("with", "")
    chosen = next((other for other in others if str(other.pk) == wanted), None)
    other = chosen or next((o for o in others if o.pk in {row.revises_id, row.previous_id}), None)
    if other is None and (row.displaced_id or row.status == Compaction.Status.PREPARED):
        other = others[0] if others else None
    if other is None or not row.text:
        return None
    older, newer = sorted((row, other), key=lambda each: each.created_at)
    return revise.compare_summaries(
        user=request.user, chat_id=chat.pk, older_id=older.pk, newer_id=newer.pk
    )


@require_POST
@signed_in
def compaction_revise(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Replace the summary with the user's text. A refused text stays in the editor."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    text = request.POST.get("text", "")
    try:
        new = revise.revise_summary(
            user=request.user, compaction=row, text=text, now=timezone.now()
        )
    except Refusal as refusal:
        return render_compaction_page(request, chat_id, row.pk, text=text, refusal=refusal)
    return redirect("chats:compaction", chat_id, new.pk)


@require_POST
@signed_in
def compaction_preview(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Show the size and facts of the editor's text without saving it."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    weight = measure_edited_text(row, chat=chat, text=request.POST.get("text", ""))
    context = {"compaction": row, "weight": weight}
    return render(request, "chats/_weight.html", context)


def measure_edited_text(row: Compaction, *, chat: Chat, text: str) -> Weight:
    """Return the token count and the kept facts of a text, or its refusal."""
    return measure_summary(row, chat=chat, text=text.replace("\r\n", "\n").strip())
