"""Keeps the previous value of text that is replaced or deleted under a legal hold.

Call `keep_chat_text`, `keep_personal_text` or `keep_folder_name` in the transaction of the change,
after locking the row. Without a hold they store nothing. `read_kept_text` records the auditor's
reason before it returns the text. A due job calls `erase_due`.
"""

import uuid
from collections import Counter
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from chats.ground.refusals import NotFound
from chats.models import Chat, Folder, KeptText
from chats.record import audit_access
from contextpolicy import holds, ledger

Kind = KeptText.Kind
# Rows that one transaction erases.
ERASED_AT_ONCE = 500


def keep_chat_text(kind: str, text: str, *, chat: Chat, actor: str, now: datetime) -> None:
    """Keep text from a chat, if a hold covers the chat or its owner."""
    held = holds.lock_held_targets(now=now)
    if text and held.covers(owner_id=chat.owner_id, chats=[chat.pk]):
        store_kept_text(kind, text, owner_id=chat.owner_id, chat_id=chat.pk, actor=actor, now=now)


def keep_personal_text(owner_id: int, text: str, *, actor: str, now: datetime) -> None:
    """Keep a user's instructions, if a hold covers the user."""
    if text and holds.lock_held_targets(now=now).covers(owner_id=owner_id):
        store_kept_text(Kind.INSTRUCTIONS, text, owner_id=owner_id, actor=actor, now=now)


def keep_folder_name(folder: Folder, *, actor: str, now: datetime) -> None:
    """Keep a folder's name under a legal hold.

    Stores one row if the hold covers the owner, otherwise one row for each held chat in the folder.
    """
    held = holds.lock_held_targets(now=now)
    of_chats: list[uuid.UUID | None] = [None]
    if not held.covers(owner_id=folder.owner_id):
        rows = Chat.objects.filter(folder=folder, pk__in=held.chats)
        of_chats = list(rows.values_list("pk", flat=True))
    for chat_id in of_chats:
        store_kept_text(
            Kind.FOLDER_NAME,
            folder.name,
            owner_id=folder.owner_id,
            chat_id=chat_id,
            folder_id=folder.pk,
            actor=actor,
            now=now,
        )


def store_kept_text(
    kind: str,
    text: str,
    *,
    owner_id: int,
    actor: str,
    now: datetime,
    chat_id: uuid.UUID | None = None,
    folder_id: uuid.UUID | None = None,
) -> None:
    """Store the previous text under a legal hold, in the caller's transaction."""
    KeptText.objects.create(
        kind=kind,
        text=text,
        owner_id=owner_id,
        chat_id=chat_id,
        folder_id=folder_id,
        replaced_at=now,
        replaced_by=actor,
    )


def list_releasable_texts(*, now: datetime) -> QuerySet[KeptText]:
    """Return the texts that are no longer under a hold, oldest first."""
    held = holds.load_held_targets(now=now)
    if held.everything:
        return KeptText.objects.none()
    rows = KeptText.objects.exclude(owner__in=held.people).order_by("replaced_at", "pk")
    return rows.exclude(pk__in=KeptText.objects.filter(chat__in=held.chats).values("pk"))


def erase_due(*, now: datetime) -> int:
    """Erase up to 500 texts that are no longer under a hold. Return the count.

    The ledger records the number for each user.
    """
    if not KeptText.objects.exists():
        return 0
    with transaction.atomic():
        # Lock the holds before reading rows: no hold is placed until the commit.
        holds.lock_held_targets(now=now)
        found = dict(list_releasable_texts(now=now).values_list("pk", "owner")[:ERASED_AT_ONCE])
        KeptText.objects.filter(pk__in=found).delete()
        for owner_id, count in sorted(Counter(found.values()).items()):
            data = {"user": owner_id, "texts": count}
            ledger.record_event("kept_text.erased", actor="system", now=now, data=data)
    return len(found)


def read_kept_text(text_id: uuid.UUID, *, reason: str, actor: str, now: datetime) -> KeptText:
    """Record the reader and the reason in the ledger, then return a kept text.

    If two people are required, the auditor needs an open reading of the text's chat. If the text
    belongs to no chat, an open reading of any chat of the user suffices. Raises `NotFound`,
    `ReasonNeeded`, `InvalidCharacter` and `ReadingNotOpen`.
    """
    words = audit_access.clean_reason(reason)
    row = KeptText.objects.select_related("owner").filter(pk=text_id).first()
    if row is None:
        raise NotFound
    if settings.TWO_PERSONS:
        check_granted(row, actor=actor, now=now)
    data = {"user": row.owner_id, "kind": row.kind, "text": str(row.pk), "reason": words}
    with transaction.atomic():
        ledger.record_event("kept_text.read", actor=actor, now=now, chat_id=row.chat_id, data=data)
    return row


def check_granted(row: KeptText, *, actor: str, now: datetime) -> None:
    """Raise `ReadingNotOpen` unless a second auditor has granted access to the user's chat."""
    opened = {one.chat_id for one in audit_access.list_open_readings(actor=actor, now=now)}
    chats = Chat.objects.filter(owner=row.owner_id, pk__in=opened)
    if row.chat_id:
        chats = chats.filter(pk=row.chat_id)
    if not chats.exists():
        raise audit_access.ReadingNotOpen
