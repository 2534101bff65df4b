"""Finds thresholds that always or never trigger, and parts that together leave no room."""

from collections.abc import Iterator

from django.utils.translation import gettext

from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prepare_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.checks import estimate_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning
from contextpolicy.linter.size_warnings import USUAL_TURN

USUAL_MESSAGE = USUAL_TURN // 2
# A summary of fewer tokens has only its headings and a line under each.
SHORTEST_SUMMARY = 300
MARKS = ("prepare_at", "compact_at", "compact_to")


def find_threshold_warnings(values: PolicyValues) -> Iterator[PolicyWarning]:
    """Yield warnings about the marks, the turn trigger and the newest messages to keep."""
    limit = compute_prompt_limit(values, model_window=None)
    if limit < 1 or values.strategy in ("simple", "entity_state"):
        return
    yield from _marks_that_never_count(values, limit)
    if values.compact_every_turns is not None:
        yield from _every_turns(values, limit)
    if values.strategy == "dynamic_summary":
        yield from _turns(values, limit)
        yield from _find_kept_above_mark(values, limit)


def _marks_that_never_count(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    """Find token marks without effect: the share of the same mark is reached first."""
    names = MARKS if values.strategy == "dynamic_summary" else MARKS[1:]
    for name in names:
        absolute, share = getattr(values, f"{name}_tokens"), getattr(values, name)
        by_share = int(share * limit)
        if absolute is not None and absolute > by_share:
            yield PolicyWarning(
                "mark_never_counts",
                f"{name}_tokens",
                gettext(
                    "{field}_tokens ({n:,}) has no effect, because {field} ({share} of {limit:,} "
                    "prompt tokens = {by_share:,}) is lower."
                ).format(
                    field=name, n=absolute, share=f"{share:.0%}", limit=limit, by_share=by_share
                ),
                fix={f"{name}_tokens": UNSET},
            )


def _every_turns(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    every = values.compact_every_turns or 0
    high = compute_compact_mark(values, prompt_limit=limit)
    if every * USUAL_TURN >= high:
        fitting = max(1, high // USUAL_TURN // 2)
        yield PolicyWarning(
            "every_turns_beyond_mark",
            "compact_every_turns",
            gettext(
                "compact_every_turns is {n:,}, but only about {fitting:,} average turns fit "
                "before compact_at ({high:,} tokens). Compactions are therefore more frequent."
            ).format(n=every, fitting=high // USUAL_TURN, high=high),
            fix={"compact_every_turns": fitting},
        )


def _turns(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    threshold = values.turn_threshold
    if threshold is None:
        return
    first = compute_prepare_mark(values, prompt_limit=limit)
    if threshold * USUAL_TURN >= first:
        yield PolicyWarning(
            "turns_never_fire",
            "turn_threshold",
            gettext(
                "turn_threshold is {n:,} turns, which usually take about {tokens:,} tokens. "
                "prepare_at ({first:,} tokens) is reached first, so the threshold has no effect."
            ).format(n=threshold, tokens=threshold * USUAL_TURN, first=first),
            fix={"turn_threshold": max(1, first // USUAL_TURN - 1)},
        )
    if values.fold_turns == 1 and threshold > 1:
        yield PolicyWarning(
            "turns_always_fire",
            "fold_turns",
            gettext(
                "With fold_turns 1, each turn after the first {n:,} starts a summary, which "
                "invalidates the provider’s cache each time."
            ).format(n=threshold),
            "risk",
            {"fold_turns": max(2, threshold // 2)},
        )


def _find_kept_above_mark(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    """Find kept messages that, with a full summary, reach the compaction mark."""
    high = compute_compact_mark(values, prompt_limit=limit)
    system = estimate_tokens(values.system_text)
    keep, summary = values.keep_last_messages, values.summary_max_tokens
    kept = keep * USUAL_MESSAGE
    if kept + summary + system <= high:
        return
    room = high - kept - system
    if room >= SHORTEST_SUMMARY:
        fix = {"summary_max_tokens": room // 100 * 100}
    else:
        low = compute_low_mark(values, prompt_limit=limit)
        fix = {"keep_last_messages": max(1, (max(low, high - summary) - system) // USUAL_MESSAGE)}
    yield PolicyWarning(
        "kept_above_mark",
        next(iter(fix)),
        gettext(
            "keep_last_messages ({n:,}, usually about {kept:,} tokens), a summary of {summary:,} "
            "tokens and system_text ({system:,}) add up to {tokens:,} tokens. This exceeds "
            "compact_at ({high:,}), so each turn would start a compaction."
        ).format(
            n=keep,
            kept=kept,
            summary=summary,
            system=system,
            tokens=kept + summary + system,
            high=high,
        ),
        "risk",
        fix,
    )
