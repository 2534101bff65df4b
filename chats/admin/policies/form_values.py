"""Converts a policy's values between the store and the form."""

from decimal import Decimal
from typing import Any

from django import forms
from django.utils.translation import gettext

from chats.admin.policies.line_formats import BUILT_IN, NONE
from contextpolicy.engine.policy.fields import FIELDS

YES_OR_NO = {True: "yes", False: "no"}
# The form's notation for an explicitly empty text, which overrides a farther policy's.
NO_TEXT = "(none)"

SHARES = frozenset(name for name, declared in FIELDS.items() if declared.kind == "share")
YES_OR_NO_FIELDS = frozenset(name for name, declared in FIELDS.items() if declared.kind == "yes_no")
# Texts that are typed, and texts that are chosen and can be built in.
TEXTS = frozenset(
    name for name, declared in FIELDS.items() if declared.kind == "text" and not declared.choices
)
BUILT_IN_CHOICES = frozenset(
    name for name, declared in FIELDS.items() if declared.choices and declared.default == ""
)
# Multiple-choice fields that can be set to "none", which differs from unset.
SETS = frozenset(
    name for name, declared in FIELDS.items() if declared.kind == "names" and not declared.widget
)
# Fields whose 0 means "none" in the form. Unlike an empty field, it overrides a farther policy.
NONE_IS_ZERO = frozenset(
    name
    for name, declared in FIELDS.items()
    if declared.kind == "integer" and declared.is_optional and not declared.refuses_zero
)


def is_empty(value: object) -> bool:
    """Return True if a field is unset; 0 and an explicit "none" are set."""
    return value is None or value in ("", [])


def parse_form_value(name: str, value: Any) -> Any:
    if name in SHARES:
        return float(Decimal(value) / 100)
    if name in NONE_IS_ZERO and value == 0:
        return None
    if value == BUILT_IN or (name in TEXTS and value == NO_TEXT):
        return ""
    if value in ([NONE], [BUILT_IN]):
        return []
    if name in YES_OR_NO_FIELDS:
        return value == "yes"
    return value


def format_form_value(name: str, value: Any) -> Any:
    if name in SHARES:
        return f"{(Decimal(str(value)) * 100).normalize():f}"
    if name in NONE_IS_ZERO and value is None:
        return 0
    if isinstance(value, bool):
        return YES_OR_NO[value]
    if name in BUILT_IN_CHOICES and value == "":
        return BUILT_IN
    if name in TEXTS and value == "":
        return NO_TEXT
    if name == "summary_sections" and not value:
        return [BUILT_IN]
    if name in SETS and value is not None and not value:
        return [NONE]
    return value


def describe_default_value(field: forms.Field, value: Any) -> str:
    if isinstance(field, forms.MultipleChoiceField):
        return gettext("all") if value is None else gettext("none")
    if isinstance(field, forms.ChoiceField):
        text = str(dict(field.widget.choices).get(value, value))
        return f"{text[:1].lower()}{text[1:]}"
    if value in ({}, NO_TEXT):
        return gettext("none")
    return gettext("“{value}”").format(value=value)
