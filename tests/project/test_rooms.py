"""The tests cover every package."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
