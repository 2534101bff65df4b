"""The likeness of texts with a question, as the search uses it, whoever computes it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from chats.memory import nearest


class TextLikeness(Protocol):
    """The likeness of texts: the nearest ones, and the floor that random ones stay below."""

    @property
    def nearest(self) -> Mapping[int, float]:
        """The most alike, by their ids."""
        ...

    @property
    def floor(self) -> float:
        """The likeness that two texts taken at random hardly ever have."""
        ...

    def of(self, ids: Collection[int]) -> Mapping[int, float]:
        """Return the likeness of those of some texts that have a vector."""
        ...

    def scaled(self, ids: Collection[int]) -> Mapping[int, float]:
        """Return it from 0, that of all texts on average, to 1, that of the best."""
        ...


class Look(Protocol):
    """Compares one question with the texts of a person."""

    def __call__(
        self, *, owner_id: int, places: Collection[int] | None, without: Collection[int]
    ) -> TextLikeness | None:
        """Return their likeness; None if that took too long."""
        ...


def look(
    question: Sequence[float],
    *,
    space_id: int,
    give_up: float,
    owner_id: int,
    places: Collection[int] | None,
    without: Collection[int],
) -> TextLikeness | None:
    """Compare a question's vector with those of a person's texts until a moment."""
    return nearest.compare(
        question,
        space_id=space_id,
        owner_id=owner_id,
        places=places,
        without=without,
        give_up=give_up,
    )
