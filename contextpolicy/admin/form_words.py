"""Says the values, the fields and the changes of the policy form in its own words."""

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from contextpolicy.admin.plain_words import Figure, told
from contextpolicy.admin.policy_form import PolicyForm
from contextpolicy.admin.stored_values import default_words, is_empty, shown
from contextpolicy.admin.told_values import told_value
from contextpolicy.engine.budget import prompt_limit
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.prompts import SECTIONS
from contextpolicy.linter.judge import read_whole

NAMES = re.compile(rf"\b({'|'.join(sorted(PolicyValues().to_json(), key=len, reverse=True))})\b")
# Names that are words too: only the longer ones are certain to mean a field.
ALSO_WORDS = frozenset(name for name in PolicyValues().to_json() if "_" not in name)
# A longer value is not repeated beside its field.
LONGEST_WAS = 60


def label_of(form: PolicyForm, name: str) -> str:
    """Return the label of a field."""
    return str(form.fields[name].label) if name in form.fields else name


def in_words(form: PolicyForm, name: str, value: object) -> str:
    """Return a value in the words of its field."""
    if value is None:
        return told_value(name, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{shown(name, value)} %"
    if name == "summary_sections":
        return ", ".join(cast("tuple[str, ...]", value) or SECTIONS)
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, dict) and value:
        return told_value(name, value)
    return default_words(form.fields[name], shown(name, value))


def as_tuple(value: object) -> object:
    """Return a list as the engine holds it."""
    return tuple(value) if isinstance(value, list) else value


def linked(form: PolicyForm, sentence: str) -> SafeString:
    """Write a sentence with each field under its label, as a link to it."""
    pieces = NAMES.split(sentence)
    return format_html_join(
        "",
        "{}",
        (
            (
                format_html('<a href="#id_{}">“{}”</a>', piece, label_of(form, piece))
                if place % 2 and piece not in ALSO_WORDS and piece in form.fields
                else piece,
            )
            for place, piece in enumerate(pieces)
        ),
    ) or mark_safe("")


def sentence_of(form: PolicyForm, values: Mapping[str, Any]) -> SafeString:
    """Say in plain words what a form does: each figure a link to its field, the changed marked."""
    whole = read_whole(dict(values))
    if whole is None:
        return mark_safe("A value cannot be read yet.")
    if prompt_limit(whole, model_window=None) < 1:
        return mark_safe("As it is written, nothing is left for a prompt.")
    before = figures_before(form)
    return format_html_join(
        "",
        "{}",
        (
            (linked_figure(form, each, before) if isinstance(each, Figure) else each,)
            for each in told(whole)
        ),
    )


def figures_before(form: PolicyForm) -> dict[str, str] | None:
    """Return the figures of the saved version; None if there is none to compare with."""
    if form.newest is None:
        return None
    whole = read_whole(form.newest.values)
    if whole is None or prompt_limit(whole, model_window=None) < 1:
        return None
    return {each.of: each.text for each in told(whole) if isinstance(each, Figure)}


def linked_figure(form: PolicyForm, figure: Figure, before: Mapping[str, str] | None) -> SafeString:
    """Write a figure as a link to its field, with what the saved version says instead."""
    if figure.field not in form.fields:
        return format_html("{}", figure.text)
    if before is None or before.get(figure.of) == figure.text:
        return format_html(
            '<a class="policy-figure" href="#id_{}">{}</a>', figure.field, figure.text
        )
    was = f"was {before[figure.of]}" if figure.of in before else "new"
    return format_html(
        '<a class="policy-figure is-changed" href="#id_{}" title="{}">{}'
        '<span class="visually-hidden"> ({})</span></a>',
        figure.field,
        was,
        figure.text,
        was,
    )


def was_of(form: PolicyForm, name: str, values: Mapping[str, Any], locks: Collection[str]) -> str:
    """Say what the saved version has in a field instead; empty if value and lock are the same."""
    saved = form.newest
    if saved is None:
        return ""
    said = []
    if name.startswith("config__"):
        if form.is_bound and name in form.changed_data:
            said.append(before_of(form, name, form.initial.get(name)))
    elif (name in values, values.get(name)) != (name in saved.values, saved.values.get(name)):
        is_new = name not in saved.values
        said.append("was not set" if is_new else before_of(form, name, saved.values[name]))
    if (name in locks) != (name in saved.locks):
        said.append("was locked" if name in saved.locks else "was not locked")
    return ", ".join(said)


def before_of(form: PolicyForm, name: str, value: object) -> str:
    """Say what a field was before; of what is long only that it is another."""
    if is_empty(value) and name.startswith("config__"):
        return "was not set"
    words = in_words(form, name, as_tuple(value))
    return "changed" if "\n" in words or len(words) > LONGEST_WAS else f"was {words}"
