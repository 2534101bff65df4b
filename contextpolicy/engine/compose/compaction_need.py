"""Decides whether a summary is due after a prompt was composed."""

from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    count_excerpt_tokens,
)
from contextpolicy.engine.compose.partition import is_covered_by_summary
from contextpolicy.engine.messages.turn_groups import find_turn_starts
from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_prepare_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.policy import PolicyValues


@dataclass(frozen=True, slots=True)
class CompactionNeed:
    """The decision on whether a summary is due, made after a prompt was composed.

    `action`: `none`, `prepare` (write the summary in the background) or `swap` (use it as soon as
    it is ready). `reason`: the mark or rule that decided. `tokens`: the prompt size, and `mark`:
    the threshold that it passed (0: none), both in provider tokens. `turns`: the number of finished
    turns that no summary covers.
    """

    action: Literal["none", "prepare", "swap"]
    reason: Literal[
        "strategy", "below_threshold", "window", "compact_mark", "turns", "prepare_mark"
    ]
    tokens: int
    mark: int
    turns: int


def assess_compaction_need(given: ComposeInput, context: AssembledContext) -> CompactionNeed:
    """Decide whether a summary should be prepared or swapped in, after composing `context`."""
    values = given.values
    limit = compute_prompt_limit(values, model_window=given.model_window)
    taken = context.prompt_tokens
    if values.reference_share:
        # Excerpts use only free room, so they never trigger a compaction.
        taken -= count_excerpt_tokens(context.segments)
    tokens = int(taken * given.calibration)
    unfolded = [
        message
        for message in given.history
        if not is_covered_by_summary(given.summary, message.seq)
    ]
    turns = len(find_turn_starts(unfolded))
    frontier = given.summary.to_seq if given.summary else 0
    high = compute_compact_mark(values, prompt_limit=limit)
    prepare = compute_prepare_mark(values, prompt_limit=limit)
    if values.strategy != "dynamic_summary":
        return CompactionNeed("none", "strategy", tokens, 0, turns)
    if given.window_to > frontier:
        return CompactionNeed("swap", "window", tokens, 0, turns)
    if tokens >= high:
        return CompactionNeed("swap", "compact_mark", tokens, high, turns)
    if values.turn_threshold is not None and turns > values.turn_threshold:
        return CompactionNeed("swap", "turns", tokens, 0, turns)
    if tokens >= prepare:
        return CompactionNeed("prepare", "prepare_mark", tokens, prepare, turns)
    return CompactionNeed("none", "below_threshold", tokens, 0, turns)


def compute_compaction_threshold(
    needed: CompactionNeed, *, values: PolicyValues, limit: int
) -> int | None:
    """Return the reply size, in provider tokens, that makes a compaction due.

    Returns 0 if any reply makes a compaction due, and None if the strategy never compacts.
    """
    if needed.reason == "strategy":
        return None
    threshold = values.turn_threshold
    if needed.action != "none" or (threshold is not None and needed.turns + 1 > threshold):
        return 0
    return max(compute_prepare_mark(values, prompt_limit=limit) - needed.tokens, 0)
