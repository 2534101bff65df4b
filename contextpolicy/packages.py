"""Loads objects that other packages register under an entry point group; reports unusable ones."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar

from contextpolicy.engine.text.phrases import Phrase, gettext_noop

Offered = TypeVar("Offered")
logger = logging.getLogger(__name__)
OTHER_NAME = Phrase(gettext_noop("its name differs from that of its entry point"))
OFFERED_TWICE = Phrase(gettext_noop("two packages offer it"))


@dataclass(frozen=True, slots=True)
class Offers(Generic[Offered]):
    """The loaded objects by name, and for each unusable one a sentence with the reason.

    The sentences are English. `wording.translate_phrase` returns them in the reader's language.
    """

    found: Mapping[str, Offered]
    faults: Mapping[str, Phrase]


class OfferRefused(Exception):
    """An entry point does not provide an object of the expected kind. The reason is a phrase."""

    def __init__(self, reason: Phrase) -> None:
        super().__init__(reason)
        self.reason = reason


def load_offers(
    points: Iterable[EntryPoint],
    *,
    unusable: str,
    check: Callable[[Any, str], Offered],
    taken: Mapping[str, Phrase] | None = None,
) -> Offers[Offered]:
    """Load the entry points of a group. A failing one does not affect the others.

    `unusable`: the error sentence, with `{name}` and `{reason}`. `taken`: the built-in names, each
    with the reason why it is reserved. `check` gets the object and the package with its version; it
    returns the offer or raises `OfferRefused`.
    """
    found: dict[str, Offered] = {}
    faults: dict[str, Phrase] = {}
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            if taken and point.name in taken:
                raise OfferRefused(taken[point.name])
            offer = check(load_entry_point(point), describe_package(point))
            if point.name in found:
                raise OfferRefused(OFFERED_TWICE)
        except Exception as error:  # noqa: BLE001 - importing a package may fail in any way
            reason = error.reason if isinstance(error, OfferRefused) else type(error).__name__
            faults[point.name] = Phrase(unusable, name=point.name, reason=reason)
            logger.warning("%s (%s)", faults[point.name], point.value)
        else:
            found[point.name] = offer
    return Offers(found, faults)


def load_entry_point(point: EntryPoint) -> Any:
    """Return the object of an entry point. Raises `OfferRefused` if its name differs."""
    loaded = point.load()
    made = loaded() if isinstance(loaded, type) else loaded
    if getattr(made, "name", None) != point.name:
        raise OfferRefused(OTHER_NAME)
    return made


def describe_package(point: EntryPoint) -> str:
    """Return the name and version of an entry point's package; empty if unknown."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else ""
