"""Reads a question: the words that are looked for, the days that it names, what is ignored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from chats.memory.days import Range, days_named
from chats.memory.words import Word, spans, stops

# The characters and the telling words that are read of one question.
MOST_CHARACTERS = 2_000
MOST_WORDS = 32
# With the parts of camelCase and the pieces of scripts without spaces.
MOST_PIECES = 128
# A beginning is looked for from so many characters on; of Thai, whose words are pieces of three,
# from two.
SHORTEST_BEGINNING = 2
# What people say to each other tells of nothing by itself.
_GREETED = """
    hi hello hey hallo bonjour hola ciao salut thanks thank thx danke merci gracias please bitte ok
    okay yes no yeah nope bye goodbye morning evening good great nice cool test
    привет спасибо здравствуйте да нет 你好 您好 谢谢 谢 好的 こんにちは ありがとう はい 안녕
    안녕하세요 감사합니다 네 สวัสดี ขอบคุณ مرحبا شكرا سلام नमस्ते धन्यवाद
"""
_GREETINGS = frozenset(_GREETED.split())
# The words with which people speak of themselves; then those of scripts that do not part words by
# spaces, or whose vowel signs are no letters here.
_ONESELF = """
    i me my mine myself we our ours ich mich mir mein meine meinen meinem meiner meines wir unser
    unsere unseren unserem unserer je j moi mon ma mes nous notre nos yo mi mis mío mía nosotros
    nuestro nuestra io mio mia miei mie noi nostro nostra eu meu minha meus minhas ik mij mijn
    я мне меня мной мой моя моё мое мои моей моего моих мы нас нам наш наша наши
    나 나는 내 내가 나의 저 저는 제 제가 우리 أنا لي
"""
_OF_ONESELF = frozenset(_ONESELF.split())
_IN_WORDS = re.compile("[我咱私僕俺]|ฉัน|ผม|मैं|मेर|मुझ")
_LETTERS = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A question as it is looked for.

    `telling`: its stems, each with the places where it stands; `full` its full words, grammar
    included; `beginning` the start of its last word while somebody is typing it.
    """

    text: str
    telling: Mapping[str, Sequence[tuple[int, int]]]
    full: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    beginning: str
    days: Sequence[Range]
    ignored: Sequence[str]
    # The person asks about themselves.
    is_of_oneself: bool = False
    # Its words as they may be of a name.
    names: frozenset[str] = frozenset()

    def units(self, shared: Sequence[str]) -> list[str]:
        """Return the words of the question, as they were written, that a text shares with it.

        Overlapping pieces are one word; greetings are none.
        """
        places = [place for stem in shared for place in self.telling.get(stem, ())]
        taken: list[tuple[int, int]] = []
        for first, last in sorted(places, key=lambda place: (place[0] - place[1], place[0])):
            if all(last <= start or first >= end for start, end in taken):
                taken.append((first, last))
        written = [self.text[first:last] for first, last in sorted(taken)]
        return list(dict.fromkeys(written))


def asked_in(text: str, *, at: datetime, is_typed: bool = False) -> ParsedQuestion:
    """Return the question as it is looked for; `is_typed`: its last word may be a beginning."""
    text = text.replace("\x00", " ")[:MOST_CHARACTERS]
    found = spans(text)
    kept: dict[str, list[tuple[int, int]]] = {}
    ignored: dict[str, None] = {}
    number = end = 0
    for word in told(found):
        is_part = word.start < end
        if word.stem not in kept:
            number += not is_part
            if number > MOST_WORDS or len(kept) >= MOST_PIECES:
                if not is_part:
                    ignored[text[word.start : word.end]] = None
                end = max(end, word.end)
                continue
        end = max(end, word.end)
        kept.setdefault(word.stem, []).append((word.start, word.end))
    return ParsedQuestion(
        text=text,
        telling=kept,
        full=list(dict.fromkeys(word.full for word in found if word.full))[: 2 * MOST_WORDS],
        pairs=[pair for pair in pairs_of(found) if kept.keys() & set(pair)],
        beginning=beginning_of(found, text) if is_typed else "",
        days=days_named(text, at=at),
        ignored=list(ignored),
        is_of_oneself=is_of_oneself(text),
        names=frozenset(name_of(word, text) for word in found if word.full),
    )


def name_of(word: Word, text: str) -> str:
    """Return a word of a text as it may be of a name: *Ann* where *Ann's* is written."""
    is_possessive = _POSSESSIVE.search(text[word.start : word.end]) is not None
    return word.full.removesuffix("s") if is_possessive else word.full


def is_of_oneself(text: str) -> bool:
    """Tell whether somebody asks about themselves: they say *I*, *my* or the like."""
    said = {run[0].casefold() for run in _LETTERS.finditer(text)}
    return not said.isdisjoint(_OF_ONESELF) or _IN_WORDS.search(text) is not None


def told(found: Sequence[Word]) -> Sequence[Word]:
    """Return the telling words; all where nothing else is left."""
    telling = [word for word in found if word.stem not in stops()]
    return telling or found


def pairs_of(found: Sequence[Word]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of words that follow each other and are not both grammar."""
    for first, second in pairwise(found):
        if not {first.stem, second.stem} <= stops() and first.end <= second.start:
            yield first.stem, second.stem


def beginning_of(found: Sequence[Word], text: str) -> str:
    """Return the full form of the last word while it is being typed; else the empty text."""
    whole = [word for word in found if word.full]
    if not whole or whole[-1].end < len(text) or len(whole[-1].full) < SHORTEST_BEGINNING:
        return ""
    return whole[-1].full


def without_greetings(text: str) -> str:
    """Return the text with blanks in place of words that only greet."""
    return _LETTERS.sub(
        lambda run: " " * len(run[0]) if run[0].casefold() in _GREETINGS else run[0], text
    )
