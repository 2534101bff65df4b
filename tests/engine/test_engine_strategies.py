"""The history that each strategy keeps."""

from dataclasses import replace

import pytest

from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    WindowNeeded,
    compose_context,
    is_compressed,
)
from contextpolicy.engine.compose.compaction_need import assess_compaction_need
from contextpolicy.engine.messages.messages import extract_message_text
from contextpolicy.engine.messages.transcript import Background, TextEntry
from contextpolicy.engine.policy.policy import PolicyValues, get_strategy_defaults
from contextpolicy.engine.strategies.contract import STRATEGIES
from contextpolicy.engine.window import HistoryView, WindowChoice, WindowMove
from tests.engine.engine_builders import chat, composed, given, left, message, step
from tests.support.full_prompts import assemble

SIMPLE = get_strategy_defaults("simple")


def history_seqs(context: AssembledContext) -> list[int]:
    return [segment.seq for segment in context.segments if segment.origin == "history"]


@pytest.mark.requirement("S0.2")
@pytest.mark.requirement("S0.3")
def test_simple_keeps_the_newest_messages_in_their_order() -> None:
    context = assemble(chat(20), values=SIMPLE)
    assert history_seqs(context) == list(range(9, 21))
    assert left(context) == [(1, 8, "window")]
    assert (context.original_count, context.compressed_count) == (20, 12)


@pytest.mark.requirement("S0.3")
def test_simple_cuts_a_message_longer_than_the_limit_and_leaves_one_that_is_not() -> None:
    history = [message(1, "x" * 4_000), message(2, "y" * 4_001)]
    context = assemble(history, values=SIMPLE)
    contents = [wire.content for wire in context.messages[1:3]]
    assert contents[0] == "x" * 4_000
    assert len(contents[1]) <= 4_000
    assert "characters cut" in contents[1]
    assert [segment.cut_to for segment in context.segments[1:3]] == [None, 4_000]
    assert context.truncated_count == 1


@pytest.mark.requirement("S0.3")
def test_simple_counts_before_it_cuts_and_cuts_only_what_it_keeps() -> None:
    history = [message(1, "x" * 9_000), *(message(n) for n in range(2, 14))]
    context = assemble(history, values=SIMPLE)
    assert history_seqs(context) == list(range(2, 14))
    assert context.truncated_count == 0


@pytest.mark.requirement("S0.3")
def test_simple_neither_counts_nor_cuts_the_system_text_and_the_question() -> None:
    asked = message(13, "q" * 5_000, role="user")
    context = assemble(
        chat(12), values=SIMPLE, question=(asked,), system=(("policy", "s" * 5_000),)
    )
    assert context.messages[0].content == "s" * 5_000
    assert context.messages[-1].content == "q" * 5_000
    assert len(context.messages) == 14
    assert not is_compressed(context)


@pytest.mark.requirement("S0.2")
@pytest.mark.requirement("S0.3")
def test_simple_does_nothing_when_there_is_nothing_to_do() -> None:
    history = chat(12)
    context = assemble(history, values=SIMPLE)
    assert [wire.content for wire in context.messages[1:-1]] == [
        extract_message_text(m) for m in history
    ]
    assert context.left_out == ()
    empty = assemble((), values=SIMPLE)
    assert [wire.role for wire in empty.messages] == ["system", "user"]
    assert (empty.original_count, empty.compressed_count, is_compressed(empty)) == (0, 0, False)


def test_simple_gives_up_the_oldest_when_tokens_are_short() -> None:
    values = replace(SIMPLE, token_budget=400, reserve_tokens=20)
    context = assemble([message(n, "word " * 100) for n in range(1, 21)], values=values)
    assert history_seqs(context) == [18, 19, 20]
    assert left(context) == [(1, 8, "window"), (9, 17, "budget")]


def test_simple_never_asks_for_a_window_and_says_why_unloaded_messages_stay_out() -> None:
    history = chat(30)[18:]
    context = assemble(history, values=SIMPLE, unloaded=(1, 18))
    assert left(context) == [(1, 18, "window")]
    assert (context.original_count, context.compressed_count) == (30, 12)


def test_simple_counts_only_messages_that_could_be_sent() -> None:
    history = [*chat(12), message(13, excluded=True), message(14, incomplete=True)]
    context = assemble(history, values=SIMPLE)
    assert history_seqs(context) == list(range(1, 13))
    assert left(context) == [(13, 13, "excluded"), (14, 14, "incomplete")]
    assert not is_compressed(context)


def test_a_pinned_message_outside_the_window_of_simple_moves_to_the_pins() -> None:
    history = [message(1, "the code is 4711", pinned=True), *chat(20)[1:]]
    context = assemble(history, values=SIMPLE)
    pin = context.segments[1]
    assert (pin.origin, pin.seq, pin.role) == ("pin", 1, "user")
    assert "the code is 4711" in context.messages[1].content
    assert left(context) == [(2, 8, "window")]
    assert (context.original_count, context.compressed_count) == (20, 13)


@pytest.mark.requirement("S2.3")
def test_a_sliding_window_keeps_everything_up_to_the_high_mark() -> None:
    values = PolicyValues(strategy="sliding_window", token_budget=1_000, reserve_tokens=100)
    assert history_seqs(assemble(chat(100), values=values)) == list(range(1, 101))


@pytest.mark.requirement("S2.3")
def test_a_sliding_window_moves_in_one_batch_to_the_low_mark_at_the_start_of_a_turn() -> None:
    values = PolicyValues(strategy="sliding_window", token_budget=1_100, reserve_tokens=100)
    facts = given([message(n, "word " * 20) for n in range(1, 51)], values=values)
    move = compose_context(facts)
    assert isinstance(move, WindowNeeded)
    assert move.reason == "tokens"
    assert move.to_seq % 2 == 0
    assert move.tokens_before == 50 * 24
    context = composed(facts)
    assert 400 < context.prompt_tokens <= 450
    assert left(context) == [(1, move.to_seq, "window")]


@pytest.mark.requirement("S2.3")
def test_with_equal_marks_the_room_is_filled_from_the_newest_without_gaps() -> None:
    values = PolicyValues(
        strategy="sliding_window",
        token_budget=600,
        reserve_tokens=100,
        compact_at=1.0,
        compact_to=1.0,
    )
    history = [message(n, "word " * (300 if n == 9 else 30)) for n in range(1, 21)]
    context = composed(given(history, values=values))
    assert history_seqs(context) == list(range(11, 21))


def test_a_window_size_is_a_ceiling_from_which_the_window_falls_by_its_share() -> None:
    values = PolicyValues(strategy="sliding_window", window_size=20, compact_to=0.45)
    assert history_seqs(composed(given(chat(20), values=values))) == list(range(1, 21))
    move = compose_context(given(chat(22), values=values))
    assert isinstance(move, WindowNeeded)
    assert (move.reason, move.to_seq) == ("messages", 14)


def test_messages_that_were_not_loaded_leave_by_a_stored_window() -> None:
    values = PolicyValues(strategy="sliding_window")
    facts = given(chat(60)[40:], values=values, unloaded=(1, 40))
    move = compose_context(facts)
    assert isinstance(move, WindowNeeded)
    assert (move.reason, move.to_seq) == ("unloaded", 40)
    assert left(composed(facts)) == [(1, 40, "window")]


def test_a_turn_larger_than_the_limit_is_split_at_a_step_and_keeps_its_reply() -> None:
    values = PolicyValues(strategy="sliding_window", token_budget=700, reserve_tokens=100)
    turn = [message(1, "do it", role="user"), *(step(n, "word " * 100) for n in range(2, 12))]
    context = composed(given([*turn, message(12, "did it", role="assistant")], values=values))
    assert history_seqs(context) == [8, 9, 10, 11, 12]
    assert left(context) == [(1, 7, "window")]


def test_dynamic_summary_leaves_nothing_out_before_the_limit_itself() -> None:
    values = PolicyValues(token_budget=1_100, reserve_tokens=100)
    history = [message(n, "word " * 20) for n in range(1, 41)]
    assert history_seqs(assemble(history, values=values)) == list(range(1, 41))


@pytest.mark.requirement("S0.7")
def test_dynamic_summary_answers_from_a_window_when_no_summary_is_ready() -> None:
    values = PolicyValues(token_budget=1_100, reserve_tokens=100, keep_last_messages=4)
    facts = given([message(n, "word " * 20) for n in range(1, 51)], values=values)
    assert isinstance(compose_context(facts), WindowNeeded)
    context = composed(facts)
    assert context.prompt_tokens <= 450
    assert left(context)[0][2] == "window"


def test_the_never_wait_window_keeps_the_last_messages_where_that_leaves_room_to_grow() -> None:
    history = [message(n, "word " * 20) for n in range(1, 51)]
    few = PolicyValues(token_budget=1_100, reserve_tokens=100, keep_last_messages=20)
    many = replace(few, keep_last_messages=40)
    assert len(history_seqs(composed(given(history, values=few)))) == 20
    assert len(history_seqs(composed(given(history, values=many)))) < 20


class Odd:
    """A third-party strategy with an unusual decision."""

    name = "odd"

    def __init__(self, choice: WindowChoice | WindowMove) -> None:
        self.choice = choice

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        return self.choice


@pytest.mark.requirement("S2.1")
def test_a_strategy_of_a_package_may_keep_what_it_likes() -> None:
    own = Odd(WindowChoice((0, 3), ((1, "dull"), (2, "dull"))))
    context = assemble(chat(4), strategy=own)
    assert history_seqs(context) == [1, 4]
    assert left(context) == [(2, 3, "dull")]
    assert context.adjusted == ()


@pytest.mark.requirement("S2.1")
@pytest.mark.requirement("S2.6")
@pytest.mark.parametrize(
    "choice",
    [
        WindowChoice((0, 1, 2)),
        WindowChoice((0, 1, 2, 3, 4)),
        WindowChoice((1, 0, 2, 3)),
        WindowChoice((0, 1, 2, 3), ((3, "dull"),)),
        WindowMove(0, 1, 1, "tokens"),
        WindowMove(9, 1, 1, "tokens"),
    ],
    ids=["forgets one", "invents one", "reorders", "names one twice", "moves nothing", "too far"],
)
def test_an_unsound_choice_falls_back_to_the_sliding_window_and_says_so(
    choice: WindowChoice | WindowMove,
) -> None:
    context = assemble(chat(4), strategy=Odd(choice))
    assert history_seqs(context) == [1, 2, 3, 4]
    assert context.adjusted == ("strategy",)


def test_a_choice_beyond_the_limit_falls_back_too() -> None:
    values = PolicyValues(strategy="sliding_window", token_budget=300, reserve_tokens=100)
    history = [message(n, "word " * 60) for n in range(1, 7)]
    facts = given(history, values=values, strategy=Odd(WindowChoice(tuple(range(6)))))
    assert isinstance(compose_context(facts), WindowNeeded)


@pytest.mark.requirement("S2.6")
def test_a_missing_strategy_falls_back_to_the_sliding_window_and_says_so() -> None:
    context = assemble(chat(4), values=PolicyValues(strategy="gone"))
    assert history_seqs(context) == [1, 2, 3, 4]
    assert context.adjusted == ("strategy",)


def test_strategies_are_registered_under_their_own_names() -> None:
    assert {name: strategy.name for name, strategy in STRATEGIES.items()} == {
        name: name for name in ("simple", "sliding_window", "dynamic_summary", "entity_state")
    }


def test_no_summary_is_needed_without_the_strategy_for_it() -> None:
    facts = given(chat(4))
    assert assess_compaction_need(facts, assemble(chat(4))).action == "none"
    assert assess_compaction_need(facts, assemble(chat(4))).reason == "strategy"


@pytest.mark.parametrize(
    ("count", "action", "reason"),
    [
        (8, "none", "below_threshold"),
        (30, "prepare", "prepare_mark"),
        (38, "swap", "compact_mark"),
    ],
)
def test_a_summary_is_prepared_at_one_mark_and_swapped_in_at_the_next(
    count: int, action: str, reason: str
) -> None:
    values = PolicyValues(token_budget=1_100, reserve_tokens=100)
    facts = given([message(n, "word " * 20) for n in range(1, count + 1)], values=values)
    found = assess_compaction_need(facts, composed(facts))
    assert (found.action, found.reason) == (action, reason)


def test_excerpts_of_the_chat_itself_need_no_summary() -> None:
    history = [message(n, "word " * 20) for n in range(1, 9)]
    background = Background(references=(TextEntry("user", "word " * 900),))
    for share, is_needed in ((0.0, True), (0.6, False)):
        values = PolicyValues(
            token_budget=1_700,
            reserve_tokens=100,
            references=True,
            reference_share=share,
            reference_tokens=500,
        )
        facts = given(history, values=values, background=background)
        assert (assess_compaction_need(facts, composed(facts)).action != "none") == is_needed


def test_excerpts_leave_before_history_does() -> None:
    history = [message(n, "word " * 20) for n in range(1, 9)]
    background = Background(references=(TextEntry("user", "word " * 720),))
    values = PolicyValues(
        strategy="sliding_window",
        token_budget=1_100,
        reserve_tokens=100,
        references=True,
        reference_share=0.9,
    )
    facts = given(history, values=values, background=background)
    plain = composed(facts)
    # They may fill the prompt beyond the mark at which history is removed.
    assert plain.prompt_tokens > 900
    assert [s.seq for s in plain.segments if s.origin == "history"] == list(range(1, 9))
    step = message(10, "word " * 200, role="assistant")
    later = composed(replace(facts, steps=(step,), last_seq=10))
    assert not [s for s in later.segments if s.message_id == "references"]
    assert [s.seq for s in later.segments if s.origin == "history"] == list(range(1, 9))


@pytest.mark.requirement("S2.4")
def test_more_turns_than_the_threshold_need_a_summary() -> None:
    values = PolicyValues(turn_threshold=10)
    for turns, action in ((10, "none"), (11, "swap")):
        facts = given(chat(2 * turns), values=values)
        found = assess_compaction_need(facts, composed(facts))
        assert (found.action, found.turns) == (action, turns)


def test_a_never_wait_window_in_force_needs_its_summary_at_once() -> None:
    facts = given(chat(10), values=PolicyValues(), window_to=4)
    assert (
        assess_compaction_need(facts, composed(facts)).action,
        assess_compaction_need(facts, composed(facts)).reason,
    ) == (
        "swap",
        "window",
    )


def test_the_marks_are_in_the_providers_tokens() -> None:
    values = PolicyValues(token_budget=1_100, reserve_tokens=100)
    facts = given([message(n, "word " * 20) for n in range(1, 25)], values=values, calibration=1.3)
    found = assess_compaction_need(facts, composed(facts))
    assert found.action == "prepare"
    assert found.tokens == int(composed(facts).prompt_tokens * 1.3)
