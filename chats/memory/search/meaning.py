"""Interfaces for comparing texts with a question by embedding."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from chats.memory.search import nearest


class TextLikeness(Protocol):
    """Similarities of texts to a question: the nearest texts, and a floor.

    Random texts rarely exceed the floor.
    """

    @property
    def nearest(self) -> Mapping[int, float]: ...

    @property
    def floor(self) -> float:
        """The similarity that two random texts rarely exceed."""
        ...

    def of(self, ids: Collection[int]) -> Mapping[int, float]:
        """Return the similarity of each given text that has a vector."""
        ...

    def scaled(self, ids: Collection[int]) -> Mapping[int, float]:
        """Return similarities, scaled from 0 (average of all texts) to 1 (best text)."""
        ...


class Look(Protocol):
    """Compares one question with a user's texts by embedding."""

    def __call__(
        self, *, owner_id: int, places: Collection[int] | None, without: Collection[int]
    ) -> TextLikeness | None:
        """Return the similarities; None on timeout."""
        ...


def compare_question_vector(
    question: Sequence[float],
    *,
    space_id: int,
    give_up: float,
    owner_id: int,
    places: Collection[int] | None,
    without: Collection[int],
) -> TextLikeness | None:
    """Compare a question's vector with a user's texts. None on timeout.

    `give_up`: the deadline, by the monotonic clock. `places`: the branches to search; None for all.
    `without`: ids of texts to skip.
    """
    return nearest.compare_question_texts(
        question,
        space_id=space_id,
        owner_id=owner_id,
        places=places,
        without=without,
        give_up=give_up,
    )
