"""The values of an effective policy: their JSON form, their defaults, and their problems."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

from contextpolicy.engine.policy.checks import (
    estimate_tokens,
    find_limit_clashes,
    find_number_clashes,
    find_reserve_clashes,
)
from contextpolicy.engine.policy.fields import FIELDS, PolicyFields
from contextpolicy.engine.policy.fields.declaration import Combine, Kind, PolicyField
from contextpolicy.engine.policy.strategy_checks import find_strategy_clashes
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

# The combination of several policies: limits take the strictest value, every other field the
# nearest one.
LIMIT_FIELDS: Mapping[str, Combine] = {
    name: declared.combine for name, declared in FIELDS.items() if declared.combine != "nearest"
}

# Texts of administrators: a policy may hide them from users, and the ledger has no texts.
TEXT_FIELDS = frozenset(name for name, declared in FIELDS.items() if declared.is_private)
_LISTS = tuple(name for name, declared in FIELDS.items() if declared.kind == "names")
_SHARES = frozenset(name for name, declared in FIELDS.items() if declared.kind == "share")
# The bounds of each field are far below. JSON numbers can have thousands of digits.
LARGEST_PARSED = 10**15


@dataclass(frozen=True, kw_only=True)
class PolicyValues(PolicyFields):
    """The fields of an effective policy with their JSON form."""

    def to_json(self) -> dict[str, object]:
        """Return the fields as a JSON-serialisable object with sorted keys."""
        written = asdict(self)
        for name in _LISTS:
            value = written[name]
            written[name] = value if value is None else list(value)
        return {name: written[name] for name in sorted(written)}

    def digest(self) -> str:
        """Return the SHA-256, in hex, of the canonical JSON form: the same for equal values."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()


class MalformedPolicy(ValueError):
    """A policy in JSON has an unknown field or a value of the wrong type."""

    code = "malformed_policy"


INSTANCE_DEFAULTS: Mapping[str, PolicyValues] = {
    "simple": PolicyValues(strategy="simple", window_size=12, max_chars_per_message=4_000),
    "sliding_window": PolicyValues(strategy="sliding_window"),
    "dynamic_summary": PolicyValues(strategy="dynamic_summary", turn_threshold=10),
    # The state replaces past dialogue, none of which is sent.
    "entity_state": PolicyValues(strategy="entity_state", keep_last_messages=0),
}

# "Rounds" compacts by turns, "Long chats" only by token marks. The latter is the default of a new
# instance.
PRESETS: Mapping[str, PolicyValues] = {
    "rounds": INSTANCE_DEFAULTS["dynamic_summary"],
    "long_chats": PolicyValues(strategy="dynamic_summary"),
}


def get_strategy_defaults(strategy: str) -> PolicyValues:
    """Return the defaults of a strategy, or the general defaults if it is unknown."""
    if strategy in INSTANCE_DEFAULTS:
        return INSTANCE_DEFAULTS[strategy]
    return PolicyValues(strategy=strategy)


def parse_policy_values(
    data: Mapping[str, object], *, base: PolicyValues | None = None
) -> PolicyValues:
    """Parse values from JSON; an absent field keeps its value in `base`, or its default.

    Raises MalformedPolicy for an unknown field and for a value of the wrong type.
    """
    unknown = sorted(set(data) - FIELDS.keys())
    if unknown:
        raise MalformedPolicy(
            Phrase(
                gettext_noop("A policy has no field {name!r}. Remove it or correct its name."),
                name=unknown[0],
            )
        )
    values: dict[str, object] = {}
    if base is not None:
        values = {name: getattr(base, name) for name in FIELDS}
    values.update({name: _check_value(name, value) for name, value in data.items()})
    return PolicyValues(**values)  # type: ignore[arg-type]  # each value was checked against its field


def apply_policy_fields(data: Mapping[str, object], *, base: PolicyValues) -> PolicyValues:
    """Return `base` with the fields that policies set.

    If they set no reserve, it is a quarter of the budget. Raises MalformedPolicy for an unknown
    field and for a value of the wrong type.
    """
    values = parse_policy_values(data, base=base)
    if "reserve_tokens" in data:
        return values
    return replace(values, reserve_tokens=compute_default_reserve(values.token_budget))


def compute_default_reserve(token_budget: int) -> int:
    """Return a quarter of the token budget, the reserve if no policy sets one."""
    return max(1, token_budget // 4)


def _check_value(name: str, value: object) -> object:
    declared = FIELDS[name]
    if value is None and declared.is_optional:
        return None
    accepts = declared.accepts or _ACCEPTS[declared.kind]
    if not accepts(value) or not _is_allowed(declared, value):
        raise MalformedPolicy(
            Phrase(
                gettext_noop("The policy field {name} cannot be {value!r}. Enter {wanted}."),
                name=name,
                value=value,
                wanted=_describe_wanted(declared),
            )
        )
    if name in _LISTS and isinstance(value, list | tuple):
        return tuple(value)
    return float(value) if isinstance(value, int) and name in _SHARES else value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _is_readable(value)


def _is_readable(number: float) -> bool:
    """Return True unless a number is so large that its products exceed the range of floats."""
    return abs(number) <= LARGEST_PARSED


def _is_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_allowed(declared: PolicyField, value: Any) -> bool:
    """Return True unless the field has a closed list of values and this is not one of them."""
    if declared.words:
        return value in declared.words
    return not declared.values or all(item in declared.values for item in value)


_ACCEPTS: Mapping[Kind, Callable[[object], bool]] = {
    "yes_no": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    # Python's JSON parser accepts NaN and Infinity.
    "share": lambda value: (
        _is_integer(value) or (isinstance(value, float) and isfinite(value) and _is_readable(value))
    ),
    "choice": lambda value: isinstance(value, str),
    "text": lambda value: isinstance(value, str),
    "names": _is_names,
    "object": lambda value: isinstance(value, Mapping),
}


def _describe_wanted(declared: PolicyField) -> str:
    """Return the description of the values that a field accepts."""
    if declared.wanted:
        return declared.wanted
    if declared.words:
        return " or ".join(f'"{word}"' for word in declared.words)
    if declared.values:
        return Phrase(gettext_noop("a list of {kinds}"), kinds=", ".join(declared.values))
    if declared.is_optional:
        return Phrase(gettext_noop("a whole number or null"))
    return Phrase(_WANTED[declared.kind])


_WANTED: Mapping[Kind, str] = {
    "yes_no": gettext_noop("true or false"),
    "integer": gettext_noop("a whole number"),
    "share": gettext_noop("a number"),
    "text": gettext_noop("a string"),
    "object": gettext_noop("an object"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why values cannot work: a code, the fields, and a sentence with possible values."""

    code: str
    fields: tuple[str, ...]
    sentence: str


def find_value_problems(
    values: PolicyValues,
    *,
    model_window: int | None,
    count: Callable[[str], int] = estimate_tokens,
) -> list[Problem]:
    """Return the problems of the values with a model of `model_window` tokens (None: unknown).

    `count` counts the tokens of the system text. An empty list means that the values can be saved.
    """
    found = find_number_clashes(values) or find_reserve_clashes(values, model_window=model_window)
    if not found:
        window = values.token_budget if model_window is None else model_window
        limit = min(values.token_budget, window) - values.reserve_tokens
        system_tokens = count(values.system_text)
        found = find_limit_clashes(values, limit=limit, system_tokens=system_tokens)
        found += find_strategy_clashes(values, limit=limit, system_tokens=system_tokens)
    return [Problem(*clash) for clash in found]


def can_compact_messages(values: PolicyValues) -> bool:
    """Return True if stored summaries and window moves apply to the prompts of this policy.

    False for `simple`, which selects messages only by number and limits.
    """
    return values.strategy != "simple"
