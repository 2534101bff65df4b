"""The original messages of a compaction, which stay readable while they are stored."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.views.decorators.http import require_GET

from chats.compaction.coverage import is_range_on_path
from chats.models import Compaction, Message
from chats.prompt.next_prompt import Outlook
from chats.record import access
from chats.record.history import select_path_messages
from chats.rendering.store import get_message_html, render_texts
from chats.web.auth import PersonRequest, signed_in
from chats.web.thread.compaction_marker import ORIGINALS_PAGE as PAGE
from chats.web.thread.entries import describe_disposition, get_message_disposition
from chats.web.thread.rows import BranchUnderPolicy, load_branch_under_policy
from chats.web.thread.updates import parse_seq


class OriginalMark(NamedTuple):
    """How the next prompt uses an original: label, disposition and reason for omission."""

    words: str = ""
    sent: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Original:
    """A covered message with its HTML. `mark`: how the next prompt sends it."""

    message: Message
    html: SafeString
    mark: OriginalMark
    # The reason why the message cannot be pinned; empty if it can be.
    pin_lock: str


@require_GET
@signed_in
def originals(request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> HttpResponse:
    """Show one page of a compaction's messages, as a partial or a whole page."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    # A partial appended to another page links only in its own direction.
    ground = load_branch_under_policy(chat=chat, user=request.user)
    page = parse_seq(request, "page") or 1
    found = build_originals_page(row, page=page, go=request.GET.get("go", ""), ground=ground)
    template = "chats/_originals.html" if request.htmx else "chats/originals.html"
    context = {"chat": chat, "compaction": row, "archive_lock": ground.locks.archive, **found}
    return render(request, template, context)


def build_originals_page(
    row: Compaction, *, page: int, go: str, ground: BranchUnderPolicy
) -> dict[str, Any]:
    """Return one page of the messages in a compaction's range, with links to adjacent pages."""
    first = row.from_seq + (page - 1) * PAGE
    found = select_path_messages(
        row.branch, after=first - 1, before=min(first + PAGE, row.to_seq + 1)
    )
    left = max(row.to_seq - first - PAGE + 1, 0)
    return {
        "originals": build_originals(list(found.order_by("seq")), row=row, ground=ground),
        "page": page,
        "next_page": page + 1 if left and go != "back" else None,
        "left": left,
        "previous_page": page - 1 if go != "on" else None,
        "before": min(first, row.to_seq + 1) - row.from_seq,
    }


def build_originals(
    messages: Sequence[Message], *, row: Compaction, ground: BranchUnderPolicy
) -> list[Original]:
    html = render_texts([message.text for message in messages], seen=row.branch)
    outlook = ground.outlook if is_range_on_path(row, ground.branch) else None
    return [
        Original(
            message,
            get_message_html(message.text, html, key=f"{message.pk}-in-{row.pk}"),
            mark_of(message, row=row, outlook=outlook),
            ground.locks.pin(message),
        )
        for message in messages
    ]


def mark_of(message: Message, *, row: Compaction, outlook: Outlook | None) -> OriginalMark:
    """Return the mark that describes an original's use in the next prompt.

    The mark is empty if the original is sent only as part of the summary. `outlook` is None if the
    original is not on the visible branch: the mark then only labels messages that the summary does
    not cover.
    """
    if outlook is None:
        is_exception = message.seq in row.exceptions
        return OriginalMark(gettext("not part of the summary") if is_exception else "")
    sent, reason, cuts = get_message_disposition(message, outlook=outlook)
    if sent == "summary":
        return OriginalMark()
    return OriginalMark(describe_disposition(sent, reason=reason, cuts=cuts), sent, reason)
