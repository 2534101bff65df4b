"""Finds strategies in other packages by entry point, and validates their configs.

A package registers a strategy under the entry point group `palimpsest.strategies`: a class without
arguments, or an object, with a `name`, optionally a `config_schema` (a JSON Schema of an object),
and either `choose` or `compose` (see `engine.strategies.contract`). A policy with a strategy that
cannot be loaded cannot be saved; at run time the engine falls back to `sliding_window`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from django.utils.translation import gettext

from contextpolicy.engine.policy.policy import Problem, get_strategy_defaults
from contextpolicy.engine.strategies import contract
from contextpolicy.engine.strategies.contract import (
    STRATEGIES,
    Composing,
    ComposingStrategy,
    Strategy,
)
from contextpolicy.engine.text.phrases import Phrase, gettext_noop
from contextpolicy.engine.text.schema import SchemaRefused, check_schema, find_schema_violations
from contextpolicy.packages import OfferRefused, Offers, load_offers
from contextpolicy.wording import join_items, translate_phrase

GROUP = "palimpsest.strategies"
UNUSABLE = gettext_noop("The strategy {name!r} cannot be used: {reason}.")
NAME_TAKEN = Phrase(gettext_noop("its name is taken by a built-in strategy"))
NO_METHOD = Phrase(gettext_noop("it has neither a choose nor a compose method"))
NO_CONFIG: Mapping[str, object] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
# Ids of the built-in strategies in other systems.
FOREIGN_IDS: Mapping[str, str] = {"std-summarization-strategy": "dynamic_summary"}
# Keys of a foreign config and the policy fields that they map to.
FOREIGN_KEYS: Mapping[str, str] = {
    "threshold": "turn_threshold",
    "compressionModel": "summarization_model",
    "schema": "state_schema",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A package's strategy, its config schema, and the package's name and version."""

    strategy: Strategy
    config_schema: Mapping[str, object]
    package: str


class MalformedImport(ValueError):
    """The imported strategy cannot be parsed. The error message gives the reason."""

    code = "malformed_strategy_import"

    def __init__(self, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@cache
def load_strategy_plugins() -> Offers[Plugin]:
    """Load the strategies of installed packages, once per process.

    `load_strategy_plugins.cache_clear()` makes the next call load them again.
    """
    points = entry_points(group=GROUP)
    taken = dict.fromkeys(STRATEGIES, NAME_TAKEN)
    return load_offers(points, unusable=UNUSABLE, check=validate_plugin, taken=taken)


def list_strategy_names() -> tuple[str, ...]:
    """Return the strategies that policies can select: built-in ones, then those of packages."""
    return (*STRATEGIES, *load_strategy_plugins().found)


def find_strategy(name: str) -> Strategy | None:
    """Return the strategy with that name, or None if there is none.

    The engine then falls back to `sliding_window`.
    """
    plugin = load_strategy_plugins().found.get(name)
    return STRATEGIES.get(name) or (plugin.strategy if plugin else None)


def is_turn_hook_strategy(name: str) -> bool:
    """Return True if the strategy has a turn hook. No built-in strategy has one."""
    plugin = load_strategy_plugins().found.get(name)
    return plugin is not None and contract.has_turn_hook(plugin.strategy)


def get_config_schema(name: str) -> Mapping[str, object]:
    """Return the JSON Schema of a strategy's config.

    Built-in and unknown strategies accept only an empty config.
    """
    plugin = load_strategy_plugins().found.get(name)
    return plugin.config_schema if plugin else NO_CONFIG


def find_strategy_problems(name: str, config: Mapping[str, object]) -> list[Problem]:
    """Return the problems of a policy with this strategy and config; empty if it can be saved."""
    if find_strategy(name) is None:
        names = join_items(list_strategy_names())
        if fault := load_strategy_plugins().faults.get(name):
            sentence = gettext("{fault} Choose one of {names}.").format(
                fault=translate_phrase(fault), names=names
            )
        else:
            sentence = gettext(
                "The strategy {name!r} does not exist. Choose one of {names}."
            ).format(name=name, names=names)
        return [Problem("unknown_strategy", ("strategy",), sentence)]
    return [
        Problem(
            "config_invalid",
            ("strategy_config",),
            gettext("The config of {name} is invalid: {fault}.").format(name=name, fault=fault),
        )
        for fault in find_schema_violations(get_config_schema(name), config)
    ]


def parse_imported_strategy(data: object) -> dict[str, object]:
    """Convert a strategy in the import format to policy fields.

    Accepts {"id", "contextStrategy": {"type": "plugin", "pluginId", "config"}} and the inner object
    alone. Raises MalformedImport for another format, an unknown strategy, or a config key that maps
    to no field.
    """
    outer = data if isinstance(data, Mapping) else {}
    form = outer.get("contextStrategy", outer)
    if not isinstance(form, Mapping) or form.get("type") != "plugin":
        raise MalformedImport(
            gettext('Write a strategy as {"type": "plugin", "pluginId": …, "config": {…}}.'),
            reason="wrong_form",
        )
    plugin_id, config = form.get("pluginId"), form.get("config", {})
    if not isinstance(plugin_id, str) or not isinstance(config, Mapping):
        raise MalformedImport(
            gettext("pluginId must be a string, and config must be an object."),
            reason="wrong_types",
        )
    name = FOREIGN_IDS.get(plugin_id, plugin_id)
    if find_strategy(name) is None:
        raise MalformedImport(
            gettext(
                "The strategy {name!r} does not exist. Install its package, or use one of {names}."
            ).format(name=plugin_id, names=join_items((*FOREIGN_IDS, *list_strategy_names()))),
            reason="unknown_strategy",
        )
    if name not in STRATEGIES:
        return {"strategy": name, "strategy_config": dict(config)}
    return {"strategy": name, **_as_fields(name, config)}


def _as_fields(name: str, config: Mapping[str, object]) -> dict[str, object]:
    known = get_strategy_defaults(name).to_json()
    fields = {FOREIGN_KEYS.get(key, key): value for key, value in config.items()}
    found = [
        gettext(
            "The config of {name} sets the same value twice, as {foreign!r} and as "
            "{own!r}. Keep one of them."
        ).format(name=name, foreign=foreign, own=own)
        for foreign, own in FOREIGN_KEYS.items()
        if foreign in config and own in config
    ]
    found += [
        gettext("The config of {name} has the unknown key {key!r}. Remove it.").format(
            name=name, key=key
        )
        for key in sorted(set(fields) - set(known) | {"strategy"} & set(fields))
    ]
    if found:
        raise MalformedImport(" ".join(found), reason="wrong_keys")
    return fields


def validate_plugin(strategy: Any, package: str) -> Plugin:
    """Validate the object of an entry point.

    Raises `OfferRefused` if it is not a usable strategy.
    """
    schema = getattr(strategy, "config_schema", NO_CONFIG)
    try:
        check_schema(schema)
    except SchemaRefused as error:
        reason = gettext_noop("its config_schema is invalid ({problem})")
        raise OfferRefused(Phrase(reason, problem=error.args[0])) from error
    return Plugin(_as_strategy(strategy), schema, package)


def _as_strategy(strategy: object) -> Strategy:
    if callable(getattr(strategy, "choose", None)):
        return cast(Strategy, strategy)
    if isinstance(strategy, ComposingStrategy):
        return Composing(strategy)
    raise OfferRefused(NO_METHOD)
