"""`pytest --requirements`: print which test covers which requirement, and which are open.

Every requirement has an id (`tests/landed.toml` lists them all, with the roles that need it). A
test claims one with `@pytest.mark.requirement("S0.3")`. With `@pytest.mark.requirement("S0.3",
by="admin")` it claims it for that role. Such a test fails if it requests no URL of that role's
pages. The run fails on an unknown id, and on a landed id that has no test for one of its roles.
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
# Prefixes of the URLs of each role's pages; a user has all others.
DOORS = {"admin": "/admin/", "auditor": "/admin/", "integrator": "/api/"}


@dataclass(frozen=True, slots=True)
class Claim:
    """The test's claim of a requirement; `by` names the role whose pages it uses."""

    test: str
    by: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that prints the table instead of running tests."""
    parser.addoption("--requirements", action="store_true", help="list requirements and tests")


def people() -> dict[str, list[str]]:
    """Return every id in its order, each with its roles."""
    found: dict[str, list[str]] = tomllib.loads(LANDED.read_text(encoding="utf-8"))["people"]
    return found


def known() -> tuple[list[str], set[str]]:
    """Return every id in its order, and the landed ids."""
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
    """Return the errors in the claims, or an empty list."""
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
    """Return True if a claim counts for a role. Any test counts for a developer."""
    return person == "developer" or (
        claim.by == person and not claim.test.startswith("tests/engine/")
    )


def behind(path: str, person: str) -> bool:
    """Return True if a URL belongs to a role's pages."""
    if person in DOORS:
        return path.startswith(DOORS[person])
    return not path.startswith(tuple(DOORS.values()))


@contextmanager
def through_doors(named: set[str]) -> Iterator[None]:
    """Fail unless a URL of each of these roles is requested."""
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
    """Check that a test requests the URLs of the roles it claims.

    Requests to other processes do not count.
    """
    named = {mark.kwargs.get("by", "") for mark in item.iter_markers("requirement")} - {""}
    if not named or item.get_closest_marker("processes"):
        return (yield)
    with through_doors(named):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Print the table and check the claims on request."""
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


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End the command with 0 if the claims are right. No test runs, which pytest reports as 5."""
    is_table = session.config.getoption("--requirements")
    if is_table and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
