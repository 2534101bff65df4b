"""Explains an effective policy: for each field what won, why, and who lost to it.

Made of the same layers and the same `merge` as the policy itself. Reasons are a closed list, so
that pages and programs can say them in words of their own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextpolicy.engine.policy import LIMIT_FIELDS
from contextpolicy.linter import findings
from contextpolicy.resolution import Layer, Source, layers_that_count, made_to_work, merge

# Why a value won.
WON = {
    "nearest": "the nearest policy that sets it",
    "strictest": "the strictest of all that set it",
    "common": "what all that set it allow",
    "setting": "a setting of the server",
    "default": "the default of the strategy",
}
# Why a value lost.
LOST = {
    "locked_above": "a farther policy locks the field",
    "farther": "a nearer policy sets it",
    "group_rank": "another policy of the same level comes before it",
    "looser": "another policy is stricter",
    "equal": "it says the same",
    "no_limit": "it sets no limit, others do",
    "wider": "it allows more than others do",
}


@dataclass(frozen=True, slots=True)
class Losing:
    """A value that a policy sets and that is not in effect, with a reason of `LOST`."""

    level: str
    slug: str
    name: str
    version: int
    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class ExplainedField:
    """One field: the value in effect, where it comes from, why, and what lost.

    `wanted` is what the policies say where the value in effect was lowered to work with the model,
    else equal to it. `is_used` is False for a field that the strategy never reads.
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
        """Tell whether the model made another value necessary."""
        return self.value != self.wanted


def explain(
    layers: Collection[Layer], *, defaults: Mapping[str, object], model_window: int | None
) -> list[ExplainedField]:
    """Explain every field of the policy that these layers (far to near) make, by name.

    Raises PolicyImpossible like `resolution.resolve`.
    """
    merged, sources = merge(layers, defaults=defaults)
    values, _ = made_to_work(merged, model_window=model_window)
    unused = findings.unused_fields(values)
    names = {(layer.level, layer.slug): layer.name for layer in layers}
    wanted, used = merged.to_json(), values.to_json()
    return [
        ExplainedField(
            name=name,
            value=used[name],
            wanted=wanted[name],
            source=source,
            policy=names.get((source[0], source[1]), ""),
            reason=reason_of(name, source),
            is_used=name not in unused,
            losing=losing(name, source=source, value=wanted[name], layers=layers),
        )
        for name, source in sorted(sources.items())
    ]


def reason_of(name: str, source: Source) -> str:
    """Return why a value won."""
    if source[0] in ("setting", "default"):
        return source[0]
    kind = LIMIT_FIELDS.get(name)
    if kind is None:
        return "nearest"
    return "common" if kind == "intersection" else "strictest"


def losing(name: str, *, source: Source, value: object, layers: Collection[Layer]) -> list[Losing]:
    """Return the values that lost, nearest first."""
    decisive = "strategy" if name == "strategy_config" else name
    heard = layers_that_count(decisive, layers)
    found: list[Losing] = []
    for layer in layers:
        if name not in layer.values or (layer.level, layer.slug) == source[:2]:
            continue
        said = layer.values[name]
        reason = lost_by(name, layer, said=said, value=value, source=source, heard=heard)
        found.append(Losing(layer.level, layer.slug, layer.name, layer.version, said, reason))
    return found[::-1]


def lost_by(
    name: str,
    layer: Layer,
    *,
    said: Any,
    value: object,
    source: Source,
    heard: Collection[Layer],
) -> str:
    """Return why the value of a layer is not the one in effect."""
    if layer not in heard:
        return "locked_above"
    kind = LIMIT_FIELDS.get(name)
    if kind is None:
        return "group_rank" if layer.level == source[0] else "farther"
    if said is None:
        return "no_limit"
    if kind == "intersection":
        return "equal" if sorted(said) == sorted(as_list(value)) else "wider"
    return "equal" if said == value else "looser"


def as_list(value: object) -> list[Any]:
    """Return a list field's value; None is an empty one."""
    return list(value) if isinstance(value, list | tuple) else []
