"""Consent to tool calls by `useChat` of ai 6 and 7, and in the example app: `make clients`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

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
import {
  AbstractChat, DefaultChatTransport, isToolUIPart, safeValidateUIMessages,
  lastAssistantMessageIsCompleteWithApprovalResponses as sendAutomaticallyWhen,
} from "ai";
const { API, OPENAI_API_KEY, CHAT: id } = process.env;
const headers = { Authorization: `Bearer ${OPENAI_API_KEY}` };
const api = `${API}/ui-chats`;
class State {
  status = "ready"; error = undefined;
  constructor(messages) { this.messages = messages ?? []; }
  pushMessage = (m) => { this.messages = [...this.messages, m]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (i, m) => { this.messages = this.messages.map((o, j) => (j === i ? m : o)); };
  snapshot = (thing) => structuredClone(thing);
}
const errors = [];
class Chat extends AbstractChat {
  constructor(messages) {
    const transport = new DefaultChatTransport({ api, headers });
    const onError = (e) => errors.push(e.message);
    super({ id, transport, state: new State(messages), onError, sendAutomaticallyWhen });
  }
}
const load = async () => (await (await fetch(`${api}/${id}`, { headers })).json()).messages;
const tools = (chat) => chat.messages.flatMap((m) => m.parts).filter(isToolUIPart);
const text = (m) => m.parts.filter((p) => p.type === "text").map((p) => p.text).join("");
const until = async (check) => {
  for (let i = 0; i < 300 && !check(); i += 1) await new Promise((done) => setTimeout(done, 100));
};
const out = { asked: [], resumed: [], ended: [] };
for (const approved of [true, false]) {
  const first = new Chat(await load());
  await first.sendMessage({ text: `Work ${approved}.` });
  out.asked.push(tools(first).at(-1).state);
  const chat = new Chat(await load());
  await chat.resumeStream();
  const part = tools(chat).at(-1);
  out.resumed.push([part.state, chat.status, part.input.text]);
  await chat.addToolApprovalResponse({ id: part.approval.id, approved });
  await until(() => chat.status === "ready" && tools(chat).at(-1).state.startsWith("output"));
  const stored = await load();
  const valid = await safeValidateUIMessages({ messages: stored });
  const shown = chat.messages.at(-1);
  out.ended.push([
    tools(chat).at(-1).state,
    valid.success && stored.at(-1).id === shown.id && text(stored.at(-1)) === text(shown),
    stored.length === chat.messages.length,
  ]);
}
console.log(JSON.stringify({ ...out, errors }));
"""


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture(scope="module")
def tools(tree: Tree) -> Iterator[FakeToolServer]:
    """A server whose tool requires consent, and a worker that may call it."""
    with serving_tools() as fake:
        fake.tools = [describe("write")]
        allowed = f"{tree.env['ALLOWED_PRIVATE_PROVIDERS']},{fake.host}"
        tree.clear("worker")
        tree.worker(None, wait=True, ALLOWED_PRIVATE_PROVIDERS=allowed)
        yield fake


def prepare_chat(tree: Tree, tools: FakeToolServer, *texts: str) -> str:
    """Create a chat in which the model calls the tool for each of these messages."""
    chat = tree.new_chat()
    tools.calls.clear()
    tree.desk.ask("allow_tools", chat=chat, url=tools.url, asks=True)
    replies = [
        {
            "match": text,
            "tool_calls": [{"id": f"c{at}", "name": "kills__write", "arguments": {"text": text}}],
        }
        for at, text in enumerate(texts)
    ]
    tree.fake.configure(context_limit=0, tokens=20, ms=0, faults=[], replies=replies)
    return chat


@pytest.mark.parametrize("package", ["ai6", "ai"])
def test_use_chat_answers_requests_for_consent(
    tree: Tree, tools: FakeToolServer, env: dict[str, str], tmp_path: Path, package: str
) -> None:
    chat = prepare_chat(tree, tools, "Work true.", "Work false.")
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    script = SCRIPT.replace('from "ai"', f'from "{package}"')
    api = env["OPENAI_BASE_URL"].replace("/v1", "/api/v1")
    env = {**env, "API": api, "CHAT": chat}
    shown = json.loads(run_client(["node", "it.mjs"], env=env, folder=tmp_path, it_mjs=script))
    assert shown["errors"] == []
    assert shown["asked"] == ["approval-requested"] * 2
    assert shown["resumed"] == [
        ["approval-requested", "ready", f"Work {approved}."] for approved in ("true", "false")
    ]
    assert shown["ended"] == [["output-available", True, True], ["output-denied", True, True]]
    assert [call["arguments"]["text"] for call in tools.calls] == ["Work true."]


def test_the_example_asks_allows_and_denies(
    tree: Tree, tools: FakeToolServer, front_end: str, browser: Browser
) -> None:
    chat = prepare_chat(tree, tools, "Write it.", "Write more.")
    page = browser.new_page()
    page.goto(f"{front_end}#{chat}")
    replies = page.locator("article.assistant")
    request = page.locator("fieldset")
    send_in_example(page, "Write it.")
    expect(request.locator("pre")).to_contain_text("Write it.", timeout=30_000)
    page.reload()
    request.locator("button").first.click(timeout=30_000)
    expect(replies.last).to_contain_text(" 19@", timeout=30_000)
    expect(request).to_have_count(0)
    send_in_example(page, "Write more.")
    request.locator("button").last.click(timeout=30_000)
    expect(replies.last).to_contain_text(" 19@", timeout=30_000)
    assert [call["arguments"]["text"] for call in tools.calls] == ["Write it."]
    expect(page.get_by_role("alert")).to_have_count(0)
    page.close()
