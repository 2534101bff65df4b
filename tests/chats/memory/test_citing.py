"""Summaries and preferences that cite a message help to find it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import lifecycle, marks
from chats.compaction.sections import parse_sections
from chats.memory.search import archive, citing
from chats.memory.search.recall import Recalled, recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.memory.search.search import search_archive
from chats.models import Branch, Chat, Compaction, Message, Preference, PreferenceEvidence
from chats.models.compactions import EXTRACTIVE
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

SAID = "We took the night train and slept in the upper berths."
LINE = "Travel to Vienna by rail"
ASKED = "How did the travel to Vienna go?"
Summarise = Callable[..., Compaction]


@pytest.fixture
def summarise(chat: Chat, cover: Cover) -> Summarise:
    """Activate a summary with one line that cites messages."""

    def summarising(
        *cited: Message, line: str = LINE, model: str = "writer", branch: Branch | None = None
    ) -> Compaction:
        where = branch or reload_first_branch(chat)
        row = cover(where.last_seq, branch=where)
        sections = parse_sections(f"## Facts\n- {line}")
        for bullet in sections[0]["bullets"]:
            bullet["source_ids"] = [str(message.pk) for message in cited]
        text = f"## Facts\n- {line}"
        rows = Compaction.objects.filter(pk=row.pk)
        rows.update(text=text, sections=sections, model_name=model)
        return rows.get()

    return summarising


@pytest.fixture
def ask(alice: User, now: datetime) -> Callable[..., Recalled]:
    """Update the index, then search Alice's chats."""

    def asking(question: str = ASKED, **more: Any) -> Recalled:
        for branch in Branch.objects.select_related("chat", "active_compaction__base", "parent"):
            archive.index_branch(branch)
        scope = Scope(**more.pop("scope", {}))
        return recall_excerpts(alice.pk, question, scope=scope, limit=20, at=now, **more)

    return asking


def messages(found: Recalled) -> list[str]:
    """Return the messages found, best first."""
    return [excerpt.text for excerpt in found.excerpts if excerpt.message_id]


def fill(say: Say, number: int = 12) -> None:
    """Add unrelated messages."""
    for each in range(number):
        say(f"Number {each} of the soups was too salty.")


def test_a_line_of_a_summary_leads_to_the_message_that_it_cites(
    say: Say, summarise: Summarise, ask: Callable[..., Recalled]
) -> None:
    said = say(SAID)
    fill(say)
    assert messages(ask()) == []
    summarise(said)
    found = ask()
    assert messages(found)[0] == SAID
    excerpt = next(each for each in found.excerpts if each.message_id == said.pk)
    assert set(excerpt.why) == {"travel", "Vienna"}
    assert excerpt.above_floor


def test_the_models_search_is_led_by_the_summary_that_it_reads(
    chat: Chat, say: Say, summarise: Summarise, ask: Callable[..., Recalled]
) -> None:
    said = say(SAID)
    fill(say)
    summarise(said)
    ask()
    found = search_archive(reload_first_branch(chat), question=ASKED, most=5)
    assert [row.pk for row in found.rows][:1] == [said.pk]


def test_while_somebody_types_only_words_that_stand_there_count(
    say: Say, summarise: Summarise, ask: Callable[..., Recalled]
) -> None:
    summarise(say(SAID))
    assert messages(ask("travel to Vienna", is_typed=True)) == []


@pytest.mark.memory_case(1)
def test_what_was_chosen_without_a_model_is_no_further_key(
    say: Say, summarise: Summarise, ask: Callable[..., Recalled]
) -> None:
    said = say(SAID)
    fill(say)
    summarise(said, model=EXTRACTIVE)
    assert messages(ask()) == []


def test_a_line_that_cites_half_of_the_chat_is_about_none_of_it(
    say: Say, summarise: Summarise, ask: Callable[..., Recalled]
) -> None:
    rows = [say(f"Number {each} of the soups.") for each in range(citing.MOST_SOURCES + 1)]
    summarise(*rows[:-1])
    assert len(messages(ask())) >= citing.MOST_SOURCES
    Compaction.objects.all().delete()
    summarise(*rows)
    assert messages(ask()) == []


@pytest.mark.memory_case(14)
@pytest.mark.parametrize("how", ["undone", "erased"])
def test_a_summary_that_is_no_longer_in_force_leads_nowhere(
    how: str,
    chat: Chat,
    say: Say,
    summarise: Summarise,
    ask: Callable[..., Recalled],
    now: datetime,
) -> None:
    said = say(SAID)
    fill(say)
    row = summarise(said)
    assert messages(ask())
    # Simulates an outdated index that still contains the summary.
    if how == "undone":
        Branch.objects.filter(chat=chat).update(active_compaction=None)
    else:
        Compaction.objects.filter(pk=row.pk).update(erased_at=now)
    assert messages(recall_excerpts(chat.owner_id, ASKED, scope=Scope(), limit=20, at=now)) == []
    assert list(search_archive(reload_first_branch(chat), question=ASKED, most=5).rows) == []


def test_what_was_excluded_is_not_led_to(
    alice: User, say: Say, summarise: Summarise, ask: Callable[..., Recalled], now: datetime
) -> None:
    said = say(SAID)
    fill(say)
    summarise(said)
    assert messages(ask())
    marks.exclude_message(message=said, actor="user:1", now=now)
    assert SAID not in messages(ask())


@pytest.mark.memory_case(19)
def test_nobody_is_led_to_the_messages_of_another(
    alice: User,
    charlie: User,
    say: Say,
    summarise: Summarise,
    ask: Callable[..., Recalled],
    now: datetime,
) -> None:
    theirs = lifecycle.create_chat(owner=charlie, now=now)
    said = say(SAID, branch=theirs.active_branch)
    summarise(say("Nothing of it."))
    summary = Compaction.objects.get()
    bullets = [{"text": LINE, "sources": [1], "source_ids": [str(said.pk)]}]
    Compaction.objects.filter(pk=summary.pk).update(
        sections=[{"title": "Facts", "bullets": bullets}]
    )
    assert SAID not in messages(ask())
    # Summaries of other users are ignored as well.
    keys = [row.pk for row in summary.search_texts.all()]
    assert citing.score_cited_texts(charlie.pk, keys, stems={"vienna": 1.0, "travel": 1.0}) == {}


def test_a_preference_in_use_weighs_the_message_that_told_it(
    alice: User, say: Say, ask: Callable[..., Recalled], now: datetime
) -> None:
    told = say("Please remember: I never eat walnuts.")
    for _ in range(3):
        say("The walnuts of the neighbours fell. I never eat before noon.")
    before = messages(ask("Do I eat walnuts?"))
    row = Preference.objects.create(
        owner=alice,
        slot="note",
        text="I never eat walnuts",
        kind="told",
        status="current",
        valid_from=now,
        learned_at=now,
    )
    PreferenceEvidence.objects.create(preference=row, message=told, start=17, end=36)

    def mark() -> float:
        found = ask("Do I eat walnuts?").excerpts
        return next(each.score for each in found if each.message_id == told.pk)

    assert set(messages(ask("Do I eat walnuts?"))) == set(before)
    counted = mark()
    Preference.objects.filter(pk=row.pk).update(status="superseded", valid_to=now, closed_at=now)
    assert counted > mark()
