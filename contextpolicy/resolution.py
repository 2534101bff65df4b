"""Resolves effective policies: the merged values of several policies for one chat.

The source of each value is recorded. The levels, from far to near, are: instance,
group, user, agent of a team, chat. For limits, the strictest value of all levels
applies. For other fields, the value of the nearest level applies. The strategy and its
config are one choice. If a level locks a field, nearer levels cannot change it.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from django.db import OperationalError

from contextpolicy import statements
from contextpolicy.engine.policy.allow_lists import intersect_allow_lists
from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.engine.policy.policy import (
    LIMIT_FIELDS,
    PolicyValues,
    apply_policy_fields,
    find_value_problems,
    get_strategy_defaults,
    parse_policy_values,
)
from contextpolicy.models import ContextPolicy, EffectivePolicy, PolicyVersion

FAR_TO_NEAR = ("instance", "group", "user", "agent", "chat")
BUILT_IN = "Built-in defaults"
# The columns of an assignment for a `Layer`: level, slug, name, version, and its values and locks
# as JSON text from the database, which is parsed once and shared by everyone with the same text.
Assigned = tuple[str, str, str, int, str, str]

# [level, policy slug, version, locked]; level is also `setting` (of the server) or `default`.
Source = tuple[str, str, int, bool]
# [field, the policies' value, the value used]
Adjustment = tuple[str, object, object]


# True in a read-only request.
ONLY_READS: ContextVar[bool] = ContextVar("only_reads", default=False)


@dataclass(frozen=True, slots=True)
class Layer:
    """One assigned policy, with its level, values and locks."""

    level: str
    slug: str
    name: str
    version: int
    values: Mapping[str, Any]
    locks: frozenset[str]


def resolve_policy(
    *,
    user_id: int,
    group_ids: Collection[int] | None = None,
    chat_id: UUID | None,
    model_window: int | None,
    defaults: Mapping[str, object],
    model_tools: Sequence[str] | None = None,
    agent_policy: ContextPolicy | None = None,
    stores: bool = True,
) -> EffectivePolicy:
    """Return the effective policy of a chat with a model of `model_window` tokens.

    Stores the policy if it is new, unless `stores` is False: the row is then unsaved. `model_tools`
    is the model's own allow-list of tools; None means that it has none. If `group_ids` is not
    given, the user's groups are loaded. `agent_policy`: the policy of the replying agent, with
    its version. `defaults` are the server's settings `window_size` and `max_chars_per_message`.
    They apply only under strategy `simple`, if no level sets the field. Loads the assignments in
    one query. Raises PolicyImpossible if the merged values cannot work, even after
    `adjust_policy_values`.
    """
    assigned = list_assigned_policies(user_id=user_id, group_ids=group_ids, chat_id=chat_id)
    assigned = insert_agent_policy(assigned, policy=agent_policy)
    digest, content = _outcome(
        assigned, model_window, tuple(defaults.items()), freeze_names(model_tools)
    )
    if not stores:
        return EffectivePolicy(digest=digest, **content)
    row = statements.POLICY_BY_DIGEST.first(digest=digest)
    if row is None:
        row = _store_policy(digest, content)
    return row


def _store_policy(digest: str, content: dict[str, Any]) -> EffectivePolicy:
    """Store an effective policy.

    If the database cannot be written, a read-only request continues with an unsaved row. All other
    requests raise OperationalError.
    """
    try:
        return EffectivePolicy.objects.get_or_create(digest=digest, defaults=content)[0]
    except OperationalError:
        if not ONLY_READS.get():
            raise
        return EffectivePolicy(digest=digest, **content)


def build_effective_policy(
    assigned: tuple[Assigned, ...],
    *,
    model_window: int | None,
    defaults: Mapping[str, object],
    model_tools: Sequence[str] | None = None,
) -> EffectivePolicy:
    """Return the effective policy of these assignments as an unsaved row.

    Raises PolicyImpossible.
    """
    digest, content = _outcome(
        assigned, model_window, tuple(defaults.items()), freeze_names(model_tools)
    )
    return EffectivePolicy(digest=digest, **content)


def freeze_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names in a hashable form; None stays None."""
    return None if names is None else tuple(names)


@lru_cache(maxsize=256)
def _outcome(
    assigned: tuple[Assigned, ...],
    model_window: int | None,
    defaults: tuple[tuple[str, object], ...],
    model_tools: tuple[str, ...] | None,
) -> tuple[str, dict[str, Any]]:
    """Return the digest and the columns of the effective policy.

    The result is cached, because every reply needs it and there are only a few different
    ones. Raises PolicyImpossible.
    """
    layers = parse_assignment_layers(assigned)
    merged, sources = merge_layers(layers, defaults=dict(defaults))
    values, adjusted = adjust_policy_values(
        merged, model_window=model_window, model_tools=model_tools
    )
    content = {
        "values": values.to_json(),
        "sources": {name: list(source) for name, source in sources.items()},
        "adjusted": [list(adjustment) for adjustment in adjusted],
        "label": format_policy_label(layers),
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest(), content


@dataclass(frozen=True, slots=True)
class _Said:
    """A row compared by its digest: rows with the same digest have the same values."""

    digest: str
    row: EffectivePolicy = field(compare=False)


def load_policy_values(row: EffectivePolicy) -> PolicyValues:
    return _values(_Said(row.digest, row))


@lru_cache(maxsize=256)
def _values(said: _Said) -> PolicyValues:
    return parse_policy_values(said.row.values)


def list_assigned_policies(
    *, user_id: int, group_ids: Collection[int] | None, chat_id: UUID | None
) -> tuple[Assigned, ...]:
    """Return the policies that apply, far to near.

    If several groups have a policy, the one whose policy comes first by slug counts as the
    nearest.
    """
    if group_ids is None:
        found = cast(list[Assigned], statements.ASSIGNMENTS.tuples(user=user_id, chat=chat_id))
    else:
        found = list(statements.select_assignments(user=user_id, groups=group_ids, chat=chat_id))
    found.sort(key=lambda assigned: assigned[1], reverse=True)
    return sort_far_to_near(found)


def sort_far_to_near(assigned: Iterable[Assigned]) -> tuple[Assigned, ...]:
    """Sort the policies by level. Policies of the same level keep their order."""
    return tuple(sorted(assigned, key=lambda each: FAR_TO_NEAR.index(each[0])))


def insert_agent_policy(
    assigned: tuple[Assigned, ...], *, policy: ContextPolicy | None
) -> tuple[Assigned, ...]:
    """Insert the policy of the replying agent at its level."""
    if policy is None or policy.current is None:
        return assigned
    return sort_far_to_near((*assigned, build_agent_assignment(policy, policy.current)))


def build_agent_assignment(policy: ContextPolicy, version: PolicyVersion) -> Assigned:
    values, locks = json.dumps(version.values), json.dumps(version.locks)
    return ("agent", policy.slug, policy.name, version.number, values, locks)


def list_group_layers(group_id: int) -> list[Layer]:
    """Return the policies that apply to everyone and to a group as layers, far to near."""
    rows = statements.select_assignments(user=None, groups=[group_id], chat=None)
    return parse_assignment_layers(sort_far_to_near(cast(list[Assigned], list(rows))))


def format_policy_label(layers: Collection[Layer]) -> str:
    """Return the name and version of the nearest policy for display: "Support v7"."""
    if not layers:
        return BUILT_IN
    nearest = tuple(layers)[-1]
    return f"{nearest.name} v{nearest.version}"


def merge_layers(
    layers: Collection[Layer], *, defaults: Mapping[str, object]
) -> tuple[PolicyValues, dict[str, Source]]:
    """Merge the layers (far to near) into values, with the source of each field."""
    chosen: dict[str, object] = {}
    sources: dict[str, Source] = {}
    for name in (item.name for item in fields(PolicyValues)):
        # A config only works with its strategy, so both come from one layer.
        decisive = "strategy" if name == "strategy_config" else name
        found = _decide(decisive, layers)
        if found is not None:
            value, layer, locked = found
            chosen[name] = layer.values.get(name, {}) if decisive != name else value
            sources[name] = (layer.level, layer.slug, layer.version, locked)
    base = get_strategy_defaults(str(chosen.get("strategy", PolicyValues().strategy)))
    for name, value in defaults.items() if base.strategy == "simple" else ():
        if name not in chosen:
            chosen[name] = value
            sources[name] = ("setting", "", 0, False)
    values = apply_policy_fields(chosen, base=base)
    return values, {name: sources.get(name, ("default", "", 0, False)) for name in values.to_json()}


def adjust_policy_values(
    values: PolicyValues, *, model_window: int | None, model_tools: Sequence[str] | None = None
) -> tuple[PolicyValues, tuple[Adjustment, ...]]:
    """Return the values, adjusted to a model if they do not work with it.

    They may be unchanged, scaled to a small model, or have a lower keep-last or low mark. Tools
    that are not in the model's own allow-list are removed. The model's window may be far smaller
    than the policy's budget, so reserve and summary are scaled with the window first. Raises
    PolicyImpossible with the remaining problems.
    """
    fitted = _scale_to_window(values, model_window)
    fitted = _with_lower_keep_last(fitted, model_window)
    if find_value_problems(fitted, model_window=model_window):
        fitted = _with_lower_low_mark(fitted, model_window)
    remaining = find_value_problems(fitted, model_window=model_window)
    if remaining:
        raise PolicyImpossible(" ".join(problem.sentence for problem in remaining))
    if model_tools is not None:
        fitted = replace(fitted, tools=tuple(intersect_allow_lists([values.tools, model_tools])))
    wanted, used = values.to_json(), fitted.to_json()
    return fitted, tuple(
        (name, wanted[name], used[name]) for name in used if wanted[name] != used[name]
    )


def _decide(field: str, layers: Collection[Layer]) -> tuple[object, Layer, bool] | None:
    heard, locked = _until_lock(field, layers)
    said = [layer for layer in heard if field in layer.values]
    if not said:
        return None
    kind = LIMIT_FIELDS.get(field)
    if kind is None:
        nearest = [layer for layer in said if layer.level == said[-1].level]
        holder = max(nearest, key=lambda layer: (field in layer.locks, nearest.index(layer)))
        return holder.values[field], holder, locked
    limits = [(layer.values[field], layer) for layer in said if layer.values[field] is not None]
    if not limits:
        return None, said[-1], locked
    if kind == "intersection":
        lists = [cast(Sequence[str], value) for value, _ in limits]
        return intersect_allow_lists(lists), limits[-1][1], locked
    value, layer = (min if kind == "min" else max)(limits, key=lambda limit: limit[0])
    return value, layer, locked


def resolve_field_value(field: str, layers: Collection[Layer]) -> object:
    """Return the layers' value of one field; None if none sets it."""
    found = _decide(field, layers)
    return found[0] if found is not None else None


def select_decisive_layers(field: str, layers: Collection[Layer]) -> list[Layer]:
    """Return the layers that are not overridden by a lock on the field."""
    return _until_lock(field, layers)[0]


def list_chat_layers(
    *,
    user_id: int,
    chat_id: UUID | None,
    agent_policy: ContextPolicy | None = None,
) -> list[Layer]:
    """Return the policies that apply to a user's chat as layers, far to near."""
    assigned = list_assigned_policies(user_id=user_id, group_ids=None, chat_id=chat_id)
    return parse_assignment_layers(insert_agent_policy(assigned, policy=agent_policy))


def parse_assignment_layers(assigned: Iterable[Assigned]) -> list[Layer]:
    return [
        Layer(level, slug, name, version, json.loads(values), frozenset(json.loads(locks)))
        for level, slug, name, version, values, locks in assigned
    ]


def _until_lock(field: str, layers: Collection[Layer]) -> tuple[list[Layer], bool]:
    """Return the layers up to and including the first level that locks the field."""
    heard: list[Layer] = []
    for level in FAR_TO_NEAR:
        here = [layer for layer in layers if layer.level == level]
        heard += here
        if any(field in layer.locks for layer in here):
            return heard, True
    return heard, False


def _scale_to_window(values: PolicyValues, model_window: int | None) -> PolicyValues:
    """Scale reserve and summary in proportion to a window that is smaller than the budget."""
    if model_window is None or model_window >= values.token_budget:
        return values
    if not find_value_problems(values, model_window=model_window):
        return values

    def scaled(tokens: int) -> int:
        return max(1, tokens * model_window // values.token_budget)

    return replace(
        values,
        reserve_tokens=scaled(values.reserve_tokens),
        summary_max_tokens=scaled(values.summary_max_tokens),
    )


def _with_lower_keep_last(values: PolicyValues, model_window: int | None) -> PolicyValues:
    def is_too_many(keep: int) -> bool:
        found = find_value_problems(
            replace(values, keep_last_messages=keep), model_window=model_window
        )
        return any("keep_last_messages" in problem.fields for problem in found)

    keep = values.keep_last_messages
    if not is_too_many(keep):
        return values
    # If a number is too large, all larger ones are too, so bisection finds the limit.
    most = bisect_left(range(keep), x=True, key=is_too_many) - 1
    return replace(values, keep_last_messages=max(0, most))


def _with_lower_low_mark(values: PolicyValues, model_window: int | None) -> PolicyValues:
    for percent in range(int(values.compact_to * 100 - 1e-9), 0, -1):
        lowered = replace(values, compact_to=percent / 100)
        if not find_value_problems(lowered, model_window=model_window):
            return lowered
    return values
