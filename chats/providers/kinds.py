"""The kinds of model servers: their names, addresses, and the packages that they need."""

from importlib.util import find_spec
from typing import Literal

from chats.ground.refusals import Refusal

Kind = Literal["openai", "anthropic", "demo"]
# Kinds whose accounts have an address and a key.
SERVERS: tuple[Kind, ...] = ("openai", "anthropic")
ANTHROPIC_URL = "https://api.anthropic.com"
# The form of the interface that is spoken here: the one that the package sends.
ANTHROPIC_VERSION = "2026-10-21"


class PackageMissing(Refusal):
    """The package that speaks to this kind of server is an extra, and not installed."""

    code = "package_missing"
    status = 409
    sentence = (
        "The package for Anthropic's interface is not installed here. Whoever runs this "
        "installation adds it with “make anthropic” and starts it again."
    )
    param = "kind"


def is_installed(kind: str) -> bool:
    """Tell whether servers of a kind can be called; nothing is imported for it."""
    return kind != "anthropic" or find_spec("anthropic") is not None


def require(kind: str) -> None:
    """Raise PackageMissing if servers of a kind cannot be called here."""
    if not is_installed(kind):
        raise PackageMissing


def anthropic_root(base_url: str) -> str:
    """Return an address without the version that stands at the end of OpenAI's addresses."""
    return base_url.rstrip("/").removesuffix("/v1")
