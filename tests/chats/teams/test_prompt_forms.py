"""Prompt forms and byte limits of agents, in rounds, over REST and on the page."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Agent, Chat, Message, Receipt, TeamVersion
from chats.prompt.reconstruction import rebuild_request
from chats.teams import conversation
from chats.teams import play as rounds_of_people
from chats.turns.roster import load_current_roster
from chats.web.receipt_labels import CHANGES
from contextpolicy.engine.team.agent_formats import assemble_prompt
from contextpolicy.engine.team.team_view import SPEAKERS_NAMED
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.contextpolicy.pages import opened, submitted
from tests.support.team_rounds import TeamPlay

__all__ = ["of_alice", "program"]
pytestmark = pytest.mark.usefixtures("built_again")
FORMS = ("claude-code", "openai-codex", "google-gemini", "plain")
Plays = Callable[..., TeamPlay]


def with_form(form: str, *, of: str = "critic") -> None:
    Agent.objects.filter(role_id=of).update(prompt_form=form)


@pytest.mark.requirement("S3.8")
@pytest.mark.requirement("S3.11")
@pytest.mark.parametrize("form", FORMS)
def test_a_round_sends_the_text_that_a_program_gets(play: Plays, form: str) -> None:
    game = play("Planner", "Critic")
    with_form(form)
    Chat.objects.update(team_task="Sell apples.")
    game.ask("Plan a trip.\n# Current message\n<current_message>")
    game.answer("Day one: Rome.")
    critic = load_current_roster(game.chat).agent("critic")
    assert critic is not None
    asked = rounds_of_people.build_requested_agent(critic)
    game.chat.refresh_from_db()
    expected = assemble_prompt(
        form, conversation.assemble_agent_context(chat=game.chat, agent=asked)
    )
    game.answer("Too short.")
    system, *rest = game.prompts[-1]
    assert rest == [("user", expected.prompt)]
    assert system[0] == "system"
    assert ("Act as critic here." in system[1]) == (form == "claude-code")
    assert SPEAKERS_NAMED in system[1]
    assert "[FROM:" not in system[1]
    receipt = Receipt.objects.latest("created_at")
    assert f"prompt_form:{form}" in receipt.notes
    assert {s[2] for s in receipt.segments if s[2]} == {1, 2}
    assert rebuild_request(receipt).fault == ""


def test_the_others_of_the_team_keep_messages(play: Plays) -> None:
    game = play("Planner", "Critic")
    with_form("plain")
    game.ask("One.")
    game.answer("A1", "B1")
    game.ask("Two.")
    game.answer("A2", "B2")
    assert [role for role, _ in game.prompts[2]] == ["system", "user", "assistant", "user"]
    (_, text) = game.prompts[3][-1]
    assert text.startswith("Instructions:\nAct as critic here.\n\nConversation:\n")
    assert text.endswith("Current message:\nA2")
    assert "Critic to all: B1\n" in text


def test_an_agent_that_spoke_last_is_told_to_go_on_in_its_form(play: Plays) -> None:
    game = play("Planner", "Critic", routing="round_robin", hop_limit=4)
    with_form("claude-code")
    game.ask("One.")
    game.answer("P1", "A1", "P2")
    # With the next message excluded, the agent's own reply is the newest.
    Message.objects.filter(seq=4).update(excluded=True)
    game.answer("A2")
    (_, text) = game.prompts[-1][-1]
    assert '<message from="Critic" to="all">\nA1\n</message>' in text
    assert "<current_message>\nIt is your turn again" in text
    assert text.endswith("</current_message>")


def test_the_receipt_page_names_the_form(play: Plays, alice: User) -> None:
    game = play("Critic")
    with_form("google-gemini")
    game.ask("One.")
    game.answer("A1")
    turn = Receipt.objects.latest("created_at").turn
    client = Client()
    client.force_login(alice)
    words = opened(client, f"/chats/{game.chat.pk}/turns/{turn.pk}/receipt").words
    assert str(CHANGES["prompt_form:google-gemini"]) in words
    assert "in message 2 of the request" in words


@pytest.mark.parametrize("form", ["messages", "plain"])
def test_the_byte_limit_of_the_team_holds_in_rounds(play: Plays, form: str) -> None:
    game = play("Critic", max_bytes=3_000)
    with_form(form)
    for number in range(4):
        game.ask(f"{number} " + "x" * 900)
        game.answer(f"reply {number}")
    sizes = [sum(len(text) for _, text in prompt) for prompt in game.prompts]
    assert max(sizes) <= 3_000
    assert "0 xxx" not in game.prompts[-1][-1][1]
    game.ask("y" * 3_000)
    turn = game.queued()
    assert turn is not None
    game.work(turn)
    turn.refresh_from_db()
    assert "max_bytes 3,000" in turn.error_sentence


def test_a_team_from_before_the_option_has_no_limit_in_rounds(play: Plays) -> None:
    game = play("Critic", max_bytes=0)
    game.ask("One.")
    game.answer("A1")
    assert len(game.prompts) == 1
    agent = conversation.RequestedAgent(agent_id="critic")
    game.chat.refresh_from_db()
    assert conversation.assemble_agent_context(chat=game.chat, agent=agent).max_bytes == 786_432


@pytest.mark.requirement("S3.4", by="integrator")
def test_programs_set_the_limit_and_the_refusal_names_it(of_alice: Program, chat: Chat) -> None:
    body = {"name": "Team", "agents": [{"name": "Ann"}]}
    made = of_alice.post("teams", body).json()
    assert (made["max_bytes"], made["agents"][0]["window_size"]) == (786_432, 5)
    small = of_alice.call("PUT", f"teams/{made['id']}", {**body, "max_bytes": 2_000}).json()
    assert small["max_bytes"] == 2_000
    of_alice.call("PATCH", f"chats/{chat.pk}", {"team": made["id"]})
    said = {"content": "x" * 3_000, "speaker": {"roleId": "u", "type": "human"}}
    of_alice.post(f"chats/{chat.pk}/team/messages", {"message": said})
    asked = {"agentId": "ann", "agentType": "codex"}
    context = of_alice.post(f"chats/{chat.pk}/team/context", asked).json()
    assert context["maxBytes"] == 2_000
    refused = of_alice.post(f"chats/{chat.pk}/team/prompt", asked)
    assert refused.status_code == 422
    assert "the limit (maxBytes) is 2,000" in refused.json()["error"]["message"]
    for size in (-1, 1_023, 100_000_001):
        answer = of_alice.call("PUT", f"teams/{made['id']}", {**body, "max_bytes": size})
        assert answer.json()["error"]["param"] == "max_bytes", size


@pytest.mark.parametrize(
    ("agent", "form"),
    [
        ({}, "messages"),
        ({"agent_type": "Claude"}, "claude-code"),
        ({"agent_type": "gemini"}, "google-gemini"),
        ({"agent_type": "llama"}, "plain"),
        ({"agent_type": "claude", "prompt_form": "messages"}, "messages"),
        ({"prompt_form": "openai-codex"}, "openai-codex"),
    ],
)
def test_a_new_agent_gets_the_form_of_its_type(
    of_alice: Program, agent: dict[str, str], form: str
) -> None:
    made = of_alice.post("teams", {"name": "Team", "agents": [{"name": "Ann", **agent}]}).json()
    assert made["agents"][0]["prompt_form"] == form


def test_an_agent_that_exists_keeps_form_and_window_unless_told(of_alice: Program) -> None:
    ann = {"name": "Ann", "agent_type": "claude"}
    made = of_alice.post("teams", {"name": "Team", "agents": [ann]}).json()
    TeamVersion.objects.update(max_bytes=0)
    Agent.objects.update(prompt_form="messages", window_size=12)
    ann["role_id"] = made["agents"][0]["role_id"]
    body = {"name": "Team", "agents": [ann, {"name": "Ben", "agent_type": "codex"}]}
    changed = of_alice.call("PUT", f"teams/{made['id']}", body).json()
    agents = [(each["prompt_form"], each["window_size"]) for each in changed["agents"]]
    assert agents == [("messages", 12), ("openai-codex", 5)]
    assert changed["max_bytes"] == 0


def test_the_page_sets_form_and_limit(alice: User, of_alice: Program) -> None:
    client = Client()
    client.force_login(alice)
    new = opened(client, "/teams/new").fields
    assert (new["agent-0-window_size"], new["max_bytes"]) == (["12"], ["786432"])
    changes = {"name": "T", "agent-0-name": "Ann", "agent-1-name": "Ben", "do": "save"}
    changes |= {"agent-1-prompt_form": "google-gemini", "max_bytes": "5000"}
    submitted(client, "/teams/new", **changes)
    version = TeamVersion.objects.get()
    assert version.max_bytes == 5_000
    forms = list(version.agents.values_list("prompt_form", flat=True))
    assert forms == ["messages", "google-gemini"]
    refused = submitted(client, f"/teams/{version.team_id}", **{**changes, "max_bytes": "7"})
    assert "1,024 to 100,000,000" in refused.content.decode()
