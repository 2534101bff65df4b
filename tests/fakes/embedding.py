"""A fake embedding model: vectors depend on a few known words, and faults can be scripted."""

import asyncio
import hashlib
from collections.abc import Sequence

from chats.providers.base import ProviderError, Timeouts
from chats.providers.embedders import Vector

MEANINGS = (
    {"cat", "feline", "kitten", "katze"},
    {"tax", "fiscal", "revenue", "steuer"},
    {"boat", "vessel", "ship"},
    {"bread", "loaf", "baking"},
)


class FakeEmbedder:
    """Refuse texts longer than `refuses` characters, raise `fault`, and wait `wait` seconds."""

    def __init__(self, *, size: int = 16, shift: int = 0) -> None:
        self.size = size
        self.shift = shift
        self.refuses: int | None = None
        self.refusal = ProviderError("provider_rejected")
        self.fault: ProviderError | None = None
        self.wait = 0.0
        self.asked: list[str] = []

    async def vectors(self, texts: Sequence[str], *, timeouts: Timeouts) -> list[Vector]:
        """A vector for each text."""
        del timeouts
        self.asked += texts
        if self.wait:
            await asyncio.sleep(self.wait)
        if self.fault:
            raise self.fault
        if self.refuses is not None and any(len(text) > self.refuses for text in texts):
            raise self.refusal
        return [self.of(text) for text in texts]

    def of(self, text: str) -> Vector:
        """The embedding of a text: its known words plus a small part that is unique to the text."""
        words = {word.strip(".,?!:").casefold() for word in text.split()}
        vector = [0.0] * self.size
        for place, meaning in enumerate(MEANINGS):
            vector[(place + self.shift) % self.size] = 3.0 * len(words & meaning)
        for word in words:
            number = hashlib.sha256(word.encode()).digest()[0]
            vector[len(MEANINGS) + number % (self.size - len(MEANINGS))] += 0.3
        return vector
