"""Other functions for callers: how much to load, and when a compaction is due."""

from dataclasses import replace

import pytest

from contextpolicy.engine.compose.compaction_need import (
    CompactionNeed,
    compute_compaction_threshold,
)
from contextpolicy.engine.history.entries import estimate_sendable_tokens
from contextpolicy.engine.messages.messages import (
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from contextpolicy.engine.policy.budget import compute_readable_tokens
from contextpolicy.engine.policy.policy import PolicyValues, can_compact_messages

VALUES = PolicyValues(prepare_at=0.5)
NONE = CompactionNeed("none", "below_threshold", tokens=300, mark=0, turns=2)


def said(*parts: Part, tokens: int = 10_000) -> Message:
    return Message(id="m", seq=1, role="assistant", parts=parts, tokens=tokens, turn="t")


def test_a_reply_may_be_as_long_as_the_prepare_mark_leaves_room() -> None:
    assert compute_compaction_threshold(NONE, values=VALUES, limit=1_000) == 200
    assert compute_compaction_threshold(replace(NONE, tokens=800), values=VALUES, limit=1_000) == 0


def test_folding_is_due_at_once_when_it_is_needed_or_the_turns_are_too_many() -> None:
    assert (
        compute_compaction_threshold(replace(NONE, action="prepare"), values=VALUES, limit=1_000)
        == 0
    )
    turns = replace(VALUES, turn_threshold=2)
    assert compute_compaction_threshold(NONE, values=turns, limit=1_000) == 0
    assert compute_compaction_threshold(replace(NONE, turns=1), values=turns, limit=1_000) == 200


def test_a_strategy_without_summaries_never_folds() -> None:
    assert (
        compute_compaction_threshold(replace(NONE, reason="strategy"), values=VALUES, limit=1_000)
        is None
    )


@pytest.mark.parametrize(
    ("part", "values", "tokens"),
    [
        (TextPart("x" * 100), VALUES, 316),
        (TextPart("x" * 100), replace(VALUES, max_chars_per_message=10), 46),
        (ToolCallPart("c", "look", "{}"), VALUES, 34),
        (ToolCallPart("c", "look", "{}"), replace(VALUES, layout="A"), 16),
        (ToolResultPart("c", "look", "x" * 100), VALUES, 316),
        (ReasoningPart("x" * 100), VALUES, 16),
    ],
)
def test_a_message_costs_at_most_what_the_policy_leaves_of_it(
    part: Part, values: PolicyValues, tokens: int
) -> None:
    assert estimate_sendable_tokens(said(part), values=values) == tokens
    assert estimate_sendable_tokens(said(part, tokens=5), values=values) == 5


def test_only_the_strategy_that_counts_messages_knows_no_compactions() -> None:
    assert can_compact_messages(VALUES)
    assert not can_compact_messages(replace(VALUES, strategy="simple"))


def test_a_summariser_reads_what_its_window_and_the_policy_leave_in_our_count() -> None:
    values = replace(VALUES, token_budget=9_000, reserve_tokens=1_000, summary_max_tokens=2_000)
    assert compute_readable_tokens(values, model_window=5_000, calibration=1.5) == 2_000
    assert compute_readable_tokens(values, model_window=1_000, calibration=1.0) == 1
