"""The only writer of policies: creates immutable versions and changes assignments.

Each change and its ledger event share a transaction. Values that cannot work are rejected before
anything is written.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction

from contextpolicy import blast, controls, two_persons
from contextpolicy.controls import parse_actor_user
from contextpolicy.engine.text import names
from contextpolicy.ledger import record_event
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.policy_assignments import check_removal
from contextpolicy.policy_diff import diff_policy_values
from contextpolicy.policy_refusals import (
    NoSuchVersion,
    PolicyChangedMeanwhile,
    PolicyInUse,
    PolicyNameTaken,
    PolicyProblems,
)
from contextpolicy.reasons import is_meaningful_text


def check_name_free(name: str, *, but: ContextPolicy | None = None) -> None:
    """Raise `PolicyNameTaken` if another policy has this name, ignoring case.

    Retired policies count too. A policy may keep its current name even if it is a duplicate,
    because older versions allowed duplicates.
    """
    if but is not None and but.name == name:
        return
    others = ContextPolicy.objects.exclude(pk__in=[but.pk] if but else [])
    for other in others.values_list("name", flat=True):
        if names.casefold_name(other) == names.casefold_name(name):
            raise PolicyNameTaken(other)


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
        record_event("policy.created", actor=actor, now=now, data={"policy": slug, "name": name})
        create_policy_version(
            policy=policy,
            values=values,
            locks=locks,
            note=note,
            actor=actor,
            now=now,
            is_draft=is_draft,
        )
    return policy


def create_policy_version(
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
    """Create the next version of a policy and publish it wherever the policy applies.

    `values` contains the fields that the policy sets, by the names of `PolicyValues`. `locks` lists
    the fields that no nearer level may override. `based_on` is the edited version, which must be
    the newest. `activate_version` publishes drafts and versions that wait for a second person. A
    version without the required count is refused, or kept as a draft with `may_wait`. `restores` is
    the older version with the same content. Raises `PolicyProblems`, `PolicyChangedMeanwhile` and
    `blast.BlastRadiusNeeded`.
    """
    author = parse_actor_user(actor)
    found = find_policy_errors(values, locks=locks)
    if found:
        raise PolicyProblems(found)
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before, newest = locked.current, locked.newest
        if newest is not None and based_on not in {None, newest.number}:
            raise PolicyChangedMeanwhile(current=newest.number)
        verdict = controls.ChangeVerdict()
        if not is_draft:
            change = controls.build_version_change(
                locked, values=values, locks=locks, author=author, by=author, restores=restores
            )
            verdict = controls.check_change(change, now=now)
        # A version that waits for a second person is counted when that person publishes it.
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
        data |= build_step_data(before, version) | ({"draft": True} if is_draft else {})
        data |= {"waits": True} if waits else {}
        data |= {"uncounted": True} if uncounted else {}
        data |= {"agreed": True} if verdict.agreed and not is_draft else {}
        data |= {} if is_draft else blast.build_count_data(verdict.row)
        record_event("policy.version_created", actor=actor, now=now, data=data)
    if not is_draft:
        policy.current = version
    return version


def activate_version(
    *, policy: ContextPolicy, number: int, actor: str, now: datetime, emergency: str = ""
) -> PolicyVersion:
    """Publish a draft wherever the policy applies.

    An active version stays active. Only the newest version can be published; an older one is
    restored as a new version. If a required second person or count is missing, the caller must give
    a reason as `emergency`. Raises `PolicyProblems` if the version can no longer work,
    `PolicyChangedMeanwhile`, `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before, version = locked.current, locked.newest
        if version is None or version.number != number:
            raise PolicyChangedMeanwhile(current=version.number if version else 0)
        if version != before:
            found = find_policy_errors(version.values, locks=version.locks)
            if found:
                raise PolicyProblems(found)
            change = controls.build_version_change(
                locked,
                values=version.values,
                locks=version.locks,
                author=version.created_by_id,
                by=parse_actor_user(actor),
                emergency=emergency,
            )
            verdict = controls.check_change(change, now=now)
            if verdict.waits:
                raise two_persons.build_activation_refusal(version.created_by_id)
            if verdict.needs_count is not None:
                raise verdict.needs_count
            PolicyVersion.objects.filter(pk=version.pk).update(activated_at=now)
            ContextPolicy.objects.filter(pk=policy.pk).update(current=version)
            data = {"policy": locked.slug, "version": number, **build_step_data(before, version)}
            data |= {"emergency": emergency.strip()} if is_meaningful_text(emergency) else {}
            data |= blast.build_count_data(verdict.row)
            record_event("policy.version_activated", actor=actor, now=now, data=data)
    policy.current = version
    return version


def restore_policy_version(
    *, policy: ContextPolicy, number: int, actor: str, now: datetime
) -> PolicyVersion:
    """Create a new version with the values and locks of an older one, and publish it at once.

    History stays linear: no version is removed. Name, retirement and assignments belong to the
    policy, not to a version, and do not change. A recently active version needs no second person
    and no count, if it was approved and counted for everyone that it would apply to. Raises
    `NoSuchVersion`, `PolicyProblems` if the values can no longer work, and
    `blast.BlastRadiusNeeded`.
    """
    old = policy.versions.filter(number=number).first()
    if old is None:
        raise NoSuchVersion(number=number)
    return create_policy_version(
        policy=policy,
        values=old.values,
        locks=old.locks,
        note=f"Restored from version {number}",
        actor=actor,
        now=now,
        restores=old,
    )


def build_step_data(before: PolicyVersion | None, after: PolicyVersion) -> dict[str, Any]:
    """Return the ledger data of the change from one version to the next."""
    return {
        "changes": diff_policy_values(before.values if before else {}, after.values),
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
    """Rename, describe, retire or reactivate a policy. `create_policy_version` changes its values.

    Raises `PolicyInUse` and `PolicyNameTaken`. If chats or agents name the policy, retiring or
    reactivating it can also raise `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    after = {"name": name, "description": description, "retired": retired}
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        before = {field: getattr(locked, field) for field in after}
        if before == after:
            return
        check_name_free(name, but=locked)
        if retired and locked.assignments.exists():
            raise PolicyInUse
        if before["retired"] and not retired:
            check_revival(locked, actor=actor, now=now)
        if retired and not before["retired"]:
            check_retirement(locked, actor=actor, now=now)
        ContextPolicy.objects.filter(pk=policy.pk).update(**after)
        data = {"policy": locked.slug, "changes": diff_policy_values(before, after)}
        record_event("policy.changed", actor=actor, now=now, data=data)
    policy.refresh_from_db()


def check_retirement(policy: ContextPolicy, *, actor: str, now: datetime) -> None:
    """Check that a policy may be retired although chats and agents still name it.

    Retiring it ends its locks on these chats and agents, just like removing an assignment. Raises
    `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    version = policy.current
    if version is None:
        return
    change = controls.build_version_change(
        policy,
        values=version.values,
        locks=version.locks,
        author=version.created_by_id,
        by=parse_actor_user(actor),
    )
    if change.levels:
        check_removal(replace(change, removed=True), now=now)


def check_revival(policy: ContextPolicy, *, actor: str, now: datetime) -> None:
    """Check that a retired policy may apply again to chats and agents that name it.

    Raises `SecondPersonNeeded` and `blast.BlastRadiusNeeded`.
    """
    version = policy.current
    if version is None:
        return
    change = replace(
        controls.build_version_change(
            policy,
            values=version.values,
            locks=version.locks,
            author=version.created_by_id,
            by=parse_actor_user(actor),
        ),
        before=None,
    )
    verdict = controls.check_change(change, now=now)
    if verdict.waits:
        raise two_persons.build_revival_refusal()
    if verdict.needs_count is not None:
        raise verdict.needs_count
