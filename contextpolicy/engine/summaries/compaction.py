"""Plans which messages the next summary replaces.

A summary covers all messages from the first to `to_seq`, except those that it never read. The next
summary replaces the previous one and the messages after it, so there is no gap between them. A gap
in the loaded messages is an error.
"""

from collections.abc import Sequence
from typing import Literal

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.turn_groups import split_open_turn
from contextpolicy.engine.policy.budget import compute_compact_mark
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded, Trigger
from contextpolicy.engine.summaries.compaction_sums import (
    SMALLEST_SOURCE,
    PlanSums,
    check_coverage,
    is_foldable,
)


def plan_compaction(
    messages: Sequence[Message],
    *,
    previous: Summary | None,
    values: PolicyValues,
    prompt_limit: int,
    fixed_tokens: int,
    trigger: Trigger | Literal["auto"] = "auto",
    source_limit: int | None = None,
    counter: TokenCounter | None = None,
    came_late: bool = False,
) -> CompactionPlan | NotNeeded:
    """Decide whether a compaction is due, and plan it.

    `messages`: all finished turns after `previous`, ascending without a gap, including those that
    precede the window. The summary's exceptions that can now be summarised come first.
    `prompt_limit` and `fixed_tokens` (system, tools, pins, tail) are local tokens. `auto` tests the
    turn threshold, then the prepare mark. `source_limit`: the maximum tokens that the summariser
    can read; the remaining messages are left to the next plan. With a `counter`, messages that the
    policy cuts are counted as sent. `came_late`: one of the last summaries was ready only after a
    window move, so this one starts earlier. Raises CoverageGap.
    """
    if values.strategy != "dynamic_summary":
        return NotNeeded("strategy")
    # A turn that waits for a tool is not finished: it counts as a turn, but is not summarised.
    settled, waiting = split_open_turn(messages)
    fixed_tokens += sum(message.tokens for message in waiting)
    if not settled:
        return NotNeeded("nothing_to_fold", fixed_tokens + (previous.tokens if previous else 0))
    sums = PlanSums(settled, previous, values, prompt_limit, fixed_tokens, counter)
    due = sums.due(trigger)
    if isinstance(due, NotNeeded):
        return due
    end, adjusted = sums.end(due)
    if due == "prepare" and sums.frees_too_little(end):
        return NotNeeded("no_gain", sums.before)
    if due == "prepare" and sums.is_too_early(end, came_late=came_late):
        return NotNeeded(
            "too_early", sums.before, compute_compact_mark(values, prompt_limit=prompt_limit)
        )
    if end and source_limit is not None:
        end, adjusted = sums.within(source_limit, end, adjusted)
    return sums.planned(due, end, adjusted)


def plan_recompaction(
    messages: Sequence[Message], *, tokens_before: int
) -> CompactionPlan | NotNeeded:
    """Plan a new summary from the original messages of an existing one.

    `messages`: its whole range, ascending without a gap; messages that are now excluded or pinned
    are skipped. `tokens_before`: the prompt before the range was compacted. Raises CoverageGap.
    """
    sources = tuple(message for message in messages if is_foldable(message))
    freed = sum(message.tokens for message in sources)
    if freed < SMALLEST_SOURCE:
        return NotNeeded("no_gain" if sources else "nothing_to_fold", tokens_before)
    check_coverage(messages, messages[0].seq - 1)
    seqs = {message.seq for message in sources}
    return CompactionPlan(
        from_seq=messages[0].seq,
        to_seq=messages[-1].seq,
        sources=sources,
        exceptions=tuple(message.seq for message in messages if message.seq not in seqs),
        previous=None,
        trigger="manual",
        tokens_before=tokens_before,
        tokens_after=max(tokens_before - freed, 0),
    )
