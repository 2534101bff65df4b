"""Refuses to erase content under a legal hold, and stores a pending erasure instead.

Each deletion of content calls `check_legal_hold` in its own transaction. No other code decides
whether content is under a hold.
"""

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.db.models.signals import pre_delete
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Chat, Message, PendingErasure, Preference
from contextpolicy import holds, ledger

CHAT_HIDDEN = gettext_lazy("Until then, the chat is hidden from your pages and the API.")
MESSAGE_STAYS = gettext_lazy("Until then, the message remains visible.")
PREFERENCE_UNUSED = gettext_lazy("Until then, the preference is not used.")
UNCHANGED = gettext_lazy("Until then, the data remains unchanged.")


class UnderHold(Refusal):
    """A legal hold covers the content, which is erased automatically when the hold ends."""

    code = "under_legal_hold"
    status = 409
    sentence = gettext_noop(
        "A legal hold covers this data, so it cannot be erased now. It is erased automatically "
        "when the hold ends. {meanwhile}"
    )

    def __init__(self, *, meanwhile: Promise = UNCHANGED) -> None:
        super().__init__(meanwhile=meanwhile)


def check_legal_hold(*, owner_id: int, chats: Iterable[uuid.UUID], now: datetime) -> None:
    """Raise `UnderHold` if a hold covers a user or one of their chats.

    Call inside the transaction of a deletion, so that no hold can be placed until it ends.
    """
    if holds.lock_held_targets(now=now).covers(owner_id=owner_id, chats=chats):
        raise UnderHold


def is_held(chat: Chat, *, now: datetime) -> bool:
    """Return True if a hold covers the chat.

    Use it for display only: a hold may be placed right after this check.
    """
    return holds.load_held_targets(now=now).covers(owner_id=chat.owner_id, chats=[chat.pk])


def exclude_held_chats(rows: QuerySet[Chat], *, now: datetime) -> QuerySet[Chat]:
    """Return the chats that no hold covers."""
    held = holds.load_held_targets(now=now)
    if held.everything:
        return rows.none()
    if held.people:
        rows = rows.exclude(owner__in=held.people)
    return rows.exclude(pk__in=held.chats) if held.chats else rows


def keep_pending_erasure(
    *,
    owner_id: int,
    now: datetime,
    chat: Chat | None = None,
    message: Message | None = None,
    preference: Preference | None = None,
) -> PendingErasure:
    """Store a pending erasure of one object under a hold, or return the existing one.

    Runs in the caller's transaction.
    """
    pending, is_new = PendingErasure.objects.get_or_create(
        chat=chat,
        message=message,
        preference=preference,
        defaults={"owner_id": owner_id, "asked_at": now},
    )
    if is_new:
        record_erasure_event("erasure.asked", pending, now=now)
    return pending


def cancel_pending_erasures(erasures: QuerySet[PendingErasure], *, now: datetime) -> int:
    """Cancel pending erasures, in the caller's transaction. Return the count."""
    rows = lock_pending_erasures(erasures.select_related("message__branch"))
    for pending in rows:
        record_erasure_event("erasure.withdrawn", pending, now=now)
        pending.delete()
    return len(rows)


def lock_pending_erasures(erasures: QuerySet[PendingErasure]) -> list[PendingErasure]:
    """Lock pending erasures until the transaction ends, and return them.

    Every transaction that deletes some locks them before the ledger's head.
    """
    return list(erasures.select_for_update(of=("self",)).order_by("pk"))


def lock_pending_erasures_of(chat: Chat) -> None:
    """Lock the pending erasures of a chat and of its messages."""
    mine = Q(chat=chat) | Q(message__branch__chat=chat)
    lock_pending_erasures(PendingErasure.objects.filter(mine))


def list_pending_erasures(*, owner_id: int) -> QuerySet[PendingErasure]:
    """Return a user's pending erasures, newest first."""
    rows = PendingErasure.objects.filter(owner=owner_id)
    rows = rows.select_related("chat", "message__branch__chat", "preference")
    return rows.order_by("-asked_at", "-pk")


def list_due_erasures(*, now: datetime) -> QuerySet[PendingErasure]:
    """Return the pending erasures that are no longer blocked by a hold, oldest first."""
    held = holds.load_held_targets(now=now)
    if held.everything:
        return PendingErasure.objects.none()
    rows = PendingErasure.objects.order_by("asked_at", "pk")
    if held.people:
        rows = rows.exclude(owner__in=held.people)
    if held.chats:
        of_held = Q(chat__in=held.chats) | Q(message__branch__chat__in=held.chats)
        of_held |= Q(preference__evidence__message__branch__chat__in=held.chats)
        rows = rows.exclude(pk__in=PendingErasure.objects.filter(of_held).values("pk"))
    return rows


def record_erasure_event(event: str, pending: PendingErasure, *, now: datetime) -> None:
    """Record a pending erasure in the ledger: in the chat's chain, or in the instance's."""
    chat_id = pending.message.branch.chat_id if pending.message else pending.chat_id
    data = {
        "message": str(pending.message_id) if pending.message_id else None,
        "preference": str(pending.preference_id) if pending.preference_id else None,
    }
    ledger.record_event(
        event,
        actor=f"user:{pending.owner_id}",
        now=now,
        chat_id=chat_id,
        data={name: value for name, value in data.items() if value},
    )


def refuse_held(sender: type[Chat | User], instance: Any, **_signal: Any) -> None:
    """Raise `UnderHold` if deleting this row would also delete held content.

    A signal receiver. The product's own code checks earlier; this covers other deletions, such as
    from a shell.
    """
    if sender is User:
        owned = Chat.objects.filter(owner=instance.pk).values_list("pk", flat=True)
        check_legal_hold(owner_id=instance.pk, chats=owned, now=timezone.now())
    else:
        check_legal_hold(owner_id=instance.owner_id, chats=[instance.pk], now=timezone.now())


pre_delete.connect(refuse_held, sender=Chat)
pre_delete.connect(refuse_held, sender=User)
