"""Joins and translates sentences for the reader's language."""

from collections.abc import Iterable
from functools import reduce

from django.utils.functional import lazy
from django.utils.translation import gettext, pgettext
from django_stubs_ext import StrOrPromise

from contextpolicy.engine.text.phrases import Phrase


def join_items(items: Iterable[StrOrPromise]) -> str:
    return pgettext("between the items of a list", ", ").join(map(str, items))


def join_sentences(*sentences: StrOrPromise) -> str:
    """Join sentences with a space, or without one in languages that use no spaces.

    Empty sentences are omitted.
    """
    both = pgettext("two sentences", "{first} {second}")
    found = [str(sentence) for sentence in sentences if sentence]
    return reduce(lambda first, second: both.format(first=first, second=second), found or [""])


def translate_phrase(sentence: str) -> str:
    """Return a phrase of the engine in the active language. Other strings are unchanged."""
    if not isinstance(sentence, Phrase):
        return sentence
    values = {
        name: translate_phrase(value) if isinstance(value, str) else value
        for name, value in sentence.values.items()
    }
    return gettext(sentence.template).format(**values)


# For help texts of forms, which are read when a page shows them.
join_sentences_lazy = lazy(join_sentences, str)
