"""Tells an administrator what to know of a policy that works: each a stable code and a sentence."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import Literal

from contextpolicy.engine.budget import compact_mark, low_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues, defaults_for, quarter
from contextpolicy.engine.policy_checks import estimated_tokens

# A compaction that frees less than this share of the prompt limit comes back within a few turns.
SMALL_GAP = 0.15
SMALL_RESERVE = 500
FEW_DAYS, USUAL_DAYS = 7, 90
# The usual turn of a human chat: a question of 80 tokens and a reply of 400.
USUAL_TURN = 480
# The bytes of a token: three in scripts like Chinese, and at most so many in any.
FEWEST_BYTES, MOST_BYTES = 3, 8

# Shapes of keys that services hand out; a policy's text is readable by everyone who chats.
_SECRETS = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?i:\b(password|passwd|secret|api[_-]?key|token)\s*[:=]\s*\S{8,})"
)
_OF_MARKS = (
    "compact_at",
    "compact_at_tokens",
    "compact_to",
    "compact_to_tokens",
    "compact_every_turns",
)
_OF_SUMMARIES = (
    "prepare_at",
    "prepare_at_tokens",
    "turn_threshold",
    "fold_turns",
    "summarization_model",
    "summary_max_tokens",
    "pinned_kinds",
    "summary_instruction",
    "summary_sections",
)
# The fields that a strategy that ships never reads.
_UNUSED: Mapping[str, tuple[str, ...]] = {
    "simple": (*_OF_MARKS, *_OF_SUMMARIES, "state_schema", "keep_last_messages"),
    "sliding_window": (*_OF_SUMMARIES, "state_schema", "keep_last_messages"),
    "dynamic_summary": ("state_schema",),
    "entity_state": (*_OF_MARKS, *_OF_SUMMARIES, "window_size", "window_turns", "window_tokens"),
}


Level = Literal["error", "risk", "note"]
UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know: a stable code, the field it is about, and a sentence.

    An `error` prevents saving, a `risk` works badly, a `note` may surprise. `mend`: values that
    would end it, by field; a field that should no longer be set has `UNSET`.
    """

    code: str
    field: str
    sentence: str
    level: Level = "note"
    mend: Mapping[str, object] = made_by(default_factory=dict)


def findings(values: PolicyValues) -> list[Finding]:
    """List what to know before these values apply; nothing here prevents saving."""
    limit = prompt_limit(values, model_window=None)
    if limit < 1:
        return []
    return [finding for judge in _JUDGES for finding in judge(values, limit)]


def _text(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    for name, words in (("system_text", "system text"), ("summary_instruction", "instruction")):
        if _SECRETS.search(getattr(values, name)):
            yield Finding(
                "secret_in_text",
                name,
                f"The {words} seems to hold a key or password. Models can be talked into "
                "repeating it: treat the text as readable by everyone who chats.",
            )
    if values.summary_instruction.strip() and not values.summarization_model:
        yield Finding(
            "instruction_unread",
            "summary_instruction",
            "No model writes the summaries, and the built-in extractor follows no instruction: it "
            "picks sentences that people said.",
            mend={"summary_instruction": UNSET},
        )
    if values.chat_system == "ignore":
        yield Finding(
            "chat_text_ignored",
            "chat_system",
            "People cannot give a chat a system text of its own. What a chat already has is kept, "
            "but not sent.",
            mend={"chat_system": UNSET},
        )


def _programs(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    if values.unmanaged in ("asked", "all"):
        whose = "any program" if values.unmanaged == "all" else "a program that asks for it"
        yield Finding(
            "programs_unrecorded",
            "unmanaged",
            f"What {whose} says is sent whole, without this policy's text and limits, and nobody "
            "can read it here later; only the allowed models still hold.",
            mend={"unmanaged": PolicyValues().unmanaged},
        )


def _marks(values: PolicyValues, limit: int) -> Iterator[Finding]:
    gap = _gap(values, limit)
    if values.strategy not in ("simple", "entity_state") and gap < SMALL_GAP:
        yield Finding(
            "marks_close_together",
            "compact_to",
            f"The prompt falls by only {gap:.0%} at each compaction, so the next one "
            "follows soon and providers' prompt caches help less. Lower compact_to.",
            "risk",
            {"compact_to": PolicyValues().compact_to, "compact_to_tokens": UNSET},
        )
    if values.reserve_tokens < SMALL_RESERVE:
        yield Finding(
            "small_reserve",
            "reserve_tokens",
            f"Replies will be cut at {values.reserve_tokens:,} tokens.",
            "risk",
            {"reserve_tokens": quarter(values.token_budget)},
        )


def _rules(rules: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    """Return the mend that leaves these rules of tools; one that says nothing is left out."""
    kept = {tool: rule for tool, rule in rules.items() if rule}
    return {"tool_output_rules": kept or UNSET}


def _gap(values: PolicyValues, limit: int) -> float:
    high = compact_mark(values, prompt_limit=limit)
    return (high - low_mark(values, prompt_limit=limit)) / limit


def _layout(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    layout, usual = values.layout, {"layout": "multi_turn"}
    if layout == "multi_turn":
        return
    yield Finding(
        "layout_flattens_roles",
        "layout",
        f"Layout {layout} sends the history as text in a user message: the model no longer sees "
        "who spoke by the roles of the request, and tool calls and results of earlier turns stay "
        "out.",
        mend=usual,
    )
    yield Finding(
        "layout_costs_cache",
        "layout",
        f"In layout {layout} the message that holds the history changes at each turn: providers "
        "that cache whole messages use nothing again behind the system text, others only what "
        "stands before the last entry. The default layout keeps all of the history cached.",
        mend=usual,
    )
    if any("keep_newest" in rule for rule in values.tool_output_rules.values()):
        yield Finding(
            "tool_rules_without_effect",
            "tool_output_rules",
            f"“keep newest” has no effect in layout {layout}: results of earlier turns are not "
            "sent at all.",
            mend=_rules(
                {
                    tool: {name: number for name, number in rule.items() if name != "keep_newest"}
                    for tool, rule in values.tool_output_rules.items()
                }
            ),
        )


def _windows(values: PolicyValues, limit: int) -> Iterator[Finding]:
    """Find ceilings of history that the prompt limit reaches first."""
    if values.strategy == "entity_state":
        return
    usual = {
        "window_size": (values.window_size, USUAL_TURN // 2, "messages"),
        "window_turns": (values.window_turns, USUAL_TURN, "turns"),
        "window_tokens": (values.window_tokens, 1, "tokens"),
    }
    for name, (number, tokens, unit) in usual.items():
        if number is not None and number * tokens >= limit:
            told = "" if tokens == 1 else f", which usually take about {number * tokens:,} tokens"
            yield Finding(
                "window_beyond_limit",
                name,
                f"{name} lets {number:,} {unit} in{told}, and a prompt may have {limit:,}: the "
                "token limit is reached first. Lower it or raise token_budget.",
                mend={name: max(1, limit // tokens - 1)},
            )


def _bytes(values: PolicyValues, limit: int) -> Iterator[Finding]:
    if values.max_bytes is None:
        return
    if values.max_bytes < FEWEST_BYTES * limit:
        held = values.max_bytes // FEWEST_BYTES
        yield Finding(
            "bytes_bind_first",
            "max_bytes",
            f"max_bytes ({values.max_bytes:,}) holds about {held:,} tokens of {limit:,}: the rest "
            "of the token budget is never used. The shares in percent are of the token limit.",
            mend={"max_bytes": 2 * FEWEST_BYTES * limit},
        )
    if values.max_bytes > MOST_BYTES * limit:
        yield Finding(
            "bytes_never_bind",
            "max_bytes",
            f"max_bytes ({values.max_bytes:,}) is more than {limit:,} tokens ever take. It "
            "changes nothing.",
            mend={"max_bytes": UNSET},
        )


def _pins(values: PolicyValues, limit: int) -> Iterator[Finding]:
    pins = values.pins_tokens
    if pins is None:
        return
    fixed = pins + estimated_tokens(values.system_text)
    low = low_mark(values, prompt_limit=limit)
    if values.strategy not in ("simple", "entity_state") and fixed >= low:
        yield Finding(
            "pins_reach_low_mark",
            "pins_tokens",
            f"Full of pins, a prompt has {fixed:,} tokens before any history and compacts down to "
            f"{low:,}: then it would compact at each turn. Lower pins_tokens or raise compact_to.",
            "risk",
            {"pins_tokens": max(1, (low - estimated_tokens(values.system_text)) // 2)},
        )
    elif 2 * pins > limit:
        yield Finding(
            "pins_crowd_out",
            "pins_tokens",
            f"Pins may take {pins:,} of {limit:,} prompt tokens, more than the history.",
            mend={"pins_tokens": limit // 4},
        )


def _tools(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    most = values.tool_output_limit
    capped = {
        tool: {name: min(number, most) if name == "limit" else number for name, number in r.items()}
        for tool, r in values.tool_output_rules.items()
    }
    for tool, rule in values.tool_output_rules.items():
        if rule.get("limit", 0) > most:
            yield Finding(
                "tool_limit_above_general",
                "tool_output_rules",
                f"Results of {tool} are cut to {most:,} characters by "
                f"tool_output_limit; the rule's {rule['limit']:,} are never reached.",
                mend=_rules(capped),
            )


def _state(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    if values.strategy == "entity_state" and values.keep_last_messages > 0:
        yield Finding(
            "state_beside_dialogue",
            "keep_last_messages",
            f"The newest {values.keep_last_messages:,} messages go along beside the state. With 0 "
            "the state alone stands for the past.",
            mend={"keep_last_messages": 0},
        )


def _retention(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    days = values.retention_days
    if days is None:
        return
    if days < FEW_DAYS:
        yield Finding(
            "retention_short",
            "retention_days",
            f"Messages are erased after {days:,} days. Who is away for a week finds nothing of "
            "what was said before.",
            "risk",
            {"retention_days": USUAL_DAYS},
        )
    if values.strategy == "dynamic_summary":
        yield Finding(
            "retention_takes_summaries",
            "retention_days",
            f"In a chat that goes on for more than {days:,} days, summaries made of messages of "
            "that age are erased with them each night. What is left is summarised anew.",
        )


def unused_fields(values: PolicyValues) -> frozenset[str]:
    """Return the fields that these values' strategy and layout never read, set or not."""
    prefix = {"question_prefix"} if values.layout in ("multi_turn", "B") else set()
    return frozenset({*_UNUSED.get(values.strategy, ()), *prefix})


def _unused(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    """Find fields that are set and never read."""
    defaults = defaults_for(values.strategy)

    def is_set(name: str) -> bool:
        return bool(getattr(values, name) != getattr(defaults, name))

    names = [name for name in _UNUSED.get(values.strategy, ()) if is_set(name)]
    if names:
        sentence = f"The strategy {values.strategy} does not use what is set: {', '.join(names)}."
        yield Finding("setting_unused", names[0], sentence, mend=dict.fromkeys(names, UNSET))
    if values.layout in ("multi_turn", "B") and is_set("question_prefix"):
        sentence = f"The layout {values.layout} does not use question_prefix."
        yield Finding(
            "setting_unused", "question_prefix", sentence, mend={"question_prefix": UNSET}
        )


_JUDGES: tuple[Callable[[PolicyValues, int], Iterator[Finding]], ...] = (
    _text,
    _marks,
    _layout,
    _programs,
    _windows,
    _bytes,
    _pins,
    _tools,
    _state,
    _retention,
    _unused,
)
