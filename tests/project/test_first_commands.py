"""Runs each command of the README and of Getting started, as a newcomer types it.

`make` regards the packages of this environment as installed. `make test` runs the tests, so here it
only prints its commands.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from project.release import get_product_version
from tests.faults.harness import new_folder
from tests.faults.programs import Program, free_port, needed, run, until
from tests.support.documents import commands_of
from tests.support.repository import ROOT

pytestmark = pytest.mark.processes

PAGES = (ROOT / "README.md", ROOT / "docs" / "getting-started.md")
PYTHON = ".venv/bin/python"
INSTALLED = (".for-running", ".for-testing")


def replace_environment(words: list[str]) -> list[str]:
    """Return a documented command with the environment of these tests in place of `.venv`."""
    if words[0] == PYTHON:
        return [sys.executable, *words[1:]]
    stamps = [f"--assume-old={Path(sys.prefix) / name}" for name in INSTALLED]
    return [needed(words[0]), f"VENV={sys.prefix}", *stamps, *words[1:]]


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """The environment of a newcomer with an empty data folder and a free port."""
    folder = new_folder()
    yield {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", str(folder)),
        "PALIMPSEST_DATA": str(folder / "data"),
        "PALIMPSEST_PORT": str(free_port()),
    }
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def address(env: dict[str, str]) -> Iterator[str]:
    """The address that `make run` prints, until Ctrl-C."""
    log = Path(env["PALIMPSEST_DATA"]).with_name("run.log")
    command = replace_environment(["make", "run"])
    program = Program("make run", command, env=env, log=log)
    address = f"http://127.0.0.1:{env['PALIMPSEST_PORT']}"
    try:
        until(
            lambda: program.must_live() and address in program.said(),
            seconds=60,
            what="the address of the first start",
        )
        yield address
        # Ctrl-C reaches every process of the terminal.
        os.killpg(program.pid, signal.SIGINT)
        program.process.wait(60)
        until(lambda: not program.left_behind(), what="the end of all processes")
    finally:
        if program.left_behind():
            os.killpg(program.pid, signal.SIGKILL)


def test_no_other_command_is_documented() -> None:
    commands = {" ".join(words) for page in PAGES for words in commands_of(page)}
    assert commands == {
        "make run",
        "make test",
        "make anthropic",
        f"{PYTHON} manage.py login_link",
        f"{PYTHON} manage.py version",
    }


def test_make_run_starts_the_product(address: str) -> None:
    page = httpx2.get(f"{address}/login/")
    assert page.status_code == 200


def test_login_link_prints_a_link_that_opens(address: str, env: dict[str, str]) -> None:
    printed = run(replace_environment([PYTHON, "manage.py", "login_link"]), env=env)
    link = printed.split()[-1]
    assert link.startswith(address)
    assert httpx2.get(link).status_code == 200


def test_version_prints_the_version(env: dict[str, str]) -> None:
    printed = run(replace_environment([PYTHON, "manage.py", "version"]), env=env)
    assert get_product_version() in printed


def test_make_anthropic_installs_the_package(env: dict[str, str]) -> None:
    run(replace_environment(["make", "anthropic"]), env=env, seconds=120)
    assert run([sys.executable, "-c", "import anthropic; print('installed')"], env=env)


def test_make_test_runs_the_checks_and_the_fast_tests(env: dict[str, str]) -> None:
    make, *options = replace_environment(["make", "test"])
    printed = run([make, "--dry-run", *options], env=env)
    assert "scripts/prose.py" in printed
    assert 'pytest -n auto --dist loadfile -rfEs -m "not slow and not wide"' in printed
