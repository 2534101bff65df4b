"""The explanation of an effective policy: which value won, why, and which values lost."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User

from chats.models import Agent, Chat, Team
from chats.prompt.model_choice import choose_chat_model
from chats.prompt.policy_explanation import NotThere, explain_for, resolve_viewpoint
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft, TeamDraft
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.explanation import LOST, WON, ExplainedField
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.resolution import resolve_policy
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.chats.api.conftest import program
from tests.chats.api.programs import MakeProgram
from tests.chats.teams.conftest import team_of
from tests.contextpolicy.pages import Page
from tests.contextpolicy.people import person, signed_in

__all__ = ["program", "team_of"]
EXPLAIN = "/admin/contextpolicy/effectivepolicy/explain/"


@pytest.fixture
def policy(now: datetime) -> Any:
    """Create a policy and assign it."""

    def making(slug: str, values: dict[str, Any], locks: tuple[str, ...] = (), **to: Any) -> Any:
        made = create_policy(
            slug=slug, name=slug.title(), values=values, locks=locks, actor="system", now=now
        )
        if to:
            assign_policy(policy=made, actor="system", now=now, **to)
        return made

    return making


def explained(user: User, chat: Chat | None, **more: Any) -> dict[str, ExplainedField]:
    found = explain_for(resolve_viewpoint(user, chat=chat, **more))
    return {field.name: field for field in found.fields}


def lost(field: ExplainedField) -> list[tuple[str, object, str]]:
    return [(row.slug, row.value, row.reason) for row in field.losing]


def test_every_field_says_why_it_won_and_who_lost(alice: User, chat: Chat, policy: Any) -> None:
    ModelSpec.objects.create(slug="big", name="big", provider="x")
    for name in ("a", "b"):
        group = Group.objects.create(name=name)
        group.user_set.add(alice)
        policy(f"group-{name}", {"layout": name.upper()}, level="group", group=group)
    policy(
        "house",
        {
            "token_budget": 15_000,
            "allowed_models": ["demo", "big"],
            "cut_style": "head_tail",
            "show_date": True,
            "window_turns": None,
        },
        ("cut_style",),
        level="instance",
    )
    policy(
        "own",
        {
            "token_budget": 15_500,
            "allowed_models": ["demo"],
            "cut_style": "head",
            "show_date": False,
            "window_turns": 50,
        },
        level="user",
        user=alice,
    )
    found = explained(alice, chat)
    assert set(found) == set(PolicyValues().to_json())
    assert (found["token_budget"].value, found["token_budget"].reason) == (15_000, "strictest")
    assert lost(found["token_budget"]) == [("own", 15_500, "looser")]
    assert (found["allowed_models"].value, found["allowed_models"].reason) == (["demo"], "common")
    assert lost(found["allowed_models"]) == [("house", ["demo", "big"], "wider")]
    assert found["cut_style"].source == ("instance", "house", 1, True)
    assert lost(found["cut_style"]) == [("own", "head", "locked_above")]
    assert lost(found["show_date"]) == [("house", True, "farther")]
    assert lost(found["window_turns"]) == [("house", None, "no_limit")]
    assert (found["layout"].value, lost(found["layout"])) == ("A", [("group-b", "B", "group_rank")])
    assert (found["fold_turns"].reason, found["fold_turns"].losing) == ("default", [])
    assert not found["state_schema"].is_used
    assert {row.reason for field in found.values() for row in field.losing} <= set(LOST)
    assert {field.reason for field in found.values()} <= set(WON)


def test_it_is_the_policy_that_governs(alice: User, chat: Chat, policy: Any) -> None:
    policy("house", {"strategy": "simple", "token_budget": 15_000}, level="instance")
    policy(
        "here",
        {"strategy": "simple", "window_size": 7, "keep_last_messages": 5},
        level="chat",
        chat_id=chat.pk,
    )
    model = ModelSpec.objects.get(slug="demo")
    model.context_window = 5_000
    model.save()
    chat.model = model
    found = explained(alice, chat)
    effective = resolve_policy(
        user_id=alice.pk,
        chat_id=chat.pk,
        model_window=5_000,
        defaults={"window_size": 12, "max_chars_per_message": 4_000},
    )
    assert {name: field.value for name, field in found.items()} == effective.values
    assert {name: list(field.source) for name, field in found.items()} == effective.sources
    assert [name for name, field in found.items() if field.was_adjusted] == [
        row[0] for row in effective.adjusted
    ]
    assert found["max_chars_per_message"].reason == "setting"


def test_another_model_may_make_other_values_necessary(alice: User, policy: Any) -> None:
    policy("house", {"token_budget": 16_000, "reserve_tokens": 4_000}, level="instance")
    ModelSpec.objects.create(slug="tiny", name="tiny", provider="x", context_window=3_000)
    field = explained(alice, None, model="tiny")["reserve_tokens"]
    assert (field.wanted, field.was_adjusted) == (4_000, True)
    assert isinstance(field.value, int)
    assert field.value < 4_000


@pytest.mark.requirement("S0.7", by="admin")
def test_the_administration_explains_it_for_anybody(
    alice: User, chat: Chat, policy: Any, demo_model: object
) -> None:
    policy("house", {"token_budget": 15_000}, ("token_budget",), level="instance")
    policy("own", {"token_budget": 14_000, "system_text": "<b>Be"}, level="user", user=alice)
    browser = signed_in(person("ines", POLICY_ADMIN))
    page = Page(browser.get(EXPLAIN).content.decode())
    assert "User" in page.words
    asked = {"person": "alice", "chat": str(chat.pk), "model": "demo"}
    shown = browser.get(EXPLAIN, asked)
    page = Page(shown.content.decode())
    assert "House v1, everyone, locked" in page.words
    assert LOST["locked_above"] in page.words
    assert "<b>Be" not in shown.content.decode()
    assert page.inline == []
    for wrong, field, code in (
        ({"person": "nobody"}, "person", "unknown_person"),
        ({"person": "alice", "chat": str(uuid4())}, "chat", "invalid_choice"),
        ({"person": "alice", "agent": "planner"}, "agent", "invalid_choice"),
        ({"person": "alice", "chat": "x"}, "chat", "invalid_choice"),
    ):
        answer = browser.get(EXPLAIN, wrong)
        errors = answer.context["form"].errors.as_data()
        assert [each.code for each in errors[field]] == [code]
        assert 'class="errornote" role="alert"' in answer.content.decode()
        assert (
            str(errors[field][0].message % (errors[field][0].params or {}))
            in Page(answer.content.decode()).words
        )
    assert signed_in(person("audrey", AUDITOR)).get(EXPLAIN).status_code == 200
    assert signed_in(alice).get(EXPLAIN).status_code in (302, 403)


def test_the_administration_searches_people_and_offers_their_chats(
    alice: User, bob: User, chat: Chat, demo_model: object
) -> None:
    User.objects.filter(pk=bob.pk).update(first_name="Alicia", last_name="Berg")
    browser = signed_in(person("ines", POLICY_ADMIN))
    several = browser.get(EXPLAIN, {"person": "ALIC"})
    html = several.content.decode()
    assert several.context["form"].has_error("person", code="several_people")
    assert [one.username for one in several.context["form"].people] == ["alice", "bob"]
    assert 'href="?person=bob"' in html
    page = Page(browser.get(EXPLAIN, {"person": "berg"}).content.decode())
    assert "Token budget" in page.words
    found = browser.get(EXPLAIN, {"person": "alice"})
    offered = found.context["form"].fields["chat"].choices
    assert [key for key, _ in offered] == ["", str(chat.pk)]
    assert chat.title == "" or chat.title not in found.content.decode()
    # Labels appear in the order of the policy form, each next to its field name.
    words = Page(found.content.decode()).words
    assert "strategy_config" in words
    assert words.index("token_budget") < words.index("allowed_models")
    assert words.index("Token budget") < words.index("token_budget")


def test_the_administration_offers_agents_of_own_teams_by_number(
    alice: User, chat: Chat, now: datetime, demo_model: object
) -> None:
    draft = TeamDraft(name="Hers", agents=[AgentDraft(name="Canary")])
    chat.team = rosters.create_team(user=alice, draft=draft, shared=False, now=now).team
    chat.save()
    browser = signed_in(person("ines", POLICY_ADMIN))
    asked = {"person": "alice", "chat": str(chat.pk)}
    ((_, none), (role, label)) = browser.get(EXPLAIN, asked).context["form"].fields["agent"].choices
    assert (none, label) == ("None", "Agent 1")
    html = browser.get(EXPLAIN, {**asked, "agent": role}).content.decode()
    assert "agent <bdi>Agent 1</bdi>" in " ".join(html.split())
    assert "canary" not in html.lower()


def test_programs_read_it_too_and_texts_stay_with_who_may_see_them(
    alice: User, chat: Chat, policy: Any, program: MakeProgram, demo_model: object
) -> None:
    policy("house", {"system_text": "Secret.", "token_budget": 15_000}, level="instance")
    policy("own", {"system_text": "Mine."}, level="user", user=alice)
    too_long = program(alice).get(f"chats/{chat.pk}/policy/explained", agent="a" * 81)
    assert (too_long.status_code, too_long.json()["error"]["param"]) == (400, "agent")
    own = program(alice).get(f"chats/{chat.pk}/policy/explained").json()
    fields = {field["field"]: field for field in own["fields"]}
    assert (fields["system_text"]["value"], fields["system_text"]["lost"][0]["value"]) == (
        None,
        None,
    )
    assert fields["token_budget"]["source"]["policy"] == "house"
    assert program(alice).get("policies/effective", person="alice").status_code == 404
    ines = program(person("ines", POLICY_ADMIN))
    found = ines.get("policies/effective", person="alice", chat=str(chat.pk)).json()
    fields = {field["field"]: field for field in found["fields"]}
    assert fields["system_text"]["lost"][0]["value"] == "Secret."
    missing = ines.get("policies/effective", person="bobby")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_there")
    assert ines.get("policies/effective").status_code == 400


def test_an_agent_has_its_policy_between(
    alice: User, chat: Chat, policy: Any, team_of: Callable[..., Team]
) -> None:
    policy("house", {"show_date": True}, level="instance")
    team = team_of("Planner", "Critic")
    planner = Agent.objects.get(version=team.current_id, name="Planner")
    planner.policy = policy("planning", {"show_date": False})
    planner.save()
    chat.team = team
    chat.save()
    field = explained(alice, chat, role_id=planner.role_id)["show_date"]
    assert (field.value, field.source[:2]) == (False, ("agent", "planning"))
    assert lost(field) == [("house", True, "farther")]
    assert explained(alice, chat)["show_date"].value is True
    with pytest.raises(NotThere):
        resolve_viewpoint(alice, chat=chat, role_id="nobody")
    with pytest.raises(NotThere):
        resolve_viewpoint(alice, chat=chat, model="none")


def test_a_retired_policy_no_longer_applies_to_an_agent(
    alice: User, chat: Chat, policy: Any, team_of: Callable[..., Team], demo_model: ModelSpec
) -> None:
    policy("house", {"show_date": True}, level="instance")
    team = team_of("Planner", "Critic")
    planner = Agent.objects.get(version=team.current_id, name="Planner")
    planner.policy = policy("planning", {"show_date": False})
    planner.save()
    chat.team = team
    chat.save()
    assert not choose_chat_model(chat=chat, agent=planner).values.show_date
    planner.policy.retired = True
    planner.policy.save()

    assert choose_chat_model(chat=chat, agent=planner).values.show_date
    assert explained(alice, chat, role_id=planner.role_id)["show_date"].value is True
