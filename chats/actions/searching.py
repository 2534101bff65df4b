"""Searches a user's chats: titles first, then messages and summaries, page by page."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.memory.search import index_progress
from chats.memory.search.recall import FoundExcerpt, recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.memory.search.titles import find_chats_by_title
from chats.models import Branch, Chat
from chats.prompt.model_choice import is_archive_open
from chats.record import history

# Maximum characters of a search. Longer searches are refused, never cut.
LONGEST = 400
PAGE = 20
MOST = 200
MOST_TITLES = 10


class SearchTooLong(Refusal):
    """The query is longer than 400 characters."""

    code = "question_too_long"
    status = 422
    sentence = gettext_noop(
        "The search has {length:,} characters. The limit is {limit}. Use fewer words."
    )
    param = "q"


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result and its location.

    `branch`: the chat's active branch. `is_beside`: the excerpt is on another branch, to which the
    user must switch first. `is_covered`: a summary or window covers the excerpt.
    """

    excerpt: FoundExcerpt
    branch: Branch
    is_beside: bool
    is_covered: bool


@dataclass(frozen=True, slots=True)
class Searched:
    """A page of search results. The first page also lists `chats` with matching titles."""

    chats: Sequence[Chat] = ()
    hits: Sequence[Hit] = ()
    has_more: bool = False
    ignored: Sequence[str] = ()
    indexed_share: float = 1.0


def search_chats(
    *,
    user: User,
    question: str,
    scope: Scope,
    at: datetime,
    page: int = 1,
    size: int = PAGE,
    is_typed: bool = False,
    is_quick: bool = False,
) -> Searched:
    """Return a page of at most `size` results from the user's own chats.

    All pages together have at most `MOST` results; a later page repeats the last one. `is_typed`
    and `is_quick` are passed to `recall_excerpts`. Passages covered by a summary are left out if
    the chat's policy closes the archive. Raises `SearchTooLong`.
    """
    if len(question) > LONGEST:
        raise SearchTooLong(limit=LONGEST, length=len(question))
    last = min(page, MOST // size) * size
    found = recall_excerpts(
        user.pk,
        question,
        scope=scope,
        limit=min(last + 1, MOST),
        at=at,
        is_typed=is_typed,
        is_quick=is_quick,
    )
    hits = locate_excerpts(user, found.excerpts[last - size : last])
    return Searched(
        chats=find_chats_by_title(user.pk, question, scope=scope, most=MOST_TITLES)
        if page == 1
        else (),
        hits=hits,
        has_more=len(found.excerpts) > last,
        ignored=found.ignored,
        indexed_share=found.indexed_share,
    )


def locate_excerpts(user: User, excerpts: Sequence[FoundExcerpt]) -> list[Hit]:
    """Return the location of each excerpt that the user may see."""
    ids = {excerpt.chat_id for excerpt in excerpts}
    rows = Branch.objects.filter(chat__in=ids, chat__owner=user.pk, chat__active_branch=F("pk"))
    related = ("chat", "parent", "active_compaction__base")
    opened = {branch.chat_id: branch for branch in rows.select_related(*related)}
    closed: dict[uuid.UUID, bool] = {}
    hits = []
    for excerpt in excerpts:
        branch = opened.get(excerpt.chat_id)
        if branch is None:
            continue
        covered = excerpt.message_id is not None and excerpt.seq <= (
            index_progress.get_archived_seq(branch) or 0
        )
        if is_shown_as_summary(branch, excerpt) and is_archive_closed(branch.chat, known=closed):
            continue
        beside = not is_excerpt_on_branch(branch, excerpt)
        hits.append(Hit(excerpt, branch, beside, covered and not beside))
    return hits


def is_shown_as_summary(branch: Branch, excerpt: FoundExcerpt) -> bool:
    """Return True if the thread shows a summary instead of the excerpt.

    Messages that a window leaves out of prompts stay readable in the thread.
    """
    summary = index_progress.get_branch_summary(branch)
    return excerpt.message_id is not None and summary is not None and excerpt.seq <= summary.to_seq


def is_archive_closed(chat: Chat, *, known: dict[uuid.UUID, bool]) -> bool:
    """Return True if the policy closes a chat's archive. `known` caches the answer by chat id."""
    if chat.pk not in known:
        known[chat.pk] = not is_archive_open(chat)
    return known[chat.pk]


def is_excerpt_on_branch(branch: Branch, excerpt: FoundExcerpt) -> bool:
    """Return True if an excerpt is on a branch's path."""
    return any(
        part.contains(excerpt.branch_id, excerpt.seq) for part in history.list_path_segments(branch)
    )
