"""The source files of the product, parsed."""

import ast
from dataclasses import dataclass
from functools import cache

from tests.support.repository import ROOT

APPS = ("chats", "contextpolicy", "project", "replay", "speed")


@dataclass(frozen=True)
class Source:
    """One file of the product."""

    path: str
    tree: ast.Module


@cache
def read_product_sources() -> list[Source]:
    """Read the files of the product without its migrations."""
    return [
        Source(str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8")))
        for app in APPS
        for path in sorted((ROOT / app).rglob("*.py"))
        if "migrations" not in path.parts
    ]
