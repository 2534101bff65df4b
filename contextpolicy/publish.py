"""Changes policies, the one way there is: a new immutable version, or where it applies.

Each change and its ledger event share a transaction. Values that cannot work are refused before
anything is written.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction

from contextpolicy import blast, controls, two_persons
from contextpolicy.controls import person_of
from contextpolicy.engine.policy import TEXT_FIELDS, Problem
from contextpolicy.ledger import record
from contextpolicy.linter.errors import check
from contextpolicy.models import ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.reasons import says_something


class PolicyProblems(Exception):
    """Values or locks that cannot work; `problems` says which fields and why."""

    code = "policy_impossible"

    def __init__(self, found: Collection[Problem]) -> None:
        self.problems = tuple(found)
        super().__init__(" ".join(problem.sentence for problem in found))


class PolicyChangedMeanwhile(Exception):
    """Someone else made a version after the one that was edited."""

    code = "policy_changed_meanwhile"

    def __init__(self, *, current: int) -> None:
        super().__init__(
            f"Someone saved version {current} while you were editing. "
            "Open the policy again and repeat your changes."
        )


class PolicyInUse(Exception):
    """A policy that applies somewhere cannot be retired."""

    code = "policy_in_use"

    def __init__(self) -> None:
        super().__init__("This policy still applies somewhere. Remove its assignments first.")


class PolicyNotInUse(Exception):
    """A retired policy, or one without a version, cannot be assigned."""

    code = "policy_not_in_use"

    def __init__(self) -> None:
        super().__init__("This policy is retired or has no version yet. Choose another one.")


class NoSuchVersion(Exception):
    """A version that was named does not exist."""

    code = "no_such_version"

    def __init__(self, *, number: int) -> None:
        super().__init__(
            f"This policy has no version {number}. Choose one from the table of versions."
        )


def create_policy(
    *,
    slug: str,
    name: str,
    values: Mapping[str, Any],
    actor: str,
    now: datetime,
    locks: Collection[str] = (),
    description: str = "",
    note: str = "",
    is_draft: bool = False,
) -> ContextPolicy:
    """Create a policy with its version 1. Raises `PolicyProblems`."""
    with transaction.atomic():
        policy = ContextPolicy.objects.create(slug=slug, name=name, description=description)
        record("policy.created", actor=actor, now=now, data={"policy": slug, "name": name})
        new_version(
            policy=policy,
            values=values,
            locks=locks,
            note=note,
            actor=actor,
            now=now,
            is_draft=is_draft,
        )
    return policy


def new_version(
    *,
    policy: ContextPolicy,
    values: Mapping[str, Any],
    locks: Collection[str],
    note: str,
    actor: str,
    now: datetime,
    based_on: int | None = None,
    is_draft: bool = False,
    restores: PolicyVersion | None = None,
    may_wait: bool = False,
) -> PolicyVersion:
    """Make the next version of a policy and put it in force wherever the policy applies.

    `values` holds the fields the policy sets, by the names of `PolicyValues`; `locks` the fields
    that no nearer level may override; `based_on` the version that was edited, the newest one. A
    draft comes into force by `activate`, and so does a version that waits for a second person. One
    whose chats were not counted is refused, or kept as a draft where it `may_wait`. `restores` is
    the older version that has the same content. Raises `PolicyProblems`, `PolicyChangedMeanwhile`
    and `blast.BlastRadiusNeeded`.
    """
    author = person_of(actor)
    found = check(values, locks=locks)
    if found:
        raise PolicyProblems(found)
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before, newest = locked.current, locked.newest
        if newest is not None and based_on not in {None, newest.number}:
            raise PolicyChangedMeanwhile(current=newest.number)
        verdict = controls.ChangeVerdict()
        if not is_draft:
            change = controls.version_change(
                locked, values=values, locks=locks, author=author, by=author, restores=restores
            )
            verdict = controls.judge(change, now=now)
        # Who waits for a second person is counted when that person puts it in force.
        waits, uncounted = verdict.waits, not verdict.waits and verdict.needs_count is not None
        if uncounted and not may_wait and verdict.needs_count is not None:
            raise verdict.needs_count
        is_draft = is_draft or waits or uncounted
        version = PolicyVersion.objects.create(
            policy=locked,
            number=newest.number + 1 if newest is not None else 1,
            values=dict(values),
            locks=sorted(locks),
            note=note,
            created_by_id=author,
            created_at=now,
            activated_at=None if is_draft else now,
        )
        if not is_draft:
            ContextPolicy.objects.filter(pk=policy.pk).update(current=version)
        data: dict[str, Any] = {"policy": locked.slug, "version": version.number, "note": note}
        data |= differences(before, version) | ({"draft": True} if is_draft else {})
        data |= {"waits": True} if waits else {}
        data |= {"uncounted": True} if uncounted else {}
        data |= {"agreed": True} if verdict.agreed and not is_draft else {}
        data |= {} if is_draft else blast.counted(verdict.row)
        record("policy.version_created", actor=actor, now=now, data=data)
    if not is_draft:
        policy.current = version
    return version


def activate(
    *, policy: ContextPolicy, number: int, actor: str, now: datetime, emergency: str = ""
) -> PolicyVersion:
    """Put a draft in force wherever the policy applies; one that is in force stays so.

    Only the newest version can be put in force: an older one is restored as a new one. Where two
    persons or a count of chats are asked for and not there, it needs the reason of an `emergency`.
    Raises `PolicyProblems` if it cannot work any more, `PolicyChangedMeanwhile`,
    `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before, version = locked.current, locked.newest
        if version is None or version.number != number:
            raise PolicyChangedMeanwhile(current=version.number if version else 0)
        if version != before:
            found = check(version.values, locks=version.locks)
            if found:
                raise PolicyProblems(found)
            change = controls.version_change(
                locked,
                values=version.values,
                locks=version.locks,
                author=version.created_by_id,
                by=person_of(actor),
                emergency=emergency,
            )
            verdict = controls.judge(change, now=now)
            if verdict.waits:
                raise two_persons.activation_needed(version.created_by_id)
            if verdict.needs_count is not None:
                raise verdict.needs_count
            PolicyVersion.objects.filter(pk=version.pk).update(activated_at=now)
            ContextPolicy.objects.filter(pk=policy.pk).update(current=version)
            data = {"policy": locked.slug, "version": number, **differences(before, version)}
            data |= {"emergency": emergency.strip()} if says_something(emergency) else {}
            data |= blast.counted(verdict.row)
            record("policy.version_activated", actor=actor, now=now, data=data)
    policy.current = version
    return version


def restore(*, policy: ContextPolicy, number: int, actor: str, now: datetime) -> PolicyVersion:
    """Make a new version with the values and locks of an older one, in force at once.

    History stays a line: nothing is taken back. Name, retirement and assignments of the policy are
    not of a version and stay. Where two persons or counts are asked for, one that was in force
    lately waits for neither, as far as it was approved and counted for all to whom it would apply.
    Raises `NoSuchVersion`, `PolicyProblems` if the values cannot work any
    more, and `blast.BlastRadiusNeeded`.
    """
    old = policy.versions.filter(number=number).first()
    if old is None:
        raise NoSuchVersion(number=number)
    return new_version(
        policy=policy,
        values=old.values,
        locks=old.locks,
        note=f"As version {number} was",
        actor=actor,
        now=now,
        restores=old,
    )


def differences(before: PolicyVersion | None, after: PolicyVersion) -> dict[str, Any]:
    """Return what an event says of the step from one version to the next."""
    return {
        "changes": changes(before.values if before else {}, after.values),
        "locks": {"from": before.locks if before else [], "to": after.locks},
    }


def change_policy(
    *,
    policy: ContextPolicy,
    name: str,
    description: str,
    retired: bool,
    actor: str,
    now: datetime,
) -> None:
    """Rename, describe, retire or revive a policy; its values change by `new_version` only.

    Raises `PolicyInUse`, and for one that chats or agents name when it is revived
    `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    after = {"name": name, "description": description, "retired": retired}
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before = {field: getattr(locked, field) for field in after}
        if before == after:
            return
        if retired and locked.assignments.exists():
            raise PolicyInUse
        if before["retired"] and not retired:
            check_revival(locked, actor=actor, now=now)
        ContextPolicy.objects.filter(pk=policy.pk).update(**after)
        data = {"policy": locked.slug, "changes": changes(before, after)}
        record("policy.changed", actor=actor, now=now, data=data)
    policy.refresh_from_db()


def check_revival(policy: ContextPolicy, *, actor: str, now: datetime) -> None:
    """Let what is in force of a retired policy apply again to chats and agents that name it.

    Raises `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    version = policy.current
    if version is None:
        return
    change = replace(
        controls.version_change(
            policy,
            values=version.values,
            locks=version.locks,
            author=version.created_by_id,
            by=person_of(actor),
        ),
        before=None,
    )
    verdict = controls.judge(change, now=now)
    if verdict.waits:
        raise two_persons.revival_needed()
    if verdict.needs_count is not None:
        raise verdict.needs_count


def assign(
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
    """Let a policy apply to everyone, a group, a person or a chat, instead of what applied there.

    `level` is one of `PolicyAssignment.Level`; its target is given beside it. What the product
    itself assigns `is_agreed` and needs no count. Raises `PolicyNotInUse`, `SecondPersonNeeded`
    and `blast.BlastRadiusNeeded`.
    """
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        if locked.retired or locked.current_id is None:
            raise PolicyNotInUse
        place: dict[str, Any] = {"level": level, "group": group, "user": user, "chat_id": chat_id}
        there = PolicyAssignment.objects.select_related("policy__current").filter(**place).first()
        verdict = controls.ChangeVerdict()
        if not is_agreed:
            change = controls.placing_change(
                locked,
                level=level,
                group=group,
                user=user,
                by=person_of(actor),
                before=there.policy.current if there else None,
            )
            verdict = controls.judge(change, now=now)
        if verdict.waits:
            raise two_persons.assignment_needed()
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
        data = {**_target(row), "policy": locked.slug, "previous": previous}
        data |= blast.counted(verdict.row)
        record("policy.assigned", actor=actor, now=now, chat_id=chat_id, data=data)
    return row


def unassign(*, assignment: PolicyAssignment, actor: str, now: datetime) -> None:
    """Stop applying a policy there; of two who do so at once, one is recorded.

    Raises `SecondPersonNeeded`.
    """
    with transaction.atomic():
        policy = ContextPolicy.objects.select_for_update().get(pk=assignment.policy_id)
        change = controls.placing_change(
            policy, level=assignment.level, by=person_of(actor), removed=True
        )
        if controls.judge(change, now=now).waits:
            raise two_persons.unassignment_needed()
        data = {**_target(assignment), "policy": assignment.policy.slug}
        deleted, _ = PolicyAssignment.objects.filter(pk=assignment.pk).delete()
        if deleted:
            chat_id = assignment.chat_id
            record("policy.unassigned", actor=actor, now=now, chat_id=chat_id, data=data)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """List what differs, as {field: {from, to}}; texts by hash.

    A side without the field is left out.
    """
    differing = [
        name
        for name in sorted({*before, *after})
        if name not in before or name not in after or before[name] != after[name]
    ]
    return {
        name: {
            side: _for_the_ledger(name, values[name])
            for side, values in (("from", before), ("to", after))
            if name in values
        }
        for name in differing
    }


def _for_the_ledger(name: str, value: Any) -> Any:
    if name not in TEXT_FIELDS:
        return value
    return {"sha256": hashlib.sha256(value.encode()).hexdigest(), "characters": len(value)}


def _target(row: PolicyAssignment) -> dict[str, Any]:
    target = {"level": row.level, "group": row.group_id, "user": row.user_id}
    return {name: value for name, value in target.items() if value is not None}
