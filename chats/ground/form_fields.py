"""Form fields that several pages share."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput


class JSONTextField(forms.JSONField):
    """A JSON field that is empty for null, and that rejects input that is not valid JSON."""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raises ValidationError, also for deep nesting and very long numbers."""
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:
            message = self.error_messages["invalid"]
            raise ValidationError(message, code="invalid", params={"value": value}) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the input as typed. Parsing it would fail for deep nesting."""
        return InvalidJSONInput(data or "")

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show in the control; empty for null."""
        return "" if value is None else super().prepare_value(value)
