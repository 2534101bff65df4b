"""Groups the policy editor's fields, with the strategies for which each group is shown."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext, gettext_lazy
from django_stubs_ext import StrOrPromise

from chats.admin.policies.config_fields import list_config_fields
from chats.admin.policies.labels import STRATEGY_NAMES
from contextpolicy import plugins
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.fields.declaration import GROUPS, PolicyGroup
from contextpolicy.engine.strategies.contract import STRATEGIES

# The main settings of each strategy, at most seven. The editor shows them first.
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
STRATEGY_TEXTS: Mapping[str, StrOrPromise] = {
    "simple": gettext_lazy(
        "Sends a fixed number of the newest messages, each cut to a maximum length."
    ),
    "sliding_window": gettext_lazy(
        "Sends all messages until the prompt is nearly full, then drops the oldest."
    ),
    "dynamic_summary": gettext_lazy(
        "Sends the newest messages in full, and a summary of the earlier ones."
    ),
    "entity_state": gettext_lazy(
        "Keeps named values up to date, and sends them instead of the dialogue."
    ),
    "": gettext_lazy(
        "This policy sets no strategy. A less specific policy or the default applies."
    ),
}


def list_main_fields(strategy: str) -> list[str]:
    """Return the main settings of a strategy; for a package's strategy, its config comes first."""
    if strategy in FIRST:
        return list(FIRST[strategy])
    own = [field.name for field in list_config_fields() if field.strategy == strategy]
    return [*own, "token_budget", "reserve_tokens"][:MOST_FIRST]


def list_other_groups(strategy: str) -> list[tuple[str, str, list[str]]]:
    """Return the field groups collapsed under a strategy: title, sentence and field names."""
    found = []
    for title, options in build_policy_fieldsets():
        names = [each if isinstance(each, str) else each[0] for each in options["fields"]]
        is_config = any(name.startswith("config__") for name in names)
        if strategy and is_config and f"for-{strategy}" not in options.get("classes", []):
            continue
        found.append((title, str(options.get("description", "")), names))
    return found


def build_policy_fieldsets() -> list[tuple[str, dict[str, Any]]]:
    """Return the fieldsets of all values that a policy can set, each field with its lock."""
    found = [_group(key, group) for key, group in GROUPS.items()]
    # The configs of strategies follow the strategy.
    return [found[0], *_configs(), *found[1:]]


def _group(key: str, group: PolicyGroup) -> tuple[str, dict[str, Any]]:
    names = [name for name, declared in FIELDS.items() if declared.group == key]
    options: dict[str, Any] = {"fields": [(name, f"lock_{name}") for name in names]}
    only_for = group.only_with
    if group.not_with:
        only_for = [name for name in plugins.list_strategy_names() if name not in group.not_with]
    if only_for:
        # Used by admin_policy.js; without JavaScript every group is shown.
        options["classes"] = ["by-strategy", *(f"for-{name}" for name in only_for)]
        options["description"] = _who_uses_it(only_for)
    return gettext(group.title), options


def _who_uses_it(names: Collection[str]) -> str:
    if len(names) == 1:
        name = _format_strategy_name(next(iter(names)))
        return gettext("Applies only with the strategy “{strategy}”.").format(strategy=name)
    others = [_format_strategy_name(name) for name in STRATEGIES if name not in names]
    told = gettext("“{name}”").format(name=others[0])
    for name in others[1:]:
        told = gettext("{names} and “{name}”").format(names=told, name=name)
    return gettext("Does not apply with the strategies {names}.").format(names=told)


def _format_strategy_name(strategy: str) -> str:
    return str(STRATEGY_NAMES.get(strategy, strategy))


def _configs() -> list[tuple[str, dict[str, Any]]]:
    """Return a group for each package strategy with a config."""
    found = []
    for strategy in dict.fromkeys(field.strategy for field in list_config_fields()):
        plugin = plugins.load_strategy_plugins().found[strategy]
        title = str(plugin.config_schema.get("title") or strategy)
        found.append(
            (
                gettext("Config of {strategy}").format(strategy=strategy),
                {
                    "fields": [f.name for f in list_config_fields() if f.strategy == strategy],
                    "classes": ["by-strategy", f"for-{strategy}"],
                    "description": gettext(
                        "{title}, from the package {package}. These settings apply only with "
                        "this strategy. Locking the strategy also locks these settings."
                    ).format(title=title, package=plugin.package),
                },
            )
        )
    return found
