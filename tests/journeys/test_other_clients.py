"""Programs of others against a running server, as docs/api.md shows them: `make clients`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.harness import Tree
from tests.faults.programs import MANAGE, ROOT, free_port, python, until
from tests.journeys.growing import JAVASCRIPT, LANGCHAIN, TURNS, assert_grown, prepare
from tests.journeys.test_openai_clients import DOCUMENT, answers
from tests.journeys.test_openai_clients import tree as tree

CLIENTS = Path(sys.prefix) / "clients"
pytestmark = [
    pytest.mark.clients,
    pytest.mark.processes,
    pytest.mark.skipif(not CLIENTS.exists(), reason="make clients has installed nothing yet"),
]
EXAMPLES = dict(
    re.findall(
        r"\*\*(\w+)\*\* \(`[^\n]*\n```\w+\n(.*?)```",
        DOCUMENT.read_text().partition("### Other programs")[2].partition("| address")[0],
        re.DOTALL,
    )
)


@pytest.fixture(autouse=True)
def sent() -> None:
    """Here the broker is real."""


@pytest.fixture(autouse=True)
def roomy(tree: Tree) -> None:
    """A model that only replies, in a window that holds everything."""
    tree.fake.configure(context_limit=0, tokens=20, ms=0, replies=[], faults=[])


@pytest.fixture(scope="module")
def env(tree: Tree) -> dict[str, str]:
    """What a program is told of the server."""
    port = free_port()
    tree.start("web", python(MANAGE, "web", "--port", str(port)))
    address = f"http://127.0.0.1:{port}"
    until(lambda: answers(address), seconds=30, what="the start of a web process")
    return {
        "PATH": f"{CLIENTS / 'bin'}:{CLIENTS / 'node_modules/.bin'}:{os.environ['PATH']}",
        "HOME": str(tree.folder),
        "CODEX_HOME": str(ROOT / ".pytest_cache" / "codex"),
        "LLM_USER_PATH": str(tree.folder),
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": tree.keys["alice"],
        "MODEL": "fake",
    }


def run(command: list[str], *, env: dict[str, str], folder: Path, **files: str) -> str:
    """What a program prints, which must succeed."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    done = subprocess.run(  # as the documentation says
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_one_chat(tree: Tree) -> bool:
    """Whether the newest request brought the reply before along and its chat was found."""
    rows = tree.database.rows(
        "SELECT count(*) AS turns FROM chats_turn WHERE client IS NOT NULL"
        " AND branch_id = (SELECT branch_id FROM chats_turn WHERE client IS NOT NULL"
        " ORDER BY queued_at DESC LIMIT 1)",
        [],
    )
    return bool(rows[0]["turns"] == 2)


def test_javascript(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    assert " 0@" in run(["node", "it.mjs"], env=env, folder=tmp_path, it_mjs=EXAMPLES["JavaScript"])
    assert is_one_chat(tree)


@pytest.mark.parametrize("name", ["LangChain", "LiteLLM"])
def test_python(tree: Tree, env: dict[str, str], tmp_path: Path, name: str) -> None:
    command = [str(CLIENTS / "bin" / "python"), "-c", EXAMPLES[name]]
    assert " 0@" in run(command, env=env, folder=tmp_path)
    assert is_one_chat(tree)


@pytest.mark.parametrize("name", ["LangChain", "JavaScript"])
def test_a_conversation_of_sixty_turns_with_tools_in_a_small_window(
    tree: Tree, env: dict[str, str], tmp_path: Path, name: str
) -> None:
    prepare(tree, name)
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    command = {
        "LangChain": [str(CLIENTS / "bin" / "python"), "-c", LANGCHAIN],
        "JavaScript": ["node", "it.mjs"],
    }[name]
    env = {**env, "TITLE": name, "TURNS": str(TURNS)}
    run(command, env=env, folder=tmp_path, it_mjs=JAVASCRIPT)
    assert_grown(tree, name)


def test_the_command_llm(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    shown = run(["sh", "-ec", EXAMPLES["LLM"]], env=env, folder=tmp_path)
    assert shown.count(" 0@") == 2
    assert is_one_chat(tree)


def test_codex(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    text = EXAMPLES["Codex"].replace('"MODEL"', '"fake"')
    home = Path(env["CODEX_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text.replace("OPENAI_BASE_URL", env["OPENAI_BASE_URL"]))
    call = {"name": "exec_command", "arguments": {"cmd": "echo palimpsest"}, "id": "call_1"}
    tree.fake.configure(replies=[{"tool_calls": [call], "match": "Look around"}])
    ask = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
    shown = run([*ask, "Look around"], env=env, folder=tmp_path)
    assert " 0@" in shown
    tree.fake.configure(replies=[])
    again = [*ask[:2], "resume", "--last", "--skip-git-repo-check", "And now?"]
    assert " 0@" in run(again, env=env, folder=tmp_path)
    rows = tree.database.rows(
        "SELECT count(DISTINCT branch_id) AS branches, count(*) AS turns FROM chats_turn"
        " JOIN chats_branch b ON b.id = branch_id JOIN chats_chat c ON c.id = b.chat_id"
        " WHERE client IS NOT NULL AND c.title LIKE %s",
        ["Look around%"],
    )
    assert (rows[0]["branches"], rows[0]["turns"]) == (1, 3)
