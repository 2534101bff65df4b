"""Describes the values, fields and changes of the policy form in words."""

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy

from chats.admin.policies.description import build_description_parts
from chats.admin.policies.display_values import format_stored_value
from chats.admin.policies.figures import Figure
from chats.admin.policies.form_values import describe_default_value, format_form_value, is_empty
from chats.admin.policies.policy_form import PolicyForm
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.prompts import SECTIONS
from contextpolicy.linter.lint import read_whole
from contextpolicy.wording import join_items

# With ASCII word boundaries: a name may follow a Chinese character.
NAMES = re.compile(
    rf"\b({'|'.join(sorted(PolicyValues().to_json(), key=len, reverse=True))})\b", re.ASCII
)
# Field names that are also words. Only longer names are certain to mean a field.
ALSO_WORDS = frozenset(name for name in PolicyValues().to_json() if "_" not in name)
# Longer values are not repeated next to their field.
LONGEST_WAS = 60
NOT_SET = gettext_lazy("was not set")
NO_ROOM = gettext_lazy(
    "These values leave no room for a prompt. Raise the token budget, or reserve fewer tokens "
    "for the reply."
)
# A figure that differs from the saved version: its field, the saved value, and its text.
FIGURE_CHANGED = '<a class="policy-figure is-changed" href="#id_{}" title="{}">{}'


def get_form_field_label(form: PolicyForm, name: str) -> str:
    return str(form.fields[name].label) if name in form.fields else name


def describe_field_value(form: PolicyForm, name: str, value: object) -> str:
    if value is None:
        return format_stored_value(name, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{format_form_value(name, value)} %"
    if name == "summary_sections":
        return join_items(cast("tuple[str, ...]", value) or SECTIONS)
    if isinstance(value, tuple):
        return join_items(value) or gettext("none")
    if isinstance(value, dict) and value:
        return format_stored_value(name, value)
    return describe_default_value(form.fields[name], format_form_value(name, value))


def convert_list_to_tuple(value: object) -> object:
    """Return a list as a tuple, the type that the engine uses."""
    return tuple(value) if isinstance(value, list) else value


def link_field_names(form: PolicyForm, sentence: str) -> SafeString:
    """Replace each field name in a sentence with its label, linked to the field."""
    pieces = NAMES.split(sentence)
    return format_html_join(
        "",
        "{}",
        (
            (
                format_html('<a href="#id_{}">“{}”</a>', piece, get_form_field_label(form, piece))
                if place % 2 and piece not in ALSO_WORDS and piece in form.fields
                else piece,
            )
            for place, piece in enumerate(pieces)
        ),
    ) or mark_safe("")


def describe_form_values(form: PolicyForm, values: Mapping[str, Any]) -> SafeString:
    """Describe the form's values in words. Figures link to their fields; changes are marked."""
    whole = read_whole(dict(values))
    if whole is None:
        return format_html(
            "{}",
            gettext(
                "The policy cannot be described, because a value is not valid. Correct the value."
            ),
        )
    if compute_prompt_limit(whole, model_window=None) < 1:
        return format_html("{}", NO_ROOM)
    before = load_saved_figures(form)
    return format_html_join(
        "",
        "{}",
        (
            (format_figure_link(form, each, before) if isinstance(each, Figure) else each,)
            for each in build_description_parts(whole)
        ),
    )


def load_saved_figures(form: PolicyForm) -> dict[str, str] | None:
    """Return the figures of the saved version. None if there is none or it has no figures."""
    if form.newest is None:
        return None
    whole = read_whole(form.newest.values)
    if whole is None or compute_prompt_limit(whole, model_window=None) < 1:
        return None
    return {
        each.of: each.text for each in build_description_parts(whole) if isinstance(each, Figure)
    }


def format_figure_link(
    form: PolicyForm, figure: Figure, before: Mapping[str, str] | None
) -> SafeString:
    """Return a figure as a link to its field, with the saved version's value if different."""
    if figure.field not in form.fields:
        return format_html("{}", figure.text)
    if before is None or before.get(figure.of) == figure.text:
        return format_html(
            '<a class="policy-figure" href="#id_{}">{}</a>', figure.field, figure.text
        )
    was = gettext("new")
    if figure.of in before:
        was = gettext("was {value}").format(value=before[figure.of])
    return format_html(
        f'{FIGURE_CHANGED}<span class="visually-hidden"> ({{}})</span></a>',
        figure.field,
        was,
        figure.text,
        was,
    )


def describe_saved_value(
    form: PolicyForm, name: str, values: Mapping[str, Any], locks: Collection[str]
) -> str:
    """Describe a field's value in the saved version; empty if value and lock are unchanged."""
    saved = form.newest
    if saved is None:
        return ""
    said = []
    if name.startswith("config__"):
        if form.is_bound and name in form.changed_data:
            said.append(describe_previous_value(form, name, form.initial.get(name)))
    elif (name in values, values.get(name)) != (name in saved.values, saved.values.get(name)):
        is_new = name not in saved.values
        said.append(
            str(NOT_SET) if is_new else describe_previous_value(form, name, saved.values[name])
        )
    if (name in locks) != (name in saved.locks):
        was_locked = name in saved.locks
        said.append(gettext("was locked") if was_locked else gettext("was not locked"))
    return join_items(said)


def describe_previous_value(form: PolicyForm, name: str, value: object) -> str:
    """Describe a field's previous value, or return "changed" if that is long."""
    if is_empty(value) and name.startswith("config__"):
        return str(NOT_SET)
    words = describe_field_value(form, name, convert_list_to_tuple(value))
    if "\n" in words or len(words) > LONGEST_WAS:
        return gettext("changed")
    return gettext("was {value}").format(value=words)
