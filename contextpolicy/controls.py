"""`check_change`: the two checks for every change of the people or chats that a policy applies to.

A change may require a second person (`two_persons`) and a count of the affected chats (`blast`).
Each check runs only if the instance requires it. A recently active version passes again, but only
for the audience for which it was approved and counted.
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
from contextpolicy.reasons import is_meaningful_text

Level = PolicyAssignment.Level
# Versions that were active within this time can be restored at once.
AGREED = timedelta(days=30)
# Functions that return True if a policy applies other than by an assignment. Apps of higher layers
# register theirs when they are loaded.
OTHER_USES: list[Callable[[ContextPolicy], bool]] = []
# Functions that return True if an agent of a shared team has the policy.
SHARED_USES: list[Callable[[ContextPolicy], bool]] = []
# Functions that return a user's share of all active chats.
SHARES: list[Callable[[User, datetime], float]] = []
# Functions that return the share of all active chats that name a policy.
NAMED_SHARES: list[Callable[[ContextPolicy, datetime], float]] = []


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the people or chats that a policy applies to.

    `values` and `locks` will apply at `levels`, instead of `before`. `author` wrote them, `by`
    publishes them. `restores` is the older version with the same content. `assigned` is set if a
    policy is assigned, `removed` if an assignment is removed; `group` or `user` is the target.
    `emergency` is a reason to skip both checks.
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
    """The result of both checks: a missing second person or count, or the sufficient count.

    `agreed`: the change needs no second person, because it restores a version that was approved
    recently.
    """

    waits: bool = False
    needs_count: BlastRadiusNeeded | None = None
    row: BlastRadius | None = field(default=None)
    agreed: bool = False


def check_change(change: Change, *, now: datetime) -> ChangeVerdict:
    """Check whether a change needs a second person or a count that it does not have.

    A change with an emergency reason needs neither. Raises no exception: the caller refuses the
    change or keeps a draft.
    """
    if is_meaningful_text(change.emergency):
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
    agreed = waits and old is not None and has_recent_approval(change.policy, old=old, now=now)
    if old is not None and has_recent_count(change.policy, old=old, now=now):
        return ChangeVerdict(waits=waits and not agreed, agreed=agreed)
    try:
        row = require_change_count(change, now=now)
    except BlastRadiusNeeded as needed:
        return ChangeVerdict(waits=waits and not agreed, needs_count=needed, agreed=agreed)
    return ChangeVerdict(waits=waits and not agreed, row=row, agreed=agreed)


def require_change_count(change: Change, *, now: datetime) -> BlastRadius | None:
    """Return the count that allows the change; None if it needs none.

    Raises `BlastRadiusNeeded` if the count is missing or not sufficient.
    """
    share = sum(of(change.user, now) for of in SHARES) if change.user else 0.0
    if change.removed:
        if not change.user:
            share = sum(of(change.policy, now) for of in NAMED_SHARES)
        return blast.check_removal_count(
            change.policy, levels=change.levels, group=change.group, share=share, now=now
        )
    if not change.assigned:
        return blast.check_version_count(
            change.policy,
            values=change.values,
            locks=change.locks,
            before=change.before,
            share=sum(of(change.policy, now) for of in NAMED_SHARES),
            now=now,
        )
    (level,) = change.levels
    return blast.check_assignment_count(
        change.policy, level=level, group=change.group, user=change.user, share=share, now=now
    )


def build_version_change(
    policy: ContextPolicy,
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    author: int | None,
    by: int | None,
    restores: PolicyVersion | None = None,
    emergency: str = "",
) -> Change:
    """Return the change that a new version makes wherever the policy applies."""
    return Change(
        policy=policy,
        values=values,
        locks=locks,
        before=policy.current,
        levels=list_policy_levels(policy),
        author=author,
        by=by,
        restores=restores,
        emergency=emergency,
    )


def build_assignment_change(
    policy: ContextPolicy,
    *,
    level: str,
    by: int | None,
    group: Group | None = None,
    user: User | None = None,
    before: PolicyVersion | None = None,
    removed: bool = False,
) -> Change:
    """Return the change of assigning a policy, or, with `removed`, of unassigning it.

    `before` is the version that applied at the same target.
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


def list_policy_levels(policy: ContextPolicy) -> set[str]:
    """Return the levels at which a policy applies.

    Includes `other` for chats and agents that name it, and `shared` for agents of shared teams.
    """
    levels = set(policy.assignments.values_list("level", flat=True))
    levels |= {two_persons.OTHER} if any(uses(policy) for uses in OTHER_USES) else set()
    return levels | ({two_persons.SHARED} if any(uses(policy) for uses in SHARED_USES) else set())


def has_recent_count(policy: ContextPolicy, *, old: PolicyVersion, now: datetime) -> bool:
    """Return True if the version was recently active in every place where its policy applies."""
    story = Story(policy, old=old)
    return story.is_recent(now) and all(
        story.assigned_before_end(row) is not None for row in policy.assignments.all()
    )


def has_recent_approval(policy: ContextPolicy, *, old: PolicyVersion, now: datetime) -> bool:
    """Return True if a second person recently approved a version for everyone it would apply to.

    The person who published it approved it for the targets at that time. A user who assigned the
    policy while it was active approved it for that target. Returns False if chats or agents name
    the policy, because the ledger does not show when they began to do so.
    """
    story = Story(policy, old=old)
    levels = list_policy_levels(policy)
    if not story.is_recent(now) or two_persons.OTHER in levels:
        return False
    return all(story.is_approved_for(row) for row in policy.assignments.all())


class Story:
    """The ledger events of a policy's version: when it was active, and who published it."""

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
        """Return True if the version was active within `AGREED`."""
        if self.old.activated_at is None or self.begun is None:
            return False
        if self.successor is None:
            return True
        ended_at = self.successor.activated_at
        return ended_at is not None and now - ended_at <= AGREED and self.ended is not None

    def event_of(self, number: int, kind: str) -> AuditEvent | None:
        """Return the ledger event of this type about a version, or None."""
        found = (each for each in self.events if each.type == kind)
        return next((each for each in found if each.data.get("version") == number), None)

    def beginning_of(self, number: int) -> AuditEvent | None:
        """Return the event that made a version active, or None."""
        written = self.event_of(number, "policy.version_created")
        is_draft = written is not None and written.data.get("draft", False)
        return self.event_of(number, "policy.version_activated") if is_draft else written

    def assigned_before_end(self, row: PolicyAssignment) -> AuditEvent | None:
        """Return the newest event that assigned the policy to a target.

        None if there is no such event, or if the version had already ended.
        """
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
        """Return True if a user other than the author made the version apply at a target.

        A version that `system` wrote counts as approved, and so does one that was published with an
        earlier approval. A publication in an emergency does not count.
        """
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


def parse_actor_user(actor: str) -> int | None:
    """Return the user id of the actor `user:<id>`; None for `system` and `worker`."""
    kind, _, identity = actor.partition(":")
    return int(identity) if kind == "user" else None
