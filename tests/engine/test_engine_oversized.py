"""A message that fits no prompt is left out alone; the messages before it are still sent."""

from dataclasses import replace

import pytest

from contextpolicy.engine.compose.assembly import WindowNeeded, compose_context
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import COUNTER, accounted, chat, composed, given, left, message
from tests.support.engine_inputs import STRATEGIES

SMALL = PolicyValues(strategy="sliding_window", token_budget=600, reserve_tokens=100)


def prose(tokens: int) -> str:
    """A text of at least this many tokens."""
    text = "word "
    while COUNTER.count(text) < tokens:
        text += text
    return text


HUGE = prose(600)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("at", [3, 4, 6])
def test_the_messages_before_it_are_sent(strategy: str, at: int) -> None:
    history = list(chat(6))
    history[at - 1] = message(at, HUGE)
    made = composed(given(history, values=replace(SMALL, strategy=strategy)))
    assert left(made) == [(at, at, "budget")]
    assert accounted(made) == list(range(1, 8))
    assert made.compressed_count == 5 < made.original_count == 6


def test_it_is_sent_to_a_model_with_more_room() -> None:
    history = [message(1, "The gate code is 4711."), message(2), message(3, HUGE), message(4)]
    values = replace(SMALL, token_budget=4_000)
    assert left(composed(given(history, values=values))) == []
    assert left(composed(given(history, values=values, model_window=600))) == [(3, 3, "budget")]


def test_a_message_that_fits_as_a_question_moves_the_window_as_before() -> None:
    """The limit is the prompt limit without system text and tools, to the token."""
    short = composed(given(chat(2), values=SMALL))
    room = 500 - short.budget.system - short.budget.tools
    history = [*chat(2), replace(message(3, HUGE), tokens=room), message(4)]
    moved = compose_context(given(history, values=SMALL))
    assert isinstance(moved, WindowNeeded)
    assert moved.to_seq == 3
    history[2] = replace(history[2], tokens=room + 1)
    assert left(composed(given(history, values=SMALL))) == [(3, 3, "budget")]


def test_a_text_that_the_policy_cuts_is_measured_as_sent() -> None:
    history = [*chat(2), message(3, HUGE), message(4)]
    values = replace(SMALL, max_chars_per_message=200)
    made = composed(given(history, values=values))
    assert left(made) == []
    assert made.truncated_count == 1


def test_bytes_count_as_tokens_do() -> None:
    history = [*chat(2), message(3, "x" * 3_000), message(4)]
    values = replace(SMALL, token_budget=100_000, max_bytes=2_000)
    assert left(composed(given(history, values=values))) == [(3, 3, "budget")]


def test_days_are_said_of_the_messages_that_are_sent() -> None:
    days = ["2026-03-01", "2026-03-02", "2026-03-02", "2026-03-02"]
    history = [
        replace(one, day=day)
        for one, day in zip(
            [message(1), message(2, HUGE), message(3), message(4)], days, strict=True
        )
    ]
    made = composed(given(history, values=SMALL))
    assert left(made) == [(2, 2, "budget")]
    assert [segment.origin for segment in made.segments].count("day") == 2


class TestPins:
    def test_a_large_pin_displaces_no_smaller_one(self) -> None:
        pins = (message(1, "The gate code is 4711.", pinned=True), message(2, HUGE, pinned=True))
        made = composed(given(chat(6)[2:], values=SMALL, pins=pins))
        assert left(made) == [(2, 2, "budget")]
        assert [segment.seq for segment in made.segments if segment.origin == "pin"] == [1]

    def test_of_pins_that_fit_the_newest_stay(self) -> None:
        third = prose(200)
        pins = tuple(message(seq, third, pinned=True) for seq in (1, 2, 3))
        values = replace(SMALL, pins_tokens=450)
        made = composed(given(chat(5)[3:], values=values, pins=pins))
        kept = [segment.seq for segment in made.segments if segment.origin == "pin"]
        assert kept == [3]
        assert accounted(made) == list(range(1, 7))
