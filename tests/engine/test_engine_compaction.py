"""Plans: which messages are compacted, which stay, and no gap between two summaries."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import Message, Summary, TextPart
from contextpolicy.engine.policy.policy import PRESETS
from contextpolicy.engine.summaries.compaction import plan_recompaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, CoverageGap, NotNeeded
from tests.engine.engine_builders import COUNTER, Player, chat, chats, message, step
from tests.support.compaction_plans import (
    EARLIER_SUMMARY,
    VALUES,
    build_talk,
    plan,
    plan_needed,
    plan_not_needed,
)


@pytest.mark.requirement("S4.3")
def test_the_prepare_mark_folds_down_to_the_low_mark_at_the_start_of_a_turn() -> None:
    found = plan_needed(build_talk(30))
    assert (found.trigger, found.from_seq, found.to_seq) == ("prepare", 1, 26)
    assert found.source_ids == tuple(f"m{n}" for n in range(1, 27))
    assert found.tokens_before == 720
    assert found.tokens_after == 4 * 24 + 100
    # It is swapped in a turn of 48 after 900, and then the prompt is at 450 or less.
    assert found.tokens_after + (948 - found.tokens_before) <= 450
    assert (found.exceptions, found.adjusted, found.previous) == ((), (), None)


def test_inv_63_below_every_mark_nothing_is_due_and_the_numbers_say_so() -> None:
    assert plan_not_needed(build_talk(28)) == NotNeeded("below_threshold", 672, 700)
    assert isinstance(plan(build_talk(28), fixed_tokens=100), CompactionPlan)


@pytest.mark.requirement("S2.4")
def test_more_turns_than_the_threshold_fold_the_oldest_turns() -> None:
    values = PRESETS["rounds"]
    found = plan_needed(list(chat(22)), values=values, prompt_limit=12_000)
    assert (found.trigger, found.from_seq, found.to_seq) == ("turns", 1, 10)
    assert (
        plan_not_needed(list(chat(20)), values=values, prompt_limit=12_000).reason
        == "below_threshold"
    )


@pytest.mark.requirement("S2.4")
@pytest.mark.requirement("S4.4")
def test_the_next_summary_folds_the_one_before_and_begins_where_it_ended() -> None:
    values = PRESETS["rounds"]
    found = plan_needed(
        build_talk(22, start=7), values=values, prompt_limit=12_000, previous=EARLIER_SUMMARY
    )
    assert (found.from_seq, found.to_seq) == (1, 16)
    assert found.source_ids[0] == "m7"
    assert found.previous is EARLIER_SUMMARY
    folded = found.summary(id="s2", text="new", tokens=1)
    assert folded == Summary("s2", "new", 1, 16, (), 1)


def test_each_trigger_can_be_asked_for_alone() -> None:
    both = replace(VALUES, turn_threshold=10)
    assert plan_needed(build_talk(30), values=both).trigger == "turns"
    assert plan_needed(build_talk(30), values=both, trigger="prepare").trigger == "prepare"
    assert plan_not_needed(build_talk(30), trigger="turns").reason == "below_threshold"
    few = replace(VALUES, turn_threshold=10)
    assert (
        plan_not_needed(build_talk(24), values=few, trigger="prepare").reason == "below_threshold"
    )


@pytest.mark.requirement("S4.4")
def test_the_last_messages_stay_as_long_as_that_leaves_room() -> None:
    keeping = replace(VALUES, keep_last_messages=4)
    found = plan_needed(build_talk(30), values=keeping)
    assert (found.to_seq, found.adjusted) == (26, ())


@pytest.mark.parametrize("keep", [5, 20, 30])
def test_inv_12_keep_last_gives_way_to_the_low_mark(keep: int) -> None:
    keeping = replace(VALUES, keep_last_messages=keep)
    found = plan_needed(build_talk(30), values=keeping)
    assert (found.to_seq, found.adjusted) == (26, ("keep_last_messages",))


def test_inv_25_a_plan_that_cannot_reach_the_low_mark_says_what_it_reaches() -> None:
    found = plan_needed([message(n, "word " * 100) for n in range(1, 5)], fixed_tokens=650)
    assert found.to_seq == 2
    assert found.tokens_after > 450


def test_a_window_size_that_fills_up_is_a_mark_too() -> None:
    values = replace(VALUES, window_size=20)
    assert plan_not_needed(list(chat(13)), values=values).reason == "below_threshold"
    found = plan_needed(build_talk(14), values=values)
    assert (found.trigger, found.to_seq) == ("prepare", 6)


def test_manual_folds_everything_before_the_last_messages() -> None:
    found = plan_needed(build_talk(12), trigger="manual")
    assert (found.trigger, found.to_seq) == ("manual", 8)


@pytest.mark.parametrize(("length", "to_seq"), [(4, 2), (6, 4), (10, 6), (30, 16)])
def test_manual_folds_the_older_half_of_a_chat_shorter_than_what_stays(
    length: int, to_seq: int
) -> None:
    keeping = replace(VALUES, keep_last_messages=30)
    found = plan_needed(build_talk(length), values=keeping, trigger="manual")
    assert (found.to_seq, found.adjusted) == (to_seq, ("keep_last_messages",))
    folded = found.summary(id="s", text="text", tokens=10)
    rest = build_talk(length)[to_seq:]
    again = plan_not_needed(rest, values=keeping, previous=folded, trigger="manual")
    assert again.reason in {"keep_last", "nothing_to_fold"}
    grown = [*rest, *build_talk(14, start=length + 1)]
    if len(grown) < 30:
        more = plan_needed(grown, values=keeping, previous=folded, trigger="manual")
        assert to_seq < more.to_seq < length + 14


def test_manual_folds_the_older_half_if_what_does_not_stay_is_tiny() -> None:
    tiny = [message(n, "a") for n in range(1, 3)]
    keeping = replace(VALUES, keep_last_messages=10)
    found = plan_needed([*tiny, *build_talk(10, start=3)], values=keeping, trigger="manual")
    assert (found.to_seq, found.adjusted) == (6, ("keep_last_messages",))


def test_manual_folds_all_but_the_last_turn_where_that_is_more_than_half() -> None:
    turn = [message(3, role="user"), *(step(n, "word " * 10) for n in range(4, 9))]
    found = plan_needed([*build_talk(2), *turn, message(9)], values=VALUES, trigger="manual")
    assert found.to_seq == 2


def test_inv_62_a_second_manual_compaction_of_the_same_chat_has_nothing_to_do() -> None:
    first = plan_needed(build_talk(12), trigger="manual")
    folded = first.summary(id="s", text="text", tokens=10)
    again = plan_not_needed(build_talk(12)[8:], previous=folded, trigger="manual")
    assert again.reason == "keep_last"


def test_inv_10_manual_keeps_one_complete_turn_even_if_none_has_to_stay() -> None:
    values = replace(VALUES, keep_last_messages=0)
    assert plan_needed(build_talk(12), values=values, trigger="manual").to_seq == 10
    assert (
        plan_not_needed(build_talk(2), values=values, trigger="manual").reason == "nothing_to_fold"
    )


def test_an_overflow_folds_although_no_mark_was_reached() -> None:
    assert plan_needed(build_talk(12), trigger="overflow").to_seq == 8
    keeping = replace(VALUES, keep_last_messages=30)
    found = plan_needed(build_talk(12), values=keeping, trigger="overflow")
    assert (found.to_seq, found.adjusted) == (10, ("keep_last_messages",))
    assert plan_needed(build_talk(40), trigger="overflow").to_seq == 26


def test_inv_61_one_giant_turn_is_folded_up_to_a_step() -> None:
    turn = [message(1, role="user"), *(step(n, "word " * 100) for n in range(2, 12))]
    found = plan_needed([*turn, message(12, role="assistant")])
    assert found.adjusted == ("turn_split",)
    assert found.tokens_after <= 450
    assert 1 < found.to_seq < 12


def test_inv_61_a_giant_first_message_is_folded_once_it_is_answered() -> None:
    found = plan_needed([message(1, "word " * 900), message(2)])
    assert (found.source_ids, found.adjusted) == (("m1",), ("turn_split",))


def test_inv_63_each_refusal_has_its_own_reason() -> None:
    assert plan_not_needed([]).reason == "nothing_to_fold"
    assert plan_not_needed([message(1, "word " * 900)]).reason == "nothing_to_fold"
    assert plan_not_needed(build_talk(2), trigger="manual").reason == "nothing_to_fold"
    tiny = [message(n, "a") for n in range(1, 9)]
    assert plan_not_needed(tiny, trigger="manual").reason == "no_gain"
    excluded = [replace(item, excluded=True) for item in build_talk(10)]
    assert plan_not_needed(excluded, trigger="overflow").reason == "nothing_to_fold"


def test_inv_24_what_would_free_too_little_is_not_started() -> None:
    assert plan_not_needed(build_talk(4), fixed_tokens=900).reason == "no_gain"


@pytest.mark.parametrize("trigger", ["auto", "prepare", "turns", "manual", "overflow"])
@pytest.mark.parametrize("strategy", ["simple", "sliding_window"])
def test_inv_27_a_policy_without_summaries_folds_on_no_path(trigger: str, strategy: str) -> None:
    values = replace(VALUES, strategy=strategy)
    assert plan_not_needed(build_talk(60), values=values, trigger=trigger).reason == "strategy"


def test_messages_that_are_no_source_are_exceptions_of_the_summary() -> None:
    messages = build_talk(30)
    messages[1] = replace(messages[1], pinned=True)
    messages[3] = replace(messages[3], excluded=True)
    messages[5] = replace(messages[5], incomplete=True)
    messages[7] = replace(messages[7], parts=(TextPart(""),))
    found = plan_needed(messages, fixed_tokens=260)
    assert found.exceptions == (2, 4, 6, 8)
    assert not {"m2", "m4", "m6", "m8"} & set(found.source_ids)


def test_an_exception_that_was_unpinned_is_folded_and_is_none_any_more() -> None:
    before = replace(EARLIER_SUMMARY, exceptions=(2, 4))
    loose = message(4, "word " * 20)
    found = plan_needed([loose, *build_talk(30, start=7)], previous=before)
    assert found.source_ids[:2] == ("m4", "m7")
    assert (found.from_seq, found.exceptions) == (1, (2,))


def test_only_loose_exceptions_do_not_move_the_frontier() -> None:
    before = replace(EARLIER_SUMMARY, exceptions=(3, 4, 5, 6))
    loose = [message(n, "word " * 60) for n in (3, 4, 5, 6)]
    found = plan_needed([*loose, *build_talk(4, start=7)], previous=before, trigger="manual")
    assert (found.to_seq, found.exceptions) == (6, ())
    assert found.source_ids == ("m3", "m4", "m5", "m6")


def test_inv_68_a_gap_in_what_was_loaded_is_an_error() -> None:
    with pytest.raises(CoverageGap, match="Message 7 is missing") as refusal:
        plan(build_talk(30, start=9), previous=EARLIER_SUMMARY)
    assert refusal.value.code == "coverage_gap"
    with pytest.raises(CoverageGap, match="Message 1 is missing"):
        plan(build_talk(30, start=2))


def test_inv_03_a_summariser_that_reads_less_covers_less() -> None:
    found = plan_needed(build_talk(30), source_limit=24 * 7)
    assert (found.to_seq, found.adjusted) == (6, ("source_limit",))
    assert len(found.sources) == 6
    narrow = plan_needed(build_talk(30), source_limit=24 * 30)
    assert narrow.adjusted == ()


def test_inv_03_a_turn_larger_than_the_summariser_can_read_is_folded_in_pieces() -> None:
    turn = [message(1, role="user"), *(step(n, "word " * 100) for n in range(2, 12))]
    found = plan_needed(
        [*turn, *build_talk(4, start=13)][:11] + build_talk(1, start=12), source_limit=300
    )
    assert found.to_seq == 3
    assert "source_limit" in found.adjusted
    lone = plan_needed([message(1, "word " * 900), *build_talk(3, start=2)], source_limit=300)
    assert lone.source_ids == ("m1",)


def test_with_a_counter_messages_count_as_they_are_sent() -> None:
    cut = replace(VALUES, max_chars_per_message=60)
    assert plan_not_needed(build_talk(30), values=cut, counter=COUNTER).reason == "below_threshold"
    assert isinstance(plan(build_talk(30), values=cut), CompactionPlan)


def test_inv_60_equal_plans_have_equal_digests_and_others_do_not() -> None:
    digest = plan_needed(build_talk(30)).sources_digest
    assert digest == plan_needed(build_talk(30)).sources_digest
    assert digest != plan_needed(build_talk(40)).sources_digest
    later = plan_needed(build_talk(40, start=7), previous=EARLIER_SUMMARY)
    other = plan_needed(build_talk(40, start=7), previous=replace(EARLIER_SUMMARY, id="s9"))
    assert later.sources_digest != other.sources_digest


@given(chats(most=40), st.integers(0, 8), st.sampled_from(["prepare", "manual", "overflow"]))
def test_inv_01_what_a_plan_covers_is_exactly_its_sources_and_its_exceptions(
    messages: tuple[Message, ...], keep: int, trigger: str
) -> None:
    values = replace(VALUES, keep_last_messages=keep)
    found = plan(list(messages), values=values, prompt_limit=300, trigger=trigger)
    if isinstance(found, CompactionPlan):
        covered = [item.seq for item in found.sources] + list(found.exceptions)
        assert sorted(covered) == list(range(found.from_seq, found.to_seq + 1))
        assert found.to_seq < len(messages)
        assert not any(item.pinned or item.excluded or item.incomplete for item in found.sources)


def test_inv_64_the_frontier_only_moves_forward_and_ranges_join() -> None:
    player = Player(replace(VALUES, keep_last_messages=2))
    frontiers = []
    for number in range(60):
        player.turn(f"On day {number} we paid {number * 3} euros. " * 4)
        if player.fold() is not None and player.summary is not None:
            frontiers.append(player.summary.to_seq)
    assert len(frontiers) >= 3
    assert frontiers == sorted(set(frontiers))
    assert {summary.from_seq for summary in player.summaries} == {1}


def test_inv_24_after_a_compaction_the_next_one_waits_for_the_prompt_to_grow() -> None:
    player = Player(replace(VALUES, keep_last_messages=2))
    folded = []
    for number in range(60):
        player.turn(f"On day {number} we paid {number * 3} euros. " * 4)
        folded.append(player.fold() is not None)
    assert sum(folded) >= 3
    assert not any(first and second for first, second in pairwise(folded))


def test_a_range_can_be_planned_again_from_its_originals() -> None:
    messages = build_talk(8)
    messages[2] = replace(messages[2], pinned=True)
    sources = tuple(m for m in messages if not m.pinned)
    again = plan_recompaction(messages, tokens_before=5_000)
    assert again == CompactionPlan(
        from_seq=1,
        to_seq=8,
        sources=sources,
        exceptions=(3,),
        previous=None,
        trigger="manual",
        tokens_before=5_000,
        tokens_after=5_000 - sum(m.tokens for m in sources),
    )
    # The size of that prompt does not give the current size of the originals.
    then = plan_recompaction(messages, tokens_before=10)
    assert isinstance(then, CompactionPlan)
    assert then.tokens_after == 0


def test_what_has_no_originals_any_more_is_not_planned_again() -> None:
    gone = [replace(m, parts=()) for m in build_talk(4)]
    assert plan_recompaction(gone, tokens_before=90) == NotNeeded("nothing_to_fold", 90)
    assert plan_recompaction([message(1, "ok")], tokens_before=90) == NotNeeded("no_gain", 90)
    with pytest.raises(CoverageGap):
        plan_recompaction([build_talk(8)[0], build_talk(8)[3]], tokens_before=90)
    with pytest.raises(CoverageGap):
        plan_recompaction([build_talk(8)[0], build_talk(8)[2]], tokens_before=90)
