"""The values of an effective policy: their JSON form, their defaults, and their problems."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Literal

from contextpolicy.engine.messages.files import FILE_KINDS
from contextpolicy.engine.policy.checks import (
    estimate_tokens,
    find_limit_clashes,
    find_number_clashes,
    find_reserve_clashes,
)
from contextpolicy.engine.policy.fields import PolicyFields
from contextpolicy.engine.text.fact_scanner import KINDS
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

# How several policies combine: limits take the strictest value, every other field the nearest one.
LIMIT_FIELDS: Mapping[str, Literal["min", "max", "intersection"]] = {
    "window_size": "min",
    "window_turns": "min",
    "window_tokens": "min",
    "max_chars_per_message": "min",
    "token_budget": "min",
    "reserve_tokens": "max",
    "max_bytes": "min",
    "pins_tokens": "min",
    "summary_max_tokens": "min",
    "input_length_limit": "min",
    "tool_output_limit": "min",
    "reference_count": "min",
    "reference_tokens": "min",
    "reference_floor": "max",
    "allowed_models": "intersection",
    "file_kinds": "intersection",
    "file_mebibytes": "min",
    "files_per_message": "min",
    "memory_providers": "intersection",
    "recent_by_user": "min",
    "retention_days": "min",
}

# Texts of administrators: a policy may hide them from users, and the ledger has no texts.
TEXT_FIELDS = frozenset({"system_text", "summary_instruction"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValues(PolicyFields):
    """The fields of an effective policy with their JSON form."""

    def to_json(self) -> dict[str, object]:
        """Return the fields as a JSON-ready object with sorted keys."""
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
    """A policy in JSON form has an unknown field or a value of the wrong type."""

    code = "malformed_policy"


_LISTS = (
    "allowed_models",
    "file_kinds",
    "pinned_kinds",
    "summary_sections",
    "memory_providers",
    "skills",
)
_FIELD_NAMES = frozenset(item.name for item in fields(PolicyValues))

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
    """Return the defaults of a strategy. An unknown one gets the general defaults."""
    if strategy in INSTANCE_DEFAULTS:
        return INSTANCE_DEFAULTS[strategy]
    return PolicyValues(strategy=strategy)


def parse_policy_values(
    data: Mapping[str, object], *, base: PolicyValues | None = None
) -> PolicyValues:
    """Parse values from JSON; an absent field keeps its value in `base`, or its default.

    Raises MalformedPolicy for an unknown field and for a value of the wrong type.
    """
    unknown = sorted(set(data) - _FIELD_NAMES)
    if unknown:
        raise MalformedPolicy(
            Phrase(
                gettext_noop("A policy has no field {name!r}. Remove it or correct its name."),
                name=unknown[0],
            )
        )
    values: dict[str, object] = {}
    if base is not None:
        values = {name: getattr(base, name) for name in _FIELD_NAMES}
    values.update({name: _checked(name, value) for name, value in data.items()})
    return PolicyValues(**values)  # type: ignore[arg-type]  # each value was checked against its field


def apply_policy_fields(data: Mapping[str, object], *, base: PolicyValues) -> PolicyValues:
    """Apply the fields that policies set to `base`; the default reserve is a quarter of the budget.

    Raises MalformedPolicy.
    """
    values = parse_policy_values(data, base=base)
    if "reserve_tokens" in data:
        return values
    return replace(values, reserve_tokens=compute_default_reserve(values.token_budget))


def compute_default_reserve(token_budget: int) -> int:
    """Return a quarter of the token budget, the reserve if no policy sets one."""
    return max(1, token_budget // 4)


def _checked(name: str, value: object) -> object:
    if value is None and name in _OPTIONAL:
        return None
    fits, wanted = _KINDS[name]
    if not fits(value):
        raise MalformedPolicy(
            Phrase(
                gettext_noop("The policy field {name} cannot be {value!r}. Enter {wanted}."),
                name=name,
                value=value,
                wanted=wanted,
            )
        )
    if name in _LISTS and isinstance(value, list | tuple):
        return tuple(value)
    return float(value) if isinstance(value, int) and name in _SHARES else value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_kinds(value: object) -> bool:
    return isinstance(value, list | tuple) and all(kind in KINDS for kind in value)


def _is_file_kinds(value: object) -> bool:
    return isinstance(value, list | tuple) and all(kind in FILE_KINDS for kind in value)


def _is_rules(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_rule(rule) for rule in value.values())


def _is_rule(rule: object) -> bool:
    return (
        isinstance(rule, Mapping)
        and rule.keys() <= {"limit", "keep_newest"}
        and all(_is_integer(number) for number in rule.values())
    )


def _one_of(*words: str) -> tuple[Callable[[object], bool], str]:
    quoted = " or ".join(f'"{word}"' for word in words)
    return (lambda value: isinstance(value, str) and value in words), quoted


_SHARES = frozenset({"prepare_at", "compact_at", "compact_to"})
_OPTIONAL = frozenset(name for name in _FIELD_NAMES if getattr(PolicyValues(), name) is None)
_BY_EXAMPLE: Mapping[type, tuple[Callable[[object], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), Phrase(gettext_noop("true or false"))),
    int: (_is_integer, Phrase(gettext_noop("a whole number"))),
    # Python's JSON parser accepts NaN and Infinity.
    float: (
        lambda value: _is_integer(value) or (isinstance(value, float) and isfinite(value)),
        Phrase(gettext_noop("a number")),
    ),
    str: (lambda value: isinstance(value, str), Phrase(gettext_noop("a text"))),
    dict: (lambda value: isinstance(value, Mapping), Phrase(gettext_noop("an object"))),
    # The fields without a default value are optional numbers.
    type(None): (_is_integer, Phrase(gettext_noop("a whole number or null"))),
}
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **{
        name: _BY_EXAMPLE[type(getattr(PolicyValues(), name))]
        for name in sorted(_FIELD_NAMES - {"pinned_kinds", "summary_sections", "skills"})
    },
    "cut_style": _one_of("head", "head_tail"),
    "layout": _one_of("multi_turn", "A", "B", "C"),
    "chat_system": _one_of("layout", "append", "replace", "ignore"),
    "approval": _one_of("owner", "admins", "nobody"),
    "reference_scope": _one_of("chat", "folder", "person"),
    "unmanaged": _one_of("none", "keys", "asked", "all"),
    "undo_right": _one_of("owner", "admins", "nobody"),
    "edit_right": _one_of("owner", "admins", "nobody"),
    "allowed_models": (_is_names, Phrase(gettext_noop("a list of model names"))),
    "file_kinds": (
        _is_file_kinds,
        Phrase(gettext_noop("a list of {kinds}"), kinds=", ".join(FILE_KINDS)),
    ),
    "memory_providers": (_is_names, Phrase(gettext_noop("a list of provider names"))),
    "skills": (_is_names, Phrase(gettext_noop("a list of skill names"))),
    "summary_sections": (_is_names, Phrase(gettext_noop("a list of headings"))),
    "pinned_kinds": (_is_kinds, Phrase(gettext_noop("a list of {kinds}"), kinds=", ".join(KINDS))),
    "tool_output_rules": (
        _is_rules,
        Phrase(
            gettext_noop(
                "an object of tool names, each with limit or keep_newest or both as whole numbers"
            )
        ),
    ),
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
    """List the problems of the values with a model of `model_window` tokens (None: unknown).

    `count` counts the tokens of the system text. An empty list means that the values can be saved.
    """
    found = find_number_clashes(values) or find_reserve_clashes(values, model_window=model_window)
    if not found:
        window = values.token_budget if model_window is None else model_window
        limit = min(values.token_budget, window) - values.reserve_tokens
        found = find_limit_clashes(values, limit=limit, system_tokens=count(values.system_text))
    return [Problem(*clash) for clash in found]


def can_compact_messages(values: PolicyValues) -> bool:
    """Return True if a summary or a window may replace messages.

    False for the strategy `simple`, which only counts messages.
    """
    return values.strategy != "simple"
