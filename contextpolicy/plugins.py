"""Finds strategies of other packages by entry point, and checks their configs by their own schemas.

A package offers a strategy under the entry point group `palimpsest.strategies`: a class without
arguments, or an object, with a `name`, optionally a `config_schema` (a JSON Schema of an object),
and either `choose` or `compose` (see `engine.strategies.contract`). One that cannot be loaded is a
clear error when a policy is saved; at run time the engine falls back to `sliding_window`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from contextpolicy.engine.policy import Problem, defaults_for
from contextpolicy.engine.schema import SchemaRefused, check_schema, violations
from contextpolicy.engine.strategies import contract
from contextpolicy.engine.strategies.contract import (
    STRATEGIES,
    Composing,
    ComposingStrategy,
    Strategy,
)

logger = logging.getLogger(__name__)

GROUP = "palimpsest.strategies"
NO_CONFIG: Mapping[str, object] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
# Names under which other systems know the strategies that ship.
FOREIGN_IDS: Mapping[str, str] = {"std-summarization-strategy": "dynamic_summary"}
# Keys of a foreign config and the policy fields they stand for.
FOREIGN_KEYS: Mapping[str, str] = {
    "threshold": "turn_threshold",
    "compressionModel": "summarization_model",
    "schema": "state_schema",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A strategy of a package, its config's schema, and the package with its version."""

    strategy: Strategy
    config_schema: Mapping[str, object]
    package: str


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """The plugins by name, and for those that could not be loaded a sentence that says why."""

    plugins: Mapping[str, Plugin]
    faults: Mapping[str, str]


class PluginRefused(Exception):
    """An entry point does not lead to a strategy that could be used."""

    code = "plugin_refused"


class MalformedImport(ValueError):
    """A strategy in import form cannot be read."""

    code = "malformed_strategy_import"


@cache
def installed() -> LoadedPlugins:
    """Load what the installed packages offer, once per process (`installed.cache_clear()`)."""
    plugins: dict[str, Plugin] = {}
    faults: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            plugin = _load(point)
            if point.name in plugins:
                raise PluginRefused("two packages offer it")
        except Exception as error:  # noqa: BLE001 - importing a package may fail in any way
            told = str(error) if isinstance(error, PluginRefused) else type(error).__name__
            faults[point.name] = f"The strategy {point.name!r} cannot be used: {told}."
            logger.warning("%s (%s)", faults[point.name], point.value)
        else:
            plugins[point.name] = plugin
    return LoadedPlugins(plugins, faults)


def strategy_names() -> tuple[str, ...]:
    """Return the strategies a policy can name: those that ship, then those of packages."""
    return (*STRATEGIES, *installed().plugins)


def find_strategy(name: str) -> Strategy | None:
    """Return the strategy of that name, None if there is none: then the engine falls back."""
    plugin = installed().plugins.get(name)
    return STRATEGIES.get(name) or (plugin.strategy if plugin else None)


def hears_turns(name: str) -> bool:
    """Tell whether that strategy wants to be told of complete turns; none that ships does."""
    plugin = installed().plugins.get(name)
    return plugin is not None and contract.hears_turns(plugin.strategy)


def config_schema(name: str) -> Mapping[str, object]:
    """Return the JSON Schema of a strategy's config, for its form; those that ship take none."""
    plugin = installed().plugins.get(name)
    return plugin.config_schema if plugin else NO_CONFIG


def strategy_problems(name: str, config: Mapping[str, object]) -> list[Problem]:
    """List why a policy cannot be saved with this strategy and config; empty if it can."""
    if find_strategy(name) is None:
        reason = installed().faults.get(name, f"There is no strategy {name!r}.")
        sentence = f"{reason} Choose one of {', '.join(strategy_names())}."
        return [Problem("unknown_strategy", ("strategy",), sentence)]
    return [
        Problem(
            "config_invalid",
            ("strategy_config",),
            f"The config of {name} does not fit: {fault}.",
        )
        for fault in violations(config_schema(name), config)
    ]


def imported_strategy(data: object) -> dict[str, object]:
    """Return the policy fields that a strategy in import form stands for.

    It reads {"id", "contextStrategy": {"type": "plugin", "pluginId", "config"}} and the inner
    object alone. Raises MalformedImport for another form, an unknown strategy, or a key of a config
    that no field stands for.
    """
    outer = data if isinstance(data, Mapping) else {}
    form = outer.get("contextStrategy", outer)
    if not isinstance(form, Mapping) or form.get("type") != "plugin":
        raise MalformedImport(
            'A strategy is imported as {"type": "plugin", "pluginId": …, "config": {…}}.'
        )
    plugin_id, config = form.get("pluginId"), form.get("config", {})
    if not isinstance(plugin_id, str) or not isinstance(config, Mapping):
        raise MalformedImport("pluginId must be a text and config an object.")
    name = FOREIGN_IDS.get(plugin_id, plugin_id)
    if find_strategy(name) is None:
        raise MalformedImport(
            f"There is no strategy {plugin_id!r}. Install its package, or use one of "
            f"{', '.join((*FOREIGN_IDS, *strategy_names()))}."
        )
    if name not in STRATEGIES:
        return {"strategy": name, "strategy_config": dict(config)}
    return {"strategy": name, **_as_fields(name, config)}


def _as_fields(name: str, config: Mapping[str, object]) -> dict[str, object]:
    known = defaults_for(name).to_json()
    fields = {FOREIGN_KEYS.get(key, key): value for key, value in config.items()}
    found = [
        f"The config of {name} names one value as {foreign!r} and {own!r}. Keep one of them."
        for foreign, own in FOREIGN_KEYS.items()
        if foreign in config and own in config
    ]
    found += [
        f"The config of {name} has the key {key!r}, which nothing stands for. Remove it."
        for key in sorted(set(fields) - set(known) | {"strategy"} & set(fields))
    ]
    if found:
        raise MalformedImport(" ".join(found))
    return fields


def _load(point: EntryPoint) -> Plugin:
    if point.name in STRATEGIES:
        raise PluginRefused("its name is taken by a strategy that ships")
    loaded = point.load()
    strategy = loaded() if isinstance(loaded, type) else loaded
    if getattr(strategy, "name", None) != point.name:
        raise PluginRefused("it is called differently from its entry point")
    schema = getattr(strategy, "config_schema", NO_CONFIG)
    try:
        check_schema(schema)
    except SchemaRefused as error:
        raise PluginRefused(f"its config_schema is refused ({error})") from error
    package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    return Plugin(_as_strategy(strategy), schema, package)


def _as_strategy(strategy: object) -> Strategy:
    if callable(getattr(strategy, "choose", None)):
        return cast(Strategy, strategy)
    if isinstance(strategy, ComposingStrategy):
        return Composing(strategy)
    raise PluginRefused("it has neither choose nor compose")
