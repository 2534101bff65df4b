"""What cannot be saved in a policy, and what can but will surprise."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from contextpolicy import plugins
from contextpolicy.engine.budget import compact_mark, low_mark, prompt_limit
from contextpolicy.engine.policy import (
    MalformedPolicy,
    PolicyValues,
    Problem,
    defaults_for,
    from_json,
    problems,
)
from contextpolicy.models import ModelSpec

LONGEST_TEXT = 20_000
# A compaction that frees less than this share of the prompt limit comes back within a few turns.
SMALL_GAP = 0.15
SMALL_RESERVE = 500

# Shapes of keys that services hand out; a policy's text is readable by everyone who chats.
_SECRETS = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?i:\b(password|passwd|secret|api[_-]?key|token)\s*[:=]\s*\S{8,})"
)


def check(values: Mapping[str, Any], *, locks: Collection[str] = ()) -> list[Problem]:
    """What makes these values and locks impossible; an empty list when they can be saved.

    `values` holds only the fields a policy sets. A field it leaves out counts with the default of
    its strategy, so that every policy works on its own.
    """
    malformed = [problem for name in values for problem in _malformed(name, values[name])]
    if malformed:
        return malformed
    strategy = values.get("strategy", PolicyValues().strategy)
    whole = from_json(values, base=defaults_for(strategy))
    found = _lock_problems(values, locks) + _strategy_problems(values)
    found += _text_problems(whole) + _model_problems(values)
    return found or problems(whole, model_window=None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know: a stable code, the field it is about, and a sentence."""

    code: str
    field: str
    sentence: str


def findings(values: PolicyValues) -> list[Finding]:
    """What an administrator should know before these values apply; nothing here prevents saving."""
    found = []
    if _SECRETS.search(values.system_text):
        found.append(
            Finding(
                "secret_in_text",
                "system_text",
                "The system text seems to hold a key or password. Models can be talked into "
                "repeating it: treat the text as readable by everyone who chats.",
            )
        )
    if values.strategy != "simple" and _gap(values) < SMALL_GAP:
        found.append(
            Finding(
                "marks_close_together",
                "compact_to",
                f"The prompt falls by only {_gap(values):.0%} at each compaction, so the next one "
                "follows soon and providers' prompt caches help less. Lower compact_to.",
            )
        )
    if values.reserve_tokens < SMALL_RESERVE:
        found.append(
            Finding(
                "small_reserve",
                "reserve_tokens",
                f"Replies will be cut at {values.reserve_tokens:,} tokens.",
            )
        )
    return found


def _gap(values: PolicyValues) -> float:
    limit = prompt_limit(values, model_window=None)
    high = compact_mark(values, prompt_limit=limit)
    return (high - low_mark(values, prompt_limit=limit)) / limit


def _malformed(name: str, value: object) -> list[Problem]:
    try:
        from_json({name: value})
    except MalformedPolicy as error:
        return [Problem(error.code, (name,), str(error))]
    return []


def _lock_problems(values: Mapping[str, Any], locks: Collection[str]) -> list[Problem]:
    found = []
    for name in sorted(locks):
        if name == "strategy_config":
            sentence = "The config of a strategy is locked with the strategy. Lock strategy."
            found.append(Problem("lock_without_value", ("strategy",), sentence))
        elif name not in values:
            sentence = f"{name} is locked but has no value. Give it one or unlock it."
            found.append(Problem("lock_without_value", (name,), sentence))
    return found


def _strategy_problems(values: Mapping[str, Any]) -> list[Problem]:
    if "strategy" not in values:
        if "strategy_config" not in values:
            return []
        sentence = "A config belongs to its strategy. Choose the strategy too."
        return [Problem("config_without_strategy", ("strategy", "strategy_config"), sentence)]
    name = str(values["strategy"])
    return plugins.strategy_problems(name, values.get("strategy_config") or {})


def offered_strategies() -> tuple[str, ...]:
    """The strategies that a policy may name."""
    return plugins.strategy_names()


def _text_problems(values: PolicyValues) -> list[Problem]:
    length = len(values.system_text)
    if length > LONGEST_TEXT:
        sentence = (
            f"system_text has {length:,} characters; {LONGEST_TEXT:,} are allowed. "
            f"Shorten it by {length - LONGEST_TEXT:,}."
        )
        return [Problem("too_long", ("system_text",), sentence)]
    if "\0" in values.system_text:
        sentence = f"system_text holds a NUL at position {values.system_text.index(chr(0)) + 1}."
        return [Problem("invalid_character", ("system_text",), sentence)]
    return []


def _model_problems(values: Mapping[str, Any]) -> list[Problem]:
    named = {
        "allowed_models": list(values.get("allowed_models") or []),
        "summarization_model": [name for name in [values.get("summarization_model")] if name],
    }
    wanted = [slug for slugs in named.values() for slug in slugs]
    known = set(ModelSpec.objects.filter(slug__in=wanted).values_list("slug", flat=True))
    return [
        Problem("unknown_model", (name,), f"There is no model {slug!r}. Choose another one.")
        for name, slugs in named.items()
        for slug in slugs
        if slug not in known
    ]
