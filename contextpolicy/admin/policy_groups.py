"""Groups the policy editor's fields, and says for which strategies each group is shown."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from contextpolicy import plugins
from contextpolicy.admin.config_fields import config_fields
from contextpolicy.admin.words import STRATEGY_NAMES
from contextpolicy.engine.strategies.contract import STRATEGIES

# Strategies that know no marks: one counts messages, one keeps no dialogue.
WITHOUT_MARKS = frozenset({"simple", "entity_state"})

WHAT_IS_SENT = (
    "strategy",
    "history_provider",
    "layout",
    "question_prefix",
    "chat_system",
    "show_date",
    "dates",
    "plain_sections",
)
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
    "summary_instruction",
    "summary_sections",
    "archive",
)
PEOPLE = ("approval", "undo_right", "undo_pause_hours", "edit_right")
REFERENCES = (
    "references",
    "reference_count",
    "reference_tokens",
    "reference_floor",
    "reference_share",
    "reference_scope",
)
TOOLS = ("tool_output_limit", "tool_output_rules")
LIMITS = (
    "input_length_limit",
    "allowed_models",
    "temporary_chats",
    "retention_days",
    "warm_up",
    "cache_marks",
    "unmanaged",
)
MEMORY = (
    "own_instructions",
    "preferences",
    "inferred_preferences",
    "recent_by_user",
    "memory_providers",
)
TEXT = ("system_text", "hide_system_text", "runtime_note", "skills", "budget_note")


# What each strategy lives by: at first sight its inputs are these, at most seven.
FIRST: Mapping[str, Sequence[str]] = {
    "": ("token_budget", "reserve_tokens", "input_length_limit", "system_text"),
    "simple": (
        "window_size",
        "max_chars_per_message",
        "cut_style",
        "token_budget",
        "reserve_tokens",
    ),
    "sliding_window": (
        "token_budget",
        "reserve_tokens",
        "compact_at",
        "compact_to",
        "max_chars_per_message",
    ),
    "dynamic_summary": (
        "token_budget",
        "keep_last_messages",
        "summarization_model",
        "pinned_kinds",
        "summary_max_tokens",
        "compact_at",
        "reserve_tokens",
    ),
    "entity_state": (
        "state_schema",
        "summarization_model",
        "token_budget",
        "reserve_tokens",
        "keep_last_messages",
    ),
}
MOST_FIRST = 7
TOLD: Mapping[str, str] = {
    "simple": "A fixed number of the newest messages, each cut to a length. Moves by one.",
    "sliding_window": "Everything until the prompt is nearly full; then the oldest part stays out.",
    "dynamic_summary": "The newest messages in full; a summary stands for what came before.",
    "entity_state": "Named values are kept up to date and stand for the dialogue.",
    "": "This policy says nothing about it: a farther policy or the default decides.",
}


def first_of(strategy: str) -> list[str]:
    """Return the fields that a strategy lives by; those of a package have their config first."""
    if strategy in FIRST:
        return list(FIRST[strategy])
    own = [field.name for field in config_fields() if field.strategy == strategy]
    return [*own, "token_budget", "reserve_tokens"][:MOST_FIRST]


def more_of(strategy: str) -> list[tuple[str, str, list[str]]]:
    """Return every other group: its title, a sentence, and its fields."""
    found = []
    for title, options in groups():
        is_config = title.startswith("Config of")
        if strategy and is_config and f"for-{strategy}" not in options.get("classes", []):
            continue
        names = [each if isinstance(each, str) else each[0] for each in options["fields"]]
        found.append((title, str(options.get("description", "")), names))
    return found


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
        _group("References", REFERENCES),
        _group("Tools", TOOLS),
        _group("Limits", LIMITS),
        _group("Memory", MEMORY),
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
