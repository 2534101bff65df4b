"""S30: what is installed is exactly what was chosen, and pages load nothing from elsewhere."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)((?: --hash=sha256:[0-9a-f]{64})+)")


def pins(text: str = (ROOT / "constraints.txt").read_text(encoding="utf-8")) -> dict[str, str]:
    """Name → version of the constraints; every line is an exact pin with hashes."""
    lines = re.sub(r" \\\n +", " ", text).splitlines()
    found = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), "a line that is no exact pin with the hashes of its files"
    named = [(canonicalize_name(match[1]), match[2]) for match in found if match]
    assert len(named) == len(dict(named)), "a name stands twice"
    return dict(named)


def declared(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def test_S30_what_is_declared_is_pinned_to_one_version() -> None:
    locked = pins()
    for requirement in declared("test"):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert locked[canonicalize_name(requirement.name)] == specifier.version


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


def test_S30_the_part_for_running_is_enough_to_run() -> None:
    running = pins((ROOT / "constraints.txt").read_text(encoding="utf-8").partition("# testing")[0])
    for requirement in declared():
        assert canonicalize_name(requirement.name) in running
    assert "pytest" not in running


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile"])
def test_S30_nothing_is_installed_without_its_hash(name: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text(encoding="utf-8"))
    commands = re.findall(r"pip (?:install|download)[^\n&]*", text)
    for command in commands:
        # Tools that nothing of the product or its tests needs.
        is_tool = "pip-audit==" in command or "requirements-mutation" in command
        assert "--require-hashes" in command or is_tool, command


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "Makefile", "Dockerfile"])
def test_S30_no_file_names_another_place_to_install_from(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(
        r"--(?:extra-)?index-url|--find-links|--trusted-host|git\+|@ ?https?:", text
    )


def test_S30_no_account_has_a_password_from_the_start() -> None:
    for path in (ROOT / "project").rglob("*.py"):
        assert "set_password" not in path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*/migrations/*.py"), *(ROOT / "deploy").iterdir()]:
        assert "create_superuser" not in path.read_text(encoding="utf-8")


def test_S30_the_audit_judges_what_is_installed_and_skips_nothing() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (command,) = re.findall(r"bin/pip-audit .*", text)
    assert {"--strict", "--require-hashes"} <= set(command.split())
    assert "-r $(VENV)/requirements.txt" in command
