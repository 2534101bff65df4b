"""Prompts that do not extend the previous one: a summary breaks the prefix as often as a window."""

import random
from dataclasses import replace

import pytest

from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues
from replay.in_memory import (
    PlayedChat,
    PlayedTurn,
    Tally,
    convert_recorded_turns,
    play_conversation,
)
from replay.recordings import RecordedStep, RecordedTurn

COUNTER = ApproximateCounter()
WORDS = ["the", "crate", "of", "Anna", "Berg", "leaves", "Oslo", "for", "Bergen", "with", "maps"]
WINDOW = PolicyValues(
    strategy="sliding_window",
    token_budget=9_000,
    reserve_tokens=1_000,
    summary_max_tokens=500,
)
SUMMARY = replace(WINDOW, strategy="dynamic_summary")


def spoken(dice: random.Random, words: int) -> str:
    """Some sentences, each with a unique number."""
    said = []
    while words > 0:
        length = min(words, dice.randrange(6, 18))
        said.append(f"{' '.join(dice.choices(WORDS, k=length))} {dice.randrange(10_000)}.")
        words -= length
    return " ".join(said)


def conversation(seed: int, *, turns: int, words: int) -> list[PlayedTurn]:
    """Questions and replies of about this many words, some of them three times as long."""
    dice = random.Random(seed)  # noqa: S311  # a test's dice
    made = []
    for _ in range(turns):
        length = int(words * dice.choice([0.5, 0.7, 1, 1, 1.3, 3]))
        question, reply = spoken(dice, length // 4 + 3), spoken(dice, length + 3)
        made.append(RecordedTurn(text=question, steps=[RecordedStep(text=reply)]))
    return convert_recorded_turns(made, counter=COUNTER)


def tally_of(turns: list[PlayedTurn], values: PolicyValues) -> Tally:
    tally = Tally()
    play_conversation(turns, values=values, counter=COUNTER, tally=tally)
    assert tally.faults.total() == 0, tally.first_fault
    return tally


# The longest of these turns take a third of the prompt each.
@pytest.mark.parametrize("words", [pytest.param(30, marks=pytest.mark.slow), 120, 300, 500])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.in_turn
def test_summaries_break_the_cache_no_oftener_than_a_window_of_the_same_marks(
    seed: int, words: int
) -> None:
    turns = conversation(seed, turns=24_000 // words, words=words)
    windows, summaries = tally_of(turns, WINDOW), tally_of(turns, SUMMARY)
    assert windows.breaks == windows.moves >= 4
    assert summaries.breaks <= windows.breaks
    assert summaries.summaries == summaries.breaks


def test_a_summary_leaves_the_prompt_at_the_low_mark_when_it_is_swapped_in() -> None:
    chat, limit = PlayedChat(SUMMARY, COUNTER, Tally()), 8_000
    swapped = []
    for turn in conversation(1, turns=400, words=60):
        before = chat.tally.breaks
        chat.turn(turn)
        if chat.tally.breaks > before and chat.before is not None:
            swapped.append(chat.before[1].prompt_tokens)
    assert len(swapped) >= 4
    assert max(swapped) <= (SUMMARY.compact_to + 0.05) * limit
