"""The tests cover every package, and share helpers without importing each other."""

import ast
from pathlib import Path

import grimp
import pytest

from tests.support.repository import ROOT

TESTS = ROOT / "tests"
SPLIT = ("chats", "contextpolicy")
WHOLE = ("project", "replay", "speed")
IMPORTS = (ast.Import, ast.ImportFrom)
# Django finds these by their location.
BESIDE = {"migrations", "management", "apps", "__init__"}


def rooms() -> set[str]:
    """Return the top-level packages and modules of the apps, and the other packages."""
    found = set(WHOLE)
    for package in SPLIT:
        for path in (ROOT / package).iterdir():
            if path.stem not in BESIDE and (
                path.suffix == ".py" or (path / "__init__.py").exists()
            ):
                found.add(f"{package}.{path.stem}")
    return found


def used_by(file: Path) -> set[str]:
    """Return the packages from which a test file, or its folder's, imports."""
    found = {".".join(file.relative_to(TESTS).parts[:2])}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, IMPORTS) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            top, _, rest = name.partition(".")
            found.add(top if top in WHOLE else f"{top}.{rest.partition('.')[0]}")
    return found


def test_every_room_is_used() -> None:
    used: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        used |= used_by(file)
    assert rooms() - used == set()


def find_imported_tests(graph: grimp.ImportGraph) -> list[str]:
    """Return each import of a test module, as `importer -> test module`."""
    return sorted(
        f"{importer} -> {module}"
        for module in graph.modules
        if module.rpartition(".")[2].startswith("test_")
        for importer in graph.find_modules_that_directly_import(module)
    )


def test_no_module_imports_a_test() -> None:
    found = find_imported_tests(grimp.build_graph("tests", "benchmarks", cache_dir=None))
    assert not found, f"Shared helpers belong to tests/support: {found}"


def test_an_import_of_a_test_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "tests_of_a_sample"
    folder = tmp_path / own
    (folder / "deep").mkdir(parents=True)
    for name, text in {
        "deep/test_a.py": "def find(): ...",
        "test_b.py": f"from {own}.deep.test_a import find",
        "test_c.py": f"def test() -> None:\n    from {own}.deep import test_a",
        "helpers.py": f"import {own}.deep.test_a",
        "test_d.py": f"from {own} import helpers",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    graph = grimp.build_graph(own, cache_dir=None)
    assert find_imported_tests(graph) == [
        f"{own}.{name} -> {own}.deep.test_a" for name in ("helpers", "test_b", "test_c")
    ]
