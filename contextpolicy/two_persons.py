"""Decides when a change of a policy needs a second person, where the instance asks for one.

The setting `TWO_PERSONS` does, and it is off by default. Then a version that would govern everyone
or a group waits until somebody else puts it in force, and so does one that changes a lock or erases
sooner where the policy applies to anybody; the author of the version in force does not assign it to
everyone or a group either, and who placed a legal hold does not release it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from contextpolicy.models import ContextPolicy, PolicyAssignment, PolicyVersion

WIDE = (PolicyAssignment.Level.INSTANCE, PolicyAssignment.Level.GROUP)
# What was in force so lately was agreed upon: it can be brought back at once.
AGREED = timedelta(days=30)
RIGHT = "change_contextpolicy"


class SecondPersonNeeded(Exception):
    """The author of a version was about to put it in force alone."""

    code = "second_person_needed"

    def __init__(self, sentence: str) -> None:
        super().__init__(f"This instance asks for two persons. {sentence}")


def waits(
    policy: ContextPolicy,
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    before: PolicyVersion | None,
    author: int | None,
) -> bool:
    """Tell whether a version with these values and locks waits for somebody besides its author.

    What the product itself does, such as an import at the shell, has no author and does not wait.
    """
    if not settings.TWO_PERSONS or author is None:
        return False
    levels = set(policy.assignments.values_list("level", flat=True))
    if levels.intersection(WIDE):
        return True
    changes = sorted(locks) != sorted(before.locks if before else [])
    return bool(levels) and (changes or erases_sooner(values, before.values if before else {}))


def erases_sooner(values: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Tell whether messages would be erased that stay today."""
    days, until_now = (said.get("retention_days") for said in (values, before))
    return days is not None and (until_now is None or days < until_now)


def check_activation(
    policy: ContextPolicy, *, version: PolicyVersion, by: int | None, emergency: str
) -> None:
    """Let somebody put a draft in force. Raises `SecondPersonNeeded` for its author."""
    author = version.created_by_id
    alone = by is not None and by == author and not emergency.strip()
    if alone and waits(
        policy, values=version.values, locks=version.locks, before=policy.current, author=author
    ):
        others = "Ask somebody else who may change policies to put it in force."
        if not has_others(author):
            others = (
                "Nobody else may change policies at present: an Owner gives somebody that role."
            )
        raise SecondPersonNeeded(
            f"You wrote this version. {others} In an emergency put it in force with a reason; the "
            "ledger keeps it."
        )


def check_assignment(policy: ContextPolicy, *, level: str, by: int | None) -> None:
    """Let somebody assign a policy. Raises `SecondPersonNeeded` for who wrote what would govern."""
    if is_alone(policy, level=level, by=by):
        raise SecondPersonNeeded(
            "You wrote what is in force of this policy. Ask somebody else to assign it."
        )


def check_unassignment(policy: ContextPolicy, *, level: str, by: int | None) -> None:
    """Let somebody take an assignment back. Raises `SecondPersonNeeded` for who wrote it."""
    if is_alone(policy, level=level, by=by):
        raise SecondPersonNeeded(
            "You wrote what is in force of this policy, and without it something else governs. "
            "Ask somebody else to take it back."
        )


def is_alone(policy: ContextPolicy, *, level: str, by: int | None) -> bool:
    """Tell whether somebody would decide alone by what many are governed."""
    author = policy.current.created_by_id if policy.current else None
    return settings.TWO_PERSONS and level in WIDE and by is not None and by == author


def check_release(*, placed_by: str, actor: str) -> None:
    """Let somebody release a legal hold. Raises `SecondPersonNeeded` for who placed it."""
    if settings.TWO_PERSONS and actor == placed_by and actor.startswith("user:"):
        raise SecondPersonNeeded("You placed this hold. Ask somebody else to release it.")


def was_agreed(policy: ContextPolicy, *, old: PolicyVersion, now: datetime) -> bool:
    """Tell whether an older version was in force within the last days, so that it may return."""
    if old.activated_at is None:
        return False
    later = policy.versions.filter(number__gt=old.number, activated_at__isnull=False)
    successor = later.order_by("number").first()
    return successor is None or now - (successor.activated_at or now) <= AGREED


def has_others(author_id: int | None) -> bool:
    """Tell whether somebody besides the author may change policies."""
    given = Q(groups__permissions__codename=RIGHT) | Q(user_permissions__codename=RIGHT)
    able = User.objects.filter(Q(is_superuser=True) | given, is_active=True, is_staff=True)
    return able.exclude(pk=author_id or 0).exists()
