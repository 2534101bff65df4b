"""Warnings about the sizes of a policy: marks, windows, bytes and pins."""

from collections.abc import Iterator

from django.utils.translation import gettext, ngettext

from contextpolicy.engine.policy.budget import compute_compact_mark, compute_low_mark
from contextpolicy.engine.policy.checks import estimate_tokens
from contextpolicy.engine.policy.policy import PolicyValues, compute_default_reserve
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning

# A compaction that frees less than this share of the prompt limit is due again within a few turns.
SMALL_GAP = 0.15
SMALL_RESERVE = 500
# The average turn of a human chat: a question of 80 tokens and a reply of 400.
USUAL_TURN = 480
# Bytes per token: three in scripts like Chinese, and at most eight in any script.
FEWEST_BYTES, MOST_BYTES = 3, 8


def warn_about_marks(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    gap = _compute_gap(values, limit)
    if values.strategy not in ("simple", "entity_state") and gap < SMALL_GAP:
        yield PolicyWarning(
            "marks_close_together",
            "compact_to",
            gettext(
                "Each compaction shortens the prompt by only {share}. The next one follows soon, "
                "so prompt caches are used less. Lower compact_to."
            ).format(share=f"{gap:.0%}"),
            "risk",
            {"compact_to": PolicyValues().compact_to, "compact_to_tokens": UNSET},
        )
    if values.reserve_tokens < SMALL_RESERVE:
        yield PolicyWarning(
            "small_reserve",
            "reserve_tokens",
            ngettext(
                "Replies are cut at {n:,} token.",
                "Replies are cut at {n:,} tokens.",
                values.reserve_tokens,
            ).format(n=values.reserve_tokens),
            "risk",
            {"reserve_tokens": compute_default_reserve(values.token_budget)},
        )


def _compute_gap(values: PolicyValues, limit: int) -> float:
    high = compute_compact_mark(values, prompt_limit=limit)
    return (high - compute_low_mark(values, prompt_limit=limit)) / limit


def warn_about_windows(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    """Yield warnings about ceilings of history that never apply.

    They never apply because the prompt limit is lower.
    """
    if values.strategy == "entity_state":
        return
    usual = {
        "window_size": (
            values.window_size,
            USUAL_TURN // 2,
            gettext(
                "{field} allows {n:,} messages, which usually take about {tokens:,} tokens. A "
                "prompt can have only {limit:,}, so the token limit is reached first. Lower "
                "{field} or raise token_budget."
            ),
        ),
        "window_turns": (
            values.window_turns,
            USUAL_TURN,
            gettext(
                "{field} allows {n:,} turns, which usually take about {tokens:,} tokens. A prompt "
                "can have only {limit:,}, so the token limit is reached first. Lower {field} or "
                "raise token_budget."
            ),
        ),
        "window_tokens": (
            values.window_tokens,
            1,
            gettext(
                "{field} allows {n:,} tokens. A prompt can have only {limit:,}, so the token "
                "limit is reached first. Lower {field} or raise token_budget."
            ),
        ),
    }
    for name, (number, tokens, sentence) in usual.items():
        if number is not None and number * tokens >= limit:
            yield PolicyWarning(
                "window_beyond_limit",
                name,
                sentence.format(field=name, n=number, tokens=number * tokens, limit=limit),
                fix={name: max(1, limit // tokens - 1)},
            )


def warn_about_bytes(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    if values.max_bytes is None:
        return
    if values.max_bytes < FEWEST_BYTES * limit:
        held = values.max_bytes // FEWEST_BYTES
        yield PolicyWarning(
            "bytes_bind_first",
            "max_bytes",
            gettext(
                "max_bytes ({n:,}) has room for about {held:,} of {limit:,} tokens, so the rest "
                "of the token budget is not used. Percentages refer to the token limit."
            ).format(n=values.max_bytes, held=held, limit=limit),
            fix={"max_bytes": 2 * FEWEST_BYTES * limit},
        )
    if values.max_bytes > MOST_BYTES * limit:
        yield PolicyWarning(
            "bytes_never_bind",
            "max_bytes",
            gettext(
                "max_bytes ({n:,}) exceeds the size of {limit:,} tokens, so max_bytes has no "
                "effect."
            ).format(n=values.max_bytes, limit=limit),
            fix={"max_bytes": UNSET},
        )


def warn_about_pins(values: PolicyValues, limit: int) -> Iterator[PolicyWarning]:
    pins = values.pins_tokens
    if pins is None:
        return
    fixed = pins + estimate_tokens(values.system_text)
    low = compute_low_mark(values, prompt_limit=limit)
    if values.strategy not in ("simple", "entity_state") and fixed >= low:
        yield PolicyWarning(
            "pins_reach_low_mark",
            "pins_tokens",
            gettext(
                "With all pins, a prompt has {n:,} tokens before any history. The compaction "
                "target is {low:,}, so each turn would start a compaction. Lower pins_tokens "
                "or raise compact_to."
            ).format(n=fixed, low=low),
            "risk",
            {"pins_tokens": max(1, (low - estimate_tokens(values.system_text)) // 2)},
        )
    elif 2 * pins > limit:
        yield PolicyWarning(
            "pins_crowd_out",
            "pins_tokens",
            gettext("Pins may use {n:,} of {limit:,} prompt tokens, more than the history.").format(
                n=pins, limit=limit
            ),
            fix={"pins_tokens": limit // 4},
        )
