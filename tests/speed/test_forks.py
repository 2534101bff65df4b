"""Forks of a loaded process behave like new interpreters: environment, output, files, signals."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from speed.forks import can_fork
from tests.support.repository import ROOT

pytestmark = pytest.mark.skipif(not can_fork(), reason="Forks are used on Linux only.")

# A parent with signal handlers, an open file and a loaded module.
PARENT = """
import json, os, signal, subprocess, sys, tempfile
import fractions
from speed.forks import ForkedProcess

signal.signal(signal.SIGTERM, lambda *_: None)
held = open(os.devnull)
os.set_inheritable(held.fileno(), True)
steps = (lambda: os.environ.update(STEP=os.environ["GIVEN"] + "!"),)

def start(*command, **more):
    return ForkedProcess([sys.executable, *command], env={"GIVEN": "yes"}, prepare=steps, **more)

"""
CHILD = """
import json, os, signal, sys
from pathlib import Path

print(json.dumps({
    "argv": sys.argv[1:],
    "env": [os.environ["GIVEN"], os.environ["STEP"]],
    "loaded": "fractions" in sys.modules,
    "name": __name__,
    "files": [os.path.realpath(f"/proc/self/fd/{number}") for number in range(3, 64)],
    "title": Path("/proc/self/cmdline").read_text().replace("\\0", " ").strip(),
    "default": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
}))
sys.exit(7)
"""


def run_parent(tmp_path: Path, code: str, child: str = CHILD) -> Any:
    """Run the code in a parent process; return the last line that it prints, parsed as JSON."""
    (tmp_path / "child.py").write_text(textwrap.dedent(child))
    program = PARENT + textwrap.dedent(code)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "CHILD": str(tmp_path / "child.py")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", ["script", "module"])
def test_a_fork_runs_the_command_as_a_new_interpreter_would(tmp_path: Path, program: str) -> None:
    chosen = 'os.environ["CHILD"]' if program == "script" else '"-m", "child"'
    found = run_parent(
        tmp_path,
        f"""
        with tempfile.TemporaryFile() as out:
            process = start({chosen}, "--port", "1", stdout=out)
            code = process.wait()
            out.seek(0)
            print(json.dumps([code, process.poll(), process.returncode, json.load(out)]))
        """,
    )
    *codes, seen = found
    assert codes == [7, 7, 7]
    assert (seen["argv"], seen["env"]) == (["--port", "1"], ["yes", "yes!"])
    assert (seen["loaded"], seen["default"], seen["name"]) == (True, True, "__main__")
    assert seen["title"].endswith("--port 1")
    assert "/dev/null" not in seen["files"]


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("import sys; sys.exit()", 0),
        ("raise SystemExit('a sentence')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_a_fork_reports_how_it_ended(tmp_path: Path, child: str, code: int) -> None:
    parent = 'print(json.dumps(start(os.environ["CHILD"], stdout=subprocess.DEVNULL).wait()))'
    assert run_parent(tmp_path, parent, child) == code


def test_a_fork_that_ignores_the_stop_signal_can_be_killed(tmp_path: Path) -> None:
    found = run_parent(
        tmp_path,
        """
        read, write = os.pipe()
        process = start(os.environ["CHILD"], stdout=os.fdopen(write, "wb"))
        os.read(read, 1)
        running = process.poll()
        process.terminate()
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.kill()
        print(json.dumps([running, process.wait()]))
        """,
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    assert found == [None, -signal.SIGKILL]
