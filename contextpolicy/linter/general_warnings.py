"""Warnings about a policy that can be saved, each with a stable code and a sentence."""

import re
from collections.abc import Callable, Iterator, Mapping

from django.utils.translation import gettext, ngettext

from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues, get_strategy_defaults
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning
from contextpolicy.linter.size_warnings import (
    warn_about_bytes,
    warn_about_marks,
    warn_about_pins,
    warn_about_windows,
)
from contextpolicy.linter.unused import list_unused_fields
from contextpolicy.wording import join_items

FEW_DAYS, USUAL_DAYS = 7, 90
# Patterns of API keys. A policy's text is readable by everyone who chats.
_SECRETS = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?i:\b(password|passwd|secret|api[_-]?key|token)\s*[:=]\s*\S{8,})"
)


def find_policy_warnings(values: PolicyValues) -> list[PolicyWarning]:
    """Return the warnings about these values. None of them prevents saving."""
    limit = compute_prompt_limit(values, model_window=None)
    if limit < 1:
        return []
    return [warning for check in CHECKS for warning in check(values, limit)]


def warn_about_texts(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    texts = {
        "system_text": gettext(
            "The system text seems to contain a key or password. Users can make the "
            "model repeat it. Remove the key or password."
        ),
        "summary_instruction": gettext(
            "The instruction seems to contain a key or password. Users can make the "
            "model repeat it. Remove the key or password."
        ),
    }
    for name, sentence in texts.items():
        if _SECRETS.search(getattr(values, name)):
            yield PolicyWarning("secret_in_text", name, sentence)
    if values.summary_instruction.strip() and not values.summarization_model:
        yield PolicyWarning(
            "instruction_unread",
            "summary_instruction",
            gettext(
                "No model writes the summaries. The built-in extractor selects sentences from "
                "users’ messages and ignores instructions."
            ),
            fix={"summary_instruction": UNSET},
        )
    if values.chat_system == "ignore":
        yield PolicyWarning(
            "chat_text_ignored",
            "chat_system",
            gettext(
                "Users cannot set a system text for a chat. Existing texts are kept but not sent."
            ),
            fix={"chat_system": UNSET},
        )


def warn_about_clients(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    if values.unmanaged in ("asked", "all"):
        sentence = gettext(
            "Clients can request that their requests are sent unchanged, without this policy’s "
            "text and limits. Their text is not stored. Only the allowed models and the limits for "
            "files still apply."
        )
        if values.unmanaged == "all":
            sentence = gettext(
                "All client requests are sent unchanged, without this policy’s text and limits. "
                "Their text is not stored. Only the allowed models and the limits for files still "
                "apply."
            )
        yield PolicyWarning(
            "programs_unrecorded",
            "unmanaged",
            sentence,
            fix={"unmanaged": PolicyValues().unmanaged},
        )


def _build_rules_fix(rules: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    """Return the fix that keeps these tool rules; empty rules are dropped."""
    kept = {tool: rule for tool, rule in rules.items() if rule}
    return {"tool_output_rules": kept or UNSET}


def warn_about_layout(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    layout, usual = values.layout, {"layout": "multi_turn"}
    if layout == "multi_turn":
        return
    yield PolicyWarning(
        "layout_flattens_roles",
        "layout",
        gettext(
            "Layout {layout} sends the history as text in a user message. The model does not see "
            "the speakers’ roles. Tool calls and results of earlier turns are omitted."
        ).format(layout=layout),
        fix=usual,
    )
    yield PolicyWarning(
        "layout_costs_cache",
        "layout",
        gettext(
            "In layout {layout}, the message with the history changes at each turn. Providers "
            "that cache whole messages reuse only the system text. Others reuse only the text "
            "before the last entry. The default layout keeps the whole history cached."
        ).format(layout=layout),
        fix=usual,
    )
    if any("keep_newest" in rule for rule in values.tool_output_rules.values()):
        yield PolicyWarning(
            "tool_rules_without_effect",
            "tool_output_rules",
            gettext(
                "“keep newest” has no effect in layout {layout}, because results of earlier turns "
                "are not sent."
            ).format(layout=layout),
            fix=_build_rules_fix(
                {
                    tool: {name: number for name, number in rule.items() if name != "keep_newest"}
                    for tool, rule in values.tool_output_rules.items()
                }
            ),
        )


def warn_about_tools(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    most = values.tool_output_limit
    capped = {
        tool: {name: min(number, most) if name == "limit" else number for name, number in r.items()}
        for tool, r in values.tool_output_rules.items()
    }
    for tool, rule in values.tool_output_rules.items():
        if rule.get("limit", 0) > most:
            yield PolicyWarning(
                "tool_limit_above_general",
                "tool_output_rules",
                gettext(
                    "tool_output_limit cuts results of {tool} to {n:,} characters, so the rule’s "
                    "limit ({limit:,}) has no effect."
                ).format(tool=tool, n=most, limit=rule["limit"]),
                fix=_build_rules_fix(capped),
            )


def warn_about_state(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    if values.strategy == "entity_state" and values.keep_last_messages > 0:
        yield PolicyWarning(
            "state_beside_dialogue",
            "keep_last_messages",
            ngettext(
                "Sends the newest {n:,} message in addition to the state. With 0, only the state "
                "is sent.",
                "Sends the newest {n:,} messages in addition to the state. With 0, only the state "
                "is sent.",
                values.keep_last_messages,
            ).format(n=values.keep_last_messages),
            fix={"keep_last_messages": 0},
        )


def warn_about_retention(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    days = values.retention_days
    if days is None:
        return
    if days < FEW_DAYS:
        yield PolicyWarning(
            "retention_short",
            "retention_days",
            ngettext(
                "Messages are erased after {n:,} day. Users who are away longer lose all of "
                "their messages.",
                "Messages are erased after {n:,} days. Users who are away longer lose all of "
                "their messages.",
                days,
            ).format(n=days),
            "risk",
            {"retention_days": USUAL_DAYS},
        )
    if values.strategy == "dynamic_summary":
        yield PolicyWarning(
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


def warn_about_unused(values: PolicyValues, _limit: int) -> Iterator[PolicyWarning]:
    """Find fields that are set but never used."""
    defaults = get_strategy_defaults(values.strategy)

    def is_set(name: str) -> bool:
        return bool(getattr(values, name) != getattr(defaults, name))

    names = [name for name in list_unused_fields(values.strategy) if is_set(name)]
    if names:
        sentence = gettext("The strategy {strategy} does not use these fields: {fields}.").format(
            strategy=values.strategy, fields=join_items(names)
        )
        yield PolicyWarning("setting_unused", names[0], sentence, fix=dict.fromkeys(names, UNSET))
    if values.layout in ("multi_turn", "B") and is_set("question_prefix"):
        sentence = gettext("The layout {layout} does not use question_prefix.").format(
            layout=values.layout
        )
        yield PolicyWarning(
            "setting_unused", "question_prefix", sentence, fix={"question_prefix": UNSET}
        )


CHECKS: tuple[Callable[[PolicyValues, int], Iterator[PolicyWarning]], ...] = (
    warn_about_texts,
    warn_about_marks,
    warn_about_layout,
    warn_about_clients,
    warn_about_windows,
    warn_about_bytes,
    warn_about_pins,
    warn_about_tools,
    warn_about_state,
    warn_about_retention,
    warn_about_unused,
)
