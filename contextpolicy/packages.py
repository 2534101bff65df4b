"""Loads the objects of other packages under an entry point group, and reports unusable ones."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar

Offered = TypeVar("Offered")
logger = logging.getLogger(__name__)
OTHER_NAME = "its name differs from that of its entry point"


@dataclass(frozen=True, slots=True)
class Offers(Generic[Offered]):
    """The loaded objects by name; for each that cannot be loaded, a sentence with the reason."""

    found: Mapping[str, Offered]
    faults: Mapping[str, str]


class OfferRefused(Exception):
    """An entry point does not provide an object of the expected kind."""


def load_offers(
    points: Iterable[EntryPoint],
    *,
    noun: str,
    check: Callable[[Any, str], Offered],
    taken: Collection[str] = (),
) -> Offers[Offered]:
    """Load the entry points of a group; a failing one does not affect the others.

    `noun` names the kind in messages, `taken` are the built-in names. `check` gets the object and
    the package with its version, and returns the offer or raises `OfferRefused`.
    """
    found: dict[str, Offered] = {}
    faults: dict[str, str] = {}
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            if point.name in taken:
                raise OfferRefused(f"its name is taken by a built-in {noun}")
            offer = check(load_entry_point(point), describe_package(point))
            if point.name in found:
                raise OfferRefused("two packages offer it")
        except Exception as error:  # noqa: BLE001 - importing a package may fail in any way
            reason = str(error) if isinstance(error, OfferRefused) else type(error).__name__
            faults[point.name] = f"The {noun} {point.name!r} cannot be used: {reason}."
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
    """Return the package of an entry point with its version; empty if unknown."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else ""
