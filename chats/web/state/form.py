"""A form built from a JSON Schema: one control per declared field. An empty one means unknown."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext

from chats.ground.form_fields import JSONTextField
from chats.record.states import Kept
from contextpolicy.engine.strategies.entity_state import LARGEST_STATE

ONE_LINE = 200
CONTROL = "f-"
TEXT = {"class": "input", "autocomplete": "off", "dir": "auto"}


class StateForm(forms.Form):
    """The form for the declared fields of a state.

    After `is_valid`, `said` contains the values and `removed` the names of the empty fields. The
    domain validates them against the schema.
    """

    def __init__(self, kept: Kept, *, data: Any = None) -> None:
        super().__init__(data)
        self.names: dict[str, str] = {}
        for name in kept.declared:
            schema = kept.schema["properties"][name]
            declared = schema if isinstance(schema, Mapping) else {}
            key = build_control_name(name)
            self.names[key] = name
            self.fields[key] = build_state_field(name, declared, kept.values.get(name))

    @property
    def said(self) -> dict[str, Any]:
        """Submitted values of the fields that are not empty, by name."""
        given = {
            name: self.cleaned_data[key] for key, name in self.names.items() if key in self.data
        }
        return {
            name: normalise_field_value(value)
            for name, value in given.items()
            if not is_unknown(value)
        }

    @property
    def removed(self) -> list[str]:
        """Names of the fields that were submitted empty. A field that was not submitted stays."""
        said = self.said
        return [name for key, name in self.names.items() if key in self.data and name not in said]

    def list_undeclared(self) -> dict[str, str]:
        """Return the submitted texts of fields that the schema no longer declares, by name."""
        given = {parse_control_name(key): self.data[key] for key in self.data}
        return {
            name: text
            for name, text in given.items()
            if name and name not in self.names.values() and not is_unknown(text)
        }


def build_control_name(name: str) -> str:
    """Return the name of a field's control, which stays the same when the schema changes.

    Field names are an administrator's free text, so the control has the hexadecimal form.
    """
    return CONTROL + name.encode("utf-8", "surrogatepass").hex()


def parse_control_name(key: str) -> str:
    """Return the field name of a control. Empty for a name of another kind."""
    try:
        return bytes.fromhex(key.removeprefix(CONTROL)).decode() if key.startswith(CONTROL) else ""
    except ValueError:
        return ""


def build_state_field(name: str, schema: Mapping[str, Any], value: Any) -> forms.Field:
    common: dict[str, Any] = {
        "label": str(schema.get("title", name)),
        "help_text": str(schema.get("description", "")),
        "required": False,
    }
    unknown = ("", gettext("unknown"))
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list):
        return forms.TypedChoiceField(
            coerce=json.loads,
            empty_value=None,
            choices=[
                unknown,
                *((json.dumps(item), format_state_value(item)) for item in schema["enum"]),
            ],
            initial="" if value is None else json.dumps(value),
            widget=forms.Select(attrs={"class": "input"}),
            **common,
        )
    if kind == "boolean":
        return forms.TypedChoiceField(
            coerce=json.loads,
            empty_value=None,
            choices=[unknown, ("true", gettext("Yes")), ("false", gettext("No"))],
            initial="" if value is None else json.dumps(value),
            widget=forms.Select(attrs={"class": "input"}),
            **common,
        )
    if kind in {"integer", "number"}:
        number = forms.IntegerField if kind == "integer" else forms.FloatField
        attrs = {"class": "input", "autocomplete": "off"}
        return number(initial=value, widget=forms.NumberInput(attrs=attrs), **common)
    if kind == "string" and (value is None or isinstance(value, str)):
        return build_text_field(schema, value, common)
    attrs = {**TEXT, "rows": "4", "spellcheck": "false"}
    return JSONTextField(initial=value, widget=forms.Textarea(attrs=attrs), **common)


def build_text_field(
    schema: Mapping[str, Any], value: str | None, common: Mapping[str, Any]
) -> forms.Field:
    """Return a text control: one line, several lines, or a date."""
    longest = int(schema.get("maxLength", LARGEST_STATE))
    widget: forms.Widget = forms.Textarea(attrs={**TEXT, "rows": "2"})
    if schema.get("format") == "date":
        widget = forms.DateInput(attrs={**TEXT, "type": "date"})
    elif longest <= ONE_LINE and "\n" not in (value or ""):
        widget = forms.TextInput(attrs=TEXT)
    return forms.CharField(max_length=longest, strip=False, initial=value, widget=widget, **common)


def normalise_field_value(value: Any) -> Any:
    """Convert a control's value to the value to store in the state."""
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def is_unknown(value: Any) -> bool:
    """Return True if a control is empty."""
    return value is None or (isinstance(value, str) and not value.strip())


def format_state_value(value: Any) -> str:
    """Format a value for display: text unchanged, other values as JSON."""
    if isinstance(value, bool):
        return gettext("Yes") if value else gettext("No")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse_base_version(data: Mapping[str, Any], name: str = "version") -> int:
    """Return the version that the form was based on; -1, which never exists, if missing."""
    value = str(data.get(name, ""))
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1
