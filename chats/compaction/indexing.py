"""Indexes a chat for search, unless its policy closes the archive."""

import logging
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError
from django.db.models import F

from chats.ground import queue
from chats.memory.search import bulk_indexing, index_progress, index_schedule, vectors
from chats.models import Branch, Chat, ImportedChat
from chats.prompt.model_choice import is_archive_open
from contextpolicy.models import ContextPolicy

logger = logging.getLogger(__name__)
# Number of unindexed messages for which the summaries of an imported chat wait, and the longest
# wait: a failing index must not block summaries.
MANY = 100
LONGEST_WAIT = timedelta(hours=1)
# The policy field that excludes chats from search if it is False.
CLOSES = "archive"


def index_chats(*, chat_ids: Sequence[uuid.UUID]) -> None:
    """Make the newest messages of chats searchable.

    Most chats are indexed here in one batch. Each of the others gets a task, so that a slow
    or failing chat does not delay the rest.
    """
    done: set[uuid.UUID] = set()
    if settings.SPEED and not is_any_closed():
        with index_schedule.ONE_AT_A_TIME:
            done = bulk_indexing.index_newest(chat_ids)
    for chat_id in chat_ids:
        if chat_id not in done:
            queue.enqueue(queue.INDEX_CHAT, chat_id=chat_id)
    waiting = Branch.objects.filter(chat__in=done, summary_due_at__isnull=False)
    for chat_id in waiting.filter(chat__active_branch=F("pk")).values_list("chat", flat=True):
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)
    if done and vectors.list_active_spaces():
        for chat_id in done:
            queue.enqueue(queue.EMBED_CHAT, chat_id=chat_id)


def is_any_closed() -> bool:
    """Return True if any active policy turns off “Searchable originals” (`archive` is False)."""
    policies = ContextPolicy.objects.filter(current__values__has_key=CLOSES)
    return any(
        values[CLOSES] is False for values in policies.values_list("current__values", flat=True)
    )


def update_chat_index(*, chat_id: uuid.UUID) -> None:
    """Make a chat's messages searchable, or remove them if the policy closes the archive.

    Does nothing for a temporary chat.
    """
    chat = Chat.objects.filter(pk=chat_id).first()
    if chat is None or chat.temporary:
        return
    related = ("active_compaction__base", "chat", "parent")
    opened = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    branch = opened.select_related(*related).first()
    if branch is not None:
        # A reply requests indexing without storing the request.
        try:
            index_schedule.mark_due(branch)
        except IntegrityError:
            logger.info("chat %s was erased during indexing", chat_id)
            return
    index_schedule.index_due_branches(chat_id=chat_id, is_closed=not is_archive_open(chat))
    if branch is not None and branch.summary_due_at is not None and not is_far_behind(branch):
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)
    if vectors.list_active_spaces():
        queue.enqueue(queue.EMBED_CHAT, chat_id=chat_id)


def is_index_first(*, chat_id: uuid.UUID, now: datetime) -> bool:
    """Return True if a recently imported chat must be indexed before a summary is written.

    Summaries can keep the processor busy for minutes, and only indexed messages can be found. A
    compaction that a user requested does not wait.
    """
    recent = ImportedChat.objects.filter(chat=chat_id, created_at__gt=now - LONGEST_WAIT)
    if not recent.exists():
        return False
    opened = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"), asked_at=None)
    branch = opened.select_related("chat", "parent").first()
    return branch is not None and not branch.chat.temporary and is_far_behind(branch)


def is_far_behind(branch: Branch) -> bool:
    """Return True if many messages of a branch's path are not indexed yet."""
    return index_progress.count_missing(branch) > MANY
