"""Baseline prompts of the same size: a last-N window and plain BM25."""

import math
from collections import Counter
from collections.abc import Sequence

from contextpolicy.engine.messages.tokens import TokenCounter
from replay.evidence.conversations import QuestionedConversation
from replay.evidence.presence import split_lowercase_words

# The usual constants of BM25.
K1, B = 1.2, 0.75


class Baselines:
    """Baseline prompts about one conversation, each a list of texts that ends with the question."""

    def __init__(self, conversation: QuestionedConversation, *, counter: TokenCounter) -> None:
        self.counter = counter
        self.messages = conversation.messages
        self.texts = [
            f"{one.name}: {one.text}" if one.name else one.text for one in conversation.messages
        ]
        # Each message with its day, as most products show retrieved messages.
        self.dated = [
            f"({one.at:%Y-%m-%d}) {text}"
            for one, text in zip(conversation.messages, self.texts, strict=True)
        ]
        self.plain_tokens = [counter.count(text) for text in self.texts]
        self.dated_tokens = [counter.count(text) for text in self.dated]
        self.words = [Counter(split_lowercase_words(text)) for text in self.texts]
        self.lengths = [words.total() for words in self.words]
        self.mean = sum(self.lengths) / max(len(self.lengths), 1)
        self.holders = Counter(word for words in self.words for word in words)

    def last_window(self, question: str, *, limit: int, before: int | None = None) -> list[str]:
        """Return the newest messages that fit the limit, in order, then the question.

        With `before`, only messages before this index are used.
        """
        before = len(self.texts) if before is None else before
        room, first = limit - self.counter.count(question), before
        while first and self.plain_tokens[first - 1] <= room:
            first -= 1
            room -= self.plain_tokens[first]
        return [*self.texts[first:before], question]

    def windows(self, *, limit: int, most: int) -> list[list[str]]:
        """Return one window for each of the newest user messages, taken as the question."""
        asked = [place for place, one in enumerate(self.messages) if one.role == "user"][-most:]
        return [self.last_window(self.texts[place], limit=limit, before=place) for place in asked]

    def best_matches(self, question: str, *, limit: int) -> list[str]:
        """Return the best messages by BM25 in the order of the conversation, then the question.

        Messages are taken in the order of their rank until one does not fit the limit.
        """
        room = limit - self.counter.count(question)
        chosen: list[int] = []
        for place in self.ranked(question):
            if self.dated_tokens[place] > room:
                break
            room -= self.dated_tokens[place]
            chosen.append(place)
        return [*(self.dated[place] for place in sorted(chosen)), question]

    def ranked(self, question: str) -> Sequence[int]:
        """Return the indexes of all messages that share a word with a question, best first."""
        marks: dict[int, float] = {}
        for word in set(split_lowercase_words(question)):
            held = self.holders[word]
            rarity = math.log(1 + (len(self.texts) - held + 0.5) / (held + 0.5))
            for place, words in enumerate(self.words):
                if times := words[word]:
                    longer = 1 - B + B * self.lengths[place] / self.mean
                    mark = rarity * times * (K1 + 1) / (times + K1 * longer)
                    marks[place] = marks.get(place, 0.0) + mark
        return sorted(marks, key=lambda place: (-marks[place], place))
