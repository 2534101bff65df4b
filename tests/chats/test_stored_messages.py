"""`ledger_verify` finds stored messages that differ from those in the prompts."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import erasure, lifecycle, marks
from chats.models import Chat, Message, Receipt, Turn
from chats.prompt import stored_messages
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.roles import AUDITOR, OWNER, save_person
from tests.chats.teams.conftest import play, team_of
from tests.contextpolicy.people import person, signed_in
from tests.support.stored_messages import change_stored_text, run_ledger_verify, verify_at_night
from tests.support.team_rounds import Plays

__all__ = ["play", "team_of"]
Ask = Callable[[str], Turn]


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Callable[..., Any]) -> Ask:
    """Send a message, one minute after the previous one, and reply to it."""
    times = iter(range(1, 1_000))

    def asking(text: str) -> Turn:
        at = now + timedelta(minutes=next(times))
        turn = start_turn(user=alice, chat=chat, text=text, now=at).turn
        work(turn)
        return turn

    return asking


@pytest.fixture
def said(ask: Ask) -> list[Message]:
    """Three questions and their replies."""
    for text in ("The bridge opens at six.", "And the ferry?", "Thank you."):
        ask(text)
    return list(Message.objects.order_by("seq"))


@pytest.mark.tampers
@pytest.mark.parametrize(
    ("place", "old", "new"),
    [(0, "six", "ten"), (2, "ferry", "train"), (4, "Thank", "Blame"), (1, "ok", "no")],
    ids=["first", "second", "last question", "a reply"],
)
def test_a_message_that_was_changed_by_sql_is_found(
    place: int, old: str, new: str, said: list[Message], chat: Chat
) -> None:
    assert "FAILED" not in run_ledger_verify()
    change_stored_text(said[place], old, new)
    told = run_ledger_verify()
    assert "FAILED The ledger is broken in 1 of its chains." in told
    assert f"chat:{chat.pk}: the prompt of receipt " in told
    assert stored_messages.DIFFERS in told
    assert "FAILED" not in run_ledger_verify(without_messages=True)
    assert "FAILED" in run_ledger_verify(scope=f"chat:{chat.pk}")


@pytest.mark.tampers
def test_a_message_that_was_emptied_as_if_erased_is_found(
    said: list[Message], now: datetime
) -> None:
    Message.objects.filter(pk=said[0].pk).update(parts=[], erased_at=now)
    assert stored_messages.MESSAGES_ABSENT in run_ledger_verify()


def test_what_a_person_does_is_no_break(
    said: list[Message], alice: User, ask: Ask, now: datetime
) -> None:
    first = Message.objects.select_related("branch__chat").get(pk=said[0].pk)
    later = now + timedelta(days=1)
    marks.pin_message(message=first, actor=f"user:{alice.pk}", now=later)
    ask("One more.")
    assert "FAILED" not in run_ledger_verify()
    erasure.erase_message(user=alice, message=first, now=later)
    assert "FAILED" not in run_ledger_verify()


@pytest.mark.tampers
def test_a_message_that_left_the_window_is_compared_too(
    ask: Ask, now: datetime, chat: Chat
) -> None:
    policy = create_policy(
        slug="p", name="P", values={"strategy": "simple", "window_size": 1}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    for text in ("The bridge opens at six.", "And the ferry?", "And the train?", "Thank you."):
        ask(text)
    assert "FAILED" not in run_ledger_verify()
    change_stored_text(Message.objects.get(seq=1), "six", "ten")
    assert stored_messages.DIFFERS in run_ledger_verify()


def test_each_message_is_built_once_where_prompts_only_grow(said: list[Message]) -> None:
    assert Receipt.objects.count() == 3
    assert f"{stored_messages.FITS}: 1" in run_ledger_verify()


def test_the_nightly_verification_finds_a_changed_message(
    said: list[Message], now: datetime
) -> None:
    found = verify_at_night(now)
    assert (found.broken, found.told[stored_messages.COMPARED]) == (0, 1)
    change_stored_text(said[0], "six", "seven")
    found = verify_at_night(now)
    assert found.broken == 1
    assert stored_messages.DIFFERS in found.breaks[0][2]


def test_a_page_of_the_audit_log_finds_it_too(said: list[Message], chat: Chat) -> None:
    client = signed_in(person("priya", AUDITOR))
    page = "/admin/contextpolicy/auditevent/verify/"
    assert stored_messages.DIFFERS not in client.get(page).content.decode()
    change_stored_text(said[0], "six", "seven")
    for query in ("", f"?scope=chat:{chat.pk}"):
        assert stored_messages.DIFFERS in client.get(page + query).content.decode()


def test_messages_are_compared_in_turn_as_far_as_the_time_allows(
    said: list[Message], alice: User, now: datetime
) -> None:
    chats = sorted(
        [
            said[0].branch.chat_id,
            *(lifecycle.create_chat(owner=alice, now=now).pk for _ in range(3)),
        ]
    )
    told = Counter[str]()
    times = iter([False, False, True])
    found = stored_messages.verify_some(scopes=[None], tally=told, is_late=lambda: next(times))
    assert list(found) == []
    assert (told[stored_messages.COMPARED], told[stored_messages.LATE]) == (2, 1)
    assert list(stored_messages.iter_chats_in_rotation()) == [*chats[2:], *chats[:2]]
    assert verify_at_night(now, seconds=-1.0).told[stored_messages.LATE] == 1


def test_a_renamed_owner_of_a_teams_chat_is_no_break(
    play: Plays, alice: User, chat: Chat, now: datetime
) -> None:
    """The agents' prompts contain the name, and the old one is not stored."""
    person("olga", OWNER)
    team = play("Planner", "Critic")
    team.ask()
    team.answer("Go north.", "Go south.")
    assert f"{stored_messages.FITS}: " in run_ledger_verify()
    alice.username = "alice.b"
    save_person(person=alice, changed={"username"}, actor="user:1", now=timezone.now())

    told = run_ledger_verify()

    assert f"{stored_messages.NOT_BUILT}: " in told
    assert "FAILED" not in told
    # The ledger has a commitment to each message.
    change_stored_text(Message.objects.get(branch__chat=chat, seq=2), "north", "west")
    assert "FAILED" in run_ledger_verify()
