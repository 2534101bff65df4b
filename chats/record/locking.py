"""Locks on a chat and its branches until the transaction ends: one function for each purpose.

The chat's row is locked first, its owner's next, then its branches, the ledger's head last. Rows
are locked without their keys (`no_key`): a transaction that refers to one is checked at its commit,
when it already holds the ledger's head, and a lock that shut it out there would be a deadlock.
"""

import uuid

from django.contrib.auth.models import User

from chats.ground.refusals import NotFound
from chats.models import Branch, Chat
from chats.record import statements


def chat_to_erase_in(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked with its owner and all its branches.

    An erasure writes into the chains of the owner's other chats: of two, one waits for the other
    here, before either has the head of a chain.
    """
    chat = Chat.objects.select_for_update(of=("self",), no_key=True).get(pk=chat_id)
    list(User.objects.select_for_update(no_key=True).filter(pk=chat.owner_id).values_list("pk"))
    lock_branches(chat)
    return chat


def locked_chat(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked with all its branches: what is in force on them stays as it is."""
    chat = Chat.objects.select_for_update(of=("self",), no_key=True).get(pk=chat_id)
    lock_branches(chat)
    return chat


def lock_branches(chat: Chat) -> None:
    """Lock all branches of a locked chat."""
    list(
        Branch.objects.select_for_update(no_key=True)
        .filter(chat=chat)
        .order_by("pk")
        .values_list("pk")
    )


# Every reply calls the next three, so their statements are compiled once (`record.statements`), and
# each locks one row alone: a function that served two of them would take a statement more.


def chat_to_write_in(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked, with its active branch and model.

    Messages in one chat are accepted one after the other. It is locked first and read then:
    PostgreSQL would read rows joined to a row that it waits for as they were before the wait, and
    not find a branch that was opened meanwhile. Raises `NotFound` for one that was deleted.
    """
    statements.CHAT_LOCK.hold(chat=chat_id)
    chat = statements.CHAT_TO_WRITE.first(chat=chat_id)
    if chat is None:
        raise NotFound
    return chat


def chat_of(turn_id: uuid.UUID) -> Chat | None:
    """Return a turn's chat, locked: no message is accepted in it meanwhile. None: it is erased.

    It is locked before the turn: who deletes a chat stops its turns.
    """
    return statements.LOCKED_CHAT.first(turn=turn_id)


def lock_branch_of(turn_id: uuid.UUID) -> None:
    """Lock the branch of a turn that is about to begin: of two, one begins after the other."""
    statements.BRANCH_LOCK.hold(turn=turn_id)


def locked_branch(branch_id: uuid.UUID) -> Branch:
    """Return the branch, locked: what is in force on it stays as it is."""
    return Branch.objects.select_for_update(no_key=True).get(pk=branch_id)


def find_branch(branch_id: uuid.UUID) -> Branch | None:
    """Return the branch, locked, or None if it was deleted meanwhile."""
    return Branch.objects.select_for_update(no_key=True).filter(pk=branch_id).first()
