"""The words of the administration for codes; values of records as tables and indented JSON."""

import json
from collections.abc import Sequence
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chats.counts import balances
from chats.counts.balances import Balance
from contextpolicy.engine.costs import Money

# By whom or what a summary was written, by its rung (see `engine.ladder`).
RUNGS = {
    "": "",
    "model": "By the model",
    "model_again": "By the model, told what was wrong",
    "smaller_source": "By the model, of fewer messages",
    "extractive": "Sentences picked, without a model",
}

# Why messages are not sent, in the preview of a policy.
LEFT_OUT = {
    "covered": "part of a summary",
    "window": "older than the window",
    "budget": "no room in the prompt",
    "excluded": "excluded by a person",
    "incomplete": "never finished",
    "empty": "nothing that could be sent",
    "turn_split": "no room within their turn",
    "tool_parts": "tool calls and results alone",
    "state": "the state stands for them",
    "strategy": "the strategy left them out",
    "history_provider": "the history provider left them out",
    "duplicate_of_current": "said again by the newest",
    "not_seen": "said after the agent was asked",
}
# What the next prompt leads to: the action and its reason.
DUE = {
    ("none", "strategy"): "no summaries under this strategy",
    ("none", "below_threshold"): "nothing, there is room",
    ("prepare", "prepare_mark"): "a summary is written in the background",
    ("swap", "compact_mark"): "a summary takes the place of older messages: the prompt is full",
    ("swap", "turns"): "a summary takes the place of older messages: many turns",
    ("swap", "window"): "a summary takes the place of what the window leaves out",
}
# Why an evaluation cannot say what a draft would have done; each reads on after a number.
NOT_JUDGED = {
    "team": "in chats with a team",
    "program": "to programs, whose requests are not kept",
    "continued": "that went on with another one",
    "no_receipt": "without a receipt",
    "erased": "of which a message or a summary was erased",
    "references": "with passages of other chats, which are chosen for each question",
    "marked_since": "in chats where a message was marked or erased meanwhile",
    "model_changed": "in chats whose model was changed meanwhile",
    "state": "with a state, which only the strategy itself reads from messages",
    "failed": "that could not be judged; the log tells why",
}
# Why an evaluation is over.
ENDED = {
    "time": "its days were over",
    "person": "a person ended it",
    "promoted": "its version was put in force",
    "other_version": "another version came into force, or another draft was evaluated",
}


def as_table(heads: list[str], rows: list[list[Any]]) -> SafeString:
    """Write rows below their heads; a sentence when there are none."""
    return render_to_string("admin/chats/_table.html", {"heads": heads, "rows": rows})


def balance_table(found: Sequence[tuple[str, Balance]]) -> SafeString:
    """Write balances as a table; what has no price is unknown, never nothing."""
    heads = ["", "Prompts", "Saved", "Own cost", "Lost from the cache", "Net effect"]
    rows = [
        [
            name,
            f"{balance.calls:,}",
            effect(balance.saved, f"≈ {balance.saved_tokens:,} tokens"),
            effect(balance.cost, ""),
            effect(balance.lost, f"≈ {balance.lost_tokens:,} tokens"),
            effect(balance.net, ""),
        ]
        for name, balance in found
    ]
    return as_table(heads, rows)


def effect(money: Money, tokens: str) -> str:
    """Say a sum, the part of it that is known, and its tokens."""
    said = balances.words(money)
    if money.unknown:
        beside = balances.known_words(money)
        said += f" for {money.unknown:,}" + (f", and {beside}" if beside else "")
    return f"{said} ({tokens})" if tokens else said


def as_json(value: object) -> SafeString:
    """Write indented JSON with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return render_to_string("admin/contextpolicy/_json.html", {"text": text})
