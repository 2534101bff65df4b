"""Rounds that wait for a person: the next person is asked, and limits keep the queue."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.models import Message, Round, Turn
from chats.turns import start
from contextpolicy.models import AuditEvent
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.support.team_rounds import TeamPlay, list_said

__all__ = ["of_alice", "program"]
Plays = Callable[..., TeamPlay]


def answer_as(of_alice: Program, game: TeamPlay, role: str, text: str) -> Turn:
    """Answer over REST in the name of a person, and return the turn."""
    body = {"text": text, "as_role": role}
    answer = of_alice.post(f"chats/{game.chat.pk}/messages", body)
    assert answer.status_code == 202
    return Turn.objects.get(pk=answer.json()["turn"]["id"])


@pytest.mark.usefixtures("built_again")
def test_a_round_asks_each_person_that_it_calls(play: Plays, of_alice: Program) -> None:
    game = play("Planner", "Writer", humans=("Ann", "Bob"))
    game.ask("@Planner plan it.")
    game.answer("Both decide. [NEXT:Ann, Bob]")
    waiting = game.round()
    turn = answer_as(of_alice, game, "ann", "Rome.")
    assert (turn.status, turn.round, turn.agent) == (Turn.Status.ABSORBED, waiting, None)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.queue) == (Round.Status.WAITING, ["bob"])
    ended = AuditEvent.objects.filter(turn_id=turn.pk).order_by("pk")
    assert [event.type for event in ended] == ["turn.started", "turn.absorbed"]
    turn = answer_as(of_alice, game, "bob", "In May. [NEXT:Writer]")
    assert turn.round == waiting
    assert game.answer("Written.") == ["Writer"]
    assert [name for name, _ in list_said(game.chat)] == ["You", "Planner", "Ann", "Bob", "Writer"]
    assert "[FROM:Ann]\nRome.\n\n[FROM:Bob]\nIn May." in game.prompts[-1][-1][1]
    assert (game.round().pk, game.round().status) == (waiting.pk, Round.Status.SETTLED)


def test_the_page_asks_the_second_person_or_goes_on_without(
    play: Plays, client: Client, alice: User
) -> None:
    game = play("Planner", "Writer", humans=("Ann", "Bob"))
    client.force_login(alice)
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] [NEXT:Bob] [NEXT:Writer]")
    address = reverse("chats:message-create", args=[game.chat.pk])
    assert client.post(address, {"text": "Rome.", "as": "ann"}).status_code == 302
    page = client.get(reverse("chats:chat", args=[game.chat.pk])).content.decode()
    assert "Rome." in page
    assert game.round().queue == ["bob", "writer"]
    assert client.post(reverse("chats:round-go-on", args=[game.chat.pk])).status_code == 302
    assert game.answer("Written.") == ["Writer"]
    assert "Rome." in game.prompts[-1][-1][1]


def test_a_refused_message_keeps_its_role(play: Plays, client: Client, alice: User) -> None:
    game = play("Planner", "Writer", humans=("Ann", "Bob"))
    client.force_login(alice)
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] [NEXT:Bob]")
    address = reverse("chats:message-create", args=[game.chat.pk])
    for role, headers in (("bob", {}), ("bob", {"HX-Request": "true"}), ("", {})):
        refused = client.post(address, {"text": " ", "as": role}, headers=headers)
        html = refused.content.decode()
        choices = html[html.index('id="composer-as"') :]
        chosen = re.findall(r'<option value="([^"]*)" selected>', choices[: choices.index("</s")])
        assert chosen == ([role] if role else [])


@pytest.mark.parametrize("reason", ["hops", "tokens", "time"])
def test_a_limit_after_the_answer_keeps_who_is_next(
    reason: str, play: Plays, of_alice: Program
) -> None:
    rules = {"hops": {"hop_limit": 1}, "tokens": {"token_limit": 15}}.get(reason, {})
    game = play("Planner", "Writer", humans=("Ann",), **rules)
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] [NEXT:Writer]")
    made = game.round()
    if reason == "time":
        Round.objects.update(started_at=made.started_at - timedelta(hours=1))
    turn = answer_as(of_alice, game, "ann", "Rome.")
    made.refresh_from_db()
    assert turn.status == Turn.Status.ABSORBED
    assert (made.status, made.reason, made.queue) == (Round.Status.LIMIT, reason, ["writer"])
    assert Message.objects.get(seq=3).text == "Rome."
    assert of_alice.post(f"chats/{game.chat.pk}/rounds/go-on").status_code == 202
    assert game.answer("Written.") == ["Writer"]
    assert "Rome." in game.prompts[-1][-1][1]


def test_a_repeated_answer_is_taken_once(play: Plays, alice: User) -> None:
    game = play("Planner", humans=("Ann", "Bob"))
    game.ask()
    game.answer("[NEXT:Ann, Bob]")
    game.chat.refresh_from_db()
    first, second = (
        start.start_turn(
            user=alice,
            chat=game.chat,
            text="Rome.",
            as_role="ann",
            now=game.now,
            idempotency_key="same",
        )
        for _ in range(2)
    )
    assert (second.repeated, second.turn) == (True, first.turn)
    assert game.round().queue == ["bob"]
