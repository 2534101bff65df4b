"""S30: the installed packages are exactly the pinned ones, and pages load nothing external."""

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

LOCKS = ("constraints.txt", "constraints-test.txt")
SMALL = "constraints-small.txt"
ANTHROPIC = "constraints-anthropic.txt"
SEMANTIC = "constraints-semantic.txt"
PIN = re.compile(
    r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)(?: ; ([^\\]+?))?((?: --hash=sha256:[0-9a-f]{64})+)"
)
# A new user's download: 80 packages of 202 MB today, without Python.
MOST_PACKAGES, MOST_BYTES = 92, 260_000_000


def pins(lock: str = "constraints.txt") -> dict[str, str]:
    """Name → version of a lock's packages here; every line is an exact pin with hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    found = [PIN.fullmatch(line) for line in re.sub(r" \\\n +", " ", text).splitlines()]
    assert all(found), "a line that is not an exact pin with the hashes of its files"
    named = [
        (canonicalize_name(match[1]), match[2])
        for match in found
        if match and (not match[3] or Marker(match[3]).evaluate())
    ]
    assert len(named) == len(dict(named)), "a name appears twice"
    return dict(named)


def declared() -> list[Requirement]:
    """The product's declared dependencies."""
    return [Requirement(line) for line in table()["project"]["dependencies"]]


def table() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_S30_what_is_declared_is_pinned_to_one_version() -> None:
    testing = [Requirement(line) for line in table()["dependency-groups"]["test"]]
    for lock, requirements in zip(LOCKS, (declared(), testing), strict=True):
        for requirement in requirements:
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", requirement
            assert pins(lock)[canonicalize_name(requirement.name)] == specifier.version


def test_S30_the_small_model_is_two_pinned_packages_that_nobody_gets_unasked() -> None:
    extra = [Requirement(line) for line in table()["project"]["optional-dependencies"]["small"]]
    assert {canonicalize_name(r.name): str(r.specifier)[2:] for r in extra} == pins(SMALL)
    assert not pins(SMALL).keys() & {name for lock in LOCKS for name in pins(lock)}


def test_S30_the_extra_for_anthropic_is_pinned_whole_and_nobody_gets_it_unasked() -> None:
    (extra,) = map(Requirement, table()["project"]["optional-dependencies"]["anthropic"])
    locked, running, testing = pins(ANTHROPIC), pins(), pins("constraints-test.txt")
    assert locked["anthropic"] == str(extra.specifier)[2:]
    assert not locked.keys() & running.keys()
    assert locked.items() <= testing.items(), "the tested packages are the installed ones"
    for line in importlib.metadata.requires("anthropic") or []:
        inner = Requirement(line)
        if not inner.marker or inner.marker.evaluate({"extra": ""}):
            assert canonicalize_name(inner.name) in running.keys() | locked.keys()


def test_S30_the_extra_for_vectors_is_one_pinned_package_that_nobody_gets_unasked() -> None:
    extra = [Requirement(line) for line in table()["project"]["optional-dependencies"]["semantic"]]
    locked = pins(SEMANTIC)
    assert {canonicalize_name(r.name): str(r.specifier)[2:] for r in extra} == locked
    assert not locked.keys() & pins().keys()
    assert locked.items() <= pins("constraints-test.txt").items()


def test_S30_both_locks_name_one_version() -> None:
    running, testing = map(pins, LOCKS)
    assert {name: testing[name] for name in running.keys() & testing.keys()}.items() <= (
        running.items()
    )


def test_S30_everything_that_comes_along_is_pinned_too() -> None:
    locked, waiting, seen = pins(), declared(), set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        assert name in locked, f"{name} comes along and is not in constraints.txt"
        assert importlib.metadata.version(name) == locked[name]
        extras = {"", *requirement.extras}
        for line in importlib.metadata.requires(name) or []:
            inner = Requirement(line)
            if not inner.marker or any(inner.marker.evaluate({"extra": e}) for e in extras):
                inner.marker = None
                waiting.append(inner)
    assert len(seen) > 20


def test_S30_running_needs_little() -> None:
    running = pins()
    assert "pytest" not in running
    assert len(running) <= MOST_PACKAGES
    files = [file for name in running for file in importlib.metadata.files(name) or []]
    sizes = [Path(str(file.locate())) for file in files]
    assert sum(path.stat().st_size for path in sizes if path.exists()) <= MOST_BYTES


# Packages that neither the product nor `make test-all` needs.
TOOLS = ("pip-audit", "mutmut", "uv", "litellm", "chainlit", "aider-chat")


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile"])
def test_S30_nothing_is_installed_without_its_hash(name: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text(encoding="utf-8"))
    commands = re.findall(r"pip (?:install|download)[^\n&]*", text)
    for command in commands:
        is_tool = any(f"{tool}==" in command or f"{tool}[proxy]==" in command for tool in TOOLS)
        assert "--require-hashes" in command or is_tool, command


@pytest.mark.parametrize(
    "name", ["pyproject.toml", *LOCKS, SMALL, ANTHROPIC, "Makefile", "Dockerfile"]
)
def test_S30_no_file_names_another_place_to_install_from(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(
        r"--(?:extra-)?index-url|--find-links|--trusted-host|git\+|@ ?https?:", text
    )


def files_below(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_S30_no_account_has_a_password_from_the_start() -> None:
    for path in (ROOT / "project").rglob("*.py"):
        assert "set_password" not in path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*/migrations/*.py"), *files_below("deploy")]:
        assert "create_superuser" not in path.read_text(encoding="utf-8")


def test_S30_the_audit_judges_what_is_installed_and_skips_nothing() -> None:
    text = (ROOT / "scripts" / "audit.py").read_text(encoding="utf-8")
    assert '"--require-hashes"' in text
    assert 'f"constraints{name}.txt"' in text
    # A package that the service does not know is reported, not skipped.
    assert 'if "skip_reason" in package:' in text
