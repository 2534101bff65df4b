"""Fixtures: an instance with its fake model server, the environment of clients, and the example."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.fake_server import FakeServer
from tests.faults.harness import Tree, running_tree
from tests.faults.programs import MANAGE, free_port, python, until
from tests.support.client_programs import CLIENTS, EXAMPLE, is_answering
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    """One instance with its fake model server."""
    with FakeServer() as fake, running_tree(fake) as made:
        yield made


@pytest.fixture(scope="module")
def env(tree: Tree) -> dict[str, str]:
    """The environment variables that point a client to the server."""
    port = free_port()
    tree.start("web", python(MANAGE, "web", "--port", str(port)))
    address = f"http://127.0.0.1:{port}"
    until(lambda: is_answering(address), seconds=30, what="the start of a web process")
    return {
        "PATH": f"{CLIENTS / 'bin'}:{CLIENTS / 'node_modules/.bin'}:{os.environ['PATH']}",
        "HOME": str(tree.folder),
        "CODEX_HOME": str(ROOT / ".pytest_cache" / "codex"),
        "LLM_USER_PATH": str(tree.folder),
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": tree.keys["alice"],
        "MODEL": "fake",
    }


@pytest.fixture
def front_end(tree: Tree, tmp_path: Path) -> Iterator[str]:
    """The address of the built example, in front of a running server."""
    tree.fake.configure(context_limit=0, tokens=20, ms=0, replies=[], faults=[])
    port, own = free_port(), free_port()
    tree.start("web", python(MANAGE, "web", "--port", str(port)))
    until(
        lambda: is_answering(f"http://127.0.0.1:{port}"),
        seconds=30,
        what="the start of a web process",
    )
    folder = tmp_path / "use_chat"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(CLIENTS / "use_chat" / "node_modules")
    env = {
        "PATH": os.environ["PATH"],
        "PALIMPSEST_URL": f"http://127.0.0.1:{port}",
        "PALIMPSEST_KEY": tree.keys["alice"],
    }
    vite = ["node", "node_modules/vite/bin/vite.js"]
    subprocess.run([*vite, "build"], cwd=folder, env=env, check=True, capture_output=True)
    address = ["--host", "127.0.0.1", "--port", str(own), "--strictPort"]
    served = subprocess.Popen([*vite, "preview", *address], cwd=folder, env=env)
    try:
        until(lambda: is_answering(f"http://127.0.0.1:{own}"), seconds=30, what="the start of vite")
        yield f"http://127.0.0.1:{own}/"
    finally:
        served.terminate()
        served.wait(timeout=10)
