"""The form fields of the policy editor."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy
from django_stubs_ext import StrOrPromise

from chats.admin.policies.line_formats import (
    NONE,
    LinesRefused,
    format_headings,
    format_schema_lines,
    format_tool_rules,
    parse_headings,
    parse_schema_lines,
    parse_tool_rules,
)

UNSET = ("", gettext_lazy("not set"))
Choices = list[tuple[str, StrOrPromise]]


def build_lock_field() -> forms.BooleanField:
    return forms.BooleanField(label=gettext_lazy("Locked"), required=False)


def build_integer_field(
    label: StrOrPromise, text: StrOrPromise, smallest: int = 0
) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, help_text=text, required=False, min_value=smallest, max_value=100_000_000
    )


def build_percent_field(
    label: StrOrPromise, text: StrOrPromise, smallest: str = "0.01"
) -> forms.DecimalField:
    """Build a field for a share of the prompt limit."""
    return PercentField(
        label=label, help_text=text, required=False, min_value=Decimal(smallest), max_value=100
    )


def build_choice_field(
    label: StrOrPromise, text: StrOrPromise, choices: Choices | Callable[[], Choices]
) -> forms.ChoiceField:
    """Build a field for one of several values, or unset."""
    return forms.ChoiceField(label=label, help_text=text, required=False, choices=choices)


def build_yes_no_field(label: StrOrPromise, text: StrOrPromise) -> forms.ChoiceField:
    return build_choice_field(
        label, text, [UNSET, ("yes", gettext_lazy("Yes")), ("no", gettext_lazy("No"))]
    )


def build_multiple_choice_field(
    label: StrOrPromise, text: StrOrPromise, choices: Choices | Callable[[], Choices]
) -> forms.Field:
    """Build a field for any number of choices."""
    return NamesField(
        label=label,
        help_text=text,
        required=False,
        choices=choices,
        widget=forms.CheckboxSelectMultiple,
    )


def build_textarea(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "cols": 80})


class NamesField(forms.MultipleChoiceField):
    """Several choices, or “none of them”."""

    def validate(self, value: Any) -> None:
        """Raise ValidationError if "none of them" is chosen together with other choices."""
        super().validate(value)
        if NONE in value and len(value) > 1:
            raise forms.ValidationError(
                gettext("Choose values or “None of these”, not both."), code="none_with_others"
            )


class AllowListField(NamesField):
    """An allow-list of names. An empty selection becomes None: all names are allowed."""

    @staticmethod
    def prepare_list(names: Sequence[str] | None) -> list[str]:
        """Return the choices that represent a stored list."""
        return [NONE] if names is not None and not names else list(names or ())

    def clean(self, value: Any) -> list[str] | None:
        """Return the chosen names: empty for "None of these", None if nothing is chosen."""
        names = super().clean(value)
        return [name for name in names if name != NONE] if names else None


class PercentField(forms.DecimalField):
    """A percentage with any number of decimal places."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return True if the number differs. Stored numbers are submitted as strings."""
        return super().has_changed(None if initial is None else Decimal(initial), data)


class WordsField(forms.CharField):
    """A text field that preserves spaces. Line breaks become line feeds, as in the database."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, strip=False, **options)

    def to_python(self, value: Any) -> str:
        """Convert the browser's line breaks to line feeds."""
        text: str = super().to_python(value) or ""
        return text.replace("\r\n", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return True if the text differs, ignoring the style of line breaks."""
        return super().has_changed(self.to_python(initial), data)


class LinesField(forms.Field):
    """A structured value edited as lines. Empty: the policy does not set it."""

    def __init__(
        self,
        *,
        write: Callable[[Any], str],
        read: Callable[[str], Any],
        rows: int,
        **options: Any,
    ) -> None:
        super().__init__(required=False, widget=build_textarea(rows), **options)
        self.write = write
        self.read = read

    def prepare_value(self, value: Any) -> Any:
        """Return the lines for the field. Submitted lines are unchanged."""
        return value if value is None or isinstance(value, str) else self.write(value)

    def to_python(self, value: Any) -> Any:
        """Parse the lines, None if there are none. Raises ValidationError for an invalid line."""
        text = str(value or "").replace("\r\n", "\n")
        if not text.strip():
            return None
        try:
            return self.read(text)
        except LinesRefused as refusal:
            raise forms.ValidationError(str(refusal), code=refusal.code) from refusal

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return True if the parsed value differs. A different notation of it is not a change."""
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


def build_tool_rules_field(label: StrOrPromise, text: StrOrPromise) -> LinesField:
    return LinesField(
        write=format_tool_rules, read=parse_tool_rules, rows=4, label=label, help_text=text
    )


def build_headings_field(label: StrOrPromise, text: StrOrPromise) -> LinesField:
    """Build a field for the headings of a summary, one per line."""
    return LinesField(
        write=format_headings, read=parse_headings, rows=6, label=label, help_text=text
    )


def build_schema_field(label: StrOrPromise, text: StrOrPromise) -> LinesField:
    """Build a field for the schema of a state, one value per line."""
    return LinesField(
        write=format_schema_lines, read=parse_schema_lines, rows=6, label=label, help_text=text
    )
