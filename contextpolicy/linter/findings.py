"""Warnings about a policy that can be saved, each with a stable code and a sentence."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import Literal

from django.utils.translation import gettext, ngettext

from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.checks import estimate_tokens
from contextpolicy.engine.policy.policy import (
    PolicyValues,
    compute_default_reserve,
    get_strategy_defaults,
)
from contextpolicy.linter.unused import list_unused_fields

# A compaction that frees less than this share of the prompt limit is due again within a few turns.
SMALL_GAP = 0.15
SMALL_RESERVE = 500
FEW_DAYS, USUAL_DAYS = 7, 90
# The average turn of a human chat: a question of 80 tokens and a reply of 400.
USUAL_TURN = 480
# Bytes per token: three in scripts like Chinese, and at most eight in any script.
FEWEST_BYTES, MOST_BYTES = 3, 8

# Patterns of API keys. A policy's text is readable by everyone who chats.
_SECRETS = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?i:\b(password|passwd|secret|api[_-]?key|token)\s*[:=]\s*\S{8,})"
)
Level = Literal["error", "risk", "note"]
UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning or error: a stable code, its field, and a sentence.

    An `error` prevents saving. A `risk` is a setting that works badly. A `note` is a
    setting whose effect may be unexpected. `mend`: the values of the suggested fix, by
    field; `UNSET` for a field that should be unset.
    """

    code: str
    field: str
    sentence: str
    level: Level = "note"
    mend: Mapping[str, object] = made_by(default_factory=dict)


def find_policy_warnings(values: PolicyValues) -> list[Finding]:
    """Return the warnings about these values. None of them prevents saving."""
    limit = compute_prompt_limit(values, model_window=None)
    if limit < 1:
        return []
    return [finding for judge in _JUDGES for finding in judge(values, limit)]


def _text(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    texts = {
        "system_text": gettext(
            "The system text seems to contain a key or password. People who chat can make the "
            "model repeat it. Remove the key or password."
        ),
        "summary_instruction": gettext(
            "The instruction seems to contain a key or password. People who chat can make the "
            "model repeat it. Remove the key or password."
        ),
    }
    for name, sentence in texts.items():
        if _SECRETS.search(getattr(values, name)):
            yield Finding("secret_in_text", name, sentence)
    if values.summary_instruction.strip() and not values.summarization_model:
        yield Finding(
            "instruction_unread",
            "summary_instruction",
            gettext(
                "No model writes the summaries. The built-in extractor selects sentences from the "
                "messages of people and ignores instructions."
            ),
            mend={"summary_instruction": UNSET},
        )
    if values.chat_system == "ignore":
        yield Finding(
            "chat_text_ignored",
            "chat_system",
            gettext(
                "People cannot set a system text for a chat. Existing texts are kept but not sent."
            ),
            mend={"chat_system": UNSET},
        )


def _programs(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    if values.unmanaged in ("asked", "all"):
        sentence = gettext(
            "Clients can ask for their requests to be sent unchanged, without the text and limits "
            "of this policy. Their text is not stored. Only the list of allowed models still "
            "applies."
        )
        if values.unmanaged == "all":
            sentence = gettext(
                "All requests of clients are sent unchanged, without the text and limits of this "
                "policy. Their text is not stored. Only the list of allowed models still applies."
            )
        yield Finding(
            "programs_unrecorded",
            "unmanaged",
            sentence,
            mend={"unmanaged": PolicyValues().unmanaged},
        )


def _marks(values: PolicyValues, limit: int) -> Iterator[Finding]:
    gap = _gap(values, limit)
    if values.strategy not in ("simple", "entity_state") and gap < SMALL_GAP:
        yield Finding(
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
        yield Finding(
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


def _rules(rules: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    """Return the fix that keeps these tool rules; empty rules are dropped."""
    kept = {tool: rule for tool, rule in rules.items() if rule}
    return {"tool_output_rules": kept or UNSET}


def _gap(values: PolicyValues, limit: int) -> float:
    high = compute_compact_mark(values, prompt_limit=limit)
    return (high - compute_low_mark(values, prompt_limit=limit)) / limit


def _layout(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    layout, usual = values.layout, {"layout": "multi_turn"}
    if layout == "multi_turn":
        return
    yield Finding(
        "layout_flattens_roles",
        "layout",
        gettext(
            "Layout {layout} sends the history as text in a user message. The model does not see "
            "the roles of the speakers. Tool calls and results of earlier turns are omitted."
        ).format(layout=layout),
        mend=usual,
    )
    yield Finding(
        "layout_costs_cache",
        "layout",
        gettext(
            "In layout {layout}, the message with the history changes at each turn. Providers "
            "that cache whole messages reuse only the system text. Others reuse only the text "
            "before the last entry. The default layout keeps the whole history cached."
        ).format(layout=layout),
        mend=usual,
    )
    if any("keep_newest" in rule for rule in values.tool_output_rules.values()):
        yield Finding(
            "tool_rules_without_effect",
            "tool_output_rules",
            gettext(
                "“keep newest” has no effect in layout {layout}, because results of earlier turns "
                "are not sent."
            ).format(layout=layout),
            mend=_rules(
                {
                    tool: {name: number for name, number in rule.items() if name != "keep_newest"}
                    for tool, rule in values.tool_output_rules.items()
                }
            ),
        )


def _windows(values: PolicyValues, limit: int) -> Iterator[Finding]:
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
            yield Finding(
                "window_beyond_limit",
                name,
                sentence.format(field=name, n=number, tokens=number * tokens, limit=limit),
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
            gettext(
                "max_bytes ({n:,}) has room for about {held:,} of {limit:,} tokens, so the rest "
                "of the token budget is not used. Percentages refer to the token limit."
            ).format(n=values.max_bytes, held=held, limit=limit),
            mend={"max_bytes": 2 * FEWEST_BYTES * limit},
        )
    if values.max_bytes > MOST_BYTES * limit:
        yield Finding(
            "bytes_never_bind",
            "max_bytes",
            gettext(
                "max_bytes ({n:,}) exceeds the size of {limit:,} tokens, so max_bytes has no "
                "effect."
            ).format(n=values.max_bytes, limit=limit),
            mend={"max_bytes": UNSET},
        )


def _pins(values: PolicyValues, limit: int) -> Iterator[Finding]:
    pins = values.pins_tokens
    if pins is None:
        return
    fixed = pins + estimate_tokens(values.system_text)
    low = compute_low_mark(values, prompt_limit=limit)
    if values.strategy not in ("simple", "entity_state") and fixed >= low:
        yield Finding(
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
        yield Finding(
            "pins_crowd_out",
            "pins_tokens",
            gettext("Pins may use {n:,} of {limit:,} prompt tokens, more than the history.").format(
                n=pins, limit=limit
            ),
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
                gettext(
                    "tool_output_limit cuts results of {tool} to {n:,} characters, so the limit "
                    "of the rule ({limit:,}) has no effect."
                ).format(tool=tool, n=most, limit=rule["limit"]),
                mend=_rules(capped),
            )


def _state(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    if values.strategy == "entity_state" and values.keep_last_messages > 0:
        yield Finding(
            "state_beside_dialogue",
            "keep_last_messages",
            ngettext(
                "Sends the newest {n:,} message in addition to the state. With 0, only the state "
                "is sent.",
                "Sends the newest {n:,} messages in addition to the state. With 0, only the state "
                "is sent.",
                values.keep_last_messages,
            ).format(n=values.keep_last_messages),
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
            ngettext(
                "Messages are erased after {n:,} day. People who are away longer lose all of "
                "their messages.",
                "Messages are erased after {n:,} days. People who are away longer lose all of "
                "their messages.",
                days,
            ).format(n=days),
            "risk",
            {"retention_days": USUAL_DAYS},
        )
    if values.strategy == "dynamic_summary":
        yield Finding(
            "retention_takes_summaries",
            "retention_days",
            ngettext(
                "In chats that span more than {n:,} day, summaries of older messages are erased "
                "together with these messages each night. The remaining messages are summarised "
                "again.",
                "In chats that span more than {n:,} days, summaries of older messages are erased "
                "together with these messages each night. The remaining messages are summarised "
                "again.",
                days,
            ).format(n=days),
        )


def _unused(values: PolicyValues, _limit: int) -> Iterator[Finding]:
    """Find fields that are set but never used."""
    defaults = get_strategy_defaults(values.strategy)

    def is_set(name: str) -> bool:
        return bool(getattr(values, name) != getattr(defaults, name))

    names = [name for name in list_unused_fields(values.strategy) if is_set(name)]
    if names:
        sentence = gettext("The strategy {strategy} does not use these fields: {fields}.").format(
            strategy=values.strategy, fields=", ".join(names)
        )
        yield Finding("setting_unused", names[0], sentence, mend=dict.fromkeys(names, UNSET))
    if values.layout in ("multi_turn", "B") and is_set("question_prefix"):
        sentence = gettext("The layout {layout} does not use question_prefix.").format(
            layout=values.layout
        )
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
