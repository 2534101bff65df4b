"""A catalogue that marks each text instead of translating it.

Tests of translation then need neither the wording of the product nor that of a catalogue: the
marked form of a sentence shows that exactly this text was looked up, when, and in which language.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

from django.utils.functional import Promise
from django.utils.translation import trans_real

from chats.ground.sentences import Sentence, render_english

LANGUAGE = "zh-hans"


def mark(text: str) -> str:
    """Return the translation of a text in the marked catalogue."""
    return f"「{text}」"


class MarkedCatalogue(Mapping[Any, str]):
    """Has a translation for every text; plural forms are keyed by (text, form)."""

    def __getitem__(self, key: Any) -> str:
        return mark(key[0] if isinstance(key, tuple) else key)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


@contextmanager
def use_marked_catalogue() -> Iterator[None]:
    """Put the marked catalogue before that of Chinese."""
    catalogue = cast(Any, trans_real.translation(LANGUAGE))._catalog
    with (
        mock.patch.object(catalogue, "_catalogs", [MarkedCatalogue(), *catalogue._catalogs]),
        mock.patch.object(catalogue, "_plurals", [lambda _: 0, *catalogue._plurals]),
    ):
        yield


def render_marked(sentence: Any) -> Any:
    """Return a sentence with every translatable part marked; texts of people are unchanged."""
    if isinstance(sentence, Sentence):
        values = {name: render_marked(value) for name, value in sentence.values.items()}
        return mark(sentence.template).format(**values)
    return mark(render_english(sentence)) if isinstance(sentence, Promise) else sentence
