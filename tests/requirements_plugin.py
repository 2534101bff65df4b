"""`pytest --requirements`: which test holds which requirement, and what is still open.

Every requirement has an id (`tests/landed.toml` lists them all, with the people who asked for it).
A test claims one by `@pytest.mark.requirement("S0.3")`, or by
`@pytest.mark.requirement("S0.3", by="admin")` when it goes through that person's door; such a test
fails when it asks for no address behind that door. The run fails on an unknown id, and on an id
that is called landed and that no test holds for each of its people.
"""

import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LANDED = Path(__file__).parent / "landed.toml"
# Where the addresses of a person's pages begin; a user has all others.
DOORS = {"admin": "/admin/", "auditor": "/admin/", "integrator": "/api/"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A test that says it holds a requirement; `by` names the person whose door it takes."""

    test: str
    by: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that prints the table instead of running tests."""
    parser.addoption("--requirements", action="store_true", help="list requirements and tests")


def people() -> dict[str, list[str]]:
    """Return every id in its order, each with the people who asked for it."""
    found: dict[str, list[str]] = tomllib.loads(LANDED.read_text(encoding="utf-8"))["people"]
    return found


def known() -> tuple[list[str], set[str]]:
    """Return every id in its order, and the ones that are called landed."""
    return list(people()), set(tomllib.loads(LANDED.read_text(encoding="utf-8"))["landed"])


def claims(items: list[pytest.Item]) -> dict[str, list[Claim]]:
    """Return the tests of each claimed id."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for item in items:
        for mark in item.iter_markers("requirement"):
            for requirement in mark.args:
                found[requirement].append(Claim(item.nodeid, mark.kwargs.get("by", "")))
    return found


def faults(found: dict[str, list[Claim]]) -> list[str]:
    """Say what is wrong with the claims; nothing when nothing is."""
    every, landed = people(), known()[1]
    unknown = [f"{name} is no requirement: {found[name]}" for name in found if name not in every]
    strange = [
        f"{name} is called landed and is no requirement" for name in landed if name not in every
    ]
    unasked = [
        f"{name} was not asked for by {claim.by}: {claim.test}"
        for name in found
        for claim in found[name]
        if claim.by and claim.by not in every.get(name, [])
    ]
    unheld = [
        f"{name} is called landed and no test holds it for the {person}"
        for name in every
        if name in landed
        for person in every[name]
        if not any(holds(claim, person) for claim in found.get(name, []))
    ]
    return unknown + strange + unasked + unheld


def holds(claim: Claim, person: str) -> bool:
    """Tell whether a claim counts for a person: a developer's door is any test."""
    return person == "developer" or (
        claim.by == person and not claim.test.startswith("tests/engine/")
    )


def behind(path: str, person: str) -> bool:
    """Tell whether an address is behind a person's door."""
    if person in DOORS:
        return path.startswith(DOORS[person])
    return not path.startswith(tuple(DOORS.values()))


@contextmanager
def through_doors(named: set[str]) -> Iterator[None]:
    """Fail unless something is asked for behind the door of each of these people."""
    from django.core.signals import request_started  # noqa: PLC0415 - settings come first

    paths: list[str] = []

    def note(**signal: Any) -> None:
        paths.append(signal["environ"]["PATH_INFO"])

    request_started.connect(note)
    try:
        yield
    finally:
        request_started.disconnect(note)
    for person in sorted(named):
        assert any(behind(path, person) for path in paths), f"not through the {person}'s door"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Hold a test to the doors it claims; what it asks of another process cannot be seen here."""
    named = {mark.kwargs.get("by", "") for mark in item.iter_markers("requirement")} - {""}
    if not named or item.get_closest_marker("processes"):
        return (yield)
    with through_doors(named):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Print the table and judge the claims, when asked."""
    if not config.getoption("--requirements"):
        return
    found = claims(items)
    every, landed = people(), known()[1]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for name, asking in every.items():
        state = "landed" if name in landed else "open"
        tests = sorted(found.get(name, []), key=lambda claim: claim.test)
        if reporter:
            reporter.write_line(f"{name:6} {state:7} {len(tests)} tests ({', '.join(asking)})")
            for claim in tests:
                reporter.write_line(f"         {claim.test} {claim.by}".rstrip())
    wrong = faults(found)
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
    items.clear()
