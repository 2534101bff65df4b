"""Places and releases legal holds, and returns their extent.

Code that deletes text calls `lock_held_targets` in the transaction of the deletion. Placing a hold
waits for all transactions that have already called it; later ones see the hold. Data covered by a
hold can therefore never be deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone
from django.utils.translation import gettext

from contextpolicy import two_persons
from contextpolicy.ledger import record_event
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.reasons import is_meaningful_text

Level = PolicyAssignment.Level
# A hold stays active this long after its release, so that a mistaken release can be corrected.
LASTS = timedelta(days=7)
# The advisory lock key: shared by deletions, exclusive for placing a hold.
_GATE = 7_105_301


class HoldIncomplete(Exception):
    """The case or reason contains no letters or digits, or the target does not match the level."""

    code = "hold_incomplete"

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "A hold needs a case, a reason, and a group, user or chat. Fill in the missing "
                "fields."
            )
        )


class HoldReleased(Exception):
    """The hold was already released. It ends seven days after its release."""

    code = "hold_released"

    def __init__(self) -> None:
        super().__init__(gettext("This hold was already released. Place a new hold instead."))


@dataclass(frozen=True, slots=True)
class Held:
    """The extent of all active holds: everything, or some people and some chats."""

    everything: bool = False
    people: frozenset[int] = frozenset()
    chats: frozenset[UUID] = frozenset()

    def covers(self, *, owner_id: int, chats: Iterable[UUID] = ()) -> bool:
        """Return True if the user or any of these chats is under a hold."""
        return self.everything or owner_id in self.people or not self.chats.isdisjoint(chats)


def place_hold(
    *,
    level: str,
    case: str,
    reason: str,
    actor: str,
    now: datetime,
    group: Group | None = None,
    user: User | None = None,
    chat_id: UUID | None = None,
    review_on: date | None = None,
) -> LegalHold:
    """Hold everything, the members of a group, a user or a chat. Raises `HoldIncomplete`.

    Several holds may cover the same data; each must be released separately. The hold covers the
    group's current members even after they leave, and later members while they belong to the group.
    If the group is deleted, its members at that time remain under the hold.
    """
    case, reason = case.strip(), reason.strip()
    is_said = is_meaningful_text(case) and is_meaningful_text(reason)
    targets = {Level.GROUP: group, Level.USER: user, Level.CHAT: chat_id}
    given = [name for name, target in targets.items() if target]
    if not is_said or given != [name for name in targets if name == level]:
        raise HoldIncomplete
    with transaction.atomic():
        _pass_gate(alone=True)
        hold = LegalHold.objects.create(
            level=level,
            group=group,
            user=user,
            chat_id=chat_id,
            people=sorted(group.user_set.values_list("pk", flat=True)) if group else [],
            case=case,
            reason=reason,
            review_on=review_on,
            placed_by=actor,
            placed_at=now,
        )
        data = {**_build_hold_data(hold), "reason": reason}
        if review_on:
            data["review_on"] = review_on.isoformat()
        record_event("hold.placed", actor=actor, now=now, data=data)
    return hold


def release_hold(*, hold: LegalHold, reason: str, actor: str, now: datetime) -> LegalHold:
    """Release a hold; it ends a week later.

    Raises `HoldIncomplete` if the reason is missing, `HoldReleased`, and
    `SecondPersonNeeded`.
    """
    reason = reason.strip()
    if not is_meaningful_text(reason):
        raise HoldIncomplete
    with transaction.atomic():
        row = LegalHold.objects.select_for_update(of=("self",)).get(pk=hold.pk)
        if row.released_at is not None:
            raise HoldReleased
        two_persons.check_release(placed_by=row.placed_by, actor=actor)
        row.released_by, row.released_at, row.release_reason = actor, now, reason
        row.ends_at = now + LASTS
        row.save(update_fields=["released_by", "released_at", "release_reason", "ends_at"])
        data = {**_build_hold_data(row), "reason": reason, "ends_at": row.ends_at.isoformat()}
        record_event("hold.released", actor=actor, now=now, data=data)
    return row


def filter_active_holds(*, now: datetime) -> QuerySet[LegalHold]:
    """Return the active holds: not released, or released less than `LASTS` ago."""
    return LegalHold.objects.filter(Q(ends_at=None) | Q(ends_at__gt=now))


def load_held_targets(*, now: datetime) -> Held:
    """Return the held people and chats, for display only. Deletions use `lock_held_targets`."""
    rows = filter_active_holds(now=now).order_by()
    found = list(rows.values_list("level", "group", "user", "chat_id", "people"))
    groups = {group for _, group, *_ in found if group}
    members: set[int] = set()
    if groups:
        members |= set(User.objects.filter(groups__in=groups).values_list("pk", flat=True))
    return Held(
        everything=any(level == Level.INSTANCE for level, *_ in found),
        people=frozenset(
            members.union(*(people for *_, people in found))
            | {user for _, _, user, *_ in found if user}
        ),
        chats=frozenset(chat for *_, chat, _ in found if chat),
    )


def keep_members(group: Group, *, now: datetime) -> None:
    """Extend a group's holds to its current members, before the group is deleted."""
    members = set(group.user_set.values_list("pk", flat=True))
    with transaction.atomic():
        rows = filter_active_holds(now=now).select_for_update(of=("self",))
        for hold in rows.filter(group=group):
            hold.people = sorted({*hold.people, *members})
            hold.save(update_fields=["people"])


@receiver(pre_delete, sender=Group)
def keep_deleted_group_members(instance: Group, **_signal: Any) -> None:
    """Keep a deleted group's members under its legal holds.

    A signal receiver, so it applies wherever the group is deleted.
    """
    keep_members(instance, now=timezone.now())


def lock_held_targets(*, now: datetime) -> Held:
    """Return the held people and chats, and block new holds until the transaction ends.

    Raises `TransactionManagementError` outside a transaction.
    """
    _pass_gate(alone=False)
    return load_held_targets(now=now)


def _pass_gate(*, alone: bool) -> None:
    """Take the lock on holds: shared for deletions, `alone` for placing a hold.

    SQLite needs none, because it has one writer at a time.
    """
    connection = transaction.get_connection()
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "Holds must be checked in the transaction of the deletion."
        )
    if connection.vendor == "postgresql":
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {lock}(%s)", [_GATE])


def _build_hold_data(hold: LegalHold) -> dict[str, object]:
    """Return the event data of a hold: ids and the name of the case."""
    named = {
        "hold": str(hold.pk),
        "level": hold.level,
        "group": hold.group_id,
        "user": hold.user_id,
        "chat": str(hold.chat_id) if hold.chat_id else None,
        "case": hold.case,
    }
    return {name: value for name, value in named.items() if value is not None}
