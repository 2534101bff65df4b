"""Deactivates accounts, and stops the work of users whose account is not active."""

import logging
import uuid
from collections.abc import Collection
from datetime import datetime
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from chats.ground.refusals import Refusal
from chats.models import FileImport, PreferenceReading, Turn
from chats.models.turns import UNFINISHED
from chats.people.accounts import EndedAccess, save_user_account
from chats.record import imports, locking
from chats.turns.stop import stop_all

logger = logging.getLogger(__name__)
# Chats and imports that one run stops; the next run continues.
STOPPED_AT_ONCE = 100


def save_account(
    *, person: User, changed: Collection[str], actor: str, now: datetime
) -> EndedAccess:
    """Save an account. If it is deactivated, also stop the user's replies, rounds and imports.

    They are stopped after the commit, because their locks precede those of the account. Returns
    the number of ended sessions and API keys. Raises `LastOwner`.
    """
    with transaction.atomic():
        ended = save_user_account(person=person, changed=changed, actor=actor, now=now)
        if "is_active" in changed and not person.is_active:
            stopping = partial(stop_work_of_inactive_users, actor=actor, now=now)
            # A due job repeats it if it fails.
            transaction.on_commit(stopping, robust=True)
    return ended


def stop_work_of_inactive_users(*, now: datetime, actor: str = "system") -> int:
    """Stop unfinished replies, with their rounds, and imports of users whose account is inactive.

    Returns the number of chats and imports. Safe to repeat.
    """
    turns = Turn.objects.filter(
        status__in=UNFINISHED, stop_requested_at=None, branch__chat__owner__is_active=False
    )
    chats = turns.order_by("branch__chat").values_list("branch__chat", flat=True).distinct()
    found = list(chats[:STOPPED_AT_ONCE])
    for chat_id in found:
        stop_chat_of_inactive_user(chat_id, actor=actor, now=now)
    if found:
        PreferenceReading.objects.filter(chat__in=found).update(due_at=None)
    return len(found) + stop_imports_of_inactive_users(actor=actor, now=now)


def stop_chat_of_inactive_user(chat_id: uuid.UUID, *, actor: str, now: datetime) -> None:
    """Stop all replies of a chat if its owner's account is still inactive."""
    try:
        with transaction.atomic():
            chat = locking.lock_chat(chat_id)
            if not chat.owner.is_active:
                stop_all(chat=chat, actor=actor, now=now)
    except Refusal:
        logger.info("chat %s was erased before its replies were stopped", chat_id)


def stop_imports_of_inactive_users(*, actor: str, now: datetime) -> int:
    """Stop unfinished imports of users whose account is inactive. Return their number."""
    rows = FileImport.objects.filter(state__in=imports.OPEN, owner__is_active=False)
    pks = list(rows.values_list("pk", flat=True)[:STOPPED_AT_ONCE])
    for pk in pks:
        with transaction.atomic():
            row = rows.select_for_update(of=("self",)).filter(pk=pk).first()
            if row is not None:
                imports.end_import(row, state=FileImport.State.STOPPED, actor=actor, now=now)
    return len(pks)
