"""Converts a policy's values between the store and the form."""

from dataclasses import fields as fields_of
from decimal import Decimal
from typing import Any

from django import forms

from contextpolicy.admin.written import BUILT_IN, NONE
from contextpolicy.engine.policy import PolicyValues

YES_OR_NO = {True: "yes", False: "no"}
# The form's word for an explicit empty text, which overrides a farther policy's.
NO_TEXT = "(none)"

SHARES = frozenset({"prepare_at", "compact_at", "compact_to", "reference_share"})
TEXTS = frozenset({"system_text", "question_prefix", "summary_instruction"})
# Fields of several choices that can be none of them, which is not the same as unset.
SETS = frozenset({"pinned_kinds", "skills", "allowed_models", "memory_providers"})
# Fields whose 0 in the form means "none": unlike an empty field it overrides a farther policy.
NONE_IS_ZERO = frozenset(
    item.name
    for item in fields_of(PolicyValues)
    if getattr(PolicyValues(), item.name) is None
    and item.name not in {"allowed_models", "memory_providers"}
)


def is_empty(value: object) -> bool:
    """Tell whether a field says nothing; 0 and an explicit "none" say something."""
    return value is None or value in ("", [])


def meant(name: str, value: Any) -> Any:
    """Return a form's value as policies store it."""
    if name in SHARES:
        return float(Decimal(value) / 100)
    if name in NONE_IS_ZERO and value == 0:
        return None
    if value == BUILT_IN or (name in TEXTS and value == NO_TEXT):
        return ""
    if value in ([NONE], [BUILT_IN]):
        return []
    if isinstance(getattr(PolicyValues(), name), bool):
        return value == "yes"
    return value


def shown(name: str, value: Any) -> Any:
    """Return a stored value as the form shows it."""
    if name in SHARES:
        return f"{(Decimal(str(value)) * 100).normalize():f}"
    if name in NONE_IS_ZERO and value is None:
        return 0
    if isinstance(value, bool):
        return YES_OR_NO[value]
    if name in ("summarization_model", "history_provider") and value == "":
        return BUILT_IN
    if name in TEXTS and value == "":
        return NO_TEXT
    if name == "summary_sections" and not value:
        return [BUILT_IN]
    if name in SETS and value is not None and not value:
        return [NONE]
    return value


def default_words(field: forms.Field, value: Any) -> str:
    """Say, in the words of the field, what holds when nothing is set."""
    if isinstance(field, forms.MultipleChoiceField):
        return "all" if value is None else "none"
    if isinstance(field, forms.ChoiceField):
        said = str(dict(field.widget.choices).get(value, value))
        return f"{said[:1].lower()}{said[1:]}"
    if value in ({}, NO_TEXT):
        return "none"
    return f"“{value}”"
