"""Imported messages without a time: no prompt, summary, tool or page states a day for them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.memory.search import archive
from chats.models import Branch, Chat, Message, SearchText, Turn
from chats.prompt.model_choice import choose_chat_model
from chats.prompt.next_prompt import compose_next_prompt
from chats.prompt.tokenizer import O200kCounter
from chats.prompt.tools.history_search import format_history_entry
from chats.providers.base import Finished, TextDelta
from chats.record.history import load_all
from chats.turns.start import start_turn
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, export_chat, join_json_lines, read_body

pytestmark = pytest.mark.usefixtures("built_again", "streams")

MAY = datetime(2023, 5, 8, 12, tzinfo=UTC)
HERONS = "The heron of Lake Vogt wears ring B-417."


def ts(at: datetime) -> int:
    """Return a time as files contain it."""
    return int(at.timestamp() * 1000)


def days_of(chat: Chat) -> list[str]:
    """Return the day of each message of a chat in prompts, in order."""
    rows = Message.objects.filter(branch__chat=chat).order_by("seq")
    return [message.day for message in load_all(rows, counter=O200kCounter(), zone="UTC")]


@pytest.fixture
def imported(of_alice: Program) -> Callable[..., Chat]:
    """Import UI messages as a chat."""

    def importing(*messages: dict[str, object]) -> Chat:
        [chat] = bring(of_alice, join_json_lines(*messages)).chats
        return Chat.objects.get(pk=chat["chat"])

    return importing


def test_messages_without_any_time_have_no_day(imported: Callable[..., Chat]) -> None:
    chat = imported(
        build_ui_message("a", "Hello"),
        build_ui_message("b", "Hi", "assistant"),
        build_ui_message("c", "Bread?", ts=-5),
    )
    assert days_of(chat) == ["", "", ""]


def test_a_message_without_a_time_has_the_day_of_the_message_before_it(
    imported: Callable[..., Chat],
) -> None:
    later = MAY + timedelta(days=3)
    chat = imported(
        build_ui_message("a", "Hello"),
        build_ui_message("b", "Hi", "assistant", ts=ts(MAY)),
        build_ui_message("c", "Bread?"),
        build_ui_message("d", "Rye.", "assistant", ts=ts(later)),
        build_ui_message("e", "Thanks", ts=ts(timezone.now() + timedelta(days=9))),
    )
    assert days_of(chat) == ["", "2023-05-08", "2023-05-08", "2023-05-11", "2023-05-11"]
    first = Message.objects.get(branch__chat=chat, seq=1)
    assert (first.undated, first.created_at) == (True, MAY)


def test_a_newer_export_continues_the_times(imported: Callable[..., Chat]) -> None:
    told = [build_ui_message("a", "Hello", ts=ts(MAY)), build_ui_message("b", "Hi", "assistant")]
    chat = imported(*told)
    assert imported(*told, build_ui_message("c", "Bread?")) == chat
    assert days_of(chat) == ["2023-05-08"] * 3


@pytest.fixture
def dated(db: None, now: datetime) -> None:
    """A policy with dates and retrieved context."""
    values = {
        "strategy": "sliding_window",
        "window_size": 2,
        "dates": True,
        "references": True,
        "reference_share": 0.5,
        "reference_floor": 1,
    }
    policy = create_policy(slug="dated", name="Dated", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def ask(user: User, chat: Chat, work: Callable[..., Any], text: str, at: datetime) -> str:
    """Ask a question in a chat; return the text of its prompt."""
    chat.refresh_from_db()
    turn = start_turn(user=user, chat=chat, text=text, now=at).turn
    worker = work(turn, [TextDelta("Noted."), Finished("stop")])
    assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
    assert turn.references.exists()
    return "\n".join(wire.content for wire in worker.scripted.requests[0].messages)


@pytest.mark.usefixtures("dated")
def test_prompts_state_no_day_for_them(
    imported: Callable[..., Chat], alice: User, work: Callable[..., Any], now: datetime
) -> None:
    chat = imported(
        build_ui_message("a", HERONS),
        build_ui_message("b", "Noted", "assistant"),
        build_ui_message("c", "Tea?"),
        build_ui_message("d", "Yes", "assistant"),
    )
    archive.index_branch(Branch.objects.get(chat=chat))
    question = "Which ring does the heron of Lake Vogt wear?"
    sent = ask(alice, chat, work, question, now)
    assert HERONS in sent
    # The only day is that of the question.
    assert sent.count(f"[{now:%a %Y-%m-%d}]") == 1
    assert sent.index(HERONS) < sent.index(f"[{now:%a %Y-%m-%d}]")
    choice = choose_chat_model(chat=chat)
    branch = Branch.objects.select_related("chat", "active_compaction").get(chat=chat)
    next_prompt = compose_next_prompt(
        branch, question=question, choice=choice, counter=O200kCounter(), now=now
    )
    said = "\n".join(wire.content for wire in next_prompt.sent.messages)
    assert said.count("[") == said.count(f"[{now:%a %Y-%m-%d}]")


@pytest.mark.usefixtures("dated")
def test_excerpts_of_undated_chats_precede_days(
    imported: Callable[..., Chat],
    alice: User,
    work: Callable[..., Any],
    now: datetime,
    chat: Chat,
) -> None:
    dated_chat = imported(
        build_ui_message("a", "The heron of Lake Mira wears ring C-99.", ts=ts(MAY))
    )
    undated_chat = imported(build_ui_message("x", HERONS))
    for each in (dated_chat, undated_chat):
        archive.index_branch(Branch.objects.get(chat=each))
    policy = create_policy(
        slug="all",
        name="All",
        values={
            "strategy": "sliding_window",
            "dates": True,
            "references": True,
            "reference_scope": "person",
            "reference_floor": 1,
        },
        actor="system",
        now=now,
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    sent = ask(alice, chat, work, "Which rings do the herons of the lakes wear?", now)
    assert sent.index("B-417") < sent.index("2023-05-08") < sent.index("C-99")


def test_summaries_state_no_day_for_them(imported: Callable[..., Chat]) -> None:
    chat = imported(
        build_ui_message("a", "I moved to Lisbon with my sister Ada and we opened a bakery there."),
        build_ui_message("b", "Noted.", "assistant"),
        build_ui_message("c", "Our bakery sells 40 loaves of rye bread every Saturday."),
    )
    rows = Message.objects.filter(branch__chat=chat).order_by("seq")
    messages = load_all(rows, counter=O200kCounter(), zone="UTC")
    assert all(message.created_at == "" for message in messages)
    summary = build_extractive_summary(messages, None, max_tokens=300, counter=O200kCounter())
    assert "Lisbon" in summary
    assert f"{timezone.now():%Y}" not in summary


def test_the_search_tool_the_index_and_rest_show_no_time_for_them(
    imported: Callable[..., Chat], of_alice: Program
) -> None:
    chat = imported(
        build_ui_message("a", HERONS), build_ui_message("b", "Noted", "assistant", ts=ts(MAY))
    )
    archive.index_branch(Branch.objects.get(chat=chat))
    undated, dated = Message.objects.filter(branch__chat=chat).order_by("seq")
    assert "created_at" not in format_history_entry(undated, most=500, zone="UTC")
    assert format_history_entry(dated, most=500, zone="UTC")["created_at"].startswith("2023-05-08")
    words = SearchText.objects.get(message=undated).words.split()
    assert "2023" not in words
    assert "2023" in SearchText.objects.get(message=dated).words.split()
    listed = of_alice.get(f"chats/{chat.pk}/messages").json()["data"]
    assert [each["undated"] for each in listed] == [True, False]
    hit, *_ = of_alice.get("search", q="Vogt heron").json()["data"]
    assert hit["undated"] is True


def test_exports_give_no_time_for_them(
    imported: Callable[..., Chat], of_alice: Program, alice: User
) -> None:
    chat = imported(
        build_ui_message("a", HERONS), build_ui_message("b", "Noted", "assistant", ts=ts(MAY))
    )
    listed = [json.loads(line) for line in export_chat(of_alice, chat.pk).splitlines()]
    assert ["ts" in each["metadata"] for each in listed] == [False, True]
    markdown = read_body(of_alice.get(f"chats/{chat.pk}/export", form="markdown")).decode()
    assert "## You\n" in markdown
    assert "## Assistant · 2023-05-08 12:00 UTC\n" in markdown


def test_pages_show_no_time_for_them(
    imported: Callable[..., Chat], client: Client, alice: User
) -> None:
    chat = imported(
        build_ui_message("a", HERONS), build_ui_message("b", "Noted", "assistant", ts=ts(MAY))
    )
    client.force_login(alice)
    page = client.get(f"/chats/{chat.pk}/").content.decode()
    first, second = Message.objects.filter(branch__chat=chat).order_by("seq")
    start, middle = page.index(f'id="message-{first.pk}"'), page.index(f'id="message-{second.pk}"')
    assert "<time " not in page[start : page.index("</article>", start)]
    assert "2023-05-08T" in page[middle:]
