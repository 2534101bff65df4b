"""Tool calls in `useChat` of ai 5, 6 and 7 while they run, and in the example: `make clients`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from chats.tool_servers.results import format_failure
from tests.browser.conftest import browser
from tests.fakes.tool_server import FakeToolServer, describe, serving_tools
from tests.faults.harness import Tree
from tests.support.client_programs import CLIENTS, run_client, send_in_example

__all__ = ["browser"]

pytestmark = [
    pytest.mark.clients,
    pytest.mark.processes,
    pytest.mark.skipif(not CLIENTS.exists(), reason="make clients has installed nothing yet"),
]
SCRIPT = """
import { AbstractChat, DefaultChatTransport, safeValidateUIMessages } from "ai";
const { API, OPENAI_API_KEY, CHAT: id } = process.env;
const headers = { Authorization: `Bearer ${OPENAI_API_KEY}` };
const api = `${API}/ui-chats`;
const isTool = (part) => part.type.startsWith("tool-");
const errors = [];
class State {
  status = "ready"; error = undefined; seen = [];
  constructor(messages) { this.messages = messages; }
  pushMessage = (m) => { this.messages = [...this.messages, m]; this.note(m); };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (i, m) => {
    this.messages = this.messages.map((o, j) => (j === i ? m : o)); this.note(m);
  };
  snapshot = (thing) => structuredClone(thing);
  // The states of each call, in order, without repetitions.
  note = (m) => m.parts.filter(isTool).forEach((part, at) => {
    const now = `${at} ${part.toolCallId} ${part.state}`;
    if (!this.seen.includes(now)) this.seen.push(now);
  });
}
class Chat extends AbstractChat {
  constructor(state) {
    const transport = new DefaultChatTransport({ api, headers });
    super({ id, transport, state, onError: (e) => errors.push(e.message) });
  }
}
const load = async () => (await (await fetch(`${api}/${id}`, { headers })).json()).messages;
const until = async (check) => {
  for (let i = 0; i < 600 && !check(); i += 1) await new Promise((done) => setTimeout(done, 50));
};
const plain = (m) => m.parts.filter(isTool).map(({ type, toolCallId, state, input, output }) =>
  ({ type, toolCallId, state, input, output }));
const first = new State(await load());
const ending = new Chat(first).sendMessage({ text: process.env.TEXT });
await until(() => first.seen.some((line) => line.endsWith("input-available")));
// A reload in the middle of the call.
const second = new State(await load());
await Promise.all([ending, new Chat(second).resumeStream()]);
const stored = await load();
const same = (state) =>
  JSON.stringify(plain(state.messages.at(-1))) === JSON.stringify(plain(stored.at(-1)));
const valid = await safeValidateUIMessages({ messages: first.messages });
console.log(JSON.stringify({
  first: first.seen, second: second.seen, errors, valid: valid.success,
  same: [same(first), same(second)], parts: plain(stored.at(-1)),
}));
"""
PACKAGES = ["ai5", "ai6", "ai"]


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture(scope="module")
def tools(tree: Tree) -> Iterator[FakeToolServer]:
    """A server with a slow tool, and a worker that may call it."""
    with serving_tools() as fake:
        fake.tools = [describe("write")]
        fake.fault, fake.slow_seconds = "slow", 2
        start_worker(tree, fake)
        yield fake


def start_worker(tree: Tree, tools: FakeToolServer) -> None:
    """Start a worker that may call the tool server, instead of the running one."""
    tree.clear("worker")
    allowed = f"{tree.env['ALLOWED_PRIVATE_PROVIDERS']},{tools.host}"
    tree.worker(None, wait=True, ALLOWED_PRIVATE_PROVIDERS=allowed)


def prepare_chat(tree: Tree, tools: FakeToolServer, *steps: list[dict[str, Any]]) -> str:
    """Create a chat in which the model calls these tools, step by step, and then replies."""
    chat = tree.new_chat()
    tools.calls.clear()
    tools.called.clear()
    tree.desk.ask("allow_tools", chat=chat, url=tools.url)
    replies = [{"match": "Work", "tool_calls": calls} for calls in steps]
    tree.fake.configure(context_limit=0, tokens=20, ms=60, faults=[], replies=replies)
    return chat


def call(own_id: str, text: str) -> dict[str, Any]:
    """Return a call of the model."""
    return {"id": own_id, "name": "kills__write", "arguments": {"text": text}}


def follow_calls(env: dict[str, str], folder: Path, *, package: str, chat: str) -> dict[str, Any]:
    """Send a message and return what two clients of this package saw of its calls."""
    (folder / "node_modules").symlink_to(CLIENTS / "node_modules")
    script = SCRIPT.replace('from "ai"', f'from "{package}"')
    api = env["OPENAI_BASE_URL"].replace("/v1", "/api/v1")
    env = {**env, "API": api, "CHAT": chat, "TEXT": "Work"}
    return dict(json.loads(run_client(["node", "it.mjs"], env=env, folder=folder, it_mjs=script)))


@pytest.mark.parametrize("package", PACKAGES)
def test_use_chat_shows_calls_while_they_run(
    tree: Tree, tools: FakeToolServer, env: dict[str, str], tmp_path: Path, package: str
) -> None:
    chat = prepare_chat(tree, tools, [call("a", "one"), call("b", "two")], [call("a", "three")])
    shown = follow_calls(env, tmp_path, package=package, chat=chat)
    assert shown["errors"] == []
    # The second call begins before the first one runs, and the first one ends before the second.
    assert shown["first"] == [
        "0 a input-streaming",
        "1 b input-streaming",
        "0 a input-available",
        "1 b input-available",
        "0 a output-available",
        "1 b output-available",
        "2 a input-streaming",
        "2 a input-available",
        "2 a output-available",
    ]
    assert "0 a input-available" in shown["second"]
    assert shown["second"][-1] == shown["first"][-1]
    assert (shown["same"], shown["valid"]) == ([True, True], True)


@pytest.mark.parametrize("package", PACKAGES)
def test_use_chat_survives_a_worker_that_is_killed_in_a_call(
    tree: Tree, tools: FakeToolServer, env: dict[str, str], tmp_path: Path, package: str
) -> None:
    chat = prepare_chat(tree, tools, [call("a", "one"), call("b", "two")])

    # A process ends with the thread that started it, so the client gets the thread.
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow_calls, env, tmp_path, package=package, chat=chat)
        assert tools.called.wait(60)
        start_worker(tree, tools)
        shown = following.result()
    assert shown["errors"] == []
    assert [line for line in shown["first"] if "error" in line] == []
    assert shown["first"][-2:] == ["0 a output-available", "1 b output-available"]
    assert (shown["same"], shown["valid"]) == ([True, True], True)
    outputs = [part["output"] for part in shown["parts"]]
    assert outputs[0] == format_failure("worker_lost", is_unknown=True)
    assert "echo: two" in outputs[1]


def test_the_example_shows_a_call_while_it_runs(
    tree: Tree, tools: FakeToolServer, front_end: str, browser: Browser
) -> None:
    chat = prepare_chat(tree, tools, [call("a", "one")])
    page = browser.new_page()
    page.goto(f"{front_end}#{chat}")
    shown = page.locator("p.call")
    send_in_example(page, "Work")
    expect(shown).to_have_attribute("data-state", "input-available", timeout=30_000)
    expect(shown).to_contain_text("one")
    page.reload()
    expect(shown).to_have_attribute("data-state", "input-available", timeout=30_000)
    expect(shown).to_have_attribute("data-state", "output-available", timeout=30_000)
    expect(page.locator("article.assistant")).to_contain_text(" 19@", timeout=30_000)
    expect(page.get_by_role("alert")).to_have_count(0)
    page.close()
