"""English sentences that keep their template and values, so that pages can translate them."""

from collections.abc import Mapping
from typing import NamedTuple


class Phrase(str):
    """A sentence in English. `template.format(**values)` is its text."""

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> "Phrase":
        """Return the sentence with its values. The template is marked with `gettext_noop`."""
        phrase = super().__new__(cls, template.format(**values))
        phrase.template = template
        phrase.values = values
        return phrase


def gettext_noop(template: str) -> str:
    """Mark a template for the catalogues of translations. Returns it unchanged."""
    return template


class Plural(NamedTuple):
    """The templates of a sentence for one and for several."""

    one: str
    several: str


def ngettext_noop(one: str, several: str) -> Plural:
    """Mark the templates of a sentence about a number for the catalogues of translations."""
    return Plural(one, several)
