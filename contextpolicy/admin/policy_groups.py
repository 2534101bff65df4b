"""Groups the policy editor's fields, and says for which strategies each group is shown."""

from collections.abc import Collection, Sequence
from typing import Any

from contextpolicy import plugins
from contextpolicy.admin.config_fields import config_fields
from contextpolicy.admin.words import STRATEGY_NAMES
from contextpolicy.engine.strategies.contract import STRATEGIES

# Strategies that know no marks: one counts messages, one keeps no dialogue.
WITHOUT_MARKS = frozenset({"simple", "entity_state"})

WHAT_IS_SENT = ("strategy", "layout", "question_prefix", "chat_system", "show_date")
STATE = ("state_schema",)
ROOM = ("token_budget", "reserve_tokens", "max_bytes", "pins_tokens")
HISTORY = (
    "window_size",
    "window_turns",
    "window_tokens",
    "max_chars_per_message",
    "cut_style",
    "keep_last_messages",
)
MARKS = (
    "compact_at",
    "compact_at_tokens",
    "compact_to",
    "compact_to_tokens",
    "compact_every_turns",
)
SUMMARY = (
    "prepare_at",
    "prepare_at_tokens",
    "turn_threshold",
    "fold_turns",
    "summarization_model",
    "summary_max_tokens",
    "pinned_kinds",
    "archive",
)
PEOPLE = ("approval", "undo_right", "undo_pause_hours", "edit_right")
TOOLS = ("tool_output_limit", "tool_output_rules")
LIMITS = ("input_length_limit", "allowed_models", "temporary_chats", "warm_up")
TEXT = ("system_text", "hide_system_text")


def groups() -> list[tuple[str, dict[str, Any]]]:
    """Return the fieldsets of every value a policy can set, each field with its lock."""
    with_marks = [name for name in plugins.strategy_names() if name not in WITHOUT_MARKS]
    return [
        _group("What is sent", WHAT_IS_SENT),
        *_configs(),
        _group("State", STATE, only_for=["entity_state"]),
        _group("Room", ROOM),
        _group("History", HISTORY),
        _group("Compaction", MARKS, only_for=with_marks),
        _group("Summary", SUMMARY, only_for=["dynamic_summary"]),
        _group("Who decides on summaries", PEOPLE, only_for=["dynamic_summary"]),
        _group("Tools", TOOLS),
        _group("Limits", LIMITS),
        _group("Text", TEXT),
    ]


def _group(
    title: str, names: Sequence[str], *, only_for: Collection[str] = ()
) -> tuple[str, dict[str, Any]]:
    options: dict[str, Any] = {"fields": [(name, f"lock_{name}") for name in names]}
    if only_for:
        # Read by admin_policy.js; without it every group is shown.
        options["classes"] = ["by-strategy", *(f"for-{name}" for name in only_for)]
        options["description"] = _who_uses_it(only_for)
    return title, options


def _who_uses_it(names: Collection[str]) -> str:
    if len(names) == 1:
        return f"Only with the strategy “{_named(next(iter(names)))}”."
    others = " and ".join(f"“{_named(name)}”" for name in STRATEGIES if name not in names)
    return f"Not with the strategies {others}."


def _named(strategy: str) -> str:
    return STRATEGY_NAMES.get(strategy, strategy)


def _configs() -> list[tuple[str, dict[str, Any]]]:
    """Return a group for each strategy of a package that takes a config."""
    found = []
    for strategy in dict.fromkeys(field.strategy for field in config_fields()):
        plugin = plugins.installed().plugins[strategy]
        title = str(plugin.config_schema.get("title") or strategy)
        found.append(
            (
                f"Config of {strategy}",
                {
                    "fields": [f.name for f in config_fields() if f.strategy == strategy],
                    "classes": ["by-strategy", f"for-{strategy}"],
                    "description": f"{title}, of the package {plugin.package}. Counts only "
                    "while this strategy is chosen and is locked with it.",
                },
            )
        )
    return found
