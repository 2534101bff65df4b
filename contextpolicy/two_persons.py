"""Decides when a change of a policy needs a second person, where the instance asks for one.

The setting `TWO_PERSONS` does, and it is off by default. Then a version that would govern everyone
or a group waits until somebody else puts it in force, and so does one that changes a lock of a
policy that applies to anybody; the author of the version in force does not assign it there either.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

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

    def __init__(self, *, deed: str, author_id: int | None) -> None:
        others = f"Ask somebody else who may change policies to {deed}."
        if not has_others(author_id):
            others = (
                "Nobody else may change policies at present: an Owner gives somebody that role."
            )
        super().__init__(
            f"You wrote this version, and this instance asks for two persons. {others} In an "
            "emergency put it in force with a reason; the ledger keeps it."
        )


def waits(
    policy: ContextPolicy,
    *,
    locks: Collection[str],
    before: PolicyVersion | None,
    author: int | None,
) -> bool:
    """Tell whether a version with these locks waits for somebody besides its author.

    What the product itself does, such as an import at the shell, has no author and does not wait.
    """
    if not settings.TWO_PERSONS or author is None:
        return False
    levels = set(policy.assignments.values_list("level", flat=True))
    if levels.intersection(WIDE):
        return True
    return bool(levels) and sorted(locks) != sorted(before.locks if before else [])


def check_activation(
    policy: ContextPolicy, *, version: PolicyVersion, by: int | None, emergency: str
) -> None:
    """Let somebody put a draft in force. Raises `SecondPersonNeeded` for its author."""
    author = version.created_by_id
    alone = by is not None and by == author and not emergency.strip()
    if alone and waits(policy, locks=version.locks, before=policy.current, author=author):
        raise SecondPersonNeeded(deed="put it in force", author_id=author)


def check_assignment(policy: ContextPolicy, *, level: str, by: int | None) -> None:
    """Let somebody assign a policy. Raises `SecondPersonNeeded` for who wrote what would govern."""
    author = policy.current.created_by_id if policy.current else None
    if settings.TWO_PERSONS and level in WIDE and by is not None and by == author:
        raise SecondPersonNeeded(deed="assign it", author_id=author)


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
