"""Search in the original messages that a summary or window covers."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_GET

from chats.compaction.coverage import get_active_summary
from chats.compaction.people import summary_permissions
from chats.ground.refusals import Refusal
from chats.memory.search import index_progress, searchable_text, speakers
from chats.memory.search.marking import find_question_matches, select_match_excerpt, split_excerpt
from chats.memory.search.question import ParsedQuestion, parse_question
from chats.memory.search.search import QuestionTooLong, SearchResult, check_question, search_archive
from chats.models import Branch, Chat, Message
from chats.record import access
from chats.record.zones import convert_to_account_zone
from chats.web.auth import PersonRequest, signed_in
from chats.web.thread.compaction_marker import build_source_link
from chats.web.thread.rows import load_active_branch

# Maximum number of matches.
MOST = 20


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A matching message: an excerpt around the match, and the URL of its original.

    `pieces` are (text, is_match) pairs. `address` is empty if no compaction covers the message.
    """

    message: Message
    pieces: Sequence[tuple[str, bool]]
    address: str
    key: str


@require_GET
@signed_in
def chat_find(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the originals that best match a query, as a partial or a whole page."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    branch = load_active_branch(chat)
    question = request.GET.get("q", "").strip()
    speaker = request.GET.get("speaker", "")
    closed = summary_permissions.archive_lock(chat)
    refusal = closed or refuse_long_question(question)
    found = SearchResult()
    archived = index_progress.get_archived_seq(branch)
    if question and not refusal:
        found = search_archive(branch, question=question, most=MOST, speaker=speaker)
    context = {
        "chat": chat,
        "question": question,
        "speaker": speaker,
        "speakers": list_speaker_choices(branch, to=archived) if archived and not closed else [],
        "archived": archived,
        "matches": build_found_messages(found, chat=chat, branch=branch, question=question),
        "missing": found.missing,
        "refusal": refusal,
        "archive_lock": closed.localized if closed else "",
    }
    template = "chats/_found_update.html" if request.htmx else "chats/find.html"
    status = refusal.status if refusal and not request.htmx else 200
    return render(request, template, context, status=status)


def list_speaker_choices(branch: Branch, *, to: int) -> list[tuple[str, str]]:
    """Return (role ID, name) of the speakers to filter by; empty in a chat without roles."""
    names = {each.role_id: each.name for each in speakers.list_known_speakers(branch, to=to)}
    named = sorted(names.items(), key=itemgetter(1))
    return [("user", gettext("You")), *named] if named else []


def refuse_long_question(question: str) -> Refusal | None:
    """Return the refusal for a query over 500 characters, or None."""
    try:
        check_question(question)
    except QuestionTooLong as refusal:
        return refusal
    return None


def build_found_messages(
    found: SearchResult, *, chat: Chat, branch: Branch, question: str
) -> list[FoundMessage]:
    asked = parse_question(question, at=convert_to_account_zone(chat.owner_id, timezone.now()))
    return [build_found_message(row, chat=chat, branch=branch, asked=asked) for row in found.rows]


def build_found_message(
    row: Message, *, chat: Chat, branch: Branch, asked: ParsedQuestion
) -> FoundMessage:
    """Return a match with the URL of its original."""
    seq = row.seq or 0
    summary, active = get_active_summary(branch.active_compaction), branch.active_compaction
    over = summary if summary is not None and seq <= summary.to_seq else active
    text = "\n".join(searchable_text.collect_searchable_texts(row.parts))[
        : searchable_text.MOST_CHARACTERS
    ]
    marks = find_question_matches(text, asked)
    # A message can match by its neighbours or its date. Then its beginning is shown.
    shown = split_excerpt(text, marks, part=select_match_excerpt(text, marks))
    if over is None:
        return FoundMessage(row, shown, address="", key="")
    place = build_source_link(over, chat_id=chat.pk, seq=seq)
    return FoundMessage(row, shown, address=place.address, key=place.key)
