"""Teams, the team of a chat, and its rounds over the API."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from chats.models import Chat, Message, Round, Team, TeamVersion, Turn
from chats.turns.stop import stop_turn
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_bodies import NEW_TEAM, PLANNER_AGENT
from tests.support.error_codes import read_status_and_code
from tests.support.team_rounds import TeamPlay

Work = Callable[..., Any]
WHOLE_PLANNER = {
    "role_id": "planner",
    "name": "Planner",
    "type": "ai",
    "agent_type": "",
    "model": "",
    "instruction": "Plan.",
    "instruction_file_text": "",
    "prompt_form": "messages",
    "window_size": 9,
    "policy": "",
    "rests": False,
}


@pytest.fixture
def crew(of_alice: Program) -> dict[str, Any]:
    """Alice's team."""
    made = of_alice.post("teams", NEW_TEAM)
    assert made.status_code == 201
    found: dict[str, Any] = made.json()
    return found


@pytest.fixture
def game(of_alice: Program, crew: dict[str, Any], chat: Chat, alice: User, work: Work) -> TeamPlay:
    """A chat of that team."""
    chosen = of_alice.call("PATCH", f"chats/{chat.pk}", {"team": crew["id"]})
    assert chosen.json()["team"] == crew["id"]
    return TeamPlay(chat, alice, work)


def of_admin(user: User, program: MakeProgram) -> Program:
    """The client of a user with permission to change policies."""
    user.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))
    return program(user)


@pytest.mark.requirement("S3.11")
def test_a_team_is_made_read_changed_and_deleted(of_alice: Program, crew: dict[str, Any]) -> None:
    path = f"teams/{crew['id']}"
    assert crew.pop("warnings") == []
    assert (crew["name"], crew["version"], crew["shared"]) == ("Crew", 1, False)
    assert crew["agents"][0] == WHOLE_PLANNER
    limits = [crew[name] for name in ("hop_limit", "token_limit", "seconds_limit")]
    assert limits == [8, 100_000, 600]
    assert (crew["routing"], crew["task"]) == ("all", "Sell apples")
    assert of_alice.get(path).json() == crew
    assert of_alice.get("teams").json() == {"data": [crew], "next_cursor": None}
    other = {
        "name": "Crew 2",
        "agents": [{"name": "Chief", "role_id": "planner"}, {"name": "Planner"}],
        "routing": "round_robin",
        "goes_on_after_failure": False,
    }
    changed = of_alice.call("PUT", path, other)
    assert changed.status_code == 200
    told = changed.json()
    assert (told["name"], told["version"], told["task"]) == ("Crew 2", 2, "")
    assert [agent["role_id"] for agent in told["agents"]] == ["planner", "planner-2"]
    gone = of_alice.call("DELETE", path)
    assert (gone.status_code, gone.content) == (204, b"")
    for method, body in (("GET", None), ("PUT", other), ("DELETE", None)):
        assert read_status_and_code(of_alice.call(method, path, body)) == (404, "not_found")
    assert of_alice.get("teams").json()["data"] == []


def test_a_read_team_is_a_body_but_for_what_the_server_gives(
    of_alice: Program, crew: dict[str, Any]
) -> None:
    given = ("id", "version", "warnings")
    body = {name: value for name, value in crew.items() if name not in given}
    again = of_alice.call("PUT", f"teams/{crew['id']}", body).json()
    assert again == {**crew, "version": 2}


def test_teams_come_in_pages(of_alice: Program) -> None:
    made = [of_alice.post("teams", {**NEW_TEAM, "name": str(n)}).json()["id"] for n in range(3)]
    first = of_alice.get("teams", limit=2).json()
    rest = of_alice.get("teams", limit=2, cursor=first["next_cursor"]).json()
    assert [row["id"] for row in first["data"] + rest["data"]] == made
    assert rest["next_cursor"] is None
    assert read_status_and_code(of_alice.get("teams", cursor="x")) == (400, "invalid_cursor")


def test_what_a_person_should_know_of_a_team_is_told(
    of_alice: Program, crew: dict[str, Any]
) -> None:
    body = {"name": "Crew", "agents": [{"name": "A", "window_size": 1}], "task": "x" * 5_121}
    for answer in (
        of_alice.post("teams", body),
        of_alice.call("PUT", f"teams/{crew['id']}", body),
    ):
        told = answer.json()
        assert len(told["task"]) == 5_120
        assert "The window of A is smaller" in told["warnings"][0]
        assert "first 5,120 of 5,121 bytes were saved" in told["warnings"][1]


def with_agent(**values: object) -> dict[str, Any]:
    """Return the body of a team whose second agent has these values."""
    return {"name": "Crew", "agents": [PLANNER_AGENT, {"name": "Critic", **values}]}


REFUSED = {
    "no name": ({"agents": [PLANNER_AGENT]}, 400, "missing_field", "name"),
    "no agents": ({"name": "Crew"}, 400, "missing_field", "agents"),
    "agents that are none": ({"name": "Crew", "agents": "Planner"}, 400, "invalid_value", "agents"),
    "nobody": ({"name": "Crew", "agents": []}, 422, "invalid_team", "agents"),
    "an agent that is a text": (
        {"name": "Crew", "agents": [PLANNER_AGENT, "Critic"]},
        400,
        "invalid_value",
        "agents.1",
    ),
    "an agent without a name": (
        {"name": "Crew", "agents": [PLANNER_AGENT, {}]},
        400,
        "missing_field",
        "agents.1.name",
    ),
    "a field that is none": (with_agent(tools=[]), 400, "unknown_field", "agents.1.tools"),
    "an owner": ({**NEW_TEAM, "owner": 1}, 400, "unknown_field", "owner"),
    "hops as text": ({**NEW_TEAM, "hop_limit": "8"}, 400, "invalid_value", "hop_limit"),
    "a window as text": (with_agent(window_size="9"), 400, "invalid_value", "agents.1.window_size"),
    "rests as a number": (with_agent(rests=1), 400, "invalid_value", "agents.1.rests"),
    "no hop": ({**NEW_TEAM, "hop_limit": 0}, 422, "invalid_team", "hop_limit"),
    "a window below": (with_agent(window_size=-1), 422, "invalid_team", "agents.1.window_size"),
    "a window above": (with_agent(window_size=101), 422, "invalid_team", "agents.1.window_size"),
    "a twin": (with_agent(name="plan-ner"), 422, "invalid_team", "agents.1.name"),
    "a taken name": (with_agent(name="All"), 422, "invalid_team", "agents.1.name"),
    "a model": (with_agent(model="gpt-99"), 422, "invalid_team", "agents.1.model"),
    "a policy": (with_agent(policy="x"), 422, "invalid_team", "agents.1.policy"),
    "a NUL": ({**NEW_TEAM, "task": "\x00"}, 422, "invalid_team", "task"),
    "braces": (with_agent(model="{reason} {x}"), 422, "invalid_team", "agents.1.model"),
}


@pytest.mark.requirement("S3.11")
@pytest.mark.parametrize(("body", "status", "stable", "param"), REFUSED.values(), ids=REFUSED)
def test_a_bad_team_is_refused_with_its_place_and_nothing_changes(
    body: object, status: int, stable: str, param: str, of_alice: Program, crew: dict[str, Any]
) -> None:
    events = AuditEvent.objects.count()
    path = f"teams/{crew['id']}"
    for answer in (of_alice.post("teams", body), of_alice.call("PUT", path, body)):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (status, stable, param)
        assert len(error["message"].split()) > 3
    assert Team.objects.count() == TeamVersion.objects.count() == 1
    assert AuditEvent.objects.count() == events


def test_a_team_for_everybody_is_an_administrators(
    of_alice: Program, of_charlie: Program, program: MakeProgram, bob: User
) -> None:
    refused = of_alice.post("teams", {**NEW_TEAM, "shared": True})
    assert read_status_and_code(refused) == (403, "team_not_yours")
    assert not Team.objects.exists()
    admin = of_admin(bob, program)
    made = admin.post("teams", {**NEW_TEAM, "shared": True}).json()
    path = f"teams/{made['id']}"
    assert made["shared"] is True
    assert of_charlie.get(path).json()["name"] == "Crew"
    assert read_status_and_code(of_charlie.call("PUT", path, NEW_TEAM)) == (403, "team_not_yours")
    assert read_status_and_code(of_charlie.call("DELETE", path)) == (403, "team_not_yours")
    copied = of_charlie.post(f"{path}/copy")
    assert copied.status_code == 201
    assert (copied.json()["name"], copied.json()["shared"]) == ("Crew (copy)", False)
    assert copied.json()["id"] != made["id"]
    assert of_charlie.call("PUT", f"teams/{copied.json()['id']}", NEW_TEAM).status_code == 200
    assert admin.call("PUT", path, NEW_TEAM).json()["version"] == 2


def test_a_copy_and_a_deletion_take_no_body(of_alice: Program, crew: dict[str, Any]) -> None:
    path = f"teams/{crew['id']}"
    assert read_status_and_code(of_alice.post(f"{path}/copy", {"name": "x"})) == (
        400,
        "unknown_field",
    )
    assert read_status_and_code(of_alice.call("DELETE", path, {"name": "x"})) == (
        400,
        "unknown_field",
    )
    assert Team.objects.filter(deleted_at=None).count() == 1


def test_teams_of_others_are_nobodys(of_charlie: Program, crew: dict[str, Any]) -> None:
    path = f"teams/{crew['id']}"
    for method, place, body in (
        ("GET", path, None),
        ("PUT", path, NEW_TEAM),
        ("DELETE", path, None),
        ("POST", f"{path}/copy", None),
        ("POST", "chats", {"team": crew["id"]}),
        ("POST", "chats", {"team": crew["id"], "text": "Hello"}),
    ):
        assert read_status_and_code(of_charlie.call(method, place, body)) == (404, "not_found")
    assert of_charlie.get("teams").json()["data"] == []
    assert not Chat.objects.exists()


@pytest.mark.requirement("S3.11")
def test_a_chat_begins_with_a_team_and_its_first_agent(
    of_alice: Program, crew: dict[str, Any]
) -> None:
    body = {"team": crew["id"], "text": "@critic, what do you say?"}
    made = of_alice.post("chats", body, HTTP_IDEMPOTENCY_KEY="k")
    assert made.status_code == 202
    chat, turn = made.json(), made.json()["turn"]
    assert chat["team"] == crew["id"]
    assert (turn["agent"], turn["hop"]) == ("Critic", 1)
    (row,) = of_alice.get(f"chats/{chat['id']}/rounds").json()["data"]
    assert (row["id"], row["opening"]) == (turn["round"], chat["message"]["id"])
    assert (row["status"], row["next"], row["hop_limit"]) == ("running", [], 8)
    assert chat["message"]["addressees"] == ["Critic"]
    assert of_alice.get(f"chats/{chat['id']}/team").json()["teamTask"] == "Sell apples"
    again = of_alice.post("chats", body, HTTP_IDEMPOTENCY_KEY="k")
    assert again.json()["turn"]["id"] == turn["id"]
    other = of_alice.post("chats", {**body, "team": None}, HTTP_IDEMPOTENCY_KEY="k")
    assert read_status_and_code(other) == (422, "idempotency_key_reused")
    empty = of_alice.post("chats", {"team": crew["id"]}).json()
    assert (empty["team"], empty["turn"]) == (crew["id"], None)


@pytest.mark.requirement("S3.11")
def test_the_team_of_a_chat_changes_between_replies_alone(
    of_alice: Program, crew: dict[str, Any], game: TeamPlay
) -> None:
    path = f"chats/{game.chat.pk}"
    turn = of_alice.post(f"{path}/messages", {"text": "Go."}).json()["turn"]
    assert (turn["agent"], turn["hop"]) == ("Planner", 1)
    for team in (crew["id"], None):
        refused = of_alice.call("PATCH", path, {"title": "New", "team": team})
        assert read_status_and_code(refused) == (409, "team_busy")
    assert of_alice.get(path).json()["title"] == "Go."
    game.answer("One.", "Two.")
    assert of_alice.call("PATCH", path, {"team": None}).json()["team"] is None
    plain = of_alice.post(f"{path}/messages", {"text": "Alone?"}).json()["turn"]
    assert (plain["agent"], plain["round"], plain["hop"]) == (None, None, None)


@pytest.mark.parametrize("team", [str(uuid.UUID(int=7)), "planner", 5.5])
def test_a_team_that_is_none_changes_nothing(team: object, of_alice: Program, chat: Chat) -> None:
    answers = (
        of_alice.call("PATCH", f"chats/{chat.pk}", {"title": "New", "team": team}),
        of_alice.post("chats", {"team": team}),
        of_alice.post("chats", {"team": team, "text": "Hello"}),
    )
    for answer in answers:
        assert read_status_and_code(answer) in {(404, "not_found"), (400, "invalid_value")}
    chat.refresh_from_db()
    assert (chat.title, chat.team, Chat.objects.count()) == ("", None, 1)


@pytest.mark.requirement("S3.11")
def test_a_round_that_ended_early_goes_on_once(
    of_alice: Program, game: TeamPlay, alice: User
) -> None:
    path = f"chats/{game.chat.pk}/rounds"
    assert of_alice.get(path).json() == {"data": [], "next_cursor": None}
    assert read_status_and_code(of_alice.post(f"{path}/go-on")) == (409, "round_not_resumable")
    game.ask()
    assert read_status_and_code(of_alice.post(f"{path}/go-on")) == (409, "round_not_resumable")
    game.answer("One. [NEXT:Ghost]")
    waits = game.queued()
    assert waits is not None
    stop_turn(user=alice, turn=waits, now=game.now)
    assert read_status_and_code(of_alice.post(f"{path}/go-on", {"text": "x"})) == (
        400,
        "unknown_field",
    )
    went = of_alice.post(f"{path}/go-on")
    assert went.status_code == 202
    turn = went.json()
    assert (turn["status"], turn["hop"], turn["message"]) == ("queued", 1, str(waits.trigger_id))
    assert read_status_and_code(of_alice.post(f"{path}/go-on")) == (409, "round_not_resumable")
    newest, first = of_alice.get(path).json()["data"]
    assert (newest["id"], newest["status"], newest["speakers"]) == (turn["round"], "running", [])
    assert (first["status"], first["speakers"]) == ("stopped", ["Planner", "Critic"])
    assert (first["hops"], first["tokens"], first["unknown_names"]) == (2, 15, ["Ghost"])
    assert first["finished_at"]
    page = of_alice.get(path, limit=1).json()
    assert page["data"] == [newest]
    assert of_alice.get(path, limit=1, cursor=page["next_cursor"]).json()["data"] == [first]


@pytest.mark.team_case(3)
def test_a_round_at_its_limit_says_so_and_goes_on(
    of_alice: Program, crew: dict[str, Any], game: TeamPlay
) -> None:
    of_alice.call("PUT", f"teams/{crew['id']}", {**NEW_TEAM, "hop_limit": 1})
    path = f"chats/{game.chat.pk}/rounds"
    game.ask()
    game.answer("One.")
    (row,) = of_alice.get(path).json()["data"]
    assert (row["status"], row["reason"], row["next"]) == ("limit", "hops", ["Critic"])
    assert (row["team_version"], row["hop_limit"]) == (2, 1)
    assert of_alice.post(f"{path}/go-on").json()["agent"] == "Critic"
    assert game.answer("Two.") == ["Critic"]
    assert game.round().status == Round.Status.SETTLED


def test_going_on_counts_for_the_key_that_asked(
    of_alice: Program, crew: dict[str, Any], game: TeamPlay, settings: Any
) -> None:
    of_alice.call("PUT", f"teams/{crew['id']}", {**NEW_TEAM, "hop_limit": 1})
    game.ask()
    game.answer("One.")
    settings.TURNS_PER_KEY = 1
    of_alice.post("chats", {"text": "Hello"})
    path = f"chats/{game.chat.pk}/rounds/go-on"
    assert read_status_and_code(of_alice.post(path)) == (429, "too_many_runs")
    settings.TURNS_PER_KEY = 2
    turn = Turn.objects.get(pk=of_alice.post(path).json()["id"])
    assert turn.api_key is not None
    assert turn.api_key.owner == game.user


def test_going_on_counts_as_a_message(of_alice: Program, game: TeamPlay, settings: Any) -> None:
    settings.MESSAGES_PER_MINUTE = 1
    path = f"chats/{game.chat.pk}/rounds/go-on"
    assert read_status_and_code(of_alice.post(path)) == (409, "round_not_resumable")
    assert read_status_and_code(of_alice.post(path)) == (429, "rate_limit_exceeded")


@pytest.mark.requirement("S3.11")
def test_an_agents_context_has_its_own_window_and_words(
    of_alice: Program, crew: dict[str, Any], game: TeamPlay
) -> None:
    agents = [
        {**PLANNER_AGENT, "window_size": 1, "role_id": "planner"},
        {"name": "Critic", "role_id": "critic"},
    ]
    of_alice.call("PUT", f"teams/{crew['id']}", {**NEW_TEAM, "agents": agents})
    path = f"chats/{game.chat.pk}/agents"
    empty = of_alice.get(f"{path}/planner/context").json()
    assert (empty["contextMessages"], empty["systemInstruction"]) == ([], "Plan.")
    game.ask("Go.")
    game.answer("One.", "Two.")
    shown = of_alice.get(f"{path}/planner/context").json()
    assert shown["contextMessages"] == [{"from": "Planner", "to": "all", "content": "One."}]
    assert (shown["currentMessage"], shown["teamTask"]) == ("Two.", "Sell apples")
    assert shown["leftOut"] == [{"message": "msg-1", "reason": "window"}]
    assert len(of_alice.get(f"{path}/critic/context").json()["contextMessages"]) == 2
    assert read_status_and_code(of_alice.get(f"{path}/ghost/context")) == (404, "not_found")
    of_alice.call("PATCH", f"chats/{game.chat.pk}", {"team": None})
    assert read_status_and_code(of_alice.get(f"{path}/planner/context")) == (404, "not_found")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(14)
@pytest.mark.parametrize(("body", "follows"), [({}, []), ({"play_on": True}, ["Critic"])])
def test_a_reply_of_an_agent_is_asked_for_again(
    body: dict[str, bool], follows: list[str], of_alice: Program, game: TeamPlay
) -> None:
    game.ask("Go.")
    game.answer("One.", "Two.")
    first = Message.objects.get(branch__chat=game.chat, seq=2)
    path = f"chats/{game.chat.pk}/messages/{first.pk}/regenerate"
    for wrong in ({"play_on": "yes"}, {"again": True}):
        assert of_alice.post(path, wrong).status_code == 400
    again = of_alice.post(path, body, HTTP_IDEMPOTENCY_KEY="k")
    assert again.status_code == 202
    turn = again.json()
    assert (turn["agent"], turn["hop"]) == ("Planner", 1)
    assert of_alice.post(path, body, HTTP_IDEMPOTENCY_KEY="k").json()["id"] == turn["id"]
    other = of_alice.post(path, {"play_on": not body}, HTTP_IDEMPOTENCY_KEY="k")
    assert read_status_and_code(other) == (422, "idempotency_key_reused")
    assert game.answer("One again.", *("Two again.",) * len(follows)) == ["Planner", *follows]
    assert not Turn.objects.filter(status=Turn.Status.QUEUED).exists()
    (row,) = of_alice.get(f"chats/{game.chat.pk}/rounds").json()["data"]
    assert (row["status"], row["id"]) == ("settled", turn["round"])


def test_playing_on_means_nothing_without_a_team(
    of_alice: Program, chat: Chat, alice: User, work: Work
) -> None:
    game = TeamPlay(chat, alice, work)
    game.work(game.ask("Hello"))
    reply = Message.objects.get(branch__chat=chat, seq=2)
    path = f"chats/{chat.pk}/messages/{reply.pk}/regenerate"
    turn = of_alice.post(path, {"play_on": True}).json()
    assert (turn["status"], turn["round"], turn["agent"]) == ("queued", None, None)


def test_an_agent_has_a_model_of_its_own(of_alice: Program, demo_model: ModelSpec) -> None:
    ModelSpec.objects.create(slug="other", provider="demo", name="other", context_window=128_000)
    body = {"name": "Crew", "agents": [{"name": "Planner", "model": "other"}]}
    team = of_alice.post("teams", body).json()
    assert team["agents"][0]["model"] == "other"
    turn = of_alice.post("chats", {"team": team["id"], "text": "Go."}).json()["turn"]
    assert turn["model"] == "other"


def test_a_key_that_only_reads_reads_teams(
    program: MakeProgram, alice: User, crew: dict[str, Any], game: TeamPlay
) -> None:
    reader = program(alice, scopes=("chats:read",))
    for path in ("teams", f"teams/{crew['id']}", f"chats/{game.chat.pk}/rounds"):
        assert reader.get(path).status_code == 200
    assert reader.get(f"chats/{game.chat.pk}/agents/planner/context").status_code == 200
    assert read_status_and_code(reader.post("teams", NEW_TEAM)) == (403, "insufficient_scope")
    assert read_status_and_code(reader.post(f"chats/{game.chat.pk}/rounds/go-on")) == (
        403,
        "insufficient_scope",
    )


def test_a_program_answers_for_a_person_of_the_team(
    of_alice: Program, chat: Chat, alice: User, work: Work
) -> None:
    people = [{"name": "Planner"}, {"name": "Ann", "type": "human"}]
    made = of_alice.post("teams", {"name": "Crew", "agents": people}).json()
    of_alice.call("PATCH", f"chats/{chat.pk}", {"team": made["id"]})
    game = TeamPlay(chat, alice, work)
    game.ask("Go.")
    game.answer("What does she say? [NEXT:Ann]")
    path = f"chats/{chat.pk}/messages"
    refused = of_alice.post(path, {"text": "Yes.", "as_role": "planner"})
    assert read_status_and_code(refused) == (422, "no_such_seat")
    sent = {"text": "Yes. [NEXT:Planner]", "as_role": "ann"}
    accepted = of_alice.post(path, sent).json()
    assert accepted["message"]["speaker"] == {"roleId": "ann", "roleName": "Ann", "type": "human"}
    assert (accepted["turn"]["agent"], accepted["turn"]["hop"]) == ("Planner", 2)
