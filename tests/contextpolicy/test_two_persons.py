"""With two-person approval a change that affects others needs a second person."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from pytest_django import Settings

from chats.models import Team
from chats.teams import draft_checks, rosters
from chats.teams.draft_checks import InvalidTeam
from chats.teams.team_drafts import AgentDraft, TeamDraft
from contextpolicy import holds
from contextpolicy.audit.sentences import describe_event, load_event_names
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyVersion
from contextpolicy.policy_assignments import assign_policy, unassign_policy
from contextpolicy.publish import (
    activate_version,
    create_policy,
    create_policy_version,
    restore_policy_version,
)
from contextpolicy.two_persons import SecondPersonNeeded
from tests.contextpolicy.pages import message_codes, opened
from tests.contextpolicy.people import name_actor, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("needs_two_persons")]

Change = Callable[..., Any]


@pytest.fixture
def policy(ines: User, ivan: User, now: datetime) -> ContextPolicy:
    """A policy by Ines, assigned to everyone by Ivan."""
    made = create_policy(
        slug="house", name="House", values={"token_budget": 16_000}, actor=name_actor(ines), now=now
    )
    assign_policy(policy=made, level="instance", actor=name_actor(ivan), now=now)
    return made


def changed(policy: ContextPolicy, who: User, now: datetime, **options: Any) -> Any:
    """The next version of the policy, by a given person."""
    values = {"token_budget": 12_000, **options.pop("values", {})}
    given = {"locks": [], "note": "", "actor": name_actor(who), "now": now, **options}
    return create_policy_version(policy=policy, values=values, **given)


def waits(version: PolicyVersion) -> bool:
    """Return True if a version is pending."""
    return version.activated_at is None


def in_force(policy: ContextPolicy) -> int:
    """The number of the active version."""
    found = ContextPolicy.objects.get(pk=policy.pk).current
    assert found is not None
    return found.number


@pytest.mark.policy_case(10)
def test_what_governs_everybody_waits_for_somebody_else(
    policy: ContextPolicy, ines: User, ivan: User, now: datetime
) -> None:
    made = changed(policy, ines, now)
    assert (waits(made), in_force(policy)) == (True, 1)
    with pytest.raises(SecondPersonNeeded) as refusal:
        activate_version(policy=policy, number=2, actor=name_actor(ines), now=now)
    assert refusal.value.reason == "author_publishes"
    assert in_force(policy) == 1

    activate_version(policy=policy, number=2, actor=name_actor(ivan), now=now)
    assert in_force(policy) == 2
    told = [
        describe_event(e, names=load_event_names([e])) for e in AuditEvent.objects.order_by("id")
    ]
    assert any("Policy “House” v2 requires approval by a second person" in each for each in told)
    assert any("Policy “House” v2 published" in each for each in told)


def test_who_changes_a_waiting_version_is_its_author(
    policy: ContextPolicy, ines: User, ivan: User, now: datetime
) -> None:
    changed(policy, ines, now)
    changed(policy, ivan, now, values={"token_budget": 90_000}, based_on=2)
    with pytest.raises(SecondPersonNeeded):
        activate_version(policy=policy, number=3, actor=name_actor(ivan), now=now)
    activate_version(policy=policy, number=3, actor=name_actor(ines), now=now)
    assert in_force(policy) == 3


def test_an_emergency_needs_a_reason_that_stays(
    policy: ContextPolicy, ines: User, now: datetime
) -> None:
    changed(policy, ines, now)
    with pytest.raises(SecondPersonNeeded):
        activate_version(policy=policy, number=2, actor=name_actor(ines), now=now, emergency="  ")
    activate_version(
        policy=policy, number=2, actor=name_actor(ines), now=now, emergency="Keys leaked"
    )
    event = AuditEvent.objects.get(type="policy.version_activated")
    assert event.data["emergency"] == "Keys leaked"
    assert "in an emergency (“Keys leaked”)" in describe_event(
        event, names=load_event_names([event])
    )


def test_the_author_does_not_assign_it_to_everybody_or_a_group(
    ines: User, ivan: User, now: datetime, policy: ContextPolicy
) -> None:
    group = Group.objects.create(name="Support")
    for target in ({"level": "instance"}, {"level": "group", "group": group}):
        with pytest.raises(SecondPersonNeeded):
            assign_policy(policy=policy, actor=name_actor(ines), now=now, **target)
    assert policy.assignments.count() == 1
    assign_policy(policy=policy, level="group", group=group, actor=name_actor(ivan), now=now)
    # With one person the two-person rule does not apply.
    assign_policy(policy=policy, level="user", user=ines, actor=name_actor(ines), now=now)


def test_for_one_person_only_a_changed_lock_waits(ines: User, now: datetime, alice: User) -> None:
    values = {"token_budget": 16_000}
    own = create_policy(slug="own", name="Own", values=values, actor=name_actor(ines), now=now)
    assign_policy(policy=own, level="user", user=alice, actor=name_actor(ines), now=now)
    assert not waits(changed(own, ines, now))
    assert waits(changed(own, ines, now, locks=["token_budget"]))


def test_what_erases_sooner_waits_and_who_placed_a_hold_does_not_release_it(
    ines: User, ivan: User, now: datetime, alice: User
) -> None:
    values = {"token_budget": 12_000, "retention_days": 90}
    own = create_policy(slug="own", name="Own", values=values, actor=name_actor(ines), now=now)
    assign_policy(policy=own, level="user", user=alice, actor=name_actor(ivan), now=now)
    assert not waits(changed(own, ines, now, values={"retention_days": 120}))
    assert waits(changed(own, ines, now, values={"retention_days": 30}))

    given: dict[str, Any] = {
        "case": "2026-118",
        "reason": "Complaint",
        "actor": name_actor(ines),
        "now": now,
    }
    hold = holds.place_hold(level="user", user=alice, **given)
    with pytest.raises(SecondPersonNeeded) as refusal:
        holds.release_hold(hold=hold, reason="Over", actor=name_actor(ines), now=now)
    assert refusal.value.reason == "own_hold"
    holds.release_hold(hold=hold, reason="Over", actor=name_actor(ivan), now=now)


def test_what_was_in_force_lately_returns_at_once(
    policy: ContextPolicy, ines: User, ivan: User, now: datetime
) -> None:
    changed(policy, ines, now)
    activate_version(policy=policy, number=2, actor=name_actor(ivan), now=now)
    soon, late = now + timedelta(days=29), now + timedelta(days=90)
    assert not waits(
        restore_policy_version(policy=policy, number=1, actor=name_actor(ines), now=soon)
    )
    # Version 3 replaced version 2 on that day, sixty days before.
    assert waits(restore_policy_version(policy=policy, number=2, actor=name_actor(ines), now=late))


def test_it_is_off_unless_it_is_set(
    policy: ContextPolicy, ines: User, now: datetime, settings: Settings
) -> None:
    settings.TWO_PERSONS = False
    assert not waits(changed(policy, ines, now))
    assign_policy(policy=policy, level="instance", actor=name_actor(ines), now=now)


def test_alone_one_is_told_who_could_help(
    policy: ContextPolicy, ines: User, ivan: User, now: datetime
) -> None:
    User.objects.filter(pk=ivan.pk).update(is_active=False)
    changed(policy, ines, now)
    with pytest.raises(SecondPersonNeeded) as refusal:
        activate_version(policy=policy, number=2, actor=name_actor(ines), now=now)
    assert refusal.value.reason == "no_other_administrator"


def test_what_the_shell_does_waits_for_nobody(policy: ContextPolicy, now: datetime) -> None:
    made = create_policy_version(
        policy=policy, values={"token_budget": 9_000}, locks=[], note="", actor="system", now=now
    )
    assert not waits(made)


class TestPage:
    """The policy editor."""

    def test_the_author_is_told_and_somebody_else_saves(
        self, policy: ContextPolicy, ines: User, ivan: User
    ) -> None:
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"

        def saved(who: User, **values: str) -> list[str]:
            browser = signed_in(who)
            fields = {**opened(browser, address).fields, "_save": "Save", **values}
            return message_codes(browser.post(address, fields, follow=True))

        def notes(who: User) -> list[str]:
            html = signed_in(who).get(address).content.decode()
            return re.findall(r'data-note="(second-person-publishes|publish-draft)"', html)

        assert "waits_for_second_person" in saved(ines, token_budget="12000")
        assert notes(ines) == ["second-person-publishes"]
        assert saved(ines) == ["second_person_needed"]
        assert in_force(policy) == 1

        assert notes(ivan) == ["publish-draft"]
        saved(ivan)
        assert in_force(policy) == 2

        saved(ines, token_budget="11000")
        saved(ines, emergency="Keys leaked")
        assert in_force(policy) == 3


def test_the_author_does_not_take_it_back_from_everybody_or_a_group(
    policy: ContextPolicy, ines: User, ivan: User, now: datetime
) -> None:
    row = policy.assignments.get()
    with pytest.raises(SecondPersonNeeded) as refusal:
        unassign_policy(assignment=row, actor=name_actor(ines), now=now)
    assert refusal.value.reason == "author_unassigns"
    assert policy.assignments.count() == 1
    own = assign_policy(policy=policy, level="user", user=ines, actor=name_actor(ines), now=now)
    unassign_policy(assignment=own, actor=name_actor(ines), now=now)
    unassign_policy(assignment=row, actor=name_actor(ivan), now=now)
    assert policy.assignments.count() == 0


@pytest.mark.policy_case(10)
def test_the_form_and_rest_say_who_takes_it_back(policy: ContextPolicy, ines: User) -> None:
    hers, row = signed_in(ines), policy.assignments.get()
    address = f"/admin/contextpolicy/policyassignment/{row.pk}/delete/"
    told = hers.post(address, {"post": "yes"}, follow=True)
    assert message_codes(told) == ["second_person_needed"]
    answer = hers.delete(f"/api/v1/policies/assignments/{row.pk}")
    assert answer.json()["error"]["code"] == "second_person_needed"
    assert policy.assignments.count() == 1


class TestREST:
    """The REST API."""

    def test_an_author_is_refused_with_a_code(
        self, policy: ContextPolicy, ines: User, ivan: User
    ) -> None:
        root = "/api/v1/policies/house/versions"
        hers, his = signed_in(ines), signed_in(ivan)
        body = {"values": {"token_budget": 12_000}, "locks": [], "based_on": 1}
        made = hers.post(root, body, content_type="application/json")
        assert (made.status_code, made.json()["state"]) == (201, "draft")
        refused = hers.post(f"{root}/2/activate", {}, content_type="application/json")
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "second_person_needed"
        done = his.post(f"{root}/2/activate", {}, content_type="application/json")
        assert done.json()["state"] == "active"

        hers.post(root, {**body, "based_on": 2}, content_type="application/json")
        alone = hers.post(
            f"{root}/3/activate", {"emergency": "Leak"}, content_type="application/json"
        )
        assert alone.json()["state"] == "active"
        everybody = {"policy": "house", "level": "instance"}
        answer = hers.post(
            "/api/v1/policies/assignments", everybody, content_type="application/json"
        )
        assert answer.json()["error"]["code"] == "second_person_needed"


class TestAgents:
    """A policy that only agents have."""

    @pytest.fixture
    def crew(self, ines: User, ivan: User, now: datetime) -> ContextPolicy:
        """A policy by Ines without assignments."""
        values = {"token_budget": 16_000}
        return create_policy(
            slug="crew", name="Crew", values=values, actor=name_actor(ines), now=now
        )

    def team(self, who: User, now: datetime, *, shared: bool, policy: str = "crew") -> Team:
        """A team with an agent that has the policy."""
        draft = TeamDraft(name="Crew", agents=[AgentDraft(name="Editor", policy=policy)])
        return rosters.create_team(user=who, draft=draft, shared=shared, now=now).team

    def test_its_author_does_not_change_it_alone_for_a_shared_team(
        self, crew: ContextPolicy, ines: User, ivan: User, now: datetime
    ) -> None:
        made = self.team(ivan, now, shared=True)
        version = changed(crew, ines, now)
        assert waits(version)
        activate_version(policy=crew, number=version.number, actor=name_actor(ivan), now=now)
        assert in_force(crew) == version.number
        rosters.delete_team(user=ivan, team_id=made.pk, now=now)
        assert not waits(changed(crew, ines, now, values={"token_budget": 9_000}))

    def test_its_author_does_not_give_it_alone_to_a_shared_team(
        self, crew: ContextPolicy, ines: User, ivan: User, now: datetime
    ) -> None:
        with pytest.raises(InvalidTeam) as refused:
            self.team(ines, now, shared=True)
        assert refused.value.full.template == draft_checks.SECOND_PERSON_ASSIGNS
        made = self.team(ivan, now, shared=True)
        # A policy that the team already uses stays.
        draft = TeamDraft(name="Renamed", agents=[AgentDraft(name="Editor", policy="crew")])
        rosters.update_team(user=ines, team_id=made.pk, draft=draft, now=now)

    def test_in_a_team_of_ones_own_only_locks_and_erasure_need_another_one(
        self, crew: ContextPolicy, ines: User, now: datetime
    ) -> None:
        self.team(ines, now, shared=False)
        for slug, options in (
            ("locks", {"values": {"token_budget": 9_000}, "locks": ["token_budget"]}),
            ("erases", {"values": {"retention_days": 3}}),
        ):
            create_policy(slug=slug, name=slug, actor=name_actor(ines), now=now, **options)
            with pytest.raises(InvalidTeam) as refused:
                self.team(ines, now, shared=False, policy=slug)
            assert refused.value.full.template == draft_checks.SECOND_PERSON_ASSIGNS
