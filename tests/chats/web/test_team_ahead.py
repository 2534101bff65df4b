"""A team's chat before a message is sent: mentions, responders, and the cost in tokens."""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chats.models import Agent, Chat, Compaction, Message, Receipt, Team
from chats.teams.team_drafts import AgentDraft
from chats.web.thread.ahead import format_cost, round_estimate
from chats.web.thread.composer import build_meter_view
from contextpolicy.models import ModelSpec
from tests.support.chat_messages import add_messages
from tests.support.chat_pages import HTMX, get_chat_url, read_page_html, read_page_text
from tests.support.chat_sizes import CHAT_SIZES
from tests.support.team_rounds import Plays

pytestmark = pytest.mark.django_db


def names(html: str) -> list[str]:
    """The names that the message box offers."""
    return re.findall(r'<li class="mentions__item"[^>]*data-name="([^"]*)"', html)


def line(chat: Chat) -> str:
    """Return the meter's text for the next message."""
    chat = Chat.objects.select_related("active_branch", "model", "owner").get(pk=chat.pk)
    ahead = build_meter_view(chat=chat).ahead
    return ahead.line if ahead else ""


def notes(chat: Chat) -> str:
    """Return the rest of its text."""
    ahead = build_meter_view(chat=chat).ahead
    return " ".join(note.sentence for note in ahead.notes) if ahead else ""


def noted(chat: Chat) -> list[str]:
    """Return the codes of these notes."""
    ahead = build_meter_view(chat=chat).ahead
    return [note.code for note in ahead.notes] if ahead else []


def tokens(chat: Chat) -> int:
    """How many tokens it announces for the first reply."""
    found = re.search(r"about ([\d,]+) tokens in the first prompt", line(chat))
    assert found is not None
    return int(found[1].replace(",", ""))


# Names


def test_the_box_offers_the_agents_that_do_not_rest_and_all_of_them(
    play: Plays, page: Client, chat: Chat
) -> None:
    play("Planner", AgentDraft(name="Sleeper", rests=True), AgentDraft(name="Ann", type="human"))
    Agent.objects.filter(name="Planner").update(name="A <b>&' B")
    html = read_page_html(page, chat)
    assert names(html) == ["A &lt;b&gt;&amp;&#x27; B", "all"]
    assert 'id="mentions" role="listbox" aria-label="Agents" hidden' in html


def test_nothing_is_offered_without_a_team_or_where_it_is_gone(
    play: Plays, page: Client, chat: Chat
) -> None:
    assert "mentions" not in read_page_html(page, chat)
    play("Planner")
    assert names(read_page_html(page, chat)) == ["Planner", "all"]
    Team.objects.update(current=None)
    html = read_page_html(page, chat)
    assert "mentions" not in html
    assert "meter__ahead" not in html


def test_a_message_box_that_comes_back_offers_them_too(
    play: Plays, page: Client, chat: Chat
) -> None:
    play("Planner", "Critic")
    answer = page.post(get_chat_url(chat, "messages"), {"text": "", "key": "k"}, headers=HTMX)
    assert names(answer.content.decode()) == ["Planner", "Critic", "all"]


# Tokens


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({}, "3 agents reply and write at most 8 replies; about "),
        ({"routing": "round_robin"}, "3 agents reply in turn and write at most 8 replies; about "),
        (
            {"routing": "person", "hop_limit": 1},
            "Planner or the agents that you mention write at most 1 reply",
        ),
    ],
)
def test_it_says_who_replies_and_how_often_at_most(
    play: Plays, page: Client, chat: Chat, rules: dict[str, Any], said: str
) -> None:
    play("Planner", "Critic", "Writer", AgentDraft(name="Sleeper", rests=True), **rules)
    assert line(chat).startswith(said)
    assert said in read_page_text(page, chat)
    assert "round" not in f"{line(chat)} {notes(chat)}".lower()


def test_one_agent_replies(play: Plays, chat: Chat) -> None:
    play("Planner", hop_limit=2, token_limit=3000)
    assert line(chat).startswith("1 agent replies and writes at most 2 replies; about ")
    assert "No further reply starts after a total of 3,000 tokens" in notes(chat)


def test_a_chat_without_a_team_says_nothing_of_it(page: Client, chat: Chat) -> None:
    assert line(chat) == ""
    assert "meter__ahead" not in read_page_html(page, chat)


def test_the_estimate_is_near_to_what_the_first_agent_is_sent(play: Plays, chat: Chat) -> None:
    game = play(
        AgentDraft(name="Planner", instruction="Plan it in steps. " * 30, window_size=4), "Critic"
    )
    for number in range(4):
        game.ask(f"Question {number}: what about the Forum, and where do we eat after it?")
        game.answer(f"First the Forum. {number} " * 20, f"Too long. {number} " * 20)
    # The provider of the test counts every prompt alike.
    ModelSpec.objects.update(calibration=1.0, calibration_by_script={})
    told = tokens(chat)
    assert len(str(told).rstrip("0")) <= 2
    game.ask("What about the Forum?")
    game.answer("Once more.")
    sent = Receipt.objects.order_by("-created_at")[0].prompt_tokens
    assert sent is not None
    # The words of the question come on top.
    assert 0.9 * sent < told <= sent


def test_its_window_holds_the_price_level(play: Plays, chat: Chat, now: datetime) -> None:
    play(AgentDraft(name="Planner", window_size=4))
    add_messages(chat, count=40, now=now)
    few = tokens(chat)
    add_messages(chat, count=400, now=now)
    assert tokens(chat) <= 1.5 * few


@pytest.mark.parametrize("window_size", [0, 1, 12, 100])
@pytest.mark.parametrize("state", CHAT_SIZES.values(), ids=CHAT_SIZES)
def test_it_is_foreseen_whatever_stands_in_place_of_messages(
    play: Plays,
    page: Client,
    chat: Chat,
    summary: Callable[..., Compaction],
    now: datetime,
    state: Callable[..., Any],
    window_size: int,
) -> None:
    game = play(AgentDraft(name="Planner", window_size=window_size))
    game.ask()
    game.answer("One.")
    state(chat, summary, now)
    assert tokens(chat) > 0
    assert line(chat) in read_page_text(page, chat)


def test_it_is_foreseen_where_not_all_of_the_window_fits(
    play: Plays, page: Client, chat: Chat, demo_model: ModelSpec, now: datetime
) -> None:
    play(AgentDraft(name="Planner", window_size=100))
    add_messages(chat, count=300, now=now)
    ModelSpec.objects.filter(pk=demo_model.pk).update(context_window=6000)
    Message.objects.update(token_count=120)
    assert tokens(chat) > 0
    assert line(chat) in read_page_text(page, chat)


def test_it_takes_as_many_statements_in_a_long_chat(
    play: Plays, page: Client, chat: Chat, now: datetime
) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("One.", "Two.")

    def statements() -> int:
        page.get(get_chat_url(chat))
        with CaptureQueriesContext(connection) as heard:
            page.get(get_chat_url(chat))
        return len(heard)

    few = statements()
    add_messages(chat, count=150, now=now)
    assert statements() <= few
    Team.objects.update(current=None)
    # The roster is read for the meter and for the box: its version and its members each.
    assert few - statements() <= 8


# Cost


def test_where_the_model_has_a_price_the_cost_stands_beside(
    play: Plays, page: Client, chat: Chat, demo_model: ModelSpec
) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("One.", "Two.")
    assert "cost" not in f"{line(chat)} {notes(chat)}"
    ModelSpec.objects.filter(pk=demo_model.pk).update(input_price=200, output_price=1000)
    assert re.search(r"in the first prompt, at a cost of about 0\.\d{4}\.$", line(chat))
    # Twice 10 tokens in and 5 out.
    assert "The replies to the newest message cost 0.0140." in notes(chat)
    assert "reply-costs" in noted(chat)
    assert 'data-note="price-currency"' in read_page_html(page, chat)
    # Of one reply nothing is known, so neither is the sum.
    Receipt.objects.filter(turn__round__isnull=False, turn__hop=1).update(usage={})
    assert "unknown-costs" in noted(chat)
    assert "reply-costs" not in noted(chat)


@pytest.mark.parametrize(
    ("tokens", "said"), [(0, 0), (7, 7), (94, 94), (114, 110), (2449, 2400), (12_550, 13_000)]
)
def test_an_estimate_has_two_figures(tokens: int, said: int) -> None:
    assert round_estimate(tokens) == said


@pytest.mark.parametrize(
    ("cost", "said"),
    [("0", "0.0000"), ("0.00002", "less than 0.0001"), ("0.0021", "0.0021"), ("1234.5", "1,234.5")],
)
def test_sums_are_written_with_four_places(cost: str, said: str) -> None:
    assert format_cost(Decimal(cost)).startswith(said)
