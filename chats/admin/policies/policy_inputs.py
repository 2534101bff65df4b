"""Builds the form fields of a policy, each with a lock, from the declarations."""

from collections.abc import Callable, Mapping

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy
from django_stubs_ext import StrOrPromise

from chats.admin.policies import choices
from chats.admin.policies.form_fields import (
    UNSET,
    Choices,
    LinesField,
    WordsField,
    build_choice_field,
    build_headings_field,
    build_integer_field,
    build_lock_field,
    build_multiple_choice_field,
    build_percent_field,
    build_schema_field,
    build_textarea,
    build_tool_rules_field,
    build_yes_no_field,
)
from chats.admin.policies.form_values import NO_TEXT
from chats.admin.policies.line_formats import BUILT_IN, NONE, RULE_EXAMPLE, STATE_EXAMPLE
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.fields.declaration import Combine, PolicyField
from contextpolicy.engine.summaries.prompts import SECTIONS
from contextpolicy.wording import join_sentences_lazy

# How the values of several policies combine. For a list, the help text states it.
COMBINED: Mapping[Combine, StrOrPromise] = {
    "min": gettext_lazy("If several policies apply, the lowest value wins."),
    "max": gettext_lazy("If several policies apply, the highest value wins."),
}
# The choices that are looked up, by the name in the declaration.
CHOICES: Mapping[str, Callable[[], Choices]] = {
    "strategies": choices.list_strategy_choices,
    "history_providers": choices.list_history_provider_choices,
    "summarisers": choices.list_summariser_choices,
    "models": choices.list_model_choices,
    "providers": choices.list_provider_choices,
    "file_kinds": choices.list_file_kind_choices,
    "skills": choices.list_skill_choices,
    "tools": choices.list_tool_choices,
}
# The fields that are edited as lines, by the widget in the declaration.
LINES: Mapping[str, Callable[[StrOrPromise, StrOrPromise], LinesField]] = {
    "state_schema": build_schema_field,
    "tool_rules": build_tool_rules_field,
    "headings": build_headings_field,
}
# The values in help texts, by widget. Other texts name only the notation for no text.
IN_HELP_TEXTS: Mapping[str, Mapping[str, str]] = {
    "": {"no_text": NO_TEXT},
    "state_schema": {"example": STATE_EXAMPLE, "none": NONE},
    "tool_rules": {"example": RULE_EXAMPLE, "none": NONE},
    "headings": {"built_in": BUILT_IN, "headings": ", ".join(SECTIONS)},
}


class PolicyInputs(forms.Form):
    """The form fields of all declared policy fields."""


def build_policy_inputs() -> dict[str, forms.Field]:
    """Return a form field and a lock for each declared field, in the order of the form."""
    found: dict[str, forms.Field] = {}
    for name, declared in FIELDS.items():
        if declared.group:
            found[name] = build_policy_input(declared)
            found[f"lock_{name}"] = build_lock_field()
    return found


def build_policy_input(declared: PolicyField) -> forms.Field:
    """Return the form field of a declared field."""
    label, text = gettext_lazy(declared.label), build_help_text(declared)
    if declared.widget:
        return LINES[declared.widget](label, text)
    if declared.kind == "text" and not declared.choices:
        widget = build_textarea(declared.rows) if declared.rows else forms.TextInput()
        return WordsField(label=label, help_text=text, max_length=declared.longest, widget=widget)
    if declared.kind == "yes_no":
        return build_yes_no_field(label, text)
    if declared.kind == "share":
        return build_percent_field(label, text, "0.01" if declared.smallest else "0")
    if declared.kind == "integer":
        has_zero = declared.is_optional and not declared.refuses_zero
        return build_integer_field(label, text, 0 if has_zero else declared.smallest)
    if declared.kind == "names":
        return build_multiple_choice_field(label, text, list_declared_choices(declared))
    return build_choice_field(label, text, list_declared_choices(declared))


def build_help_text(declared: PolicyField) -> StrOrPromise:
    """Return the help text, how several policies combine, and the meaning of an empty field."""
    combined = COMBINED.get(declared.combine, "")
    empty = gettext_lazy(declared.empty) if declared.empty else ""
    return join_sentences_lazy(build_meaning(declared), combined, empty)


def build_meaning(declared: PolicyField) -> StrOrPromise:
    """Return the declared help text with its values."""
    return format_lazy(gettext_lazy(declared.help_text), **IN_HELP_TEXTS[declared.widget])


def list_declared_choices(declared: PolicyField) -> Choices | Callable[[], Choices]:
    """Return the values of a field with their names, or the function that loads them."""
    if declared.choices:
        return CHOICES[declared.choices]
    named: Choices = [(value, gettext_lazy(label)) for value, label in declared.labels.items()]
    return [*named, choices.NONE_OF_THEM] if declared.kind == "names" else [UNSET, *named]


# The metaclass of forms takes fields from the body of a class only.
PolicyInputs.declared_fields.update(build_policy_inputs())
