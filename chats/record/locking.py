"""Locks a chat and its branches until the end of the transaction.

Lock order: the chat's row, its owner's row, its branches, the owner's memory settings, pending
erasures, the heads of the chats' chains, the head of the instance's chain. Rows are locked with
`no_key`. References to a locked row are checked at commit, when the transaction already holds the
ledger's head. A key lock could then cause a deadlock.
"""

import uuid

from django.contrib.auth.models import User

from chats.ground.refusals import NotFound
from chats.models import Branch, Chat
from chats.record import statements


class ChatErased(NotFound, Chat.DoesNotExist):
    """The chat was erased while the request waited for its lock."""


def lock_chat_for_erasure(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked with its owner and all its branches.

    An erasure writes to the chains of the owner's other chats. The owner's lock makes a second
    erasure wait here, before either holds the head of a chain. Raises `ChatErased`.
    """
    chat = lock_chat_row(chat_id)
    list(User.objects.select_for_update(no_key=True).filter(pk=chat.owner_id).values_list("pk"))
    lock_branches(chat)
    return chat


def lock_chat(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked with all its branches, so that active compactions cannot change.

    Raises `ChatErased`.
    """
    chat = lock_chat_row(chat_id)
    lock_branches(chat)
    return chat


def lock_chat_row(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked without its branches. Raises `ChatErased`."""
    chat = Chat.objects.select_for_update(of=("self",), no_key=True).filter(pk=chat_id).first()
    if chat is None:
        raise ChatErased
    return chat


def lock_branches(chat: Chat) -> None:
    list(
        Branch.objects.select_for_update(no_key=True)
        .filter(chat=chat)
        .order_by("pk")
        .values_list("pk")
    )


# Each reply uses the next three functions, so their statements are compiled once
# (`record.statements`). Each locks a single row: a combined function would take one more statement.


def lock_chat_for_writing(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked, with its active branch and model.

    Serialises the acceptance of messages in a chat. The chat is locked first and read afterwards.
    PostgreSQL would return rows joined to a locked row in their state before the wait, without a
    branch created during it. Raises `NotFound` for a deleted chat.
    """
    statements.CHAT_LOCK.hold(chat=chat_id)
    chat = statements.CHAT_TO_WRITE.first(chat=chat_id)
    if chat is None:
        raise NotFound
    return chat


def lock_turn_chat(turn_id: uuid.UUID) -> Chat | None:
    """Return a turn's chat, locked, so that it accepts no message. None if it was erased.

    The chat is locked before the turn, because deleting a chat stops its turns.
    """
    return statements.LOCKED_CHAT.first(turn=turn_id)


def lock_branch_of(turn_id: uuid.UUID) -> None:
    """Lock the branch of a turn that is about to start, so that its turns start one by one."""
    statements.BRANCH_LOCK.hold(turn=turn_id)


def lock_branch(branch_id: uuid.UUID) -> Branch:
    """Return the branch, locked, so that its active compaction cannot change."""
    return Branch.objects.select_for_update(no_key=True).get(pk=branch_id)


def find_branch(branch_id: uuid.UUID) -> Branch | None:
    """Return the branch, locked, or None if it was deleted."""
    return Branch.objects.select_for_update(no_key=True).filter(pk=branch_id).first()
