"""Explains an effective policy: for each field the winning value, the reason, and other values.

It uses the same layers and the same `merge` as the policy itself. Reasons are a closed list of
codes, so that pages and clients can choose their own wording.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop

from contextpolicy.engine.policy.policy import LIMIT_FIELDS
from contextpolicy.linter.unused import find_unused_fields
from contextpolicy.resolution import (
    Layer,
    Source,
    adjust_policy_values,
    merge_layers,
    select_decisive_layers,
)

# The reasons why a value won. Pages translate these words.
WON = {
    "nearest": gettext_noop("the most specific policy that sets it"),
    "strictest": gettext_noop("the strictest of all policies that set it"),
    "common": gettext_noop("the values that all policies allow"),
    "setting": gettext_noop("a server setting"),
    "default": gettext_noop("the strategy’s default"),
}
# The reasons why a value lost.
LOST = {
    "locked_above": gettext_noop("a less specific policy locks the field"),
    "farther": gettext_noop("a more specific policy sets it"),
    "group_rank": gettext_noop("another policy of the same level takes precedence"),
    "looser": gettext_noop("another policy is stricter"),
    "equal": gettext_noop("the effective value is the same"),
    "no_limit": gettext_noop("this policy sets no limit, but others do"),
    "wider": gettext_noop("this policy allows more than others do"),
}


@dataclass(frozen=True, slots=True)
class Losing:
    """A policy's value that does not apply, with a reason from `LOST`."""

    level: str
    slug: str
    name: str
    version: int
    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class ExplainedField:
    """One field: the value in effect, its source and reason, and the values that lost.

    `wanted` is the policies' value, which differs from the value in effect if that was adjusted to
    the model. `is_used` is False for a field that the strategy never reads.
    """

    name: str
    value: object
    wanted: object
    source: Source
    policy: str
    reason: str
    is_used: bool
    losing: Sequence[Losing]

    @property
    def was_adjusted(self) -> bool:
        """True if the value was adjusted to the model."""
        return self.value != self.wanted


def explain_policy_fields(
    layers: Collection[Layer],
    *,
    defaults: Mapping[str, object],
    model_window: int | None,
    model_tools: Sequence[str] | None = None,
) -> list[ExplainedField]:
    """Explain every field of the policy that results from these layers (far to near), by name.

    Raises PolicyImpossible, as `resolution.resolve_policy` does.
    """
    merged, sources = merge_layers(layers, defaults=defaults)
    values, _ = adjust_policy_values(merged, model_window=model_window, model_tools=model_tools)
    unused = find_unused_fields(values)
    names = {(layer.level, layer.slug): layer.name for layer in layers}
    wanted, used = merged.to_json(), values.to_json()
    return [
        ExplainedField(
            name=name,
            value=used[name],
            wanted=wanted[name],
            source=source,
            policy=names.get((source[0], source[1]), ""),
            reason=find_winning_reason(name, source),
            is_used=name not in unused,
            losing=list_losing_values(name, source=source, value=wanted[name], layers=layers),
        )
        for name, source in sorted(sources.items())
    ]


def find_winning_reason(name: str, source: Source) -> str:
    """Return the code of `WON` that explains why a value applies."""
    if source[0] in ("setting", "default"):
        return source[0]
    kind = LIMIT_FIELDS.get(name)
    if kind is None:
        return "nearest"
    return "common" if kind == "intersection" else "strictest"


def list_losing_values(
    name: str, *, source: Source, value: object, layers: Collection[Layer]
) -> list[Losing]:
    """Return the values that do not apply, nearest level first."""
    decisive = "strategy" if name == "strategy_config" else name
    heard = select_decisive_layers(decisive, layers)
    found: list[Losing] = []
    for layer in layers:
        if name not in layer.values or (layer.level, layer.slug) == source[:2]:
            continue
        said = layer.values[name]
        reason = find_losing_reason(name, layer, said=said, value=value, source=source, heard=heard)
        found.append(Losing(layer.level, layer.slug, layer.name, layer.version, said, reason))
    return found[::-1]


def find_losing_reason(
    name: str,
    layer: Layer,
    *,
    said: Any,
    value: object,
    source: Source,
    heard: Collection[Layer],
) -> str:
    """Return the code of `LOST` that explains why a layer's value does not apply."""
    if layer not in heard:
        return "locked_above"
    kind = LIMIT_FIELDS.get(name)
    if kind is None:
        return "group_rank" if layer.level == source[0] else "farther"
    if said is None:
        return "no_limit"
    if kind == "intersection":
        return "equal" if sorted(said) == sorted(convert_to_list(value)) else "wider"
    return "equal" if said == value else "looser"


def convert_to_list(value: object) -> list[Any]:
    """Return a list field's value; None counts as an empty list."""
    return list(value) if isinstance(value, list | tuple) else []
