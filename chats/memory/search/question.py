"""Parses a question: the words to search for, the dates it mentions, and words to ignore."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from chats.memory.search.asking import is_question_or_request
from chats.memory.search.days import Range, parse_time_ranges
from chats.memory.search.grammar import count_topics, mentions_talk, select_topic_words
from chats.memory.search.words import Word, find_words, load_stop_words

# Maximum characters and significant words of a question.
MOST_CHARACTERS = 2_000
MOST_WORDS = 32
# Maximum number of words, including parts of camelCase words and pieces in scripts without spaces.
MOST_PIECES = 128
# Maximum number of full words, including grammar words.
MOST_FULL = 64
# Minimum characters of a prefix; two pieces for Thai, whose pieces have three characters.
SHORTEST_BEGINNING = 2
_LETTERS = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.?!;](?=\s)|[。．？！；؟\n]")
# First-person words, then those of scripts without spaces or with vowel signs that are not letters
# here.
_ONESELF = """
    i me my mine myself we our ours ich mich mir mein meine meinen meinem meiner meines wir unser
    unsere unseren unserem unserer je j moi mon ma mes nous notre nos yo mi mis mío mía nosotros
    nuestro nuestra io mio mia miei mie noi nostro nostra eu meu minha meus minhas ik mij mijn
    я мне меня мной мой моя моё мое мои моей моего моих мы нас нам наш наша наши
    나 나는 내 내가 나의 저 저는 제 제가 우리 أنا لي
"""
_OF_ONESELF = frozenset(_ONESELF.split())
_IN_WORDS = re.compile("[我咱私僕俺]|ฉัน|ผม|मैं|मेर|मुझ")
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A parsed question.

    `telling`: significant stems with their positions. `full`: full words, including grammar words.
    `beginning`: the incomplete last word of a question that is being typed.
    """

    text: str
    telling: Mapping[str, Sequence[tuple[int, int]]]
    full: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    beginning: str
    days: Sequence[Range]
    ignored: Sequence[str]
    # The user asks about themselves.
    is_of_oneself: bool = False
    # The words of the question in the form in which they may occur in names.
    names: frozenset[str] = frozenset()
    # A question or request that mentions a date, so texts of that time are searched too.
    asks_about_days: bool = False
    # The number of topic words, without dates and words about the conversation.
    topics: int = 0
    # A question about a time asks for the conversation, as in "What did we talk about yesterday?".
    asks_about_talk: bool = False

    def units(self, shared: Sequence[str]) -> list[str]:
        """Return the words of the question that also occur in a text, as written in the question.

        Overlapping pieces count as one word.
        """
        places = [place for stem in shared for place in self.telling.get(stem, ())]
        taken: list[tuple[int, int]] = []
        for first, last in sorted(places, key=lambda place: (place[0] - place[1], place[0])):
            if all(last <= start or first >= end for start, end in taken):
                taken.append((first, last))
        written = [self.text[first:last] for first, last in sorted(taken)]
        return list(dict.fromkeys(written))


def parse_question(text: str, *, at: datetime, is_typed: bool = False) -> ParsedQuestion:
    """Return the parsed question; `is_typed`: its last word may be a prefix.

    `at`: the time of the question in the time zone of the user, in which "yesterday" is meant.

    If it is longer than the limits, the sentences that ask are searched first: a question often
    follows the long text that it is about.
    """
    text = shorten_question(text.replace("\x00", " "))
    found = find_words(text)
    days = parse_time_ranges(text, at=at)
    asks_about_days = bool(days) and is_question_or_request(text)
    kept, ignored = select_searched_words(select_significant_words(found, text), text)
    return ParsedQuestion(
        text=text,
        telling=kept,
        full=list_full_words(found, kept),
        pairs=[pair for pair in list_word_pairs(found) if kept.keys() & set(pair)],
        beginning=get_typed_prefix(found, text) if is_typed else "",
        days=days,
        ignored=ignored,
        is_of_oneself=is_about_oneself(text),
        names=frozenset(strip_possessive(word, text) for word in found if word.full),
        asks_about_days=asks_about_days,
        topics=count_topics(text) if asks_about_days else 0,
        asks_about_talk=asks_about_days and mentions_talk(text),
    )


def shorten_question(text: str) -> str:
    """Return the beginning and the end of a text, together at most `MOST_CHARACTERS`."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n{text[1 - half :]}"


def select_searched_words(
    words: Sequence[Word], text: str
) -> tuple[Mapping[str, list[tuple[int, int]]], list[str]]:
    """Return the stems to search with their positions in order, and the words above the limit."""
    kept: dict[str, list[tuple[int, int]]] = {}
    ignored: list[str] = []
    number: float = 0
    for some in rank_sentences(words, text):
        end = kept_end = 0
        for word in some:
            is_part = word.start < end
            end = max(end, word.end)
            if word.stem not in kept:
                number += 0 if is_part else compute_word_share(word)
                # The parts of words within the limit are kept too.
                is_above = number > MOST_WORDS and not (is_part and word.end <= kept_end)
                if is_above or len(kept) >= MOST_PIECES:
                    if not is_part:
                        ignored.append(text[word.start : word.end])
                    continue
            kept_end = max(kept_end, word.end)
            kept.setdefault(word.stem, []).append((word.start, word.end))
    in_order = sorted((min(places), stem) for stem, places in kept.items())
    return {stem: sorted(kept[stem]) for _, stem in in_order}, list(dict.fromkeys(ignored))


def compute_word_share(word: Word) -> float:
    """Return 0.5 for a character of a script whose words have about two of them, otherwise 1."""
    return 0.5 if not word.full and word.end - word.start == 1 else 1.0


def rank_sentences(words: Sequence[Word], text: str) -> Sequence[Sequence[Word]]:
    """Return the words by sentence: first those that ask and a short first one, then the others."""
    ends = [end.end() for end in _SENTENCE_END.finditer(text)]
    bounds = [0, *ends, len(text)]
    sentences: dict[int, list[Word]] = {}
    for word in words:
        sentences.setdefault(bisect_right(ends, word.start), []).append(word)
    first = min(sentences, default=0)

    def rank(index: int) -> tuple[bool, int]:
        is_short_first = index == first and len(sentences[index]) < MOST_WORDS // 2
        asks = is_question_or_request(text[bounds[index] : bounds[index + 1]])
        return not (is_short_first or asks), index

    return [sentences[index] for index in sorted(sentences, key=rank)]


def list_full_words(
    found: Sequence[Word], kept: Mapping[str, Sequence[tuple[int, int]]]
) -> list[str]:
    """Return the full words of a question, those with a searched stem first."""
    full = [word for word in found if word.full]
    ranked = sorted(full, key=lambda word: word.stem not in kept) if len(full) > MOST_FULL else full
    return list(dict.fromkeys(word.full for word in ranked))[:MOST_FULL]


def count_question_words(text: str) -> float:
    """Return the number of words; in scripts without spaces, the number they probably have."""
    number = each = 0.0
    end = 0
    for word in find_words(text):
        if word.start >= end:
            number += compute_word_share(word)
            # Thai has about four characters a word; its next pieces add one each.
            each = 0.0 if word.full else 0.25
        elif word.end > end:
            number += each
        end = max(end, word.end)
    return number


def strip_possessive(word: Word, text: str) -> str:
    """Return a word without its possessive ending: *Ann* for *Ann's*."""
    is_possessive = _POSSESSIVE.search(text[word.start : word.end]) is not None
    return word.full.removesuffix("s") if is_possessive else word.full


def is_about_oneself(text: str) -> bool:
    """Return True if the text has first-person words, such as *I* or *my*."""
    words = {run[0].casefold() for run in _LETTERS.finditer(text)}
    return not words.isdisjoint(_OF_ONESELF) or _IN_WORDS.search(text) is not None


def select_significant_words(found: Sequence[Word], text: str) -> Sequence[Word]:
    """Return the significant words of a text; all words if none is significant."""
    return select_topic_words(found, text) or found


def list_word_pairs(found: Sequence[Word]) -> Iterator[tuple[str, str]]:
    """Yield pairs of neighbouring words that are not both grammar words."""
    for first, second in pairwise(found):
        if not {first.stem, second.stem} <= load_stop_words() and first.end <= second.start:
            yield first.stem, second.stem


def get_typed_prefix(found: Sequence[Word], text: str) -> str:
    """Return the last word if it is still being typed; otherwise empty."""
    whole = [word for word in found if word.full]
    if not whole or whole[-1].end < len(text) or len(whole[-1].full) < SHORTEST_BEGINNING:
        return ""
    return whole[-1].full
