"""Admin labels for codes; formats values as tables or indented JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext
from django_stubs_ext import StrOrPromise

from chats.counts import balances
from chats.counts.balances import Balance
from contextpolicy.engine.policy.costs import Money

# Method by which a summary was written (see `engine.summaries.ladder`).
RUNGS: Mapping[str, StrOrPromise] = {
    "": "",
    "model": gettext_lazy("By the model"),
    "model_again": gettext_lazy("By the model, after a correction"),
    "smaller_source": gettext_lazy("By the model, from fewer messages"),
    "extractive": gettext_lazy("Extracted sentences, without a model"),
}

# Reasons messages are left out, in the policy preview.
LEFT_OUT: Mapping[str, StrOrPromise] = {
    "covered": gettext_lazy("part of a summary"),
    "window": gettext_lazy("outside the window"),
    "budget": gettext_lazy("no room in the prompt"),
    "excluded": gettext_lazy("excluded by a user"),
    "incomplete": gettext_lazy("incomplete reply"),
    "empty": gettext_lazy("no content to send"),
    "turn_split": gettext_lazy("no room left for this step of the turn"),
    "tool_parts": gettext_lazy("only tool calls and results"),
    "state": gettext_lazy("replaced by the chat state"),
    "strategy": gettext_lazy("left out by the strategy"),
    "history_provider": gettext_lazy("left out by the history provider"),
    "duplicate_of_current": gettext_lazy("repeated in the newest message"),
    "not_seen": gettext_lazy("added after the agent’s turn started"),
}
# Effect of the next prompt on compaction, by action and reason.
DUE: Mapping[tuple[str, str], StrOrPromise] = {
    ("none", "strategy"): gettext_lazy("none: the strategy writes no summaries"),
    ("none", "below_threshold"): gettext_lazy("none: the prompt has enough room"),
    ("prepare", "prepare_mark"): gettext_lazy("writes a summary in the background"),
    ("swap", "compact_mark"): gettext_lazy("publishes a summary: the prompt is full"),
    ("swap", "turns"): gettext_lazy("publishes a summary: turn limit reached"),
    ("swap", "window"): gettext_lazy("publishes a summary for messages outside the window"),
}
# Reasons a turn could not be evaluated. Each continues a sentence after a number.
NOT_EVALUATED: Mapping[str, StrOrPromise] = {
    "team": gettext_lazy("in chats with a team"),
    "program": gettext_lazy("to API clients, whose requests are not stored"),
    "continued": gettext_lazy("that another turn continued"),
    "no_receipt": gettext_lazy("without a receipt"),
    "erased": gettext_lazy("with an erased message or summary"),
    "references": gettext_lazy("with retrieved context, which is selected for each question"),
    "marked_since": gettext_lazy(
        "in chats where a message was pinned, unpinned, excluded, included again, kept or "
        "erased during the evaluation"
    ),
    "model_changed": gettext_lazy("in chats whose model changed during the evaluation"),
    "state": gettext_lazy("with a chat state, which only the strategy can extract from messages"),
    "failed": gettext_lazy("that failed; see the log"),
}
# Reasons an evaluation ended.
ENDED: Mapping[str, StrOrPromise] = {
    "time": gettext_lazy("the evaluation period has passed"),
    "person": gettext_lazy("a user ended it"),
    "promoted": gettext_lazy("its version was published"),
    "other_version": gettext_lazy("another version was published, or another draft was evaluated"),
}


def render_table(heads: list[str], rows: list[list[Any]]) -> SafeString:
    """Render rows as a table with headings, or a sentence if there are none."""
    return render_to_string("admin/chats/_table.html", {"heads": heads, "rows": rows})


def render_balance_table(found: Sequence[tuple[str, Balance]]) -> SafeString:
    """Render balances as a table. Amounts without a price are "unknown", never 0."""
    heads = [
        "",
        gettext("Prompts"),
        pgettext("tokens and money", "Saved"),
        gettext("Summary cost"),
        gettext("Cache losses"),
        gettext("Net effect"),
    ]
    rows = [
        [
            name,
            f"{balance.calls:,}",
            format_effect(balance.saved, format_token_estimate(balance.saved_tokens)),
            format_effect(balance.cost, ""),
            format_effect(balance.lost, format_token_estimate(balance.lost_tokens)),
            format_effect(balance.net, ""),
        ]
        for name, balance in found
    ]
    return render_table(heads, rows)


def format_effect(money: Money, tokens: str) -> str:
    """Format an amount, the known part of an unknown amount, and its tokens."""
    text = balances.format_money(money)
    if money.unknown:
        known = balances.format_known_money(money)
        form = gettext("unknown for {n:,}, and {known}") if known else gettext("unknown for {n:,}")
        text = form.format(n=money.unknown, known=known)
    if not tokens:
        return text
    return gettext("{amount} ({tokens})").format(amount=text, tokens=tokens)


def format_token_estimate(number: int) -> str:
    return ngettext("≈ {n:,} token", "≈ {n:,} tokens", number).format(n=number)


def render_json(value: object) -> SafeString:
    """Render a value as indented JSON with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return render_to_string("admin/contextpolicy/_json.html", {"text": text})
