"""Searches a person's chats for them: titles first, then messages and summaries, page by page."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F

from chats.compaction.people import rights
from chats.ground.refusals import Refusal
from chats.memory import archive
from chats.memory.recall import Passage, Scope, recall
from chats.memory.titles import titled
from chats.models import Branch, Chat
from chats.record import history

# A person's question; a longer one is refused and never cut.
LONGEST = 400
PAGE = 20
MOST = 200
MOST_TITLES = 10


class SearchTooLong(Refusal):
    """The question is over its limit."""

    code = "question_too_long"
    status = 422
    sentence = "A search takes {limit} characters; this one has {length:,}. Use fewer words."
    param = "q"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and the way to it.

    `branch` is the one that is open in its chat. `is_beside`: it stands on another one, which has
    to be chosen. `is_covered`: it stands under a summary or a window.
    """

    passage: Passage
    branch: Branch
    is_beside: bool
    is_covered: bool


@dataclass(frozen=True, slots=True)
class Searched:
    """A page of what was found. `chats`: those whose titles fit, on the first page."""

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
    """Return a page of what was found in a person's own chats, of at most `size` hits.

    `is_typed`, `is_quick`: as for `recall`.
    Originals under a summary are left out where the chat's policy keeps the archive closed. Raises
    `SearchTooLong`.
    """
    if len(question) > LONGEST:
        raise SearchTooLong(limit=LONGEST, length=len(question))
    last = min(page, MOST // size) * size
    found = recall(
        user.pk,
        question,
        scope=scope,
        limit=min(last + 1, MOST),
        at=at,
        is_typed=is_typed,
        is_quick=is_quick,
    )
    hits = hits_of(user, found.passages[last - size : last])
    return Searched(
        chats=titled(user.pk, question, scope=scope, most=MOST_TITLES) if page == 1 else (),
        hits=hits,
        has_more=len(found.passages) > last,
        ignored=found.ignored,
        indexed_share=found.indexed_share,
    )


def hits_of(user: User, passages: Sequence[Passage]) -> list[Hit]:
    """Return the way to each passage that may be shown."""
    ids = {passage.chat_id for passage in passages}
    rows = Branch.objects.filter(chat__in=ids, chat__owner=user.pk, chat__active_branch=F("pk"))
    related = ("chat", "parent", "active_compaction__base")
    opened = {branch.chat_id: branch for branch in rows.select_related(*related)}
    closed: dict[uuid.UUID, bool] = {}
    hits = []
    for passage in passages:
        branch = opened.get(passage.chat_id)
        if branch is None:
            continue
        covered = passage.message_id is not None and passage.seq <= (archive.archived(branch) or 0)
        if covered and is_closed(branch.chat, known=closed):
            continue
        beside = not stands_on(branch, passage)
        hits.append(Hit(passage, branch, beside, covered and not beside))
    return hits


def is_closed(chat: Chat, *, known: dict[uuid.UUID, bool]) -> bool:
    """Tell whether the policy keeps a chat's archive closed; asked once for each chat."""
    if chat.pk not in known:
        known[chat.pk] = rights.archive_lock(chat) is not None
    return known[chat.pk]


def stands_on(branch: Branch, passage: Passage) -> bool:
    """Tell whether a passage stands on a branch's path."""
    return any(
        part.branch_id == passage.branch_id and part.after < passage.seq <= part.to
        for part in history.segments(branch)
    )
