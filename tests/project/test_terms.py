"""The check of terms finds replaced words in texts and new names, and no ordinary words."""

import runpy
import sys
from typing import Any

import pytest

from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def terms() -> Any:
    """The names of the script, which imports its neighbour."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return runpy.run_path(str(ROOT / "scripts/terms.py"), run_name="terms")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_texts_and_names_use_the_glossary(terms: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert terms["main"]() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("The lead of the prompt is cached.", "lead"),
        ("Each finding has a reason.", "finding"),
        ("The cache marks move.", "cache mark"),
        ("Wi" + "shes run at night.", "wi" + "sh"),
        ("It gives programs more rights.", "rights"),
        ("Old " + "is the version in " + "force.", "in " + "force"),
        ("Six messages were folded.", "folded"),
    ],
)
def test_a_replaced_term_is_found(terms: Any, text: str, term: str) -> None:
    assert term in terms["find_terms"](text)


@pytest.mark.parametrize(
    "text",
    ["The rest of the list.", "Short messages lead to a summary.", "A name stands for a role."],
)
def test_an_ordinary_word_is_not_found(terms: Any, text: str) -> None:
    assert terms["find_terms"](text) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class PassedOn: pass", {"PassedOn"}),
        ("def build(findings, *, in_force): pass", {"findings", "in_force"}),
        ("class Row:\n    folded: int = 0", {"folded"}),
        ("FINDINGS = 1", {"FINDINGS"}),
        ("folder = threshold = interests = 1", set()),
    ],
)
def test_names_are_found(terms: Any, source: str, found: set[str]) -> None:
    names = set(terms["read_names"]("chats/one.py", source))
    convert = terms["convert_to_snake_case"]
    assert {name for name in names if terms["NAMES"].search(convert(name))} == found
