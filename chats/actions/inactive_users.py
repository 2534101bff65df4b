"""Deactivates accounts, and stops the work of users whose account is not active."""

import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from chats.ground import databases
from chats.models import FileImport, SkippedRow, Turn
from chats.models.turns import UNFINISHED
from chats.people.accounts import EndedAccess, save_user_account
from chats.record import imports, locking
from chats.turns.stop import stop_all

# Chats and imports that one run stops; the next run continues.
STOPPED_AT_ONCE = 100


def save_account_and_stop_work(
    *, person: User, changed: Collection[str], actor: str, now: datetime
) -> EndedAccess:
    """Save an account. If it is deactivated, also stop the user's replies, rounds and imports.

    They are stopped after the commit, because their locks precede those of the account. Returns
    the number of ended sessions and API keys. Raises `LastOwner`.
    """
    with transaction.atomic():
        ended = save_user_account(person=person, changed=changed, actor=actor, now=now)
        if "is_active" in changed and not person.is_active:
            stopping = partial(
                stop_work_of_inactive_users, actor=actor, now=now, owner_id=person.pk
            )
            # A due job repeats it if it fails.
            transaction.on_commit(stopping, robust=True)
    return ended


def stop_work_of_inactive_users(
    *, now: datetime, actor: str = "system", owner_id: int | None = None
) -> int:
    """Stop unfinished replies, with their rounds, and imports of users whose account is inactive.

    `owner_id`: only those of this user. Returns the number of chats and imports. Safe to repeat.
    A chat or an import that cannot be stopped is recorded as a `SkippedRow`.
    """
    people = User.objects.filter(is_active=False)
    if owner_id is not None:
        people = people.filter(pk=owner_id)
    turns = Turn.objects.filter(
        status__in=UNFINISHED, stop_requested_at=None, branch__chat__owner__in=people
    )
    chats = turns.order_by("branch__chat").values_list("branch__chat", flat=True).distinct()
    rows = FileImport.objects.filter(state__in=imports.OPEN, owner__in=people)
    jobs: list[tuple[str, Callable[[], None]]] = [
        (f"chat {pk}", partial(stop_chat_of_inactive_user, pk, actor=actor, now=now))
        for pk in chats[:STOPPED_AT_ONCE]
    ]
    jobs += [
        (f"import {pk}", partial(stop_import_of_inactive_user, pk, actor=actor, now=now))
        for pk in rows.order_by("pk").values_list("pk", flat=True)[:STOPPED_AT_ONCE]
    ]
    for name, stop in jobs:
        try:
            with transaction.atomic():
                stop()
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="inactive users", row=name, error=error, now=now)
    return len(jobs)


def stop_chat_of_inactive_user(chat_id: uuid.UUID, *, actor: str, now: datetime) -> None:
    """Stop all replies of a chat if its owner's account is still inactive.

    Call it inside a transaction. A chat that was erased since has no replies.
    """
    with suppress(locking.ChatErased):
        chat = locking.lock_chat_row(chat_id)
        if not chat.owner.is_active:
            stop_all(chat=chat, actor=actor, now=now)


def stop_import_of_inactive_user(import_id: uuid.UUID, *, actor: str, now: datetime) -> None:
    """Stop an unfinished import if its owner's account is still inactive.

    Call it inside a transaction.
    """
    rows = FileImport.objects.filter(state__in=imports.OPEN, owner__is_active=False)
    row = rows.select_for_update(of=("self",)).filter(pk=import_id).first()
    if row is not None:
        imports.end_import(row, state=FileImport.State.STOPPED, actor=actor, now=now)
