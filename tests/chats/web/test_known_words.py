"""No page and no sentence uses the product's private terms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT

UNKNOWN = re.compile(
    r"not applied|\bfold(s|ed|ing)?\b|\brests until|\brest for a while|"
    r"\b(low|high|a|the|any|no absolute) marks?\b|\brounds\b|"
    r"say it otherwise|keep above all|by auto\b|none known|prepare at,|"
    r"compact (at|to),|not from this policy|(lowest|largest|nearest policy) wins",
    re.IGNORECASE,
)
TAGS = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|<[^>]*>", re.DOTALL)
ROOMS = (
    "chats/web",
    "chats/compaction",
    "chats/admin",
    "chats/prompt/meter.py",
)
SENTENCES = (
    "contextpolicy/presets.py",
    "contextpolicy/linter/general_warnings.py",
    "contextpolicy/linter/thresholds.py",
    "contextpolicy/linter/models.py",
)
# Codes and names are for programs and stay.
CODE = re.compile(r"[a-z_]+|[\w./: -]*_[\w./: -]*")


def told(path: Path) -> Iterator[str]:
    """The texts of a module that may reach people: every string but codes and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in notes:
            continue
        if isinstance(node.value, str) and not CODE.fullmatch(node.value):
            yield node.value


def modules() -> list[Path]:
    """The modules that speak to people."""
    found: list[Path] = []
    for room in (*ROOMS, *SENTENCES):
        place = ROOT / room
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_has_a_word_that_nobody_knows(path: Path) -> None:
    assert [text for text in told(path) if UNKNOWN.search(text)] == []


def test_no_page_has_a_word_that_nobody_knows() -> None:
    pages = sorted((ROOT / "templates").rglob("*.html"))
    assert len(pages) > 50
    found = {
        page.name: [hit[0] for hit in UNKNOWN.finditer(TAGS.sub(" ", page.read_text()))]
        for page in pages
    }
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_the_list_finds_what_was_there() -> None:
    for words in ("Compaction not applied", "6 messages folded", "by auto", "The lowest wins."):
        assert UNKNOWN.search(words), words
