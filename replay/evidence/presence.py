"""Decides whether a prompt contains a message that an answer requires.

A message counts if the prompt contains 60 % of its sequences of five words. It also counts if the
prompt contains sentences from it with 60 % of the answer's words, each word weighted by its rarity
in the conversation. Characters of Chinese and Japanese count as words.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHARE = 0.6
LENGTH = 5
# A character of a script without spaces, or a word.
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
SENTENCE = re.compile(r"[^.!?。！？\n]+")
DAY = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
# A day in the first characters of a line applies to the lines below it.
HEADING = 16

Sequences = set[tuple[str, ...]]


def split_lowercase_words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def build_word_sequences(words: Sequence[str]) -> Sequences:
    """Return the sequences of five words; a shorter text is one sequence."""
    length = min(LENGTH, len(words))
    return (
        {tuple(words[i : i + length]) for i in range(len(words) - length + 1)} if words else set()
    )


@dataclass(frozen=True, slots=True)
class WordRarity:
    """The rarity weight of each word: how few messages of a conversation contain it."""

    total: int
    messages: Counter[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "WordRarity":
        listed = [set(split_lowercase_words(text)) for text in texts]
        return cls(len(listed), Counter(word for words in listed for word in words))

    def weight(self, words: Iterable[str]) -> float:
        return sum(math.log(1 + self.total / (1 + self.messages[word])) for word in words)


class SearchedPrompt:
    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = list(texts)
        self.words = [split_lowercase_words(text) for text in self.texts]
        self.joined = [f" {' '.join(words)} " for words in self.words]
        self.sequences: Sequences = set().union(*map(build_word_sequences, self.words))

    def holds(self, words: Sequence[str]) -> bool:
        """Return True if one text contains the words in this order."""
        wanted = f" {' '.join(words)} "
        return any(wanted in text for text in self.joined)

    def contains(self, message: str, *, answer: str, rarity: WordRarity) -> bool:
        """Return True if the prompt contains a message, or the sentences with the answer."""
        words = split_lowercase_words(message)
        own = build_word_sequences(words)
        if len(words) < LENGTH:
            return self.holds(words)
        if len(own & self.sequences) >= SHARE * len(own):
            return True
        wanted = set(split_lowercase_words(answer))
        sentences = [split_lowercase_words(sentence) for sentence in SENTENCE.findall(message)]
        there = {
            word for some in sentences if wanted & {*some} and self.holds(some) for word in some
        }
        whole = rarity.weight(wanted)
        return whole > 0 and rarity.weight(wanted & there) >= SHARE * whole

    def of_day(self, day: str) -> "SearchedPrompt":
        """Return the lines that belong to a day, and the lines that contain it.

        A day at the beginning of a line applies to all lines below it, across messages, until a
        line begins with another day.
        """
        found: list[str] = []
        last = ""
        for text in self.texts:
            lines = list[str]()
            for line in text.splitlines():
                named = [(match[0], match.start()) for match in DAY.finditer(line)]
                if named and named[0][1] < HEADING:
                    last = named[0][0]
                if last == day or any(day == one for one, _ in named):
                    lines.append(line)
            found.append("\n".join(lines))
        return SearchedPrompt(found)
