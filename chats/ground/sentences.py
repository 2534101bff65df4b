"""Sentences with values that are stored in English and shown in each reader's language."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext

from chats.ground.renamed_sentences import WHOLE, find_current_template
from chats.ground.texts import sanitise_text, sanitise_value
from contextpolicy.wording import join_items


class Sentence(Promise):
    """A sentence with values, shown in the reader's language.

    `template` is lazy or marked with `gettext_noop`. Lazy values are translated too, and lists are
    joined. Other values are inserted unchanged.
    """

    def __init__(self, template: str | Promise, /, **values: Any) -> None:
        self._template = template
        self.values = values

    @property
    def template(self) -> str:
        """The English text with placeholders, which is also the key of its translations."""
        return render_english(self._template)

    def __str__(self) -> str:
        shown = {name: _translate_value(value) for name, value in self.values.items()}
        return gettext(self.template).format(**shown)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def render_english(sentence: str | Promise) -> str:
    """Return the English text of a sentence, for a row or a log."""
    if isinstance(sentence, str):
        return sentence
    with translation.override(settings.LANGUAGE_CODE):
        return str(sentence)


def build_sentence_columns(sentence: str | Promise, *, longest: int) -> tuple[str, dict[str, Any]]:
    """Return the columns of a stored sentence: English text, and template with values as JSON.

    The JSON is empty for a sentence without values. A sentence of more than `longest` characters is
    truncated, and its JSON is then empty too.
    """
    text = sanitise_text(render_english(sentence))
    if not isinstance(sentence, Sentence) or len(text) > longest:
        return text[:longest], {}
    return text, sanitise_value(_serialize_value(sentence))


def localize_sentence(stored: str, values: Mapping[str, Any] | None) -> str:
    """Return a stored sentence in the active language. Renamed sentences get their new wording.

    Without values, the translation of `stored` itself is used. If the values cannot be read, the
    sentence stays in English.
    """
    if not stored:
        return ""
    if not values or values == {"template": WHOLE, "values": {"reason": stored}}:
        return gettext(find_current_template(stored))
    try:
        return str(_parse_value(values))
    except (LookupError, TypeError, ValueError, AttributeError):
        # Values of another version: the stored sentence is complete.
        return stored


def _translate_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return join_items(map(str, value))
    return str(value) if isinstance(value, Promise) else value


def _serialize_value(value: Any) -> Any:
    if isinstance(value, Sentence):
        values = {name: _serialize_value(each) for name, each in value.values.items()}
        return {"template": value.template, "values": values}
    if isinstance(value, Promise):
        return {"template": render_english(value), "values": {}}
    if isinstance(value, list | tuple):
        return [_serialize_value(each) for each in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _parse_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        values = {name: _parse_value(each) for name, each in value["values"].items()}
        return Sentence(find_current_template(value["template"]), **values)
    if isinstance(value, list):
        return [_parse_value(each) for each in value]
    return value
