"""Indexes a chat for the search, unless its policy keeps the archive closed."""

import uuid

from django.db.models import F

from chats.compaction.people import rights
from chats.ground import queue
from chats.memory import archive, vectors
from chats.models import Branch, Chat


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
    if vectors.living():
        queue.enqueue(queue.EMBED_CHAT, chat_id=chat_id)
