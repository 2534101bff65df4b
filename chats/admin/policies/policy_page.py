"""The page data of the policy editor: cards, main settings, groups, sentences and warnings."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.forms import BoundField
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from chats.admin.policies.choices import list_strategy_choices
from chats.admin.policies.form_text import (
    convert_list_to_tuple,
    describe_field_value,
    describe_form_values,
    describe_saved_value,
    get_form_field_label,
    link_field_names,
)
from chats.admin.policies.policy_form import PolicyForm
from chats.admin.policies.policy_groups import STRATEGY_TEXTS, list_main_fields, list_other_groups
from chats.admin.policies.preview_as import Effective, Viewpoint, merge_viewpoint_layers
from contextpolicy.linter.lint import lint_policy, read_whole
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning
from contextpolicy.resolution import Layer
from contextpolicy.wording import join_items


@dataclass(frozen=True, slots=True)
class WarningLine:
    """An error or warning from the linter: its level, sentence, fields and suggested fix."""

    warning: PolicyWarning
    sentence: SafeString
    # The label of its fix button; empty: no button.
    fix: str
    key: str


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field with its lock, its effective value if empty, and its warnings."""

    name: str
    bound: BoundField
    lock: BoundField | None
    hint: str
    # The saved version's value if it differs, else empty.
    was: str
    is_set: bool
    is_locked: bool
    warnings: Sequence[WarningLine] = ()
    # Error messages, with each field name replaced by its label.
    errors: Sequence[SafeString] = ()

    @property
    def must_show(self) -> bool:
        """Return True if the row is never collapsed."""
        return bool(self.is_set or self.is_locked or self.warnings or self.bound.errors)


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """A group under "More": its fields, how many of them are set, and how many are shown above."""

    title: str
    description: str
    rows: Sequence[FieldRow]
    total: int
    set_above: int


@dataclass(frozen=True, slots=True)
class Editor:
    """The page data of one policy's form."""

    form: PolicyForm
    cards: Sequence[dict[str, Any]]
    first: Sequence[FieldRow]
    also: Sequence[FieldRow]
    found: Sequence[FieldRow]
    search: str
    more: Sequence[FieldGroup]
    warnings: Sequence[WarningLine]
    sentence: SafeString
    # The saved version's strategy if it differs, else empty.
    strategy_was: str
    viewpoint: Viewpoint
    fixed: str = ""
    names: Sequence[str] = field(default_factory=tuple)

    @property
    def rows(self) -> list[FieldRow]:
        inner = (row for group in self.more for row in group.rows)
        return [*self.found, *self.first, *self.also, *inner]

    @property
    def is_changed(self) -> bool:
        """Return True if anything differs from the saved version."""
        return bool(self.strategy_was) or any(row.was for row in self.rows)

    @property
    def errors(self) -> list[FieldRow]:
        return [row for row in self.rows if row.bound.errors]


def build_policy_editor(form: PolicyForm, *, viewpoint: Viewpoint, search: str = "") -> Editor:
    """Arrange a form: main settings first, then other set fields, then the groups."""
    values = dict(form.policy_values if form.is_bound else load_initial_values(form))
    locks = form.policy_locks if form.is_bound else load_initial_locks(form)
    strategy = str(values.get("strategy", ""))
    found_warnings = form.warnings if form.is_bound else lint_policy(values, locks=locks)
    warnings = [build_warning_line(form, warning) for warning in found_warnings]
    holds = compute_effective_values(form, values, locks, viewpoint)
    wanted = list_main_fields(strategy)
    groups = list_other_groups(strategy)
    names = list(dict.fromkeys([*wanted, *(name for _, _, group in groups for name in group)]))
    rows = {name: build_field_row(form, name, values, locks, warnings, holds) for name in names}
    rows.pop("strategy", None)
    found = [name for name in rows if search and is_matching_row(rows[name], search)]
    first = [name for name in wanted if name in rows and name not in found]
    also = [name for name in rows if name not in {*found, *first} and rows[name].must_show]
    above = {*found, *first, *also}
    more = [
        FieldGroup(
            title,
            description,
            [rows[name] for name in group if name in rows and name not in above],
            total=len([name for name in group if name in rows]),
            set_above=sum(1 for name in group if name in rows and rows[name].is_set),
        )
        for title, description, group in groups
    ]
    wrong = next((rows[name] for name in (*found, *first, *also) if rows[name].bound.errors), None)
    if wrong is not None and not form.is_look:
        # The page scrolls to the first field that needs attention.
        wrong.bound.field.widget.attrs["autofocus"] = True
    return Editor(
        form=form,
        cards=build_strategy_cards(form, strategy),
        first=[rows[name] for name in first],
        also=[rows[name] for name in also],
        found=[rows[name] for name in found],
        search=search,
        more=[group for group in more if group.rows],
        warnings=warnings,
        sentence=describe_form_values(form, values),
        strategy_was=describe_saved_value(form, "strategy", values, locks),
        viewpoint=viewpoint,
        fixed=join_items(get_form_field_label(form, name) for name in form.fixed),
    )


def load_initial_values(form: PolicyForm) -> dict[str, Any]:
    """Return the initial values of a form: those of the copied policy or of the edited version.

    Empty for a new policy that copies none.
    """
    return dict(form.start_values or form.stored)


def load_initial_locks(form: PolicyForm) -> list[str]:
    return list(form.newest.locks) if form.newest else list(form.start_locks)


def build_strategy_cards(form: PolicyForm, strategy: str) -> list[dict[str, Any]]:
    """Return the strategies as cards; the card without a strategy comes last."""
    offered = [*list_strategy_choices()]
    if strategy not in dict(offered):
        offered.append((strategy, gettext("{strategy} (not installed)").format(strategy=strategy)))
    cards = [
        {
            "value": value,
            "name": str(name) if value else gettext("Not set"),
            "text": STRATEGY_TEXTS.get(value, gettext("This strategy is provided by a plugin.")),
            "checked": value == strategy,
        }
        for value, name in offered
    ]
    return [*(card for card in cards if card["value"]), *(c for c in cards if not c["value"])]


def compute_effective_values(
    form: PolicyForm, values: dict[str, Any], locks: Collection[str], viewpoint: Viewpoint
) -> Effective | None:
    """Return the effective values at a viewpoint; None while a value cannot be parsed."""
    if read_whole(values) is None:
        return None
    newest = form.newest
    number = newest.number if newest else 1
    slug = form.instance.slug or "(new)"
    name = form.instance.name or gettext("this policy")
    return merge_viewpoint_layers(
        Layer(viewpoint.level, slug, name, number, values, frozenset(locks)), viewpoint
    )


def build_field_row(
    form: PolicyForm,
    name: str,
    values: dict[str, Any],
    locks: Collection[str],
    warnings: Iterable[WarningLine],
    holds: Effective | None,
) -> FieldRow:
    lock = form[f"lock_{name}"] if f"lock_{name}" in form.fields else None
    is_set = name in values or (name.startswith("config__") and bool(form[name].value()))
    return FieldRow(
        name=name,
        bound=form[name],
        lock=lock,
        hint=describe_effective_value(form, name, is_set=is_set, holds=holds),
        was=describe_saved_value(form, name, values, locks),
        is_set=is_set,
        is_locked=name in locks,
        errors=[link_field_names(form, str(error)) for error in form.errors.get(name, ())],
        # Errors are already shown at their field.
        warnings=[t for t in warnings if t.warning.field == name and t.warning.level != "error"],
    )


def describe_effective_value(
    form: PolicyForm, name: str, *, is_set: bool, holds: Effective | None
) -> str:
    """Describe the effective value and its source, for an empty or overridden field."""
    if holds is None or name not in holds.sources:
        return ""
    value = describe_field_value(form, name, getattr(holds.values, name))
    is_ours = holds.sources[name][1] == (form.instance.slug or "(new)")
    if not is_set:
        return f"{value} · {holds.source_of(name)}"
    if is_ours:
        return ""
    return gettext("Overridden. In effect: {value} · {source}").format(
        value=value, source=holds.source_of(name)
    )


def is_matching_row(row: FieldRow, search: str) -> bool:
    """Return True if every search word is in a field's name, label or help text."""
    text = f"{row.name} {row.bound.label} {row.bound.help_text}".lower()
    return all(word in text for word in search.lower().split())


def build_warning_line(form: PolicyForm, warning: PolicyWarning) -> WarningLine:
    """Return a warning with links to its fields and the label of its button."""
    changes = [
        describe_fix_change(form, name, value)
        for name, value in warning.fix.items()
        if value != UNSET or name in form.policy_values or not form.is_bound
    ]
    words = changes[0] if changes else ""
    for change in changes[1:]:
        words = gettext("{changes} and {change}").format(changes=words, change=change)
    return WarningLine(
        warning=warning,
        sentence=link_field_names(form, warning.sentence),
        fix=f"{words[:1].upper()}{words[1:]}",
        key=f"{warning.code}:{warning.field}",
    )


def describe_fix_change(form: PolicyForm, name: str, value: object) -> str:
    """Describe how a suggested fix changes a field."""
    if value == UNSET:
        return gettext("clear “{field}”").format(field=get_form_field_label(form, name))
    words = describe_field_value(form, name, convert_list_to_tuple(value))
    return gettext("set “{field}” to {value}").format(
        field=get_form_field_label(form, name), value=words
    )
