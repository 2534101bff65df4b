"""Plugins of other packages are loaded and checked; a broken one does not stop the others."""

from importlib.metadata import EntryPoint
from typing import Any

from django.utils import translation

from contextpolicy.engine.text.phrases import Phrase
from contextpolicy.packages import OfferRefused, load_offers
from contextpolicy.plugins import UNUSABLE as STRATEGY_UNUSABLE
from contextpolicy.wording import translate_phrase

UNUSABLE = "The plugin {name!r} cannot be used: {reason}."
TAKEN = Phrase("its name is built in")


class Sound:
    """A valid plugin."""

    name = "sound"


class Renamed:
    """Its name differs from its entry point."""

    name = "other"


def checked(offer: Any, package: str) -> str:
    """Accept everything except the name `refused`."""
    if offer.name == "refused":
        raise OfferRefused(Phrase("it is refused"))
    return f"{offer.name} of {type(offer).__name__} in {package or 'no package'}"


def test_one_offer_that_fails_stops_no_other() -> None:
    points = [
        EntryPoint("sound", f"{__name__}:Sound", "group"),
        EntryPoint("renamed", f"{__name__}:Renamed", "group"),
        EntryPoint("missing", "no_such_module:Thing", "group"),
        EntryPoint("refused", f"{__name__}:REFUSED", "group"),
        EntryPoint("built_in", f"{__name__}:Sound", "group"),
    ]
    offers = load_offers(points, unusable=UNUSABLE, check=checked, taken={"built_in": TAKEN})
    assert offers.found == {"sound": "sound of Sound in no package"}
    assert offers.faults == {
        "built_in": "The plugin 'built_in' cannot be used: its name is built in.",
        "missing": "The plugin 'missing' cannot be used: ModuleNotFoundError.",
        "refused": "The plugin 'refused' cannot be used: it is refused.",
        "renamed": "The plugin 'renamed' cannot be used: its name differs from that of its"
        " entry point.",
    }


def test_a_name_that_two_packages_offer_goes_to_the_first() -> None:
    points = [EntryPoint("sound", f"{__name__}:{name}", "group") for name in ("Sound", "SECOND")]
    offers = load_offers(points, unusable=UNUSABLE, check=checked)
    assert offers.found == {"sound": "sound of Second in no package"}
    assert offers.faults == {"sound": "The plugin 'sound' cannot be used: two packages offer it."}


def test_a_fault_is_in_the_readers_language() -> None:
    points = [EntryPoint("renamed", f"{__name__}:Renamed", "group")]
    fault = load_offers(points, unusable=STRATEGY_UNUSABLE, check=checked).faults["renamed"]
    with translation.override("zh-hans"):
        assert translate_phrase(fault) == "方案 'renamed' 无法使用：其名称与入口点的名称不同。"


class Second(Sound):
    """Another package's plugin of the same name."""


SECOND = Second()
REFUSED = type("Refused", (), {"name": "refused"})()
