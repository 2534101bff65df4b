"""When the engine decides: before a call, after tool output, with another model, in a preview."""

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import AssembledContext, WindowNeeded, compose_context
from contextpolicy.engine.compose.compaction_need import assess_compaction_need
from contextpolicy.engine.messages.messages import Message, ToolCallPart
from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded
from tests.engine.engine_builders import Player, chat, composed, given, message, step

VALUES = PolicyValues(keep_last_messages=2, summary_max_tokens=500)


def long_chat(count: int = 40) -> tuple[Message, ...]:
    return chat(count, lambda seq: f"message {seq} " * 80)


def planned(messages: tuple[Message, ...], **facts: object) -> CompactionPlan | NotNeeded:
    usual: dict[str, object] = {
        "previous": None,
        "values": VALUES,
        "prompt_limit": 12_000,
        "fixed_tokens": 0,
    }
    return plan_compaction(messages, **{**usual, **facts})  # type: ignore[arg-type]  # facts of a test


def test_inv_08_a_turn_whose_call_is_open_is_no_source_of_a_summary() -> None:
    waiting = message(42, parts=(ToolCallPart("a", "t", "{}"),), role="assistant")
    messages = (*long_chat(), message(41, "one more " * 200), waiting)
    made = planned(messages, trigger="overflow", values=replace(VALUES, keep_last_messages=0))
    assert isinstance(made, CompactionPlan)
    assert made.to_seq <= 40
    assert made.tokens_before == sum(m.tokens for m in messages)
    assert planned(messages[-2:], trigger="overflow") == NotNeeded(
        "nothing_to_fold", sum(m.tokens for m in messages[-2:])
    )


def test_inv_08_a_reply_that_still_streams_is_an_exception_of_the_summary() -> None:
    messages = [*long_chat()]
    messages[3] = replace(messages[3], incomplete=True)
    made = planned(tuple(messages))
    assert isinstance(made, CompactionPlan)
    assert made.exceptions == (4,)
    assert 4 not in [m.seq for m in made.sources]


def test_inv_28_a_smaller_window_is_heeded_before_the_next_reply() -> None:
    facts = given(long_chat(30), values=replace(VALUES, token_budget=60_000))
    assert isinstance(compose_context(facts), AssembledContext)
    smaller = compose_context(replace(facts, model_window=8_000))
    assert isinstance(smaller, WindowNeeded)
    assert smaller.tokens_after <= 4_000
    with pytest.raises(PolicyImpossible):
        compose_context(replace(facts, model_window=4_005))


def test_inv_29_the_marks_are_tested_before_a_call_and_after_tool_output() -> None:
    facts = given(long_chat(20), values=VALUES)
    before = compose_context(facts)
    assert isinstance(before, AssembledContext)
    assert assess_compaction_need(facts, before).action == "none"
    wide = replace(VALUES, tool_output_limit=60_000)
    output = step(22, "word " * 4_500)
    later = replace(facts, steps=(output,), last_seq=22, values=wide)
    after = compose_context(later)
    assert isinstance(after, AssembledContext)
    assert assess_compaction_need(later, after).action in ("prepare", "swap")


@forall(st.integers(2, 60), st.sampled_from(["auto", "manual", "overflow"]))
def test_inv_56_a_preview_changes_nothing_and_says_what_the_run_will_do(
    count: int, trigger: str
) -> None:
    messages = long_chat(count)
    facts = given(messages, values=VALUES)
    kept = deepcopy((facts.history, facts.question, VALUES.to_json()))
    preview = planned(messages, trigger=trigger), compose_context(facts)
    assert (facts.history, facts.question, VALUES.to_json()) == kept
    assert (planned(messages, trigger=trigger), compose_context(facts)) == preview


@forall(st.integers(500, 6_000), st.integers(20, 60))
def test_inv_67_what_a_summariser_cannot_read_is_named_and_nothing_is_skipped(
    source_limit: int, count: int
) -> None:
    made = planned(long_chat(count), trigger="overflow", source_limit=source_limit)
    whole = planned(long_chat(count), trigger="overflow")
    assert isinstance(made, CompactionPlan)
    assert isinstance(whole, CompactionPlan)
    assert [m.seq for m in made.sources] == list(range(1, made.to_seq + 1))
    assert ("source_limit" in made.adjusted) == (made.to_seq < whole.to_seq)


def test_inv_25_after_each_compaction_the_prompt_is_at_the_low_mark_or_the_plan_says_more() -> None:
    player = Player(replace(VALUES, token_budget=6_000, reserve_tokens=1_000))
    low = int(0.45 * 5_000)
    folded = 0
    for number in range(150):
        context = player.turn(f"question {number} " * 20, "answer " * 60)
        if folded:
            assert context.prompt_tokens <= max(low + 400, folded)
        made = player.fold()
        folded = made.tokens_after + 200 if made else 0
    assert len(player.summaries) > 3


def test_fifty_thousand_tiny_messages_are_no_trouble() -> None:
    history = chat(50_000, lambda seq: "x")
    facts = given(history, values=replace(VALUES, strategy="sliding_window"))
    context = composed(facts)
    assert context.prompt_tokens <= 12_000
    assert context.original_count == 50_000
    assert context.left_out[0].from_seq == 1


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["multi_turn", "A"])
def test_ten_megabytes_in_one_message_are_cut_or_left_out(layout: Layout) -> None:
    scripts = "word 日本語 кот 👩‍👩‍👧 e\u0301 " * 400_000
    blob = "QUJD" * 2_500_000
    history = [message(1, scripts), message(2, blob), message(3), message(4)]
    values = replace(VALUES, strategy="sliding_window", layout=layout)
    whole = composed(given(history, values=values))
    assert [s.seq for s in whole.segments if s.origin == "history"] == [3, 4]
    cut = composed(given(history, values=replace(values, max_chars_per_message=500)))
    assert [s.seq for s in cut.segments if s.origin == "history"] == [1, 2, 3, 4]
    assert cut.truncated_count == 2
