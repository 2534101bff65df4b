"""Limits how many sentences of the product the tests quote.

Sentences are reworded more often than pages change. A test that quotes one breaks with every
rewording, and passes if the sentence keeps its words but appears for another reason. Tests assert
on codes, element ids, `data-` attributes and message ids instead. A literal counts if it has at
least three words and is part of a translatable text, or has at least six and is part of any string
of the product. Names of fields and settings do not count.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.repository import ROOT

CATALOGUES = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES"
PRODUCT = ("chats", "contextpolicy", "project", "replay", "speed")
TRANSLATABLE_WORDS = 3
PRODUCT_WORDS = 6
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
# Quoted sentences in all tests together, tests about wording included.
QUOTES = 15


def list_catalogue_texts(path: Path) -> Iterator[str]:
    """Yield the texts to translate in the gettext catalogue at *path*."""
    parts: list[str] | None = None
    for line in path.read_text().splitlines():
        if line.startswith(("msgid ", "msgid_plural ")):
            parts = [ast.literal_eval(line.split(" ", 1)[1])]
        elif line.startswith('"') and parts is not None:
            parts.append(ast.literal_eval(line))
        elif parts is not None:
            yield join_words("".join(parts))
            parts = None


def join_words(text: str) -> str:
    """Return *text* with single blanks, as a reader sees it."""
    return " ".join(text.split())


def list_literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string in the module at *path*, without docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docstrings:
            yield node.lineno, join_words(node.value)


@cache
def read_translatable_texts() -> str:
    """Return every translatable text, one a line."""
    return "\n".join(
        text for path in sorted(CATALOGUES.glob("*.po")) for text in list_catalogue_texts(path)
    )


@cache
def read_product_texts() -> str:
    """Return every string of the product's modules, one a line."""
    modules = (path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py")))
    return "\n".join(text for path in modules for _, text in list_literals(path))


def is_product_sentence(text: str) -> bool:
    """Return whether *text* quotes a sentence of the product."""
    count = len(WORD.findall(text)) if " " in text else 0
    return (count >= TRANSLATABLE_WORDS and text in read_translatable_texts()) or (
        count >= PRODUCT_WORDS and text in read_product_texts()
    )


def list_quotes() -> list[str]:
    """Return every quoted product sentence with its place, ``file:line: sentence``."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, text in list_literals(path)
        if is_product_sentence(text)
    ]


def test_tests_quote_few_product_sentences() -> None:
    """Fail when more sentences are quoted than the tests about wording need."""
    quotes = list_quotes()
    assert len(quotes) <= QUOTES, f"{len(quotes)} quotes\n" + "\n".join(quotes)
