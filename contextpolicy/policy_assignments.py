"""The only writer of policy assignments."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction

from contextpolicy import blast, controls, two_persons
from contextpolicy.controls import parse_actor_user
from contextpolicy.ledger import record_event
from contextpolicy.models import BlastRadius, ContextPolicy, PolicyAssignment
from contextpolicy.policy_refusals import PolicyNotInUse


def check_removal(change: controls.Change, *, now: datetime) -> BlastRadius | None:
    """Check that an assignment may be removed; return the count that allows it.

    None if no count is required. Raises `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    verdict = controls.check_change(change, now=now)
    if verdict.waits:
        raise two_persons.build_unassignment_refusal()
    if verdict.needs_count is not None:
        raise verdict.needs_count
    return verdict.row


def assign_policy(
    *,
    policy: ContextPolicy,
    level: str,
    actor: str,
    now: datetime,
    group: Group | None = None,
    user: User | None = None,
    chat_id: UUID | None = None,
    is_agreed: bool = False,
) -> PolicyAssignment:
    """Assign a policy to everyone, a group, a user or a chat.

    Replaces the policy that is assigned there. `level` is one of `PolicyAssignment.Level`,
    with the matching target argument. `is_agreed` marks an assignment by the product
    itself, which skips the checks. Raises `PolicyNotInUse`, `SecondPersonNeeded` and
    `blast.BlastRadiusNeeded`.
    """
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        if locked.retired or locked.current_id is None:
            raise PolicyNotInUse
        place: dict[str, Any] = {"level": level, "group": group, "user": user, "chat_id": chat_id}
        there = PolicyAssignment.objects.select_related("policy__current").filter(**place).first()
        verdict = controls.ChangeVerdict()
        if not is_agreed:
            change = controls.build_assignment_change(
                locked,
                level=level,
                group=group,
                user=user,
                by=parse_actor_user(actor),
                before=there.policy.current if there else None,
            )
            verdict = controls.check_change(change, now=now)
        if verdict.waits:
            raise two_persons.build_assignment_refusal()
        if verdict.needs_count is not None:
            raise verdict.needs_count
        row, is_new = PolicyAssignment.objects.select_related("policy").get_or_create(
            level=level, group=group, user=user, chat_id=chat_id, defaults={"policy": locked}
        )
        previous = None if is_new else row.policy.slug
        if previous == locked.slug:
            return row
        if not is_new:
            row.policy = locked
            row.save(update_fields=["policy"])
        data = {**_build_target_data(row), "policy": locked.slug, "previous": previous}
        data |= blast.build_count_data(verdict.row)
        record_event("policy.assigned", actor=actor, now=now, chat_id=chat_id, data=data)
    return row


def unassign_policy(*, assignment: PolicyAssignment, actor: str, now: datetime) -> None:
    """Remove an assignment. If several calls run concurrently, only one records the removal.

    Does nothing if another policy has been assigned there since. Raises `SecondPersonNeeded` and
    `blast.BlastRadiusNeeded`.
    """
    with transaction.atomic():
        policy = ContextPolicy.objects.select_for_update().get(pk=assignment.policy_id)
        change = controls.build_assignment_change(
            policy,
            level=assignment.level,
            group=assignment.group,
            user=assignment.user,
            by=parse_actor_user(actor),
            removed=True,
        )
        row = check_removal(change, now=now)
        data = {**_build_target_data(assignment), "policy": assignment.policy.slug}
        data |= blast.build_count_data(row)
        deleted, _ = PolicyAssignment.objects.filter(pk=assignment.pk, policy=policy).delete()
        if deleted:
            chat_id = assignment.chat_id
            record_event("policy.unassigned", actor=actor, now=now, chat_id=chat_id, data=data)


def _build_target_data(row: PolicyAssignment) -> dict[str, Any]:
    target = {"level": row.level, "group": row.group_id, "user": row.user_id}
    return {name: value for name, value in target.items() if value is not None}
