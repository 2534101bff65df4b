"""Boundary values: what exactly fits, is exactly due, or is exactly enough."""

from dataclasses import replace

import pytest

from contextpolicy.engine.messages.messages import Message, Summary, TextPart
from contextpolicy.engine.policy.budget import (
    BudgetRefusal,
    Marks,
    compute_prompt_marks,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import SHORTEST_SUMMARY, append_lost_facts
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CoverageGap, NotNeeded
from contextpolicy.engine.summaries.compaction_sums import SMALLEST_SOURCE
from contextpolicy.engine.window import compute_adaptive_low
from tests.engine.engine_builders import COUNTER, message, step
from tests.support.compaction_plans import (
    EARLIER_SUMMARY,
    VALUES,
    build_talk,
    plan,
    plan_needed,
    plan_not_needed,
)
from tests.support.summary_validation import VALID_SUMMARY, validate_summary


def sized(seq: int, tokens: int, **facts: object) -> Message:
    """A message of exactly this many tokens."""
    found = message(seq, "word " * (tokens - 4), **facts)  # type: ignore[arg-type]  # facts of a test
    assert found.tokens == tokens
    return found


# --- the acceptance check


def test_a_summary_is_too_short_below_its_least_length_and_not_at_it() -> None:
    assert "too_short" not in validate_summary("").reasons
    assert "too_short" in validate_summary("x").reasons
    assert "too_short" in validate_summary("x" * (SHORTEST_SUMMARY - 1)).reasons
    assert "too_short" not in validate_summary("x" * SHORTEST_SUMMARY).reasons


def test_a_summary_has_to_be_smaller_than_its_sources_by_one_token_at_least() -> None:
    tokens = COUNTER.count(VALID_SUMMARY.strip())
    said = [message(1, "Ann pays 40 euros a month and we take the train.")]
    same = [replace(said[0], tokens=tokens)]
    assert validate_summary(sources=same).reasons == ("not_smaller",)
    assert validate_summary(sources=[replace(said[0], tokens=tokens + 1)]).accepted
    previous = Summary("s", "x", 1, 2, (), 1)
    assert validate_summary(sources=same, previous=previous).accepted


def test_a_summary_may_take_all_it_is_allowed() -> None:
    tokens = COUNTER.count(VALID_SUMMARY.strip())
    assert validate_summary(values=PolicyValues(summary_max_tokens=tokens)).accepted
    assert validate_summary(values=PolicyValues(summary_max_tokens=tokens - 1)).reasons == (
        "too_long",
    )


def test_facts_at_the_end_of_a_source_are_read_as_they_stand() -> None:
    values = PolicyValues(pinned_kinds=("url",))
    said = [message(n, f"{'We look at it again and again. ' * 8} https://x.io/{n}") for n in (1, 2)]
    previous = Summary("s", "See https://x.io/0", 1, 2, (), 9)
    found = validate_summary(sources=said, previous=previous, values=values)
    assert found.lost == ("https://x.io/0", "https://x.io/1", "https://x.io/2")


def test_carried_facts_may_fill_the_summary_to_its_limit() -> None:
    whole = append_lost_facts(VALID_SUMMARY, ("471",), max_tokens=10_000, counter=COUNTER)
    tokens = COUNTER.count(whole)
    assert append_lost_facts(VALID_SUMMARY, ("471",), max_tokens=tokens, counter=COUNTER) == whole
    assert "471" not in append_lost_facts(
        VALID_SUMMARY, ("471",), max_tokens=tokens - 1, counter=COUNTER
    )


# --- the plan: prompt limit 1,000, prepare at 700, swap at 900, down to 450, summary 100


def test_the_mark_itself_is_reached() -> None:
    assert plan_not_needed(build_talk(28), fixed_tokens=27).reason == "below_threshold"
    assert plan_needed(build_talk(28), fixed_tokens=28).tokens_before == 700


def test_a_fold_stops_exactly_at_the_low_mark() -> None:
    # After 926 another turn of 48 comes before the next prompt.
    found = plan_needed(build_talk(38), fixed_tokens=14)
    assert (found.to_seq, found.tokens_after) == (26, 450 - 48)
    assert plan_needed(build_talk(38), fixed_tokens=15).to_seq == 28


def test_a_fold_leaves_room_for_what_comes_before_the_summary_is_swapped_in() -> None:
    # From 720 to the swap, a turn of 48 after 900, there are 228 tokens.
    exact = replace(VALUES, summary_max_tokens=126)
    found = plan_needed(build_talk(30), values=exact)
    assert (found.to_seq, found.tokens_after) == (26, 450 - 228)
    assert plan_needed(build_talk(30), values=replace(VALUES, summary_max_tokens=127)).to_seq == 28
    at_mark = plan_needed(build_talk(28), values=exact, fixed_tokens=28)
    assert at_mark.tokens_after <= 450 - 248


def test_what_would_miss_the_low_mark_when_it_is_swapped_in_waits_for_another_turn() -> None:
    values = replace(VALUES, keep_last_messages=0)
    # The swap comes a usual turn of 325 after 900; 875 tokens less and a summary of 100 make 450.
    last = [sized(3, 40), sized(4, 60)]
    enough = [sized(1, 350), sized(2, 200), *last]
    assert (
        plan_needed(enough, values=replace(values, compact_to=0.775), fixed_tokens=150).to_seq == 2
    )
    early = plan_not_needed(enough, values=replace(values, compact_to=0.774), fixed_tokens=150)
    assert early == NotNeeded("too_early", 800, 900)
    # After a late summary the turn beyond the mark is not added: 550 less make 450.
    assert plan_needed(enough, values=values, fixed_tokens=150, came_late=True).to_seq == 2
    less = [sized(1, 349), sized(2, 200), *last]
    early = plan_not_needed(less, values=values, fixed_tokens=150, came_late=True)
    assert early == NotNeeded("too_early", 799, 900)
    # At the high mark there is nothing to wait for.
    assert plan_needed(less, values=values, fixed_tokens=251).to_seq == 2


def test_an_overflow_is_not_dealt_with_for_a_later_moment() -> None:
    exact = replace(VALUES, summary_max_tokens=126)
    # No further turn is expected before an overflow is handled, nor below a ceiling's mark.
    forced = plan_needed(build_talk(30), values=exact, trigger="overflow")
    assert forced.tokens_after == 720 - 24 * forced.to_seq + 126
    assert 450 - 2 * 24 < forced.tokens_after <= 450
    crowded = replace(VALUES, window_size=40, compact_to=0.6, keep_last_messages=0)
    found = plan_needed(build_talk(28), values=crowded)
    assert (found.to_seq, found.tokens_after) == (8, 580)


def test_the_previous_summary_is_paid_before_and_replaced_after() -> None:
    previous = replace(EARLIER_SUMMARY, tokens=80)
    found = plan_needed(build_talk(30, start=7), previous=previous)
    assert found.tokens_before == 720 + 80
    folded = 24 * len(found.sources)
    assert found.tokens_after == 720 - folded + 100
    assert plan_not_needed([], previous=previous, fixed_tokens=7) == NotNeeded(
        "nothing_to_fold", 87
    )


def test_every_refusal_tells_the_tokens_it_was_decided_on() -> None:
    assert plan_not_needed(build_talk(4), fixed_tokens=900) == NotNeeded("no_gain", 996)
    previous = replace(EARLIER_SUMMARY, tokens=100)
    assert plan_not_needed(
        build_talk(4, start=7), previous=previous, trigger="manual"
    ) == NotNeeded("keep_last", 196)
    excluded = [replace(item, excluded=True) for item in build_talk(10)]
    assert plan_not_needed(excluded, trigger="overflow", fixed_tokens=5) == NotNeeded(
        "nothing_to_fold", 5
    )
    tiny = [sized(n, 5) for n in range(1, 9)]
    assert plan_not_needed(tiny, trigger="manual") == NotNeeded("no_gain", 40)


@pytest.mark.parametrize("flag", ["excluded", "incomplete", "empty", "pinned"])
def test_what_is_no_source_frees_nothing_and_costs_only_where_it_is_sent(flag: str) -> None:
    messages = build_talk(34)
    one = messages[1]
    if flag == "empty":
        messages[1] = replace(one, parts=(TextPart(""),))
    else:
        messages[1] = replace(one, **{flag: True})  # type: ignore[arg-type]  # a flag's name
    found = plan_needed(messages)
    sent = 34 if flag == "pinned" else 33
    assert found.tokens_before == 24 * sent
    assert found.tokens_after == 24 * (sent - len(found.sources)) + 100
    assert found.exceptions == (2,)


def test_an_overflow_at_the_low_mark_folds_all_but_the_last_messages() -> None:
    found = plan_needed(build_talk(12), fixed_tokens=162, trigger="overflow")
    assert (found.tokens_before, found.to_seq, found.adjusted) == (450, 8, ())
    # One token more, and the mark decides the amount: as little as reaches 450.
    more = plan_needed(build_talk(20), fixed_tokens=0, trigger="overflow")
    assert (more.tokens_before, more.to_seq) == (480, 6)


def test_keep_last_gives_way_in_an_overflow() -> None:
    all_kept = replace(VALUES, keep_last_messages=30)
    found = plan_needed(build_talk(24), values=all_kept, trigger="overflow")
    assert found.adjusted == ("keep_last_messages",)


def test_nothing_gave_way_where_no_message_had_to_stay() -> None:
    values = replace(VALUES, keep_last_messages=0)
    found = plan_needed([sized(n, 104) for n in range(1, 5)], values=values, fixed_tokens=650)
    assert (found.to_seq, found.tokens_after, found.adjusted) == (2, 958, ())


def test_a_turn_is_split_before_an_answer_never_before_what_the_user_added() -> None:
    turn: list[Message] = []
    for seq in range(1, 25):
        turn.append(message(seq, "word " * 30, role="user") if seq % 2 else step(seq, "word " * 30))
    found = plan_needed([replace(item, turn="t") for item in turn])
    assert found.adjusted == ("turn_split",)
    assert turn[found.to_seq].role == "assistant"
    second = plan_needed([replace(item, turn="t") for item in turn], fixed_tokens=72)
    assert second.to_seq != found.to_seq
    assert turn[second.to_seq].role == "assistant"
    enough = [n for n in range(1, 24) if found.tokens_before - _folded(turn, n) + 100 <= 450]
    assert found.to_seq - enough[0] in (0, 1)


def _folded(messages: list[Message], count: int) -> int:
    return sum(item.tokens for item in messages[:count])


def test_a_gain_of_a_twentieth_of_the_limit_is_worth_it_and_less_is_not() -> None:
    values = replace(VALUES, keep_last_messages=0)
    last = [sized(3, 10), sized(4, 20)]
    assert (
        plan_needed([sized(1, 75), sized(2, 75), *last], values=values, fixed_tokens=720).to_seq
        == 2
    )
    less = plan_not_needed([sized(1, 75), sized(2, 74), *last], values=values, fixed_tokens=721)
    assert less.reason == "no_gain"
    lone = [
        sized(1, 64, role="assistant"),
        sized(2, 10, role="user"),
        sized(3, 10, role="assistant"),
    ]
    assert plan_not_needed(lone, values=values, fixed_tokens=900).reason == "no_gain"


def test_a_source_of_the_least_size_can_be_folded() -> None:
    half = SMALLEST_SOURCE // 2
    small = [sized(1, half), sized(2, half), *build_talk(4, start=3)]
    assert plan_needed(small, trigger="manual").to_seq == 2
    smaller = [sized(1, half), sized(2, half - 1), *build_talk(2, start=3)]
    assert plan_not_needed(smaller, trigger="manual").reason == "no_gain"
    tiny = replace(VALUES, summary_max_tokens=10, keep_last_messages=0)
    crowd = [sized(1, half), sized(2, half), *build_talk(4, start=3)]
    found = plan_needed(crowd, values=tiny, trigger="overflow", fixed_tokens=480 - 40 - 96)
    assert (found.tokens_before, found.to_seq, found.tokens_after) == (480, 2, 450)


def test_a_summariser_reads_exactly_what_it_can_and_what_is_no_source_costs_it_nothing() -> None:
    assert plan_needed(build_talk(30), source_limit=24 * 6).to_seq == 6
    assert plan_needed(build_talk(30), source_limit=24 * 6 - 1).to_seq == 4
    messages = [replace(m, excluded=m.seq in (2, 4)) for m in build_talk(34)]
    found = plan_needed(messages, source_limit=24 * 6)
    assert (found.to_seq, len(found.sources)) == (8, 6)
    previous = replace(EARLIER_SUMMARY, tokens=48)
    assert plan_needed(build_talk(30, start=7), previous=previous, source_limit=24 * 6).to_seq == 10
    # It reads at least one message, and the plan reports the excess.
    first = [sized(1, 60, turn="a"), *build_talk(6, start=2)]
    one = plan_needed(first, trigger="manual", source_limit=59)
    assert (one.to_seq, one.adjusted) == (1, ("source_limit",))


def test_turns_are_folded_only_if_one_stays() -> None:
    values = replace(VALUES, turn_threshold=2, fold_turns=3)
    assert plan_not_needed(build_talk(6), values=values).reason == "nothing_to_fold"
    assert plan_needed(build_talk(8), values=values).to_seq == 6


def test_many_turns_are_folded_down_to_what_any_fold_leaves() -> None:
    values = replace(VALUES, turn_threshold=10, fold_turns=4)
    assert plan_needed(build_talk(22), values=values).to_seq == 8
    assert plan_needed(build_talk(400), values=values).to_seq == 400 - 2 * 7


def test_with_a_number_of_turns_the_low_mark_follows_what_stands_beside_history() -> None:
    every = replace(VALUES, compact_every_turns=5, keep_last_messages=0, summary_max_tokens=10)
    for fixed in (0, 100, 300):
        found = plan_needed(build_talk(30), values=every, fixed_tokens=fixed)
        # Turns take 48: five of them fit between the low mark and the high mark of 900.
        then = found.tokens_after + max(0, 900 - found.tokens_before)
        assert 900 - 6 * 48 < then <= 900 - 5 * 48


def test_a_gap_behind_a_loose_exception_is_found() -> None:
    loose = message(4, "word " * 20)
    before = replace(EARLIER_SUMMARY, exceptions=(4,))
    with pytest.raises(CoverageGap) as refusal:
        plan([loose, *build_talk(30, start=8)], previous=before)
    assert str(refusal.value) == (
        "Message 7 is missing between the summary and message 8. Load all messages after the "
        "summary."
    )


def test_inv_64_a_fold_of_what_was_unpinned_later_moves_no_frontier_back() -> None:
    before = replace(EARLIER_SUMMARY, exceptions=(2,))
    values = replace(VALUES, keep_last_messages=2)
    messages = [message(2, "word " * 60), *build_talk(2, start=before.to_seq + 1)]
    found = plan_needed(messages, previous=before, values=values, trigger="manual")
    assert (found.source_ids, found.exceptions) == (("m2",), ())
    assert (found.from_seq, found.to_seq) == (before.from_seq, before.to_seq)


def test_a_ceiling_in_tokens_is_near_at_its_own_number() -> None:
    values = replace(VALUES, window_tokens=400, keep_last_messages=0)
    nearest = next(
        count
        for count in range(2, 40, 2)
        if not isinstance(plan(build_talk(count), values=values), NotNeeded)
    )
    limit = int(values.prepare_at * 400)
    assert 24 * nearest >= limit > 24 * (nearest - 2)
    exact = [sized(n, limit // 4) for n in range(1, 5)]
    assert sum(m.tokens for m in exact) == limit
    assert not isinstance(plan(exact, values=values), NotNeeded)


# --- marks and the adaptive low mark


def test_the_adaptive_low_mark_counts_whole_tokens_of_the_usual_turn() -> None:
    assert compute_adaptive_low(1_000, [100, 33], turns=2, every=3) == 1_000 - 3 * 66
    assert compute_adaptive_low(1_000, [100], turns=1, every=3) == 700
    assert compute_adaptive_low(1_000, [100], turns=0, every=3) == 700
    floor, ceiling = (
        compute_adaptive_low(15, [99], turns=1, every=9),
        compute_adaptive_low(15, [], turns=1, every=1),
    )
    assert (floor, ceiling) == (1, 13)
    assert isinstance(floor, int)
    assert isinstance(ceiling, int)


def test_marks_are_turned_into_our_count_and_the_limit_stays_in_the_providers() -> None:
    values = PolicyValues(token_budget=1_100, reserve_tokens=100)
    assert compute_prompt_marks(values, model_window=None, calibration=2.0) == Marks(
        1_000, 500, 450, 225
    )
    assert compute_prompt_marks(values, model_window=600, calibration=1.0) == Marks(
        500, 500, 450, 225
    )
    absolute = replace(values, compact_at_tokens=80, compact_to_tokens=40)
    assert compute_prompt_marks(absolute, model_window=None, calibration=1.0) == Marks(
        1_000, 1_000, 80, 40
    )
    assert convert_provider_tokens(10, calibration=0.5) == 20
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=r"^The calibration of a model must be"):
            convert_provider_tokens(10, calibration=wrong)
    assert BudgetRefusal.code == "budget_refused"


def test_a_plan_is_made_by_itself_without_a_trigger() -> None:
    found = plan_compaction(
        build_talk(30), previous=None, values=VALUES, prompt_limit=1_000, fixed_tokens=0
    )
    assert not isinstance(found, NotNeeded)
    assert found.trigger == "prepare"
