"""Places and releases legal holds, and says what is held.

Whoever deletes words asks `held` in the transaction of the deletion. Placing a hold waits for such
transactions that have asked already, and those that ask later see the hold: there is no moment in
which a hold stands and something it covers is deleted.
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

from contextpolicy import two_persons
from contextpolicy.ledger import record
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.reasons import says_something

Level = PolicyAssignment.Level
# So long after its release a hold still holds: a release by mistake can be answered.
LASTS = timedelta(days=7)
# The key of the lock that every deletion shares and the placing of a hold has alone.
_GATE = 7_105_301


class HoldIncomplete(Exception):
    """A hold without a case, a reason or its one target cannot be placed."""

    code = "hold_incomplete"

    def __init__(self) -> None:
        super().__init__(
            "A hold needs a case, a reason, and the group, person or chat that is held. Give them."
        )


class HoldReleased(Exception):
    """A hold that was released cannot be released again."""

    code = "hold_released"

    def __init__(self) -> None:
        super().__init__("This hold was released already. Place another one to hold on.")


@dataclass(frozen=True, slots=True)
class Held:
    """The extent of all holds at a moment: everything, or some people and some chats."""

    everything: bool = False
    people: frozenset[int] = frozenset()
    chats: frozenset[UUID] = frozenset()

    def covers(self, *, owner_id: int, chats: Iterable[UUID] = ()) -> bool:
        """Tell whether a person's words are held, or what they said in one of these chats."""
        return self.everything or owner_id in self.people or not self.chats.isdisjoint(chats)


def place(
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
    """Hold everything, the people of a group, a person or a chat. Raises `HoldIncomplete`.

    Several holds may cover the same; each has to end. A group's members of this moment stay held
    when they leave it, and who joins is held while they are in it. If the group is deleted, its
    members of then stay held.
    """
    case, reason = case.strip(), reason.strip()
    is_said = says_something(case) and says_something(reason)
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
        data = {**_named(hold), "reason": reason}
        if review_on:
            data["review_on"] = review_on.isoformat()
        record("hold.placed", actor=actor, now=now, data=data)
    return hold


def release(*, hold: LegalHold, reason: str, actor: str, now: datetime) -> LegalHold:
    """End a hold, a week from now.

    Raises `HoldIncomplete` without a reason, `HoldReleased`, and `SecondPersonNeeded`.
    """
    reason = reason.strip()
    if not says_something(reason):
        raise HoldIncomplete
    with transaction.atomic():
        row = LegalHold.objects.select_for_update(of=("self",)).get(pk=hold.pk)
        if row.released_at is not None:
            raise HoldReleased
        two_persons.check_release(placed_by=row.placed_by, actor=actor)
        row.released_by, row.released_at, row.release_reason = actor, now, reason
        row.ends_at = now + LASTS
        row.save(update_fields=["released_by", "released_at", "release_reason", "ends_at"])
        data = {**_named(row), "reason": reason, "ends_at": row.ends_at.isoformat()}
        record("hold.released", actor=actor, now=now, data=data)
    return row


def in_force(*, now: datetime) -> QuerySet[LegalHold]:
    """Return the holds that hold: those not released, and those released a short while ago."""
    return LegalHold.objects.filter(Q(ends_at=None) | Q(ends_at__gt=now))


def held(*, now: datetime) -> Held:
    """Return what is held now, to look at; who deletes asks `held_for_good`."""
    rows = in_force(now=now).order_by()
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
    """Keep all members of a held group held, those too who joined later: it is about to go."""
    members = set(group.user_set.values_list("pk", flat=True))
    with transaction.atomic():
        rows = in_force(now=now).select_for_update(of=("self",))
        for hold in rows.filter(group=group):
            hold.people = sorted({*hold.people, *members})
            hold.save(update_fields=["people"])


@receiver(pre_delete, sender=Group)
def group_goes(instance: Group, **_signal: Any) -> None:
    """Keep the members of a group held that is deleted in another way than by its page."""
    keep_members(instance, now=timezone.now())


def held_for_good(*, now: datetime) -> Held:
    """Return what is held until the caller's transaction ends: no hold is placed meanwhile."""
    _pass_gate(alone=False)
    return held(now=now)


def _pass_gate(*, alone: bool) -> None:
    """Let deletions through side by side, and the placing of a hold alone.

    SQLite lets one writer in at a time, whatever they write.
    """
    connection = transaction.get_connection()
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("Holds are asked for where words are deleted.")
    if connection.vendor == "postgresql":
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {lock}(%s)", [_GATE])


def _named(hold: LegalHold) -> dict[str, object]:
    """Return what an event says of a hold: ids, and the case by its name."""
    named = {
        "hold": str(hold.pk),
        "level": hold.level,
        "group": hold.group_id,
        "user": hold.user_id,
        "chat": str(hold.chat_id) if hold.chat_id else None,
        "case": hold.case,
    }
    return {name: value for name, value in named.items() if value is not None}
