"""Builds form fields for the configs of package strategies, from their JSON Schemas.

When the policy is saved, the schema validates the config; the fields do not.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.translation import gettext

from chats.admin.policies.form_fields import (
    UNSET,
    Choices,
    WordsField,
    build_choice_field,
    build_textarea,
    build_yes_no_field,
)
from chats.admin.policies.form_values import YES_OR_NO, is_empty
from chats.ground.form_fields import JSONTextField
from chats.ground.texts import sanitise_value
from contextpolicy import plugins
from contextpolicy.engine.strict_json import has_more_levels
from contextpolicy.import_json import CANNOT_BE_STORED, MOST_LEVELS, describe_level_limit

# The key of the whole config, if its schema names no properties.
WHOLE = ""
# Maximum levels of a JSON field. An exported policy has three more levels around it.
CONFIG_LEVELS = MOST_LEVELS - 3


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One property of a strategy's config: its form field, its parser and its formatter."""

    name: str
    strategy: str
    key: str
    make: Callable[[], forms.Field]
    read: Callable[[Any], Any]
    show: Callable[[Any], Any]


class ConfigJSONField(JSONTextField):
    """A field for a JSON value in a config. Accepts only values that databases can store."""

    def validate(self, value: Any) -> None:
        """Raise ValidationError for too many levels, NUL, a lone surrogate, NaN or infinity."""
        super().validate(value)
        if has_more_levels(value, limit=CONFIG_LEVELS):
            raise forms.ValidationError(describe_level_limit(CONFIG_LEVELS), code="too_deep")
        if sanitise_value(value) != value:
            raise forms.ValidationError(str(CANNOT_BE_STORED), code="not_storable")


class ObjectField(ConfigJSONField):
    def validate(self, value: Any) -> None:
        """Raise ValidationError if the config is not an object."""
        super().validate(value)
        if value is not None and not isinstance(value, dict):
            raise forms.ValidationError(
                gettext('Enter the config as a JSON object, such as {"name": value}.'),
                code="no_object",
            )


def list_config_fields() -> list[ConfigField]:
    """Return the fields of all installed strategies with a config, in schema order."""
    return [
        field
        for strategy, plugin in plugins.load_strategy_plugins().found.items()
        for field in build_strategy_fields(strategy, plugin.config_schema)
    ]


def build_strategy_fields(strategy: str, schema: Mapping[str, Any]) -> Iterator[ConfigField]:
    """Yield a field for each property, or one for the whole config if none is declared."""
    properties = schema.get("properties") or {}
    for key, fact in properties.items():
        yield _field(strategy, key, fact if isinstance(fact, Mapping) else {})
    if not properties and schema.get("additionalProperties") is not False:
        yield _field(strategy, WHOLE, {"title": gettext("Config"), "type": "object"})


def read_config(
    strategy: str, cleaned: Mapping[str, Any], *, stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a strategy's config from a form. Keeps `stored` properties that have no field."""
    fields = [field for field in list_config_fields() if field.strategy == strategy]
    shown = {field.key for field in fields}
    config = {} if WHOLE in shown else {k: v for k, v in stored.items() if k not in shown}
    for field in fields:
        value = cleaned.get(field.name)
        if is_empty(value):
            continue
        if field.key == WHOLE:
            config |= dict(value or {})
        else:
            config[field.key] = field.read(value)
    return config


def build_initial_config(strategy: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial form values of a strategy's config fields, by field name."""
    found = {}
    for field in list_config_fields():
        if field.strategy == strategy and field.key == WHOLE:
            found[field.name] = dict(config) or None
        elif field.strategy == strategy and field.key in config:
            found[field.name] = field.show(config[field.key])
    return found


def find_error_field(strategy: str, sentence: str) -> str:
    """Return the name of the field to which an error message refers.

    If it refers to none, this is the field of the strategy.
    """
    for field in list_config_fields():
        if field.strategy == strategy and (field.key == WHOLE or repr(field.key) in sentence):
            return field.name
    return "strategy"


def _field(strategy: str, key: str, fact: Mapping[str, Any]) -> ConfigField:
    name = re.sub(r"\W", "_", f"config__{strategy}__{key or 'whole'}")
    label = str(fact.get("title") or key.replace("_", " ").capitalize())
    texts = [str(fact["description"])] if "description" in fact else []
    if "default" in fact:
        texts.append(gettext("Default: {value}.").format(value=_word(fact["default"])))
    make, read, show = _kind(fact, label, " ".join(texts))
    return ConfigField(name, strategy, key, make, read, show)


def _kind(
    fact: Mapping[str, Any], label: str, help_text: str
) -> tuple[Callable[[], forms.Field], Callable[[Any], Any], Callable[[Any], Any]]:
    kind = fact.get("type")
    options: dict[str, Any] = {"label": label, "help_text": help_text}
    if isinstance(fact.get("enum"), list):
        choices: Choices = [UNSET, *((json.dumps(value), _word(value)) for value in fact["enum"])]
        return (lambda: build_choice_field(label, help_text, choices)), json.loads, json.dumps
    if kind == "boolean":
        return (
            (lambda: build_yes_no_field(label, help_text)),
            (lambda said: said == "yes"),
            YES_OR_NO.get,
        )
    if kind in ("integer", "number"):
        number = forms.IntegerField if kind == "integer" else forms.FloatField
        widget = forms.NumberInput(
            attrs={
                short: fact[long]
                for short, long in (("min", "minimum"), ("max", "maximum"))
                if long in fact
            }
        )
        return (lambda: number(required=False, widget=widget, **options)), _same, _same
    if kind == "string":
        return (lambda: WordsField(**options)), _same, _same
    if kind == "array" and fact.get("items") == {"type": "string"}:
        options["help_text"] = " ".join([help_text, gettext("Enter one value per line.")]).strip()
        return (
            (lambda: WordsField(widget=build_textarea(3), **options)),
            (lambda said: [line for line in said.split("\n") if line.strip()]),
            "\n".join,
        )
    options["help_text"] = " ".join([help_text, gettext("Enter the value as JSON.")]).strip()
    json_field = ObjectField if kind == "object" else ConfigJSONField
    return (lambda: json_field(required=False, widget=build_textarea(3), **options)), _same, _same


def _same(value: Any) -> Any:
    return value


def _word(value: object) -> str:
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    return value if isinstance(value, str) else json.dumps(value)
