"""The form fields of the administration's policy editor."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django import forms

from contextpolicy.admin.written import (
    LinesRefused,
    headings_from,
    headings_text,
    rules_from,
    rules_text,
    schema_from,
    schema_text,
)

UNSET = ("", "not set")
Choices = list[tuple[str, str]]
# Help texts on limits: how several policies combine, and what 0 means.
LOWEST = "Of several policies the lowest value counts."
NO_LIMIT = "0: this policy sets no limit."
NO_OTHERS = "0: none, as far as this policy goes."


def lock() -> forms.BooleanField:
    """Make the box beside a field."""
    return forms.BooleanField(label="Locked", required=False)


def number(label: str, text: str, smallest: int = 0) -> forms.IntegerField:
    """Make a field for a whole number."""
    return forms.IntegerField(
        label=label, help_text=text, required=False, min_value=smallest, max_value=100_000_000
    )


def percent(label: str, text: str, smallest: str = "0.01") -> forms.DecimalField:
    """Make a field for a share of the prompt limit."""
    return PercentField(
        label=label, help_text=text, required=False, min_value=Decimal(smallest), max_value=100
    )


def choice(label: str, text: str, choices: Choices | Callable[[], Choices]) -> forms.ChoiceField:
    """Make a field for one of several values, or none."""
    return forms.ChoiceField(label=label, help_text=text, required=False, choices=choices)


def yes_or_no(label: str, text: str) -> forms.ChoiceField:
    """Make a field for yes, no, or nothing."""
    return choice(label, text, [UNSET, ("yes", "Yes"), ("no", "No")])


def several(label: str, text: str, choices: Choices | Callable[[], Choices]) -> forms.Field:
    """Make a field for any number of several values."""
    return forms.MultipleChoiceField(
        label=label,
        help_text=text,
        required=False,
        choices=choices,
        widget=forms.CheckboxSelectMultiple,
    )


def text_area(rows: int) -> forms.Textarea:
    """Make a box for a text of several lines."""
    return forms.Textarea(attrs={"rows": rows, "cols": 80})


class PercentField(forms.DecimalField):
    """A percentage with any number of places."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare by value: what is stored is a number, what is sent a text."""
        return super().has_changed(None if initial is None else Decimal(initial), data)


class WordsField(forms.CharField):
    """A text as it was written: spaces stay, line ends are those of the store."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, strip=False, **options)

    def to_python(self, value: Any) -> str:
        """Use line feeds, whatever the browser sends."""
        text: str = super().to_python(value) or ""
        return text.replace("\r\n", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare without regard to line ends."""
        return super().has_changed(self.to_python(initial), data)


class LinesField(forms.Field):
    """A structured value that is written as lines; empty: the policy says nothing."""

    def __init__(
        self,
        *,
        write: Callable[[Any], str],
        read: Callable[[str], Any],
        rows: int,
        **options: Any,
    ) -> None:
        super().__init__(required=False, widget=text_area(rows), **options)
        self.write = write
        self.read = read

    def prepare_value(self, value: Any) -> Any:
        """Return the lines in the field; lines that a person typed stay as typed."""
        return value if value is None or isinstance(value, str) else self.write(value)

    def to_python(self, value: Any) -> Any:
        """Read the structured value, None if nothing was written; raises ValidationError."""
        text = str(value or "").replace("\r\n", "\n")
        if not text.strip():
            return None
        try:
            return self.read(text)
        except LinesRefused as refusal:
            raise forms.ValidationError(str(refusal), code=refusal.code) from refusal

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare by value: the same rules in other words are no change."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


def rules(label: str, text: str) -> LinesField:
    """Make a field for rules of tools, one on each line."""
    return LinesField(write=rules_text, read=rules_from, rows=4, label=label, help_text=text)


def headings(label: str, text: str) -> LinesField:
    """Make a field for the headings of a summary, one on each line."""
    return LinesField(write=headings_text, read=headings_from, rows=6, label=label, help_text=text)


def schema(label: str, text: str) -> LinesField:
    """Make a field for the form of a state, a value on each line."""
    return LinesField(write=schema_text, read=schema_from, rows=6, label=label, help_text=text)
