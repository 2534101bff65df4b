"""Search over all chats: a page, and a palette available on every page."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET

from chats.actions import branching, listing
from chats.actions.searching import MOST, PAGE, Hit, Searched, SearchTooLong, search_chats
from chats.compaction.coverage import get_active_summary, is_message_on_path
from chats.ground.refusals import NotFound, Refusal
from chats.ground.texts import strip_inline_signs
from chats.memory.search.marking import split_excerpt
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Chat, Message
from chats.record import access
from chats.web.actions.in_place import chat_action
from chats.web.auth import PersonRequest, signed_in
from chats.web.shell import build_shell
from chats.web.thread.compaction_marker import build_source_link

ROLES = {
    "user": gettext_lazy("User messages"),
    "assistant": gettext_lazy("Replies"),
    "summary": gettext_lazy("Summaries"),
}
# Number of newer messages shown after a hit that is not on the newest page.
AFTER = 10
NEWEST = 20
# The palette shows at most 8 of the 12 best hits, because some may be filtered out.
IN_PALETTE, LOOKED_AT = 8, 12


@dataclass(frozen=True, slots=True)
class ShownHit:
    """A search result for display: highlighted excerpt and link.

    `address` is the URL of a page. If the user must switch branches first, `choose` is the URL for
    switching.
    """

    hit: Hit
    pieces: Sequence[tuple[str, bool]]
    address: str
    choose: str

    @property
    def who(self) -> str:
        name = self.hit.excerpt.speaker or "Summary"
        return gettext(name) if name in {"You", "Assistant", "Summary"} else name


@dataclass(frozen=True, slots=True)
class ChatHits:
    chat: Chat
    hits: Sequence[ShownHit]


@dataclass(frozen=True, slots=True)
class Filters:
    """The search scope that the form selects. `wrong`: the error message about an invalid field."""

    scope: Scope
    chat: Chat | None
    wrong: str


@require_GET
@signed_in
def chat_search(request: PersonRequest) -> HttpResponse:
    """Show search results from the user's chats, as a page or partial."""
    page, filters = page_in(request), parse_search_filters(request)
    found, refusal, context = run_filtered_search(request, filters=filters, page=page)
    kept = [(name, value) for name, value in request.GET.items() if name != "page" and value]
    context |= {
        "groups": group_hits(found.hits),
        "hits": len(found.hits),
        "wrong": filters.wrong,
        "chat_filter": filters.chat,
        "folders": listing.list_folders(owner=request.user),
        "roles": ROLES,
        "given": request.GET,
        "page": page,
        "last_page": MOST // PAGE,
        "query": urlencode([(name, value[:500]) for name, value in kept]),
    }
    part = "chats/_hits.html" if request.htmx else "chats/search.html"
    if not request.htmx:
        context |= {"shell": build_shell(user=request.user)}
    status = refusal.status if refusal is not None and not request.htmx else 200
    return render(request, part, context, status=status)


@require_GET
@signed_in
def palette(request: PersonRequest) -> HttpResponse:
    """Show the best search results as options of the palette."""
    filters = parse_search_filters(request)
    found, _, context = run_filtered_search(request, filters=filters, size=LOOKED_AT, is_quick=True)
    options = [each for group in group_hits(found.hits[:IN_PALETTE]) for each in group.hits]
    return render(request, "chats/_palette_found.html", {**context, "options": options})


def run_filtered_search(
    request: PersonRequest,
    *,
    filters: Filters,
    page: int = 1,
    size: int = PAGE,
    is_quick: bool = False,
) -> tuple[Searched, Refusal | None, dict[str, object]]:
    """Return the results, the refusal if any, and the context for both templates."""
    question = request.GET.get("q", "").replace("\x00", "").strip()
    found = Searched()
    refusal: Refusal | None = None
    if question and not filters.wrong:
        try:
            found = search_chats(
                user=request.user,
                question=question,
                scope=filters.scope,
                at=timezone.now(),
                page=page,
                size=size,
                is_typed=True,
                is_quick=is_quick,
            )
        except SearchTooLong as refused:
            refusal = refused
    context = {
        "question": question[:500],
        "found": found,
        "refusal": refusal,
        "percent": int(100 * found.indexed_share),
    }
    return found, refusal, context


def page_in(request: PersonRequest) -> int:
    given = request.GET.get("page", "")
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 1
    return min(max(number, 1), MOST // PAGE)


def parse_search_filters(request: PersonRequest) -> Filters:
    chat = find_requested_chat(request)
    folder = parse_uuid_or_none(request.GET.get("folder", ""))
    role = request.GET.get("role", "")
    before, after = (parse_filter_day(request.GET.get(name, "")) for name in ("before", "after"))
    no_date = gettext("“{text}” is not a date. Write the date as YYYY-MM-DD, such as 2026-05-31.")
    wrong = next(
        (
            no_date.format(text=request.GET[name][:40])
            for name, value in (("before", before), ("after", after))
            if request.GET.get(name) and value is None
        ),
        "",
    )
    scope = Scope(
        kind="folder" if folder else "person",
        id=folder,
        role=role if role in ROLES else "",
        speaker=request.GET.get("from", "").replace("\x00", "").strip()[:200],
        chat=chat.pk if chat else None,
        before=before,
        after=after,
    )
    return Filters(scope, chat, wrong)


def find_requested_chat(request: PersonRequest) -> Chat | None:
    """Return the chat in the query if the user may see it, or None."""
    key = parse_uuid_or_none(request.GET.get("chat", ""))
    try:
        return access.get_chat(user=request.user, chat_id=key) if key else None
    except NotFound:
        return None


def parse_uuid_or_none(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def parse_filter_day(text: str) -> datetime | None:
    """Return the start of a day in the reader's zone, or None for an invalid date."""
    try:
        day = parse_date(text[:20])
        start = timezone.make_aware(datetime.combine(day, time.min)) if day else None
        return start.astimezone(UTC) if start else None
    except (ValueError, OverflowError):
        # The first day of the calendar begins before it in a zone east of Greenwich.
        return None


def group_hits(hits: Sequence[Hit]) -> list[ChatHits]:
    """Group hits by chat, the chat with the best hit first."""
    groups: dict[uuid.UUID, list[ShownHit]] = {}
    chats: dict[uuid.UUID, Chat] = {}
    for hit in hits:
        chats[hit.branch.chat_id] = hit.branch.chat
        groups.setdefault(hit.branch.chat_id, []).append(build_shown_hit(hit))
    return [ChatHits(chats[key], each) for key, each in groups.items()]


def build_shown_hit(hit: Hit) -> ShownHit:
    excerpt = hit.excerpt
    pieces = split_excerpt(excerpt.text, excerpt.marks, part=(excerpt.start, excerpt.end))
    words = [(strip_inline_signs(piece), is_match) for piece, is_match in pieces]
    if hit.is_beside and excerpt.message_id:
        choose = reverse("chats:message-show", args=[excerpt.chat_id, excerpt.message_id])
        return ShownHit(hit, words, "", choose)
    if excerpt.message_id:
        address = build_message_url(hit.branch, excerpt.message_id, seq=excerpt.seq)
    else:
        address = reverse("chats:compaction", args=[excerpt.chat_id, excerpt.summary_id])
    return ShownHit(hit, words, address, "")


def build_message_url(branch: Branch, message_id: uuid.UUID, *, seq: int) -> str:
    """Return the URL of a message on the open branch, in the thread or among the originals."""
    active = branch.active_compaction
    if active is not None and seq <= active.to_seq:
        summary = get_active_summary(active)
        over = summary if summary is not None and seq <= summary.to_seq else active
        place = build_source_link(over, chat_id=branch.chat_id, seq=seq)
        if place.address:
            return f"{place.address}#{place.key}"
    address = reverse("chats:chat", args=[branch.chat_id])
    if branch.last_seq - seq >= NEWEST:
        address += f"?before={seq + AFTER}"
    return f"{address}#message-{message_id}"


@chat_action
def message_show(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Switch to the branch of a found message and open the message there."""
    row: Message = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    branch = access.get_chat_branch(user=request.user, chat_id=chat_id)
    if not is_message_on_path(branch, row):
        branching.choose_branch(
            user=request.user,
            chat=branch.chat,
            branch_id=row.branch_id,
            now=timezone.now(),
        )
        branch = access.get_chat_branch(user=request.user, chat_id=chat_id)
    return redirect(build_message_url(branch, row.pk, seq=row.seq or 0))
