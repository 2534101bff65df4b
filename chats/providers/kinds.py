"""The kinds of model servers: names, addresses and required packages."""

from importlib.util import find_spec
from typing import Literal

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal

Kind = Literal["openai", "anthropic", "demo"]
# Kinds with an address and a key.
SERVERS: tuple[Kind, ...] = ("openai", "anthropic")
ANTHROPIC_URL = "https://api.anthropic.com"
# The API version that the package sends.
ANTHROPIC_VERSION = "2026-10-21"


class PackageMissing(Refusal):
    """The optional package for this kind of server is not installed."""

    code = "package_missing"
    status = 409
    sentence = gettext_noop(
        "The package for Anthropic’s API is not installed. Run “make anthropic”, then restart."
    )
    param = "kind"


def is_kind_installed(kind: str) -> bool:
    """Return True if servers of a kind can be called. Imports nothing."""
    return kind != "anthropic" or find_spec("anthropic") is not None


def require_kind(kind: str) -> None:
    """Raise PackageMissing if servers of a kind cannot be called."""
    if not is_kind_installed(kind):
        raise PackageMissing


def strip_api_version(base_url: str) -> str:
    """Return a URL without the trailing API version that OpenAI-style URLs have."""
    return base_url.rstrip("/").removesuffix("/v1")
