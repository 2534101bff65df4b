"""The tests of a run use every room: also those of `make test`, which leaves the slow ones out."""

from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SPLIT = ("chats", "contextpolicy")
WHOLE = ("project", "replay", "speed")
# Django finds these by their place.
BESIDE = {"migrations", "management", "apps", "__init__"}


def rooms() -> set[str]:
    """Return the packages and modules that stand at the top of the apps, and the other packages."""
    found = set(WHOLE)
    for package in SPLIT:
        for path in (ROOT / package).iterdir():
            if path.stem not in BESIDE and (
                path.suffix == ".py" or (path / "__init__.py").exists()
            ):
                found.add(f"{package}.{path.stem}")
    return found


def used_by(module: ModuleType) -> set[str]:
    """Return the rooms that a test's module has imported something from, and its folder's."""
    found = {".".join(Path(str(module.__file__)).relative_to(TESTS).parts[:2])}
    for value in vars(module).values():
        origin = value.__name__ if isinstance(value, ModuleType) else value_origin(value)
        top, _, rest = origin.partition(".")
        found.add(top if top in WHOLE else f"{top}.{rest.partition('.')[0]}")
    return found


def value_origin(value: object) -> str:
    """Return the module that a function or class comes from."""
    origin = getattr(value, "__module__", "")
    return origin if isinstance(origin, str) else ""


def test_every_room_is_used(request: pytest.FixtureRequest) -> None:
    modules = {item.module for item in request.session.items if isinstance(item, pytest.Function)}
    folders = {Path(str(module.__file__)).relative_to(TESTS).parts[0] for module in modules}
    if not {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} <= folders:
        pytest.skip("only a part of the tests was collected")
    used: set[str] = set()
    for module in modules:
        used |= used_by(module)
    assert rooms() - used == set()
