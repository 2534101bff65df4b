"""Decides when a policy change needs a second person.

Controlled by the setting `TWO_PERSONS`; off by default. If it is on, a version that would apply to
everyone or a group waits until another user publishes it. So does a version that changes a lock
or shortens retention, if its policy applies to anyone. The same rule applies to assigning and
unassigning a policy, and to moving people in and out of groups. The person who placed a legal hold
cannot release it. Every writer calls `controls.check_change`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q
from django.utils.translation import gettext

from contextpolicy.models import PolicyAssignment, PolicyVersion
from contextpolicy.wording import join_sentences

# Levels in addition to those of assignments: agents of teams that everyone may use, and chats and
# agents of single people.
SHARED, OTHER = "shared", "other"
WIDE = (PolicyAssignment.Level.INSTANCE, PolicyAssignment.Level.GROUP, SHARED)
RIGHT = "change_contextpolicy"


class SecondPersonNeeded(Exception):
    """You wrote the policy version or placed the hold, and this step requires another person."""

    code = "second_person_needed"

    def __init__(self, sentence: str, *, reason: str) -> None:
        self.reason = reason
        rule = gettext("This instance requires two people.")
        super().__init__(join_sentences(rule, sentence))


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
    """Return True if a change must wait for a user other than the author of its content.

    A change must wait if it applies to everyone, a group or agents of shared teams. Any other
    change must wait if it changes a lock or shortens retention compared with `before`. The removal
    of an assignment must wait if the policy has locks. Changes by the product itself, such as those
    by a shell command, have no actor and do not wait.
    """
    if not settings.TWO_PERSONS or by is None or by != author:
        return False
    if set(levels).intersection(WIDE):
        return True
    if removed:
        return bool(locks)
    changes = sorted(locks) != sorted(before.locks if before else [])
    return bool(levels) and (
        changes or is_retention_shortened(values, before.values if before else {})
    )


def is_retention_shortened(values: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return True if the change would erase messages that are now kept."""
    days, until_now = (said.get("retention_days") for said in (values, before))
    return days is not None and (until_now is None or days < until_now)


def build_activation_refusal(author: int | None) -> SecondPersonNeeded:
    """Return the refusal for authors who publish their own version."""
    if has_others(author):
        return SecondPersonNeeded(
            gettext(
                "You cannot publish a version that you wrote. Ask another policy administrator "
                "to publish it. In an emergency, publish it with a reason, which the audit log "
                "records."
            ),
            reason="author_publishes",
        )
    return SecondPersonNeeded(
        gettext(
            "You cannot publish a version that you wrote, and there is no other policy "
            "administrator. Ask an Owner to give another user this role. In an emergency, "
            "publish it with a reason, which the audit log records."
        ),
        reason="no_other_administrator",
    )


def build_assignment_refusal() -> SecondPersonNeeded:
    """Return the refusal for authors who assign their own policy."""
    return SecondPersonNeeded(
        gettext(
            "You cannot assign this policy, because you wrote its active version. Ask another "
            "policy administrator to assign it."
        ),
        reason="author_assigns",
    )


def build_unassignment_refusal() -> SecondPersonNeeded:
    """Return the refusal for authors who unassign their own policy."""
    return SecondPersonNeeded(
        gettext(
            "You cannot remove this assignment, because you wrote the active version of the "
            "policy. The removal changes the effective values. Ask another policy "
            "administrator to remove it."
        ),
        reason="author_unassigns",
    )


def build_revival_refusal() -> SecondPersonNeeded:
    """Return the refusal for authors who reactivate their own policy."""
    return SecondPersonNeeded(
        gettext(
            "You cannot reactivate this policy, because you wrote its active version, which "
            "chats or agents use. Ask another policy administrator to reactivate it."
        ),
        reason="author_revives",
    )


def build_membership_refusal(group: str) -> SecondPersonNeeded:
    """Return the refusal for authors of a group's policy who change the group's members."""
    return SecondPersonNeeded(
        gettext(
            "You cannot change this membership, because you wrote the policy that applies to "
            "the group “{group}”. The change would alter locks or the retention period for "
            "this person. Ask another person to change it."
        ).format(group=group),
        reason="author_moves_people",
    )


def check_release(*, placed_by: str, actor: str) -> None:
    """Raise `SecondPersonNeeded` if the person who releases a legal hold also placed it."""
    if settings.TWO_PERSONS and actor == placed_by and actor.startswith("user:"):
        raise SecondPersonNeeded(
            gettext("You cannot release a hold that you placed. Ask another person to release it."),
            reason="own_hold",
        )


def has_others(author_id: int | None) -> bool:
    """Return True if a user other than the author has permission to change policies."""
    given = Q(groups__permissions__codename=RIGHT) | Q(user_permissions__codename=RIGHT)
    able = User.objects.filter(Q(is_superuser=True) | given, is_active=True, is_staff=True)
    return able.exclude(pk=author_id or 0).exists()
