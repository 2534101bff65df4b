"""The notice about recommended values, its drafts, and the permission to create them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from contextpolicy import policy_assignments, publish, recommended
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyVersion
from contextpolicy.presets import RETRIEVED, seed_policies
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from contextpolicy.two_persons import SecondPersonNeeded
from tests.chats.api.conftest import program
from tests.chats.api.programs import MakeProgram
from tests.contextpolicy.pages import Page, opened, submitted
from tests.contextpolicy.people import person, signed_in

__all__ = ["program"]
pytestmark = pytest.mark.django_db
LIST = "/admin/contextpolicy/contextpolicy/"
Make = Callable[..., ContextPolicy]


@pytest.fixture
def make(now: datetime) -> Make:
    """Make a policy with these values."""

    def making(slug: str, **values: Any) -> ContextPolicy:
        return publish.create_policy(
            slug=slug, name=slug.title(), values=values, actor="system", now=now
        )

    return making


def slugs() -> list[str]:
    return [found.policy.slug for found in recommended.list_recommendations()]


def test_shipped_policies_have_the_recommended_values(now: datetime) -> None:
    seed_policies(now=now)
    assert slugs() == []


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"strategy": "simple"}, set(RETRIEVED)),
        ({"strategy": "dynamic_summary", "dates": False}, set(RETRIEVED) - {"dates"}),
        ({"strategy": "simple", "references": True, "reference_scope": "person"}, {"dates"}),
        ({"strategy": "simple", "references": False}, {"dates"}),
        ({"strategy": "simple", **RETRIEVED}, set()),
        ({"strategy": "simple", "layout": "A"}, set(RETRIEVED) - {"dates"}),
        ({"strategy": "simple", "plain_sections": True}, set(RETRIEVED) - {"dates"}),
        ({"strategy": "entity_state", "state_schema": {"type": "object"}}, set()),
        ({"token_budget": 9_000}, set()),
    ],
)
def test_a_decision_of_a_policy_stays(
    make: Make, values: dict[str, Any], missing: set[str]
) -> None:
    make("p", **values)
    found = recommended.list_recommendations()
    assert {name for each in found for name in each.fields} == missing


def test_the_policy_for_everyone_counts_without_a_strategy(make: Make, now: datetime) -> None:
    policy = make("plain", token_budget=9_000, reserve_tokens=2_000)
    assert slugs() == []
    policy_assignments.assign_policy(policy=policy, level="instance", actor="system", now=now)
    assert slugs() == ["plain"]


def test_the_button_creates_drafts_and_publishes_nothing(make: Make, now: datetime) -> None:
    first = make("first", strategy="simple", window_size=7)
    make("second", strategy="sliding_window")
    policy_assignments.assign_policy(policy=first, level="instance", actor="system", now=now)
    ines = person("ines", POLICY_ADMIN)
    client = signed_in(ines)
    listed = client.get(LIST).content.decode()
    assert 'data-note="values-recommended"' in listed
    assert "First, Second" in Page(listed).words

    response = client.post(f"{LIST}recommended/", follow=True)

    words = " ".join(response.content.decode().split())
    assert "Created 2 drafts" in words
    assert 'data-note="values-recommended"' not in words
    assert "First version 2" in words
    draft = PolicyVersion.objects.get(policy=first, number=2)
    assert draft.values == {"strategy": "simple", "window_size": 7, **RETRIEVED}
    assert (draft.state, draft.created_by_id) == ("draft", ines.pk)
    first.refresh_from_db()
    assert first.current is not None
    assert first.current.number == 1
    event = AuditEvent.objects.filter(type="policy.version_created").latest("pk")
    assert event.data["draft"] is True


def test_one_policy_is_named_in_the_singular(make: Make) -> None:
    make("only", strategy="simple")
    words = opened(signed_in(person("ines", POLICY_ADMIN)), LIST).words
    assert "1 policy does not use retrieved context or dates: Only." in words


def test_an_unpublished_draft_is_not_overtaken(make: Make, now: datetime) -> None:
    policy = make("first", strategy="simple")
    publish.create_policy_version(
        policy=policy,
        values={"strategy": "simple", "window_size": 3},
        locks=[],
        note="",
        actor="system",
        now=now,
        is_draft=True,
    )
    made = recommended.create_drafts(actor="system", now=now)
    assert made.drafts == []
    assert made.skipped == {
        "first": "Version 2 is an unpublished draft. Publish or replace it first."
    }
    assert policy.versions.count() == 2


def test_a_published_draft_ends_the_notice(make: Make, now: datetime) -> None:
    policy = make("first", strategy="simple")
    recommended.create_drafts(actor="system", now=now)
    recommended.create_drafts(actor="system", now=now)
    assert policy.versions.count() == 2
    publish.activate_version(policy=policy, number=2, actor="system", now=now)
    assert slugs() == []


@pytest.mark.parametrize("role", [AUDITOR, None])
def test_others_see_no_button_and_may_not_create_drafts(make: Make, role: str | None) -> None:
    make("first", strategy="simple")
    client = signed_in(person("otto", *([role] if role else [])))
    page = client.get(LIST).content.decode()
    assert "Create drafts" not in page
    assert client.post(f"{LIST}recommended/").status_code in (302, 403)
    assert client.get(f"{LIST}recommended/").status_code in (302, 403, 405)
    assert PolicyVersion.objects.count() == 1


def test_a_draft_waits_for_a_second_person(make: Make, now: datetime, settings: Any) -> None:
    settings.TWO_PERSONS = True
    policy = make("first", strategy="simple")
    policy_assignments.assign_policy(
        policy=policy, level="instance", actor="system", now=now, is_agreed=True
    )
    ines = person("ines", POLICY_ADMIN)
    recommended.create_drafts(actor=f"user:{ines.pk}", now=now)
    with pytest.raises(SecondPersonNeeded):
        publish.activate_version(policy=policy, number=2, actor=f"user:{ines.pk}", now=now)


def test_programs_create_drafts(make: Make, program: MakeProgram) -> None:
    make("first", strategy="simple", references=False)
    ines = program(person("ines", POLICY_ADMIN))
    listed = ines.get("policies/recommended-drafts").json()
    assert listed == {"data": [{"slug": "first", "draft": None, "values": {"dates": True}}]}
    made = ines.post("policies/recommended-drafts")
    assert (made.status_code, made.json()) == (
        201,
        {"data": [{"slug": "first", "version": 2}], "skipped": []},
    )
    again = ines.post("policies/recommended-drafts").json()
    assert [row["slug"] for row in again["skipped"]] == ["first"]
    audrey = program(person("audrey", AUDITOR))
    assert audrey.get("policies/recommended-drafts").status_code == 403
    assert audrey.post("policies/recommended-drafts").status_code == 403
    nobody = program(person("nora"))
    assert nobody.post("policies/recommended-drafts").status_code == 404


def test_a_new_policy_of_the_form_starts_with_the_recommended_values() -> None:
    client = signed_in(person("ines", POLICY_ADMIN))
    fields = opened(client, f"{LIST}add/").fields
    assert fields["reference_share"] == ["45"]
    submitted(client, f"{LIST}add/", name="New", strategy="sliding_window")
    policy = ContextPolicy.objects.get(slug="new")
    assert policy.current is not None
    assert policy.current.values == {"strategy": "sliding_window", **RETRIEVED}
