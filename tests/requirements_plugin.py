"""`pytest --requirements`: which test holds which requirement, and what is still open.

Every requirement has an id (`tests/landed.toml` lists them all). A test claims one by
`@pytest.mark.requirement("S0.3")`. The run fails on an unknown id, and on an id that is called
landed and that no test claims.
"""

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

LANDED = Path(__file__).parent / "landed.toml"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that prints the table instead of running tests."""
    parser.addoption("--requirements", action="store_true", help="list requirements and tests")


def known() -> tuple[list[str], set[str]]:
    """Every id in its order, and the ones that are called landed."""
    data = tomllib.loads(LANDED.read_text(encoding="utf-8"))
    return list(data["all"]), set(data["landed"])


def claims(items: list[pytest.Item]) -> dict[str, list[str]]:
    """The tests of each claimed id."""
    found: dict[str, list[str]] = defaultdict(list)
    for item in items:
        for mark in item.iter_markers("requirement"):
            for requirement in mark.args:
                found[requirement].append(item.nodeid)
    return found


def faults(found: dict[str, list[str]]) -> list[str]:
    """What is wrong with the claims; empty when nothing is."""
    every, landed = known()
    unknown = [
        f"{name} is no requirement: {', '.join(found[name])}" for name in found if name not in every
    ]
    unheld = [
        f"{name} is called landed and no test holds it"
        for name in every
        if name in landed and not found.get(name)
    ]
    strange = [
        f"{name} is called landed and is no requirement" for name in landed if name not in every
    ]
    return unknown + unheld + strange


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Print the table and judge the claims, when asked."""
    if not config.getoption("--requirements"):
        return
    found = claims(items)
    every, landed = known()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for name in every:
        state = "landed" if name in landed else "open"
        tests = sorted(found.get(name, []))
        if reporter:
            reporter.write_line(f"{name:6} {state:7} {len(tests)} tests")
            for test in tests:
                reporter.write_line(f"         {test}")
    wrong = faults(found)
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
    items.clear()
