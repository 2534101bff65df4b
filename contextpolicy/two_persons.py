"""Decides when a change of a policy needs a second person, where the instance asks for one.

The setting `TWO_PERSONS` does, and it is off by default. Then a version that would govern everyone
or a group waits until somebody else puts it in force, and so does one that changes a lock or erases
sooner where the policy applies to anybody. The same holds for assigning a policy, for taking it
back, and for moving people in and out of groups. Who placed a legal hold does not release it. Every
writer asks through `controls.judge`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from contextpolicy.models import PolicyAssignment, PolicyVersion

WIDE = (PolicyAssignment.Level.INSTANCE, PolicyAssignment.Level.GROUP)
RIGHT = "change_contextpolicy"


class SecondPersonNeeded(Exception):
    """The author of a version was about to put it in force alone."""

    code = "second_person_needed"

    def __init__(self, sentence: str) -> None:
        super().__init__(f"This instance asks for two persons. {sentence}")


def is_needed(
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    before: PolicyVersion | None,
    levels: Collection[str],
    author: int | None,
    by: int | None,
    removed: bool = False,
) -> bool:
    """Return True if a change waits for somebody besides the author of what it is about.

    It does where it governs everyone or a group, and elsewhere where it changes a lock or erases
    sooner than `before`. What the product itself does, such as a command at the shell, has nobody
    who acts and does not wait.
    """
    if not settings.TWO_PERSONS or by is None or by != author:
        return False
    if set(levels).intersection(WIDE):
        return True
    if removed:
        return bool(locks)
    changes = sorted(locks) != sorted(before.locks if before else [])
    return bool(levels) and (changes or erases_sooner(values, before.values if before else {}))


def erases_sooner(values: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Tell whether messages would be erased that stay today."""
    days, until_now = (said.get("retention_days") for said in (values, before))
    return days is not None and (until_now is None or days < until_now)


def activation_needed(author: int | None) -> SecondPersonNeeded:
    """Return the refusal for the author of a version who puts it in force."""
    others = "Ask somebody else who may change policies to put it in force."
    if not has_others(author):
        others = "Nobody else may change policies at present: an Owner gives somebody that role."
    return SecondPersonNeeded(
        f"You wrote this version. {others} In an emergency put it in force with a reason; the "
        "ledger keeps it."
    )


def assignment_needed() -> SecondPersonNeeded:
    """Return the refusal for who wrote what would govern and assigns it."""
    return SecondPersonNeeded(
        "You wrote what is in force of this policy. Ask somebody else to assign it."
    )


def unassignment_needed() -> SecondPersonNeeded:
    """Return the refusal for who wrote what governs and takes it back."""
    return SecondPersonNeeded(
        "You wrote what is in force of this policy, and without it something else governs. "
        "Ask somebody else to take it back."
    )


def revival_needed() -> SecondPersonNeeded:
    """Return the refusal for who wrote what would apply again and revives it."""
    return SecondPersonNeeded(
        "You wrote what is in force of this policy, and chats or agents name it. "
        "Ask somebody else to revive it."
    )


def membership_needed(group: str) -> SecondPersonNeeded:
    """Return the refusal for who wrote the policy of a group and moves people in or out."""
    return SecondPersonNeeded(
        f"You wrote the policy that applies to the group “{group}”, and it would change what is "
        "locked or erased for this person. Ask somebody else to change the membership."
    )


def check_release(*, placed_by: str, actor: str) -> None:
    """Let somebody release a legal hold. Raises `SecondPersonNeeded` for who placed it."""
    if settings.TWO_PERSONS and actor == placed_by and actor.startswith("user:"):
        raise SecondPersonNeeded("You placed this hold. Ask somebody else to release it.")


def has_others(author_id: int | None) -> bool:
    """Tell whether somebody besides the author may change policies."""
    given = Q(groups__permissions__codename=RIGHT) | Q(user_permissions__codename=RIGHT)
    able = User.objects.filter(Q(is_superuser=True) | given, is_active=True, is_staff=True)
    return able.exclude(pk=author_id or 0).exists()
