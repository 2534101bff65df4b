"""Sentences about a policy, made of text and figures. Each figure refers to the field that sets it.

A sentence is one message for translators. `{names}` stand for figures, or for amounts with their
unit; words in [brackets] become the figure of the field that the sentence is about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import ngettext

from contextpolicy.engine.policy.policy import PolicyValues


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in a sentence, and the field that sets it.

    `of` identifies the figure, so that the figures of two versions can be compared.
    """

    text: str
    field: str
    of: str


Pieces = Sequence[str | Figure]
PLACES = re.compile(r"\{(\w+)\}|\[([^\[\]]+)\]")


def fill_sentence(words: str, *, about: str = "", **figures: Figure | Pieces) -> Pieces:
    """Replace each `{name}` in a sentence with its figure.

    Words in brackets become a figure of the field `about`. A user's own text is always a figure.
    """
    pieces: list[str | Figure] = []
    end = 0
    for place in PLACES.finditer(words):
        pieces.append(words[end : place.start()])
        figure = figures[place[1]] if place[1] else build_words(about, place[2])
        pieces += [figure] if isinstance(figure, Figure) else figure
        end = place.end()
    return [*pieces, words[end:]]


def build_number(field: str, number: int, *, of: str = "") -> Figure:
    return Figure(f"{number:,}", field, of or field)


def build_words(field: str, words: str) -> Figure:
    return Figure(words, field, field)


def build_tokens(field: str, number: int, *, of: str = "") -> Pieces:
    return fill_sentence(
        ngettext("{n} token", "{n} tokens", number), n=build_number(field, number, of=of)
    )


def build_messages(field: str, number: int) -> Pieces:
    return fill_sentence(
        ngettext("{n} message", "{n} messages", number), n=build_number(field, number)
    )


def build_turns(field: str, number: int) -> Pieces:
    words = ngettext("{n} turn", "{n} turns", number)
    return fill_sentence(words, n=build_number(field, number))


def build_mark(values: PolicyValues, name: str, tokens: int) -> Pieces:
    """Return a threshold in tokens, as a figure of the field that sets it.

    This is the field for the number of tokens if it applies, otherwise the field for the
    percentage.
    """
    in_tokens = f"{name}_tokens"
    is_absolute = getattr(values, in_tokens) == tokens
    return build_tokens(in_tokens if is_absolute else name, tokens, of=name)
