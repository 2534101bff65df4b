"""Removing a policy needs a count of the chats, as assigning it does."""

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from pytest_django.fixtures import Settings

from chats.actions import lifecycle
from chats.models import Chat
from chats.simulation import radius
from chats.simulation.proposals import REMOVED, PolicyProposal, resolve_assigned_policies
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import AuditEvent, BlastRadius, ContextPolicy, ModelSpec, PolicyAssignment
from contextpolicy.policy_assignments import assign_policy, unassign_policy
from contextpolicy.policy_refusals import PolicyNotInUse
from contextpolicy.publish import change_policy, create_policy, create_policy_version
from contextpolicy.roles import OWNER, POLICY_ADMIN, change_roles
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_messages import fill_with_every_kind

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_time")]
NARROW = {"strategy": "simple", "window_size": 6}


@pytest.fixture
def chats(alice: User, bob: User, demo_model: ModelSpec, now: datetime) -> list[Chat]:
    """Three long chats of Alice and one of Bob, whose prompts depend on the window."""
    made = []
    for owner in (alice, alice, alice, bob):
        chat = lifecycle.create_chat(owner=owner, now=now)
        fill_with_every_kind(chat, 20, now=now)
        Chat.objects.filter(pk=chat.pk).update(updated_at=now)
        made.append(chat)
    return made


def narrow_policy(slug: str, now: datetime) -> ContextPolicy:
    """Create a policy with a short window."""
    return create_policy(name=slug.title(), slug=slug, values=NARROW, actor="user:1", now=now)


def assigned(policy: ContextPolicy, now: datetime, **place: Any) -> PolicyAssignment:
    """Assign a policy without a count."""
    return assign_policy(policy=policy, actor="user:1", now=now, is_agreed=True, **place)


def count_removal(policy: ContextPolicy, now: datetime, group: Group | None = None) -> BlastRadius:
    """Count the chats as if the policy were removed."""
    row = radius.start_radius_count(
        policy=policy, values={}, locks=[], place=REMOVED, group=group, actor="user:1", now=now
    )
    radius.continue_radius_count(radius_id=row.pk, clock=lambda: now, is_closing=lambda: False)
    row.refresh_from_db()
    return row


def remove(row: PolicyAssignment, now: datetime) -> None:
    """Remove an assignment."""
    unassign_policy(assignment=row, actor="user:1", now=now)


def test_a_policy_of_everyone_is_removed_after_a_count(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    row = assigned(policy, now, level="instance")
    settings.BLAST_RADIUS_LIMIT = 0.1
    with pytest.raises(BlastRadiusNeeded):
        remove(row, now)
    # The count of an assignment to everyone says nothing about a removal.
    other = radius.start_radius_count(
        policy=policy, values=NARROW, locks=[], place="instance", actor="user:1", now=now
    )
    radius.continue_radius_count(radius_id=other.pk, clock=lambda: now, is_closing=lambda: False)
    with pytest.raises(BlastRadiusNeeded):
        remove(row, now)
    counted = count_removal(policy, now)
    assert (counted.state, counted.judged, counted.changed) == ("finished", 4, 4)
    remove(row, now)
    assert not policy.assignments.exists()
    event = AuditEvent.objects.get(type="policy.unassigned")
    assert event.data["counted"]["radius"] == str(counted.pk)


def test_a_new_version_makes_the_count_worthless(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    row = assigned(policy, now, level="instance")
    settings.BLAST_RADIUS_LIMIT = 0.1
    count_removal(policy, now)
    settings.BLAST_RADIUS_LIMIT = None
    values = {**NARROW, "window_size": 4}
    create_policy_version(policy=policy, values=values, locks=[], note="", actor="user:1", now=now)
    settings.BLAST_RADIUS_LIMIT = 0.1
    with pytest.raises(BlastRadiusNeeded):
        remove(row, now)


def test_a_count_of_one_group_removes_it_from_this_group_only(
    chats: list[Chat], alice: User, bob: User, now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    first, second = Group.objects.create(name="first"), Group.objects.create(name="second")
    alice.groups.add(first)
    bob.groups.add(first, second)
    rows = [assigned(policy, now, level="group", group=group) for group in (first, second)]
    settings.BLAST_RADIUS_LIMIT = 0.1
    counted = count_removal(policy, now, group=first)
    # Bob's chat stays under the policy through his other group.
    assert (counted.judged, counted.changed) == (4, 3)
    with pytest.raises(BlastRadiusNeeded):
        remove(rows[1], now)
    remove(rows[0], now)
    remove_everywhere = count_removal(policy, now)
    assert remove_everywhere.changed == 1
    remove(rows[1], now)


def test_a_person_with_many_chats_leaves_after_a_count(
    chats: list[Chat], alice: User, bob: User, now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    person("olga", OWNER)
    team = Group.objects.create(name="team")
    own = narrow_policy("own", now)
    row = assigned(own, now, level="user", user=bob)
    alice.groups.add(team)
    assigned(policy, now, level="group", group=team)
    settings.BLAST_RADIUS_LIMIT = 0.5
    with pytest.raises(BlastRadiusNeeded):
        change_roles(person=alice, groups=[], actor="user:1", now=now)
    assert team in alice.groups.all()
    count_removal(policy, now)
    change_roles(person=alice, groups=[], actor="user:1", now=now)
    assert not alice.groups.exists()
    # Bob has a quarter of the chats, which is less than the limit.
    remove(row, now)


def test_a_policy_that_many_chats_name_is_retired_after_a_count(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    Chat.objects.filter(pk__in=[chat.pk for chat in chats[:2]]).update(policy=policy)
    settings.BLAST_RADIUS_LIMIT = 0.1
    retired: dict[str, Any] = {"name": "House", "description": "", "retired": True}
    with pytest.raises(BlastRadiusNeeded):
        change_policy(policy=policy, **retired, actor="user:1", now=now)
    counted = count_removal(policy, now)
    assert (counted.judged, counted.changed) == (4, 2)
    change_policy(policy=policy, **retired, actor="user:1", now=now)
    assert policy.retired


def test_chats_that_name_a_policy_count_under_its_new_values(
    chats: list[Chat], now: datetime
) -> None:
    policy = narrow_policy("house", now)
    Chat.objects.filter(pk=chats[0].pk).update(policy=policy)
    row = radius.start_radius_count(
        policy=policy,
        values={**NARROW, "window_size": 2},
        locks=[],
        place="assigned",
        actor="user:1",
        now=now,
    )
    radius.continue_radius_count(radius_id=row.pk, clock=lambda: now, is_closing=lambda: False)
    row.refresh_from_db()
    assert (row.judged, row.changed) == (4, 1)


def test_a_policy_without_an_active_version_is_not_counted(now: datetime) -> None:
    policy = create_policy(
        name="Draft", slug="draft", values=NARROW, actor="user:1", now=now, is_draft=True
    )
    with pytest.raises(PolicyNotInUse):
        count_removal(policy, now)


def test_a_chat_without_the_policy_keeps_the_others(
    chats: list[Chat], alice: User, now: datetime
) -> None:
    house, own = narrow_policy("house", now), narrow_policy("own", now)
    assigned(house, now, level="instance")
    assigned(own, now, level="user", user=alice)
    proposal = PolicyProposal("own", "Own", 1, {}, [], level=REMOVED)
    left = resolve_assigned_policies(chats[0], proposal=proposal)
    assert [each[:2] for each in left] == [("instance", "house")]


def test_an_administrator_counts_on_the_page_and_removes(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    policy = narrow_policy("house", now)
    team = Group.objects.create(name="team")
    row = assigned(policy, now, level="group", group=team)
    settings.BLAST_RADIUS_LIMIT = 0.1
    ines = signed_in(person("ines", POLICY_ADMIN))
    delete = f"/admin/contextpolicy/policyassignment/{row.pk}/delete/"
    refused = ines.post(delete, {"post": "yes"}, follow=True)
    assert refused.status_code == 200
    assert policy.assignments.exists()
    address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
    form = {**opened(ines, address).fields, "try-chat": "all", "try-place": f"removed:{team.pk}"}
    ines.post(address, {**form, "_preview": "1"})
    counted = BlastRadius.objects.get()
    assert (counted.place, counted.group) == (REMOVED, team)
    assert ines.get(f"/admin/contextpolicy/blastradius/{counted.pk}/count/").status_code == 200
    radius.continue_radius_count(radius_id=counted.pk, clock=lambda: now, is_closing=lambda: False)
    ines.post(delete, {"post": "yes"})
    assert not policy.assignments.exists()


def test_a_program_counts_and_removes(chats: list[Chat], now: datetime, settings: Settings) -> None:
    policy = narrow_policy("house", now)
    row = assigned(policy, now, level="instance")
    team = Group.objects.create(name="team")
    settings.BLAST_RADIUS_LIMIT = 0.1
    ines = signed_in(person("ines", POLICY_ADMIN))
    path = f"/api/v1/policies/assignments/{row.pk}"
    refused = ines.delete(path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "blast_radius_needed")

    def count(**body: Any) -> Any:
        return ines.post("/api/v1/blast-radius", body, content_type="application/json")

    wrong = count(policy="house", place="assigned", group=team.name)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_value")
    assert count(policy="house", place="removed", group=team.name).json()["group"] == "team"
    made = count(policy="house", place="removed")
    assert made.status_code == 202
    radius.continue_radius_count(
        radius_id=made.json()["id"], clock=lambda: now, is_closing=lambda: False
    )
    assert ines.delete(path).status_code == 204
