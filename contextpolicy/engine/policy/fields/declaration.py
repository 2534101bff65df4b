"""The declaration of a policy field.

A declaration is one statement with all properties of the field. The field's annotation gives its
type. Forms, checks, the linter, descriptions and the documentation read the declarations through
`fields.FIELDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from contextpolicy.engine.text.phrases import Plural, gettext_noop

Value = TypeVar("Value")
# How the values of several policies combine: the most specific policy, the lowest or highest
# value, or the values that all lists contain.
Combine = Literal["nearest", "min", "max", "intersection"]
Kind = Literal["yes_no", "integer", "share", "choice", "text", "names", "object"]

LARGEST_NUMBER = 100_000_000
# Strategies that never read the fields of compactions, and those without summaries.
WITHOUT_MARKS = ("simple", "entity_state")
WITHOUT_SUMMARY = ("simple", "sliding_window", "entity_state")
# The form's sentence about 0 in a limit.
NO_LIMIT = gettext_noop("0: this policy sets no limit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGroup:
    """A group of fields on forms and pages, and the strategies for which it is shown."""

    title: str
    only_with: Sequence[str] = ()
    not_with: Sequence[str] = ()


GROUPS: Mapping[str, PolicyGroup] = {
    "prompt": PolicyGroup(title=gettext_noop("Prompt contents")),
    "state": PolicyGroup(title=gettext_noop("State"), only_with=("entity_state",)),
    "size": PolicyGroup(title=gettext_noop("Size limits")),
    "history": PolicyGroup(title=gettext_noop("History")),
    "compaction": PolicyGroup(title=gettext_noop("Compaction"), not_with=WITHOUT_MARKS),
    "summary": PolicyGroup(title=gettext_noop("Summary"), only_with=("dynamic_summary",)),
    "permissions": PolicyGroup(
        title=gettext_noop("Summary permissions"), only_with=("dynamic_summary",)
    ),
    "retrieved": PolicyGroup(title=gettext_noop("Retrieved context")),
    "tools": PolicyGroup(title=gettext_noop("Tools")),
    "limits": PolicyGroup(title=gettext_noop("Limits")),
    "memory": PolicyGroup(title=gettext_noop("Memory")),
    "text": PolicyGroup(title=gettext_noop("Text")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The properties of a field other than its annotated type. Texts are message ids.

    `group`: a key of `GROUPS`; empty: not in the form. `combine`: see `Combine`. A whole number is
    between `smallest` and `largest`, and a value above `largest` is refused with the code
    `too_large`. A share is at most 1, or `largest`; with `smallest` 0 it may be 0. `longest`:
    maximum length of a text in characters. `values`: the only values of a list. `labels`: the
    display names of values. `choices`: the function of the form that lists the values. `accepts`: a
    check that replaces the check of the annotated type. `wanted`: the description of the values
    that it accepts.

    `empty`: the form's sentence about 0, or about an empty field if the form `refuses_zero`.
    `rows`: the height of the text area. `widget`: the form field, if it does not follow from the
    type.

    `sentence`: the sentence of the description, with a placeholder for the value. For a yes/no
    field, it contains words in [brackets] instead. The sentence is omitted for a default value,
    unless the value is a number, and if `described_if` returns False. `nothing`: the words for an
    empty list.

    `is_private`: a text that a policy may hide from users, and that the ledger never contains.
    `unused_with`: the built-in strategies that never read the field.
    """

    group: str = ""
    label: str = ""
    help_text: str = ""
    combine: Combine = "nearest"
    smallest: int = 1
    largest: float = LARGEST_NUMBER
    too_large: str = "number_out_of_range"
    longest: int | None = None
    values: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    choices: str = ""
    accepts: Callable[[object], bool] | None = None
    wanted: str = ""
    empty: str = ""
    refuses_zero: bool = False
    rows: int = 0
    widget: str = ""
    sentence: str | Plural = ""
    described_if: Callable[[Any], bool] | None = None
    nothing: str = gettext_noop("none")
    is_private: bool = False
    unused_with: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField(Declaration):
    """A declared field with its name, default and type.

    `is_optional`: None is a value, which means no limit, no mark or no trigger. `words`: the values
    of a choice.
    """

    name: str
    default: Any
    kind: Kind
    is_optional: bool
    words: Sequence[str]


def declare(*, default: Value, **facts: Any) -> Value:
    """Declare a field of a dataclass. `facts` are the arguments of `Declaration`."""
    metadata = {"declaration": Declaration(**facts)}
    if isinstance(default, dict):
        made: Any = field(default_factory=dict, metadata=metadata)
    else:
        made = field(default=default, metadata=metadata)
    return made  # type: ignore[no-any-return]  # the dataclass replaces it with the default


def collect_fields(values: type) -> dict[str, PolicyField]:
    """Return the declared fields of a dataclass by name, in the order of the form."""
    hints, example = get_type_hints(values), values()
    found = [
        _field(item.name, hints[item.name], getattr(example, item.name), item.metadata)
        for item in fields(values)
    ]
    order = [*GROUPS, ""]
    found.sort(key=lambda declared: order.index(declared.group))
    return {declared.name: declared for declared in found}


def _field(name: str, hint: Any, default: object, metadata: Mapping[str, Any]) -> PolicyField:
    declaration = metadata["declaration"]
    facts = {item.name: getattr(declaration, item.name) for item in fields(Declaration)}
    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    is_optional = NoneType in types
    kind = _kind(types[0])
    if is_optional and kind == "integer" and facts["combine"] == "min" and not facts["empty"]:
        facts["empty"] = NO_LIMIT
    if kind == "share":
        facts["largest"] = min(1, facts["largest"])
    return PolicyField(
        **facts,
        name=name,
        default=default,
        kind=kind,
        is_optional=is_optional,
        words=get_args(types[0]) if kind == "choice" else (),
    )


def _kind(hint: Any) -> Kind:
    if get_origin(hint) is Literal:
        return "choice"
    if get_origin(hint) is tuple:
        return "names"
    kinds: Mapping[type, Kind] = {bool: "yes_no", int: "integer", float: "share", str: "text"}
    return kinds.get(hint, "object")
