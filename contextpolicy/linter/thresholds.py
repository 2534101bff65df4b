"""Finds thresholds that never fire, that always fire, and parts that together leave no room."""

from collections.abc import Iterator

from contextpolicy.engine.budget import compact_mark, low_mark, prepare_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.policy_checks import estimated_tokens
from contextpolicy.linter.findings import UNSET, USUAL_TURN, Finding

USUAL_MESSAGE = USUAL_TURN // 2
# A summary of fewer tokens holds no more than its headings and a line under each.
SHORTEST_SUMMARY = 300
MARKS = ("prepare_at", "compact_at", "compact_to")


def threshold_findings(values: PolicyValues) -> Iterator[Finding]:
    """Yield what is found of the marks, the turn trigger and the messages that are kept."""
    limit = prompt_limit(values, model_window=None)
    if limit < 1 or values.strategy in ("simple", "entity_state"):
        return
    yield from _marks_that_never_count(values, limit)
    if values.compact_every_turns is not None:
        yield from _every_turns(values, limit)
    if values.strategy == "dynamic_summary":
        yield from _turns(values, limit)
        yield from _kept_above_mark(values, limit)


def _marks_that_never_count(values: PolicyValues, limit: int) -> Iterator[Finding]:
    """Find marks in tokens that the share of the same mark reaches first."""
    names = MARKS if values.strategy == "dynamic_summary" else MARKS[1:]
    for name in names:
        absolute, share = getattr(values, f"{name}_tokens"), getattr(values, name)
        by_share = int(share * limit)
        if absolute is not None and absolute > by_share:
            yield Finding(
                "mark_never_counts",
                f"{name}_tokens",
                f"{name}_tokens ({absolute:,}) never counts: {name} is {share:.0%} of "
                f"{limit:,} prompt tokens, {by_share:,}, which is lower.",
                mend={f"{name}_tokens": UNSET},
            )


def _every_turns(values: PolicyValues, limit: int) -> Iterator[Finding]:
    every = values.compact_every_turns or 0
    high = compact_mark(values, prompt_limit=limit)
    if every * USUAL_TURN >= high:
        fitting = max(1, high // USUAL_TURN // 2)
        yield Finding(
            "every_turns_beyond_mark",
            "compact_every_turns",
            f"compact_every_turns is {every:,}, and before compact_at ({high:,} tokens) about "
            f"{high // USUAL_TURN:,} usual turns fit: the time between is never that long.",
            mend={"compact_every_turns": fitting},
        )


def _turns(values: PolicyValues, limit: int) -> Iterator[Finding]:
    threshold = values.turn_threshold
    if threshold is None:
        return
    first = prepare_mark(values, prompt_limit=limit)
    if threshold * USUAL_TURN >= first:
        yield Finding(
            "turns_never_fire",
            "turn_threshold",
            f"turn_threshold is {threshold:,} turns, which usually take about "
            f"{threshold * USUAL_TURN:,} tokens, and prepare_at is reached at {first:,}: turns "
            "never decide.",
            mend={"turn_threshold": max(1, first // USUAL_TURN - 1)},
        )
    if values.fold_turns == 1 and threshold > 1:
        yield Finding(
            "turns_always_fire",
            "fold_turns",
            f"With fold_turns 1 each turn after the first {threshold:,} is followed by a summary, "
            "and the provider's cache begins anew each time.",
            "risk",
            {"fold_turns": max(2, threshold // 2)},
        )


def _kept_above_mark(values: PolicyValues, limit: int) -> Iterator[Finding]:
    """Find newest messages that, with a full summary, reach the mark at which is compacted."""
    high = compact_mark(values, prompt_limit=limit)
    system = estimated_tokens(values.system_text)
    keep, summary = values.keep_last_messages, values.summary_max_tokens
    kept = keep * USUAL_MESSAGE
    if kept + summary + system <= high:
        return
    room = high - kept - system
    if room >= SHORTEST_SUMMARY:
        mend = {"summary_max_tokens": room // 100 * 100}
    else:
        low = low_mark(values, prompt_limit=limit)
        mend = {"keep_last_messages": max(1, (max(low, high - summary) - system) // USUAL_MESSAGE)}
    yield Finding(
        "kept_above_mark",
        next(iter(mend)),
        f"keep_last_messages ({keep:,}, usually about {kept:,} tokens) and a summary of "
        f"{summary:,} are {kept + summary + system:,} tokens, and compact_at is {high:,}: each "
        "turn would compact again.",
        "risk",
        mend,
    )
