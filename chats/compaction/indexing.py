"""Indexes a chat for the search, unless its policy keeps the archive closed."""

import uuid
from datetime import datetime, timedelta

from django.db.models import F

from chats.compaction.people import rights
from chats.ground import queue
from chats.memory import archive, vectors
from chats.models import Branch, Chat, ImportedChat

# Messages without an index for which the summaries of an imported chat wait, and the longest wait:
# an index that fails must not keep a chat from its summaries.
MANY = 100
LONGEST_WAIT = timedelta(hours=1)


def index_chat(*, chat_id: uuid.UUID) -> None:
    """Make what was said in a chat searchable; take it out where the policy closes the archive."""
    chat = Chat.objects.filter(pk=chat_id).first()
    if chat is None or chat.temporary:
        return
    related = ("active_compaction__base", "chat", "parent")
    opened = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    branch = opened.select_related(*related).first()
    if branch is not None:
        # A reply asks for this without writing it down.
        archive.mark_due(branch)
    archive.index_chat(chat_id=chat_id, is_closed=rights.archive_lock(chat) is not None)
    if branch is not None and branch.summary_due_at is not None and not is_far_behind(branch):
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)
    if vectors.living():
        queue.enqueue(queue.EMBED_CHAT, chat_id=chat_id)


def is_index_first(*, chat_id: uuid.UUID, now: datetime) -> bool:
    """Return True if an imported chat is indexed before its first summaries are written.

    Summaries keep the processor busy for minutes, and until a message is indexed no question finds
    it. A compaction that a person requested does not wait.
    """
    recent = ImportedChat.objects.filter(chat=chat_id, created_at__gt=now - LONGEST_WAIT)
    if not recent.exists():
        return False
    opened = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"), asked_at=None)
    branch = opened.select_related("chat", "parent").first()
    return branch is not None and not branch.chat.temporary and is_far_behind(branch)


def is_far_behind(branch: Branch) -> bool:
    """Return True if many messages of a branch's path are not indexed yet."""
    return archive.count_missing(branch) > MANY
