"""Teams: validation, versions and permissions."""

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone, translation

from chats.actions import lifecycle
from chats.ground.refusals import NotFound
from chats.models import Chat, Round, Team, TeamVersion, Turn
from chats.record import access
from chats.teams import draft_checks, play, rosters, team_drafts
from chats.teams.draft_checks import InvalidTeam, check_agent
from chats.teams.presets import PRESETS
from chats.teams.rosters import NotYours, TeamBusy
from chats.teams.team_drafts import AgentDraft, TeamDraft
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.team_rounds import TeamPlay, allow_policy_changes, draft_team

Work = Callable[..., Any]
CANARY = "canary"


def roles(team: Team) -> dict[str, str]:
    """Return the role id of each name in the newest version."""
    assert team.current is not None
    return dict(team.current.agents.values_list("name", "role_id"))


@pytest.fixture
def policy(db: None, now: datetime) -> ContextPolicy:
    """A policy that can be assigned to an agent."""
    return create_policy(
        slug="brief", name="Brief", values={"input_length_limit": 900}, actor="system", now=now
    )


def one(**values: Any) -> TeamDraft:
    """Return a team of one agent with these values."""
    return draft_team(AgentDraft(**{"name": "Planner", **values}))


REFUSED = {
    "nobody": (draft_team(), "agents", draft_checks.NO_AGENT),
    "nine": (draft_team(*"abcdefghi"), "agents", "at most 8 members"),
    "only resting": (
        draft_team(AgentDraft(name="A", rests=True)),
        "agents",
        draft_checks.NO_ACTIVE_AGENT,
    ),
    "only a person": (
        draft_team(AgentDraft(name="Ann", type="human")),
        "agents",
        draft_checks.NO_ACTIVE_AGENT,
    ),
    "no name": (draft_team("A", name=" "), "name", "1 to 100"),
    "a long name": (draft_team("A", name="x" * 101), "name", "1 to 100"),
    "two lines": (draft_team("A", name="a\nb"), "name", "1 to 100"),
    "a routing": (draft_team("A", routing="model"), "routing", "all, round_robin, person"),
    "no hop": (draft_team("A", hop_limit=0), "hop_limit", "1 to 50 replies"),
    "51 hops": (draft_team("A", hop_limit=51), "hop_limit", "1 to 50 replies"),
    "no token": (draft_team("A", token_limit=0), "token_limit", "tokens"),
    "many tokens": (draft_team("A", token_limit=10**7 + 1), "token_limit", "10,000,000 tokens"),
    "no second": (draft_team("A", seconds_limit=0), "seconds_limit", "seconds"),
    "a long day": (draft_team("A", seconds_limit=86_401), "seconds_limit", "86,400 seconds"),
    "a NUL in the task": (draft_team("A", task="ab\x00"), "task", "position 3"),
    "half a pair in the task": (draft_team("A", task="\ud800"), "task", "position 1"),
    "a window below": (one(window_size=-1), "agents.0.window_size", "is -1"),
    "a window above": (one(window_size=101), "agents.0.window_size", "up to 100"),
    "a model": (one(model="gpt-99"), "agents.0.model", "gpt-99"),
    "a policy": (one(policy="nowhere"), "agents.0.policy", "nowhere"),
    "a type": (one(type="robot"), "agents.0.type", draft_checks.UNKNOWN_TYPE),
    "a long kind": (one(agent_type="x" * 61), "agents.0.agent_type", "60"),
    "a kind with a tab": (one(agent_type="a\tb"), "agents.0.agent_type", "printable"),
    "a long instruction": (one(instruction="x" * 200_001), "agents.0.instruction", "200,000"),
    "a NUL in a file": (
        one(instruction_file_text="\x00"),
        "agents.0.instruction_file_text",
        "200,000",
    ),
    "one role twice": (
        draft_team(AgentDraft(name="A", role_id="a"), AgentDraft(name="B", role_id="a")),
        "agents.1.role_id",
        "Two members",
    ),
    "an empty name": (draft_team("A", " "), "agents.1.name", "name"),
    "a long agent's name": (draft_team("x" * 61), "agents.0.name", "60"),
    "a space at the end": (draft_team("Ann "), "agents.0.name", "space"),
}


@pytest.mark.parametrize(("asked", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_team_can_be_is_refused_with_its_place(
    asked: TeamDraft, param: str, words: str, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    with pytest.raises(InvalidTeam) as refused:
        rosters.create_team(user=alice, draft=asked, shared=False, now=now)
    assert refused.value.param == param
    assert words in refused.value.sentence
    assert not Team.objects.exists()
    assert not AuditEvent.objects.filter(type="team.created").exists()


@pytest.mark.parametrize("name", ["all", "ALL", "User", "s-ystem", "Sys tem", "-"])
def test_names_that_mean_something_else_are_taken(name: str, made: Callable[..., Team]) -> None:
    with pytest.raises(InvalidTeam, match="reserved") as refused:
        made("Planner", name)
    assert refused.value.param == "agents.1.name"


@pytest.mark.team_case(11)
@pytest.mark.parametrize("mark", [*',][@:"`', "\n", "\x00"])
def test_names_have_no_character_that_routing_reads(mark: str, made: Callable[..., Team]) -> None:
    with pytest.raises(InvalidTeam) as refused:
        made(f"A{mark}B")
    assert refused.value.param == "agents.0.name"


@pytest.mark.team_case(10)
@pytest.mark.parametrize(
    ("first", "second"),
    [("Planner", "planner"), ("Data Analyst", "data-analyst"), ("Ann B", "AnnB"), ("A_B", "a b")],
)
def test_names_that_only_case_spaces_and_hyphens_tell_apart_are_one(
    first: str, second: str, made: Callable[..., Team]
) -> None:
    with pytest.raises(InvalidTeam) as refused:
        made(first, "Critic", second)
    assert refused.value.param == "agents.2.name"
    assert refused.value.details == {"first": first, "second": second}
    assert first in refused.value.sentence


def test_a_task_over_its_bytes_is_cut_and_the_person_is_told(alice: User, now: datetime) -> None:
    whole = rosters.create_team(
        user=alice, draft=draft_team("A", task="x" * 5_120), shared=False, now=now
    )
    assert whole.warnings == ()
    cut = rosters.create_team(
        user=alice, draft=draft_team("A", task="é" * 2_561), shared=False, now=now
    )
    assert cut.warnings == (
        "The task was longer than 5,120 bytes. The first 5,120 of 5,122 bytes were saved.",
    )
    assert cut.team.current is not None
    assert cut.team.current.task == "é" * 2_560


def test_a_window_below_the_limit_of_replies_is_stored_with_a_warning(
    alice: User, now: datetime
) -> None:
    small, wide = AgentDraft(name="Small", window_size=7), AgentDraft(name="Wide", window_size=8)
    ann = AgentDraft(name="Ann", type="human", window_size=0)
    saved = rosters.create_team(
        user=alice, draft=draft_team(small, wide, ann), shared=False, now=now
    )
    (warning,) = saved.warnings
    assert "The window of Small is smaller than the 8 replies in a round" in warning
    assert saved.team.current is not None
    assert team_drafts.build_version_draft(saved.team.current).agents[0].window_size == 7
    changed = draft_team(replace(small, window_size=8), wide)
    again = rosters.update_team(user=alice, team_id=saved.team.pk, draft=changed, now=now)
    assert again.warnings == ()


@pytest.mark.requirement("S3.11")
def test_a_change_is_a_version_and_a_role_keeps_its_id_over_a_new_name(
    made: Callable[..., Team], alice: User, now: datetime
) -> None:
    team = made("Planner", "Critic")
    assert roles(team) == {"Planner": "planner", "Critic": "critic"}
    renamed = AgentDraft(name="Critic", role_id="planner", instruction="Plan.")
    rosters.update_team(
        user=alice, team_id=team.pk, draft=draft_team(renamed, "Planner", routing="person"), now=now
    )
    team.refresh_from_db()
    assert roles(team) == {"Critic": "planner", "Planner": "planner-2"}
    assert list(team.versions.order_by("number").values_list("number", "routing")) == [
        (1, "all"),
        (2, "person"),
    ]
    first = team.versions.get(number=1)
    assert list(first.agents.values_list("name", "instruction")) == [
        ("Planner", ""),
        ("Critic", ""),
    ]


def test_an_id_of_a_role_that_was_taken_out_never_becomes_anothers(
    made: Callable[..., Team], alice: User, now: datetime
) -> None:
    team = made("Planner", "Critic")
    for asked in (
        draft_team("Critic"),
        draft_team("Planner", AgentDraft(name="Old", role_id="planner")),
    ):
        rosters.update_team(user=alice, team_id=team.pk, draft=asked, now=now)
    team.refresh_from_db()
    assert roles(team) == {"Planner": "planner-2", "Old": "old"}


def test_ids_of_roles_are_made_of_names(made: Callable[..., Team]) -> None:
    found = roles(made("Data Analyst", "Größe", "🙂", "Assistant", "User!", "规划"))
    assert list(found.values()) == [
        "data-analyst",
        "größe",
        "agent",
        "assistant-agent",
        "user-agent",
        "规划",
    ]


@pytest.mark.requirement("S3.11")
def test_a_round_that_runs_keeps_the_version_it_began_with(
    made: Callable[..., Team], chat: Chat, alice: User, work: Work
) -> None:
    team = made("Planner", "Critic")
    rosters.set_chat_team(user=alice, chat=chat, team_id=team.pk, now=timezone.now())
    game = TeamPlay(chat, alice, work)
    game.ask()
    game.answer("One.")
    changed = draft_team("Writer", AgentDraft(name="Judge", role_id="critic"))
    rosters.update_team(user=alice, team_id=team.pk, draft=changed, now=timezone.now())
    assert game.answer("Two.") == ["Critic"]
    assert game.round().version.number == 1
    game.ask("Again.")
    assert game.answer("Three.", "Four.") == ["Writer", "Judge"]
    assert game.round().version.number == 2
    assert game.prompts[-1][2:3] == [("assistant", "Two.")]


@pytest.mark.team_case(20)
def test_a_copy_is_a_team_of_its_own_with_agents_of_its_own(
    made: Callable[..., Team], alice: User, bob: User, now: datetime
) -> None:
    team = made(
        AgentDraft(name="Planner", instruction="Plan.", model="demo", window_size=9),
        AgentDraft(name="Ann", type="human"),
        name="x" * 100,
        routing="round_robin",
        task="Sell apples",
    )
    twin = rosters.copy_team(user=alice, team_id=team.pk, now=now).team
    assert team.current is not None
    assert twin.current is not None
    before, after = (
        team_drafts.build_version_draft(team.current),
        team_drafts.build_version_draft(twin.current),
    )
    assert after == replace(before, name="x" * 93 + " (copy)")
    assert not set(team.current.agents.values_list("pk")) & set(
        twin.current.agents.values_list("pk")
    )
    rosters.update_team(user=alice, team_id=twin.pk, draft=draft_team("Writer"), now=now)
    team.refresh_from_db()
    assert list(roles(team)) == ["Planner", "Ann"]
    with pytest.raises(NotFound):
        rosters.copy_team(user=bob, team_id=team.pk, now=now)


def test_a_deleted_team_is_offered_no_more_and_its_chats_keep_it(
    made: Callable[..., Team], chat: Chat, alice: User, work: Work, now: datetime
) -> None:
    team = made("Planner")
    rosters.set_chat_team(user=alice, chat=chat, team_id=team.pk, now=now)
    rosters.delete_team(user=alice, team_id=team.pk, now=now)
    assert not access.get_visible_teams(user=alice).exists()
    for action in (rosters.delete_team, rosters.copy_team):
        with pytest.raises(NotFound):
            action(user=alice, team_id=team.pk, now=now)
    other = lifecycle.create_chat(owner=alice, now=now)
    with pytest.raises(NotFound):
        rosters.set_chat_team(user=alice, chat=other, team_id=team.pk, now=now)
    game = TeamPlay(chat, alice, work)
    game.ask()
    assert game.answer("Still here.") == ["Planner"]


def test_a_shared_team_is_everybodys_and_changed_by_few(
    alice: User, bob: User, charlie: User, demo_model: ModelSpec, now: datetime
) -> None:
    with pytest.raises(NotYours):
        rosters.create_team(user=alice, draft=draft_team("Planner"), shared=True, now=now)
    admin, other = allow_policy_changes(alice), allow_policy_changes(bob)
    team = rosters.create_team(user=admin, draft=draft_team("Planner"), shared=True, now=now).team
    assert access.get_team(user=charlie, team_id=team.pk) == team
    with pytest.raises(NotYours):
        rosters.update_team(user=charlie, team_id=team.pk, draft=draft_team("Mine"), now=now)
    with pytest.raises(NotYours):
        rosters.delete_team(user=charlie, team_id=team.pk, now=now)
    assert rosters.copy_team(user=charlie, team_id=team.pk, now=now).team.owner == charlie
    rosters.update_team(user=other, team_id=team.pk, draft=draft_team("Critic"), now=now)
    rosters.delete_team(user=other, team_id=team.pk, now=now)
    assert team.versions.count() == 2


def test_teams_of_others_are_not_found(made: Callable[..., Team], bob: User, now: datetime) -> None:
    team = made("Planner")
    own = lifecycle.create_chat(owner=bob, now=now)
    admin = allow_policy_changes(bob)
    for team_id in (team.pk, uuid.uuid4()):
        with pytest.raises(NotFound):
            rosters.update_team(user=admin, team_id=team_id, draft=draft_team("Mine"), now=now)
        with pytest.raises(NotFound):
            rosters.delete_team(user=admin, team_id=team_id, now=now)
        with pytest.raises(NotFound):
            rosters.copy_team(user=admin, team_id=team_id, now=now)
        with pytest.raises(NotFound):
            rosters.set_chat_team(user=admin, chat=own, team_id=team_id, now=now)
    assert Team.objects.get() == team
    assert not access.get_visible_teams(user=bob).exists()


def test_only_who_edits_policies_gives_one_to_an_agent(
    policy: ContextPolicy, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    asked = one(policy="brief")
    with pytest.raises(InvalidTeam) as refused:
        rosters.create_team(user=alice, draft=asked, shared=False, now=now)
    assert refused.value.param == "agents.0.policy"
    assert refused.value.full.template == draft_checks.POLICY_NOT_ASSIGNABLE
    admin = allow_policy_changes(alice)
    team = rosters.create_team(user=admin, draft=asked, shared=False, now=now).team
    assert team.current is not None
    assert team.current.agents.get().policy == policy
    # An existing assignment stays after the permission is removed.
    admin.user_permissions.clear()
    plain = User.objects.get(pk=alice.pk)
    rosters.update_team(user=plain, team_id=team.pk, draft=replace(asked, name="New"), now=now)
    policy.retired = True
    policy.save()
    with pytest.raises(InvalidTeam) as refused:
        rosters.update_team(user=plain, team_id=team.pk, draft=asked, now=now)
    assert refused.value.full.template == draft_checks.POLICY_NOT_ASSIGNABLE


def test_a_copy_of_a_shared_team_keeps_the_policies_it_was_given(
    policy: ContextPolicy, alice: User, bob: User, demo_model: ModelSpec, now: datetime
) -> None:
    asked = draft_team(AgentDraft(name="Planner", policy="brief"), "Critic")
    team = rosters.create_team(
        user=allow_policy_changes(alice), draft=asked, shared=True, now=now
    ).team
    twin = rosters.copy_team(user=bob, team_id=team.pk, now=now).team
    assert twin.current is not None
    assert list(twin.current.agents.values_list("policy__slug", flat=True)) == ["brief", None]


def test_a_model_that_is_switched_off_is_given_to_nobody(
    made: Callable[..., Team], demo_model: ModelSpec
) -> None:
    team = made(AgentDraft(name="Planner", model="demo"))
    assert team.current is not None
    assert team.current.agents.get().model == demo_model
    demo_model.enabled = False
    demo_model.save()
    with pytest.raises(InvalidTeam, match="“demo” does not exist or is disabled"):
        made(AgentDraft(name="Planner", model="demo"))


def test_a_person_has_so_many_teams_and_no_more(
    made: Callable[..., Team], alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rosters, "MOST_TEAMS", 1)
    team = made("Planner")
    with pytest.raises(rosters.TooManyTeams, match="limit of 1 teams"):
        made("Critic")
    with pytest.raises(rosters.TooManyTeams):
        rosters.copy_team(user=alice, team_id=team.pk, now=now)
    rosters.delete_team(user=alice, team_id=team.pk, now=now)
    made("Critic")


def test_a_team_that_is_created_at_the_same_time_counts(
    made: Callable[..., Team], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rosters, "MOST_TEAMS", 1)

    class Waiting:
        """A lock that another request holds until it has created its team."""

        def hold(self, *, owner: int) -> None:
            Team.objects.create(owner_id=owner, created_at=timezone.now())

    monkeypatch.setattr(rosters, "PERSON_LOCK", Waiting())
    with pytest.raises(rosters.TooManyTeams):
        made("Planner")


def test_a_team_is_chosen_between_replies_and_brings_its_task(
    made: Callable[..., Team], chat: Chat, alice: User, work: Work, now: datetime
) -> None:
    first, second = made("Planner", task="Sell apples"), made("Critic", task="Sell pears")
    chosen = rosters.set_chat_team(user=alice, chat=chat, team_id=first.pk, now=now)
    assert (chosen.team, chosen.team_task) == (first, "Sell apples")
    game = TeamPlay(chat, alice, work)
    game.ask()
    for team_id in (second.pk, None):
        with pytest.raises(TeamBusy):
            rosters.set_chat_team(user=alice, chat=chat, team_id=team_id, now=now)
    game.answer("One.")
    chosen = rosters.set_chat_team(user=alice, chat=chat, team_id=second.pk, now=now)
    # From then on, the chat has a separate copy of the task.
    assert (chosen.team, chosen.team_task) == (second, "Sell apples")
    chosen = rosters.set_chat_team(user=alice, chat=chat, team_id=None, now=now)
    assert (chosen.team, chosen.team_task) == (None, "Sell apples")
    chat.refresh_from_db()
    assert chat.team is None


def test_an_agent_of_a_chat_is_found_by_its_role(
    made: Callable[..., Team], chat: Chat, alice: User, now: datetime
) -> None:
    with pytest.raises(NotFound):
        play.find_team_agent(chat, role_id="planner")
    chosen = rosters.set_chat_team(user=alice, chat=chat, team_id=made("Planner").pk, now=now)
    assert play.find_team_agent(chosen, role_id="planner").name == "Planner"
    with pytest.raises(NotFound):
        play.find_team_agent(chosen, role_id="critic")
    assert play.find_newest_chat_round(chosen) is None


def test_the_ledger_knows_the_teams_and_none_of_their_words(
    chat: Chat, alice: User, now: datetime
) -> None:
    planner = AgentDraft(
        name="Planner",
        instruction=CANARY,
        instruction_file_text=CANARY,
        agent_type=CANARY,
    )
    asked = draft_team(planner, name=CANARY, task=CANARY)
    team = rosters.create_team(user=alice, draft=asked, shared=False, now=now).team
    rosters.update_team(user=alice, team_id=team.pk, draft=replace(asked, hop_limit=3), now=now)
    rosters.set_chat_team(user=alice, chat=chat, team_id=team.pk, now=now)
    rosters.set_chat_team(user=alice, chat=chat, team_id=None, now=now)
    rosters.delete_team(user=alice, team_id=team.pk, now=now)
    told = list(AuditEvent.objects.filter(type__startswith="team.").order_by("pk"))
    assert [(event.type, event.chat_id) for event in told] == [
        ("team.created", None),
        ("team.changed", None),
        ("team.chosen", chat.pk),
        ("team.chosen", chat.pk),
        ("team.deleted", None),
    ]
    assert {event.actor for event in told} == {f"user:{alice.pk}"}
    assert CANARY not in json.dumps([event.data for event in told])
    made, changed, chosen, none, deleted = (event.data for event in told)
    assert made["team"] == chosen["team"] == str(team.pk)
    assert (made["shared"], made["version"], made["agents"]) == (False, 1, ["planner"])
    assert none["team"] == ""
    assert changed["version"] == 2
    assert changed["sha256"] == deleted["sha256"] != made["sha256"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_team_without_a_warning(
    name: str, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    saved = rosters.create_team(user=alice, draft=PRESETS[name], shared=False, now=now)
    assert saved.warnings == ()
    version = TeamVersion.objects.get()
    made = team_drafts.build_version_draft(version)
    assert replace(made, agents=()) == replace(PRESETS[name], agents=())
    assert [replace(a, role_id="") for a in made.agents] == list(PRESETS[name].agents)


def test_the_names_that_presets_call_are_members_of_theirs() -> None:
    for preset in PRESETS.values():
        names = {agent.name for agent in preset.agents}
        for agent in preset.agents:
            called = {part.partition("]")[0] for part in agent.instruction.split("[NEXT:")[1:]}
            assert called <= names - {agent.name}


@pytest.mark.parametrize(
    ("goes_on", "status", "follows"),
    [(True, Round.Status.SETTLED, ["Writer"]), (False, Round.Status.FAILED, [])],
)
def test_an_agent_that_may_not_use_its_model_fails_alone(
    goes_on: bool,
    status: str,
    follows: list[str],
    made: Callable[..., Team],
    chat: Chat,
    alice: User,
    work: Work,
    now: datetime,
) -> None:
    ModelSpec.objects.create(slug="other", provider="demo", name="other", context_window=128_000)
    critic = AgentDraft(name="Critic", model="other")
    team = made("Planner", critic, "Writer", goes_on_after_failure=goes_on)
    rosters.set_chat_team(user=alice, chat=chat, team_id=team.pk, now=now)
    game = TeamPlay(chat, alice, work)
    first = game.ask()
    strict = create_policy(
        slug="strict", name="S", values={"allowed_models": ["demo"]}, actor="system", now=now
    )
    assign_policy(policy=strict, level="chat", chat_id=chat.pk, actor="system", now=now)
    game.answer("One.")
    first.refresh_from_db()
    assert first.status == Turn.Status.COMPLETED
    second = game.queued()
    assert second is not None
    game.work(second)
    assert (second.status, second.error_code) == (Turn.Status.FAILED, "model_not_allowed")
    assert game.answer(*("Three.",) * len(follows)) == follows
    assert (game.queued(), game.round().status) == (None, status)


@pytest.mark.parametrize("name", ["", "N" * 200, "Ann ", "A]", "all"])
def test_the_fault_of_a_name_is_told_in_the_reader_s_language(name: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        check_agent(AgentDraft(name=name), param="agents.0")
    with translation.override("zh-hans"):
        told = str(refused.value.localized)
    assert re.search(r"[\u4e00-\u9fff]", told)
    assert told != str(refused.value)
