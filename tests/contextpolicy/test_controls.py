"""Every change of applicable values passes both checks, for the audience it affects."""

import ast
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from pytest_django import Settings

from chats.actions import lifecycle
from chats.models import ApiKey, Chat
from chats.people import keys
from chats.simulation import evaluating, sampling
from contextpolicy import controls, holds, imports, reasons, roles
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.policy_assignments import assign_policy, unassign_policy
from contextpolicy.publish import (
    activate_version,
    change_policy,
    create_policy,
    create_policy_version,
    restore_policy_version,
)
from contextpolicy.roles import change_roles, delete_group
from contextpolicy.two_persons import SecondPersonNeeded
from tests.contextpolicy.people import name_actor, signed_in
from tests.support.repository import ROOT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("needs_two_persons")]
HARMLESS = {"token_budget": 16_000}
ERASES = {"token_budget": 16_000, "retention_days": 1}


def written(
    who: User, now: datetime, *contents: dict[str, Any], slug: str = "house"
) -> ContextPolicy:
    """A policy with versions of these values, all by one person, without assignments."""
    first, *others = contents
    policy = create_policy(slug=slug, name=slug, values=first, actor=name_actor(who), now=now)
    for values in others:
        create_policy_version(
            policy=policy, values=values, locks=[], note="", actor=name_actor(who), now=now
        )
    policy.refresh_from_db()
    return policy


def in_force(policy: ContextPolicy) -> dict[str, Any]:
    """The effective values."""
    found = ContextPolicy.objects.get(pk=policy.pk).current
    assert found is not None
    return dict(found.values)


# A version that was active while the policy had no assignment.


@pytest.mark.parametrize("level", ["instance", "group", "user"])
def test_a_version_that_nobody_approved_for_these_people_waits_when_restored(
    level: str, ines: User, ivan: User, alice: User, now: datetime
) -> None:
    group = Group.objects.create(name="Support")
    places: dict[str, dict[str, Any]] = {
        "instance": {},
        "group": {"group": group},
        "user": {"user": alice},
    }
    place = places[level]
    policy = written(ines, now, ERASES, HARMLESS)
    assign_policy(policy=policy, level=level, actor=name_actor(ivan), now=now, **place)

    made = restore_policy_version(policy=policy, number=1, actor=name_actor(ines), now=now)
    assert made.activated_at is None
    assert in_force(policy) == HARMLESS
    with pytest.raises(SecondPersonNeeded):
        activate_version(policy=policy, number=3, actor=name_actor(ines), now=now)
    activate_version(policy=policy, number=3, actor=name_actor(ivan), now=now)
    assert in_force(policy) == ERASES


def test_over_rest_the_restored_version_is_a_draft_too(
    ines: User, ivan: User, now: datetime
) -> None:
    policy = written(ines, now, ERASES, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    answer = signed_in(ines).post(
        "/api/v1/policies/house/versions/1/restore", {}, content_type="application/json"
    )
    assert (answer.status_code, answer.json()["state"]) == (201, "draft")
    assert in_force(policy) == HARMLESS


def test_a_version_approved_for_a_group_is_not_approved_for_everyone(
    ines: User, ivan: User, now: datetime
) -> None:
    group = Group.objects.create(name="Support")
    policy = written(ines, now, ERASES)
    assign_policy(policy=policy, level="group", group=group, actor=name_actor(ivan), now=now)
    create_policy_version(
        policy=policy, values=HARMLESS, locks=[], note="", actor=name_actor(ines), now=now
    )
    activate_version(policy=policy, number=2, actor=name_actor(ivan), now=now)
    # It was approved for the group, so it is active again at once.
    assert restore_policy_version(
        policy=policy, number=1, actor=name_actor(ines), now=now
    ).activated_at
    # Its copy counts as approved, too.
    assert restore_policy_version(
        policy=policy, number=2, actor=name_actor(ines), now=now
    ).activated_at
    assert restore_policy_version(
        policy=policy, number=3, actor=name_actor(ines), now=now
    ).activated_at
    assert restore_policy_version(
        policy=policy, number=2, actor=name_actor(ines), now=now
    ).activated_at

    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    for number in (1, 3):
        assert (
            restore_policy_version(
                policy=policy, number=number, actor=name_actor(ines), now=now
            ).activated_at
            is None
        )


def test_what_an_emergency_put_in_force_was_approved_by_nobody(
    ines: User, ivan: User, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    create_policy_version(
        policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
    )
    activate_version(
        policy=policy, number=2, actor=name_actor(ines), now=now, emergency="Keys leaked"
    )
    restore_policy_version(policy=policy, number=1, actor=name_actor(ivan), now=now)
    assert in_force(policy) == HARMLESS
    assert (
        restore_policy_version(
            policy=policy, number=2, actor=name_actor(ines), now=now
        ).activated_at
        is None
    )


@pytest.mark.parametrize("reason", ["\u200b" * 20, "....", " \t", "\u3164\u3164", "—!?"])
def test_an_emergency_without_a_word_is_none(
    reason: str, ines: User, ivan: User, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    create_policy_version(
        policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
    )
    with pytest.raises(SecondPersonNeeded):
        activate_version(policy=policy, number=2, actor=name_actor(ines), now=now, emergency=reason)
    with pytest.raises(holds.HoldIncomplete):
        holds.place_hold(level="instance", case="1", reason=reason, actor=name_actor(ines), now=now)


def test_letters_of_any_script_say_something() -> None:
    for text in ("訴訟保全", "судебное дело", "مراجعة", "Fall 7", "결정"):
        assert reasons.is_meaningful_text(text, letters=2, different=2)
    assert not reasons.is_meaningful_text("aaaaaaaaaaaa", letters=5, different=3)


def test_without_two_persons_a_version_returns_at_once(
    ines: User, now: datetime, settings: Settings
) -> None:
    settings.TWO_PERSONS = False
    policy = written(ines, now, ERASES, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ines), now=now)
    assert restore_policy_version(
        policy=policy, number=1, actor=name_actor(ines), now=now
    ).activated_at


# Every other writer.


@pytest.fixture
def chat_under(alice: User, ines: User, now: datetime, demo_model: Any) -> Chat:
    """A chat of Alice's that a client opened with a policy of Ines's, which is retired."""
    policy = written(ines, now, ERASES, slug="asked")
    chat = lifecycle.create_chat(owner=alice, now=now)
    Chat.objects.filter(pk=chat.pk).update(policy=policy)
    policy.retired = True
    policy.save(update_fields=["retired"])
    return chat


def assigned_alone(ines: User, alice: User, chat: Chat, now: datetime, level: str) -> Any:
    """Assign a policy of Ines's without a second person."""
    group = Group.objects.create(name="Support")
    places: dict[str, dict[str, Any]] = {
        "instance": {},
        "group": {"group": group},
        "user": {"user": alice},
        "chat": {"chat_id": chat.pk},
    }
    place = places[level]
    policy = written(ines, now, ERASES, slug="own")
    return assign_policy(policy=policy, level=level, actor=name_actor(ines), now=now, **place)


@pytest.mark.parametrize("level", ["instance", "group", "user", "chat"])
def test_at_no_level_one_person_assigns_what_erases_sooner(
    level: str, ines: User, ivan: User, alice: User, chat: Chat, now: datetime
) -> None:
    with pytest.raises(SecondPersonNeeded):
        assigned_alone(ines, alice, chat, now, level)
    assert not PolicyAssignment.objects.exists()
    policy = ContextPolicy.objects.get(slug="own")
    places: dict[str, dict[str, Any]] = {
        "user": {"user": alice},
        "chat": {"chat_id": chat.pk},
    }
    if place := places.get(level):
        assign_policy(policy=policy, level=level, actor=name_actor(ivan), now=now, **place)
        assert policy.assignments.count() == 1


def test_what_erases_later_than_what_applied_there_needs_nobody(
    ines: User, ivan: User, alice: User, now: datetime
) -> None:
    strict = written(ines, now, {"retention_days": 30}, slug="strict")
    mild = written(ines, now, {"retention_days": 90}, slug="mild")
    assign_policy(policy=strict, level="user", user=alice, actor=name_actor(ivan), now=now)
    assign_policy(policy=mild, level="user", user=alice, actor=name_actor(ines), now=now)
    with pytest.raises(SecondPersonNeeded):
        assign_policy(policy=strict, level="user", user=alice, actor=name_actor(ines), now=now)


def test_who_wrote_a_lock_does_not_take_it_from_a_person_alone(
    ines: User, ivan: User, alice: User, now: datetime
) -> None:
    policy = create_policy(
        slug="locks",
        name="Locks",
        values=HARMLESS,
        locks=["token_budget"],
        actor=name_actor(ines),
        now=now,
    )
    with pytest.raises(SecondPersonNeeded):
        assign_policy(policy=policy, level="user", user=alice, actor=name_actor(ines), now=now)
    row = assign_policy(policy=policy, level="user", user=alice, actor=name_actor(ivan), now=now)
    with pytest.raises(SecondPersonNeeded, match="remove it"):
        unassign_policy(assignment=row, actor=name_actor(ines), now=now)


def test_nobody_moves_people_alone_into_a_group_whose_policy_they_wrote(
    ines: User, ivan: User, alice: User, now: datetime
) -> None:
    group = Group.objects.create(name="Support")
    policy = written(ines, now, ERASES)
    assign_policy(policy=policy, level="group", group=group, actor=name_actor(ivan), now=now)
    with pytest.raises(SecondPersonNeeded, match="“Support”"):
        change_roles(person=alice, groups=[group], actor=name_actor(ines), now=now)
    assert not alice.groups.exists()
    change_roles(person=alice, groups=[group], actor=name_actor(ivan), now=now)
    # Leaving the group erases nothing sooner, and nothing was locked.
    change_roles(person=alice, groups=[], actor=name_actor(ines), now=now)


def test_a_group_with_a_harmless_policy_takes_anybody(
    ines: User, ivan: User, alice: User, now: datetime
) -> None:
    group = Group.objects.create(name="Support")
    assign_policy(
        policy=written(ines, now, HARMLESS),
        level="group",
        group=group,
        actor=name_actor(ivan),
        now=now,
    )
    change_roles(person=alice, groups=[group], actor=name_actor(ines), now=now)
    assert alice.groups.get() == group


def test_a_retired_policy_that_chats_name_is_not_revived_by_its_author_alone(
    chat_under: Chat, ines: User, ivan: User, now: datetime
) -> None:
    policy = ContextPolicy.objects.get(slug="asked")
    stays: dict[str, Any] = {"policy": policy, "name": policy.name, "description": "", "now": now}
    with pytest.raises(SecondPersonNeeded, match="reactivate it"):
        change_policy(**stays, retired=False, actor=name_actor(ines))
    answer = signed_in(ines).patch(
        "/api/v1/policies/asked", {"retired": False}, content_type="application/json"
    )
    assert answer.json()["error"]["code"] == "second_person_needed"
    change_policy(**stays, retired=False, actor=name_actor(ivan))
    policy.refresh_from_db()
    assert not policy.retired


def test_who_wrote_locks_does_not_end_them_alone_by_retiring_their_policy(
    ines: User, ivan: User, alice: User, chat: Chat, now: datetime
) -> None:
    locks: Any = {
        "values": HARMLESS,
        "locks": ["token_budget"],
        "actor": name_actor(ines),
        "now": now,
    }
    free, used = (create_policy(slug=slug, name=slug, **locks) for slug in ("free", "used"))
    Chat.objects.filter(pk=chat.pk).update(policy=used)
    stays: dict[str, Any] = {"description": "", "retired": True, "now": now}
    with pytest.raises(SecondPersonNeeded, match="remove it"):
        change_policy(policy=used, name="used", actor=name_actor(ines), **stays)
    change_policy(policy=free, name="free", actor=name_actor(ines), **stays)
    change_policy(policy=used, name="used", actor=name_actor(ivan), **stays)
    assert used.retired


def test_a_version_of_a_policy_that_a_key_names_waits_where_it_erases_sooner(
    ines: User, alice: User, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    key, _ = keys.create_key(owner=alice, name="app", scopes=("gateway",), now=now)
    ApiKey.objects.filter(pk=key.pk).update(policy=policy)
    made = create_policy_version(
        policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
    )
    assert made.activated_at is None


def test_a_version_of_a_policy_that_chats_name_waits_where_it_erases_sooner(
    chat_under: Chat, ines: User, now: datetime
) -> None:
    policy = ContextPolicy.objects.get(slug="asked")
    harmless = create_policy_version(
        policy=policy, values=HARMLESS, locks=[], note="", actor=name_actor(ines), now=now
    )
    assert harmless.activated_at
    again = create_policy_version(
        policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
    )
    assert again.activated_at is None
    assert (
        restore_policy_version(
            policy=policy, number=1, actor=name_actor(ines), now=now
        ).activated_at
        is None
    )


@pytest.mark.parametrize("form", ["own", "strategy"])
def test_an_import_into_a_policy_that_governs_waits(
    form: str, ines: User, ivan: User, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    text = {
        "own": '{"palimpsest_policy": 1, "values": {"retention_days": 1}}',
        "strategy": '{"type": "plugin", "pluginId": "simple", "config": {}}',
    }[form]
    imports.import_strategy(text=text, actor=name_actor(ines), now=now, into=policy)
    assert in_force(policy) == HARMLESS
    newest = policy.newest
    assert newest is not None
    assert newest.activated_at is None


def test_the_promotion_of_an_evaluation_waits(
    ines: User, ivan: User, chat: Chat, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    assign_policy(policy=policy, level="instance", actor=name_actor(ivan), now=now)
    create_policy_version(
        policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
    )
    row = evaluating.start_evaluation(policy=policy, number=2, actor=name_actor(ines), now=now)
    with pytest.raises(SecondPersonNeeded):
        evaluating.promote_evaluation(evaluation_id=row.pk, actor=name_actor(ines), now=now)
    assert in_force(policy) == HARMLESS


# Counts.


@pytest.fixture
def counts(settings: Settings, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Require a count if more than a tenth of the chats may change."""
    settings.TWO_PERSONS, settings.BLAST_RADIUS_LIMIT = False, 0.1
    monkeypatch.setattr(sampling, "IN_USE", timedelta(days=36_500))


def test_a_version_counted_for_nobody_is_counted_when_restored(
    counts: None, ines: User, now: datetime
) -> None:
    policy = written(ines, now, ERASES, HARMLESS)
    assign_policy(policy=policy, level="instance", actor="system", now=now, is_agreed=True)
    with pytest.raises(BlastRadiusNeeded):
        restore_policy_version(policy=policy, number=1, actor=name_actor(ines), now=now)
    assert in_force(policy) == HARMLESS


def test_a_person_with_most_chats_counts_as_many_people_do(
    counts: None, ines: User, alice: User, bob: User, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    with pytest.raises(BlastRadiusNeeded):
        assign_policy(policy=policy, level="user", user=alice, actor=name_actor(ines), now=now)
    # Bob has no chat.
    assign_policy(policy=policy, level="user", user=bob, actor=name_actor(ines), now=now)


def test_chats_that_name_a_policy_are_counted(
    counts: None, ines: User, chat: Chat, now: datetime
) -> None:
    policy = written(ines, now, HARMLESS)
    Chat.objects.filter(pk=chat.pk).update(policy=policy)
    with pytest.raises(BlastRadiusNeeded):
        create_policy_version(
            policy=policy, values=ERASES, locks=[], note="", actor=name_actor(ines), now=now
        )
    assert in_force(policy) == HARMLESS


def test_a_person_with_most_chats_is_counted_before_joining_a_group(
    counts: None, ines: User, alice: User, bob: User, now: datetime
) -> None:
    group = Group.objects.create(name="Support")
    policy = written(ines, now, HARMLESS)
    assign_policy(
        policy=policy, level="group", group=group, actor="system", now=now, is_agreed=True
    )
    with pytest.raises(BlastRadiusNeeded):
        change_roles(person=alice, groups=[group], actor=name_actor(ines), now=now)
    change_roles(person=bob, groups=[group], actor=name_actor(ines), now=now)
    assert list(group.user_set.all()) == [bob]


# Holds.


@pytest.mark.parametrize("way", ["page", "rows"])
def test_a_hold_applies_until_its_end_whatever_happens_to_its_group(
    way: str, ines: User, ivan: User, alice: User, bob: User, charlie: User
) -> None:
    now = timezone.now()
    group = Group.objects.create(name="Sales")
    alice.groups.add(group)
    given: dict[str, Any] = {
        "case": "1",
        "reason": "Complaint",
        "actor": name_actor(ines),
        "now": now,
    }
    hold = holds.place_hold(level="group", group=group, **given)
    bob.groups.add(group)
    with pytest.raises(roles.GroupInUse):
        delete_group(group=group, actor=name_actor(ines), now=now)
    holds.release_hold(hold=hold, reason="Over", actor=name_actor(ivan), now=now)

    if way == "page":
        delete_group(group=group, actor=name_actor(ines), now=now + timedelta(days=6))
    else:
        group.delete()
    found = holds.load_held_targets(now=now + timedelta(days=6))
    covered = [who.username for who in (alice, bob, charlie) if found.covers(owner_id=who.pk)]
    assert covered == ["alice", "bob"]
    assert not holds.load_held_targets(now=now + timedelta(days=8)).covers(owner_id=bob.pk)


def test_a_hold_that_ended_keeps_nobody_when_its_group_goes(
    ines: User, ivan: User, bob: User
) -> None:
    now = timezone.now() - timedelta(days=30)
    group = Group.objects.create(name="Sales")
    given: dict[str, Any] = {
        "case": "1",
        "reason": "Complaint",
        "actor": name_actor(ines),
        "now": now,
    }
    hold = holds.place_hold(level="group", group=group, **given)
    bob.groups.add(group)
    holds.release_hold(hold=hold, reason="Over", actor=name_actor(ivan), now=now)
    delete_group(group=group, actor=name_actor(ines), now=now + timedelta(days=8))
    hold.refresh_from_db()
    assert hold.people == []


# Static check of the code.

# Functions that write applicable values without a check, and why.
ASKS_NOBODY = {
    "create_policy": "a new policy applies nowhere",
    "seed_roles": "roles have no policy",
    "save_group": "a name",
    "delete_group": "a group without a policy",
}
ROOMS = ("chats", "contextpolicy", "project")
WRITES = {"create", "update", "delete", "get_or_create", "update_or_create", "set", "add", "remove"}


def writes_what_applies(node: ast.AST) -> bool:
    """Return True if a call writes an assignment, a version, its position, or a membership."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr not in WRITES:
        return False
    target = ast.unparse(node.func.value)
    if target.endswith((".groups", ".user_set", ".assignments")):
        return True
    return target.startswith(("PolicyAssignment.objects", "PolicyVersion.objects", "Group.objects"))


def asks(function: ast.FunctionDef, judges: set[str]) -> bool:
    """Return True if a function calls the check, or another function that does."""
    calls = {ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
    return bool({call.rpartition(".")[2] for call in calls} & judges)


@cache
def functions() -> list[ast.FunctionDef]:
    """All functions of the product."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
        if "migrations" not in path.parts
    ]
    return [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


def test_every_writer_asks_the_one_function_that_judges() -> None:
    found = functions()
    judges = {"check_change"} | {each.name for each in found if asks(each, {"check_change"})}
    writers = [each for each in found if any(map(writes_what_applies, ast.walk(each)))]
    assert {"create_policy_version", "activate_version", "assign_policy", "unassign_policy"} <= {
        each.name for each in writers
    }
    silent = {each.name for each in writers if not asks(each, judges)}
    assert silent <= set(ASKS_NOBODY)


def test_the_two_checks_are_asked_nowhere_else() -> None:
    inner = {"is_needed", "check_version_count", "check_assignment_count"}
    callers = {
        each.name
        for each in functions()
        for call in ast.walk(each)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in inner
        and ast.unparse(call.func.value) in {"two_persons", "blast"}
    }
    assert callers == {"check_change", "require_change_count", "is_approval_required"}


def test_a_change_names_who_acts_and_who_wrote(ines: User, now: datetime) -> None:
    policy = written(ines, now, ERASES)
    version = PolicyVersion.objects.get(policy=policy)
    change: Callable[..., controls.Change] = controls.build_assignment_change
    assert change(policy, level="instance", by=ines.pk).author == version.created_by_id
    assert controls.check_change(change(policy, level="instance", by=None), now=now).waits is False
