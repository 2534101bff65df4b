"""The two checks that every change of what applies to somebody passes: one function, `judge`.

A second person (`two_persons`), where the instance asks for two; and a count of the chats that
would change (`blast`), where it asks for that. A version that was in force lately passes again, but
only for the audience for which it was approved and counted.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User

from contextpolicy import blast, two_persons
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import (
    AuditEvent,
    BlastRadius,
    ContextPolicy,
    PolicyAssignment,
    PolicyVersion,
)
from contextpolicy.reasons import says_something

Level = PolicyAssignment.Level
# What was in force so lately was agreed upon: it can be brought back at once.
AGREED = timedelta(days=30)
# Each says whether a policy applies to somebody in another way than by an assignment. The apps
# above add theirs when they are loaded.
OTHER_USES: list[Callable[[ContextPolicy], bool]] = []
# Each returns the share of all chats in use that are a person's.
SHARES: list[Callable[[User, datetime], float]] = []


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what applies to somebody.

    `values` and `locks` apply from then on at these levels, in place of `before`. `author` wrote
    them, `by` puts them in force. `restores` is the older version whose content they are;
    `assigned` is set where a policy is assigned, `removed` where it is taken away.
    """

    policy: ContextPolicy
    values: Mapping[str, Any]
    locks: Collection[str]
    before: PolicyVersion | None
    levels: Collection[str]
    author: int | None
    by: int | None
    assigned: bool = False
    removed: bool = False
    group: Group | None = None
    user: User | None = None
    restores: PolicyVersion | None = None
    emergency: str = ""


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """The outcome of both checks: whether a second person is needed, and the count that suffices.

    `agreed`: an older version passed because it was in force lately.
    """

    waits: bool = False
    needs_count: BlastRadiusNeeded | None = None
    row: BlastRadius | None = field(default=None)
    agreed: bool = False


def judge(change: Change, *, now: datetime) -> ChangeVerdict:
    """Judge a change by both checks. Raises nothing: its writers refuse, or keep a draft."""
    if says_something(change.emergency):
        return ChangeVerdict()
    old = change.restores
    waits = two_persons.is_needed(
        values=change.values,
        locks=change.locks,
        before=change.before,
        levels=change.levels,
        author=change.author,
        by=change.by,
        removed=change.removed,
    )
    agreed = waits and old is not None and was_approved(change.policy, old=old, now=now)
    if old is not None and was_counted(change.policy, old=old, now=now):
        return ChangeVerdict(waits=waits and not agreed, agreed=agreed)
    try:
        row = counted(change, now=now)
    except BlastRadiusNeeded as needed:
        return ChangeVerdict(waits=waits and not agreed, needs_count=needed, agreed=agreed)
    return ChangeVerdict(waits=waits and not agreed, row=row, agreed=agreed)


def counted(change: Change, *, now: datetime) -> BlastRadius | None:
    """Return the count that lets the change come into force. Raises `BlastRadiusNeeded`."""
    if change.removed:
        return None
    if not change.assigned:
        return blast.check_version(
            change.policy,
            values=change.values,
            locks=change.locks,
            before=change.before,
            now=now,
        )
    (level,) = change.levels
    share = sum(of(change.user, now) for of in SHARES) if change.user else 0.0
    return blast.check_assignment(
        change.policy, level=level, group=change.group, user=change.user, share=share, now=now
    )


def version_change(
    policy: ContextPolicy,
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    author: int | None,
    by: int | None,
    restores: PolicyVersion | None = None,
    emergency: str = "",
) -> Change:
    """Return the change that a version of a policy makes wherever the policy applies."""
    return Change(
        policy=policy,
        values=values,
        locks=locks,
        before=policy.current,
        levels=levels_of(policy),
        author=author,
        by=by,
        restores=restores,
        emergency=emergency,
    )


def placing_change(
    policy: ContextPolicy,
    *,
    level: str,
    by: int | None,
    group: Group | None = None,
    user: User | None = None,
    before: PolicyVersion | None = None,
    removed: bool = False,
) -> Change:
    """Return the change that assigning a policy makes, or with `removed` taking it away.

    `before` is the version that applied at the same place.
    """
    version = policy.current
    return Change(
        policy=policy,
        values=version.values if version else {},
        locks=version.locks if version else [],
        before=before,
        levels=[level],
        author=version.created_by_id if version else None,
        by=by,
        assigned=not removed,
        removed=removed,
        group=group,
        user=user,
    )


def levels_of(policy: ContextPolicy) -> set[str]:
    """Return the levels at which a policy applies; `other` for chats and agents that name it."""
    levels = set(policy.assignments.values_list("level", flat=True))
    return levels | ({"other"} if any(uses(policy) for uses in OTHER_USES) else set())


def was_counted(policy: ContextPolicy, *, old: PolicyVersion, now: datetime) -> bool:
    """Return True if a version was in force lately, everywhere where its policy applies today."""
    story = Story(policy, old=old)
    return story.is_recent(now) and all(
        story.assigned_before_end(row) is not None for row in policy.assignments.all()
    )


def was_approved(policy: ContextPolicy, *, old: PolicyVersion, now: datetime) -> bool:
    """Return True if a second person approved a version lately, for all to whom it would apply.

    Who put it in force approved it for the places of that moment, and who assigned the policy
    while it was in force approved it for that place.
    """
    story = Story(policy, old=old)
    levels = levels_of(policy)
    if not story.is_recent(now) or "other" in levels:
        return False
    return all(story.is_approved_for(row) for row in policy.assignments.all())


class Story:
    """The events of a policy around a version: from when to when it was in force, and by whom."""

    def __init__(self, policy: ContextPolicy, *, old: PolicyVersion) -> None:
        self.policy = policy
        self.old = old
        later = policy.versions.filter(number__gt=old.number, activated_at__isnull=False)
        self.successor = later.order_by("number").first()
        self.events = list(
            AuditEvent.objects.filter(
                type__in=(
                    "policy.assigned",
                    "policy.version_activated",
                    "policy.version_created",
                ),
                data__policy=policy.slug,
            ).order_by("pk")
        )
        self.written = self.event_of(old.number, "policy.version_created")
        self.begun = self.beginning_of(old.number)
        self.ended = self.beginning_of(self.successor.number) if self.successor else None

    def is_recent(self, now: datetime) -> bool:
        """Return True if the version was in force within the last days."""
        if self.old.activated_at is None or self.begun is None:
            return False
        if self.successor is None:
            return True
        ended_at = self.successor.activated_at
        return ended_at is not None and now - ended_at <= AGREED and self.ended is not None

    def event_of(self, number: int, kind: str) -> AuditEvent | None:
        """Return the event of this kind about a version."""
        found = (each for each in self.events if each.type == kind)
        return next((each for each in found if each.data.get("version") == number), None)

    def beginning_of(self, number: int) -> AuditEvent | None:
        """Return the event by which a version came into force."""
        written = self.event_of(number, "policy.version_created")
        is_draft = written is not None and written.data.get("draft", False)
        return self.event_of(number, "policy.version_activated") if is_draft else written

    def assigned_before_end(self, row: PolicyAssignment) -> AuditEvent | None:
        """Return the event that assigned a place, if it came before the version's end."""
        wanted = {"level": row.level, "group": row.group_id, "user": row.user_id}
        found = None
        for each in self.events:
            target = {name: each.data.get(name) for name in wanted}
            same = target == wanted and each.chat_id == row.chat_id
            if each.type == "policy.assigned" and same:
                found = each
        is_before = self.ended is None or (found is not None and found.pk < self.ended.pk)
        return found if is_before else None

    def is_approved_for(self, row: PolicyAssignment) -> bool:
        """Return True if somebody besides its author let the version apply at a place."""
        placed = self.assigned_before_end(row)
        if placed is None or self.begun is None or self.written is None:
            return False
        author = self.written.actor
        if placed.pk > self.begun.pk:
            return placed.actor != author or author == "system"
        if self.begun.data.get("agreed"):
            return True
        return "emergency" not in self.begun.data and (
            self.begun.actor != author or author == "system"
        )


def person_of(actor: str) -> int | None:
    """Return the id behind the actor `user:<id>`; None for `system` and `worker`."""
    kind, _, identity = actor.partition(":")
    return int(identity) if kind == "user" else None
