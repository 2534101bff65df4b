"""Boundary values of the window's arithmetic, on views whose tokens are plain numbers."""

from collections.abc import Sequence
from dataclasses import replace

from contextpolicy.engine.history.entries import Entries, build_prompt_entry
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.window import (
    NO_CEILING,
    HistoryView,
    Room,
    WindowChoice,
    WindowMove,
    is_valid_choice,
    plan_window_move,
)
from tests.engine.engine_builders import COUNTER, message

PIN = 7
VALUES = PolicyValues(strategy="sliding_window")


def view(
    tokens: Sequence[int],
    *,
    limit: int = 1_000,
    high: int = 900,
    low: int = 450,
    ceiling: int = NO_CEILING,
    values: PolicyValues = VALUES,
    pinned: int | None = None,
    is_complete: bool = True,
) -> HistoryView:
    """Messages with these tokens, each a separate turn; the one at index `pinned` is pinned."""
    messages = [
        replace(
            message(place + 1, role="user", turn=f"t{place}", pinned=place == pinned), tokens=count
        )
        for place, count in enumerate(tokens)
    ]
    return HistoryView(
        values=values,
        room=Room(limit, high, low, ceiling),
        entries=Entries(
            messages, make=lambda one: build_prompt_entry(one, values=values, counter=COUNTER)
        ),
        pin_tokens=lambda _: PIN,
        is_complete=is_complete,
    )


def test_the_room_is_filled_to_its_last_token_and_pins_before_it_are_paid() -> None:
    seen = view([30, 20, 10], pinned=1)
    # 10 and the pin; 10 and 20; all.
    for needed, place in ((PIN + 10, 2), (30, 1), (60, 0)):
        assert seen.first_fitting(needed) == place
        assert seen.first_fitting(needed - 1) == place + 1
    assert [seen.tokens_from(place) for place in range(4)] == [60, 30, PIN + 10, PIN]


def test_a_choice_is_sound_up_to_the_limit_with_the_pins_it_leaves_behind() -> None:
    def sound(limit: int, *kept: int) -> bool:
        left = tuple((place, "dull") for place in range(3) if place not in kept)
        return is_valid_choice(WindowChoice(kept, left), view([30, 20, 10], pinned=1, limit=limit))

    assert sound(PIN + 10, 2)
    assert not sound(PIN + 9, 2)
    assert sound(30, 1, 2)
    assert not sound(29, 1, 2)
    assert sound(0)


def test_a_move_is_sound_if_it_leaves_something_out() -> None:
    def sound(start: int, *, is_complete: bool) -> bool:
        move = WindowMove(start, 60, 60, "tokens")
        return is_valid_choice(move, view([30, 20, 10], is_complete=is_complete))

    whole = [sound(start, is_complete=True) for start in (-1, 0, 1, 3, 4)]
    assert whole == [False, False, True, True, False]
    partial = [sound(start, is_complete=False) for start in (-1, 0, 1, 3, 4)]
    assert partial == [False, True, True, True, False]


def test_a_move_is_due_a_token_over_the_lowest_of_mark_limit_and_ceiling() -> None:
    for room in ({"high": 60}, {"limit": 60}, {"ceiling": 60}):
        kept = view([20, 20, 20], low=30, **room)  # type: ignore[arg-type]  # a name of a number
        assert plan_window_move(kept, high=kept.room.high) is None
        over = view([20, 20, 21], low=30, **room)  # type: ignore[arg-type]  # a name of a number
        move = plan_window_move(over, high=over.room.high)
        assert move is not None
        assert (move.reason, move.tokens_before) == ("tokens", 61)


def test_a_move_is_due_a_message_or_a_turn_over_the_ceiling_and_falls_to_its_share() -> None:
    sized = replace(VALUES, window_size=4, compact_to=0.5)
    assert plan_window_move(view([1] * 4, values=sized), high=900) is None
    assert plan_window_move(view([1] * 5, values=sized), high=900) == WindowMove(
        3, 5, 2, "messages"
    )
    turned = replace(VALUES, window_turns=4, compact_to=0.5)
    assert plan_window_move(view([1] * 4, values=turned), high=900) is None
    assert plan_window_move(view([1] * 5, values=turned), high=900) == WindowMove(3, 5, 2, "turns")


def test_a_share_of_less_than_one_keeps_one() -> None:
    for values in (replace(VALUES, window_size=2), replace(VALUES, window_turns=2)):
        move = plan_window_move(view([1] * 3, values=values), high=900)
        assert move is not None
        assert move.start == 2


def test_a_full_ceiling_of_messages_or_turns_says_nothing_to_a_move_by_tokens() -> None:
    for values in (replace(VALUES, window_size=4), replace(VALUES, window_turns=4)):
        move = plan_window_move(view([300, 300, 150, 151], values=values), high=900)
        assert move == WindowMove(2, 901, 301, "tokens")


def test_the_last_messages_stay_if_they_leave_the_window_half_its_room_to_grow() -> None:
    # Down to 450, or to 675, midway between both marks, to keep the last messages.
    for is_complete, before in ((True, 400), (False, 1)):
        seen = view([before, 275, 200, 200], is_complete=is_complete)
        assert _start(seen, keep_last=0) == 2
        assert _start(seen, keep_last=3) == 1
        assert _start(view([before, 276, 200, 200], is_complete=is_complete), keep_last=3) == 2


def test_keeping_more_messages_than_there_are_keeps_none_of_them_for_that() -> None:
    assert _start(view([500, 200, 200, 200]), keep_last=9) == 2


def test_where_nothing_was_loaded_the_window_moves_behind_what_was_not() -> None:
    for keep_last in (0, 3):
        move = plan_window_move(view([], is_complete=False), high=900, keep_last=keep_last)
        assert move == WindowMove(0, 0, 0, "unloaded")


def test_with_a_number_of_turns_the_window_falls_so_far_that_they_fit_again() -> None:
    every = replace(VALUES, compact_every_turns=3)
    assert _start(view([100] * 10, values=every), keep_last=0) == 4


def _start(seen: HistoryView, *, keep_last: int) -> int:
    move = plan_window_move(seen, high=seen.room.high, keep_last=keep_last)
    assert move is not None
    return move.start
