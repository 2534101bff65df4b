"""Mutation tests: break engine modules in a thousand small ways and count detected mutants.

`mutmut` writes the mutants (see `[tool.mutmut]`). Each runs in a fork of one process that collected
the tests once. The fastest tests, and those that detected the last mutant of the same function, run
first. (mutmut itself collects a thousand tests again for each mutant, which takes hours.) Results
of unchanged functions are kept in `mutants/`; remove that folder to start over.

A mutant is killed if a test detects it; a timeout counts as detected. When pytest loads this file
under the name `mutation`, it is the plugin that runs the mutants.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from mutmut import __main__ as mutmut
from mutmut.mutation import trampoline
from mutmut.state import state

LEAST = 90
PROCESSES = 2
# CPU seconds; all tests together take one minute.
PATIENCE = 240
SURVIVED, KILLED, NOT_REACHED = 0, 1, 33
CODES = "exit_code_by_key"
TIMES = "times.json"


def main() -> None:
    """Write the mutants, run those without a result, and print all results."""
    write_mutants()
    places = [str(Path(__file__).parent), *sys.path]
    command = ["-m", "pytest", "-q", "-s", "-p", "mutation", "-p", "no:randomly", "tests/engine"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "MUTANT_UNDER_TEST": ""}
    subprocess.run([sys.executable, *command], cwd="mutants", env=environment, check=False)  # noqa: S603  # our own tests
    sys.exit(report())


def write_mutants() -> None:
    """Run the first steps of `mutmut run`, without its last."""
    mutmut.set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir(exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.store_lines_covered_by_tests()
    mutmut.create_mutants(1)


def report() -> bool:
    """Print each module's score and surviving mutants; return True if a score is too low."""
    failed = False
    for path in sorted(Path("mutants").rglob("*.py.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))[CODES]
        if not codes:
            continue
        unknown = sum(code is None for code in codes.values())
        alive = sorted(name for name, code in codes.items() if code in (SURVIVED, NOT_REACHED))
        share = 100 * (len(codes) - unknown - len(alive)) / len(codes)
        failed |= share < LEAST
        sys.stdout.write(f"{path.name.removesuffix('.py.meta'):12} {len(codes):4} mutants")
        sys.stdout.write(f" {len(alive):3} alive {unknown:3} not run {share:6.1f} % killed\n")
        sys.stdout.write("".join(f"    {name}\n" for name in alive))
    return failed


class Runner:
    """Runs mutants against the tests that a session has collected, from within `mutants/`."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.metas = {p: json.loads(p.read_text(encoding="utf-8")) for p in Path().rglob("*.meta")}
        self.killers: dict[str, list[str]] = defaultdict(list)
        self.running: dict[int, tuple[Path, str, int]] = {}
        self.seconds, self.reached = self.times()

    def run(self) -> None:
        """Run each mutant that has no result yet."""
        for path, meta in self.metas.items():
            for mutant in [name for name, code in meta[CODES].items() if code is None]:
                if len(self.running) == PROCESSES:
                    self.wait()
                self.start(path, mutant)
        while self.running:
            self.wait()

    def start(self, path: Path, mutant: str) -> None:
        """Run the tests of one mutant in a child."""
        function = mutant.rpartition("__mutmut_")[0]
        names = sorted(self.reached.get(function, ()), key=self.seconds.__getitem__)
        names = [*self.killers[function], *(n for n in names if n not in self.killers[function])]
        if not names:
            self.metas[path][CODES][mutant] = NOT_REACHED
            return
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            self.check(mutant, names, writer)
        os.close(writer)
        self.running[child] = path, mutant, reader

    def check(self, mutant: str, names: list[str], writer: int) -> NoReturn:
        """In the child: run the tests until one fails, and report which."""
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        trampoline.set_mutant_under_test(mutant)
        for name in self.played(names):
            if self.session.testsfailed:
                os.write(writer, name.encode())
                os._exit(KILLED)
        os._exit(SURVIVED)

    def wait(self) -> None:
        """Wait for the next child that ends, and read its result."""
        child, status = os.wait()
        path, mutant, reader = self.running.pop(child)
        self.metas[path][CODES][mutant] = os.waitstatus_to_exitcode(status)
        path.write_text(json.dumps(self.metas[path], indent=4), encoding="utf-8")
        with os.fdopen(reader) as pipe:
            if name := pipe.read():
                known = self.killers[mutant.rpartition("__mutmut_")[0]]
                known[:] = [name, *(other for other in known if other != name)]

    def times(self) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Return the duration of each test, and the tests that reach each function."""
        path = Path(TIMES)
        if not path.exists() or json.loads(path.read_text())[0].keys() != self.items.keys():
            child = os.fork()
            if not child:
                os._exit(self.look(path))
            if os.waitpid(child, 0)[1]:
                sys.exit("The tests fail without any mutant.")
        seconds, reached = json.loads(path.read_text())
        return seconds, reached

    def look(self, path: Path) -> bool:
        """In a child: run all tests and store the result of `times`; return True if one failed."""
        trampoline.set_mutant_under_test("stats")
        seconds: dict[str, float] = {}
        reached: dict[str, list[str]] = defaultdict(list)
        begun = time.monotonic()
        for name in self.played([*self.items]):
            seconds[name], begun = time.monotonic() - begun, time.monotonic()
            functions = state()._stats  # noqa: SLF001 - no public API
            for function in functions:
                reached[function].append(name)
            functions.clear()
        path.write_text(json.dumps([seconds, reached]))
        return bool(self.session.testsfailed)

    def played(self, names: list[str]) -> Iterator[str]:
        """Run tests one after the other; yield the name of each when it has finished."""
        for name, following in zip(names, [*names[1:], None], strict=True):
            item, after = self.items[name], self.items[following] if following else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            yield name


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests for each mutant instead of once."""
    Runner(session).run()
    return True


if __name__ == "__main__":
    main()
