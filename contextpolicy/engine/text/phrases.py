"""English sentences that keep their template and values, so that pages can translate them."""

from collections.abc import Mapping
from typing import NamedTuple


class Phrase(str):
    """A sentence in English. `template.format(**values)` is its text."""

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> "Phrase":
        """Create the sentence from a template, marked with `gettext_noop`, and its values."""
        phrase = super().__new__(cls, template.format(**values))
        phrase.template = template
        phrase.values = values
        return phrase


def gettext_noop(template: str) -> str:
    """Mark a template for the translation catalogues. Returns it unchanged."""
    return template


class Plural(NamedTuple):
    """The singular and plural templates of a sentence."""

    one: str
    several: str


def ngettext_noop(one: str, several: str) -> Plural:
    """Mark the singular and plural templates of a sentence for the translation catalogues."""
    return Plural(one, several)
