"""Programs in strings and documents import names that exist.

Type checks do not see them, so a moved function breaks them when they run, long after the move.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path

import pytest

from tests.support.repository import ROOT

OURS = r"(?:benchmarks|chats|contextpolicy|project|replay|speed|tests)"
IMPORT = re.compile(
    rf"^[ \t>]*from ({OURS}(?:\.\w+)*) import (\((?:[\w\s,]+)\)|[\w, ]+)", re.MULTILINE
)
SUFFIXES = (".py", ".md", ".sh", ".yml", ".yaml", ".service")
# These programs are examples of plugins, or of this check.
ELSEWHERE = ("tests/plugin_package/", "tests/project/test_embedded_programs.py")


def list_texts(path: Path) -> Iterator[str]:
    """Yield the text of a document, or the strings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def list_embedded_imports() -> Iterator[tuple[str, str, str]]:
    """Yield file, module and name of each import in a string or a document."""
    listed = subprocess.run(
        ["git", "ls-files"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for file in listed.stdout.splitlines():
        is_read = file.endswith(SUFFIXES) or file == "Makefile"
        if not is_read or file.startswith(ELSEWHERE) or not (ROOT / file).exists():
            continue
        for text in list_texts(ROOT / file):
            for module, names in IMPORT.findall(text):
                for name in names.strip("() \n").replace("\n", " ").split(","):
                    if name.strip():
                        yield file, module, name.split(" as ")[0].strip()


def is_importable(module: str, name: str) -> bool:
    """Return True if the name exists in the module, or is a module in the package."""
    try:
        return hasattr(import_module(module), name) or bool(util.find_spec(f"{module}.{name}"))
    except ImportError:
        return False


def test_programs_in_strings_import_what_exists() -> None:
    found = sorted(set(list_embedded_imports()))
    assert len(found) > 50
    wrong = [
        f"{file}: from {module} import {name}"
        for file, module, name in found
        if not is_importable(module, name)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["assign_policies_twice", "publish_missing_module"])
def test_a_name_that_does_not_exist_is_noticed(name: str) -> None:
    assert not is_importable("contextpolicy.publish", name)
