"""Third-party clients against a running server, as docs/gateway.md describes: `make clients`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import Tree
from tests.journeys.growing import JAVASCRIPT, LANGCHAIN, TURNS, assert_grown, prepare
from tests.support.client_programs import CLIENTS, GATEWAY_PAGE, run_client

pytestmark = [
    pytest.mark.clients,
    pytest.mark.processes,
    pytest.mark.skipif(not CLIENTS.exists(), reason="make clients has installed nothing yet"),
]
EXAMPLES = dict(
    re.findall(
        r"\*\*(\w+)\*\* \(`[^\n]*\n```\w+\n(.*?)```",
        GATEWAY_PAGE.read_text().partition("### Other clients")[2].partition("## Endpoints")[0],
        re.DOTALL,
    )
)


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture(autouse=True)
def roomy(tree: Tree) -> None:
    """A model that only replies, with a window that holds everything."""
    tree.fake.configure(context_limit=0, tokens=20, ms=0, replies=[], faults=[])


def is_one_chat(tree: Tree) -> bool:
    """Return True if the newest request included the previous reply and its chat was found."""
    rows = tree.database.rows(
        "SELECT count(*) AS turns FROM chats_turn WHERE client IS NOT NULL"
        " AND branch_id = (SELECT branch_id FROM chats_turn WHERE client IS NOT NULL"
        " ORDER BY queued_at DESC LIMIT 1)",
        [],
    )
    return bool(rows[0]["turns"] == 2)


def test_javascript(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    assert " 0@" in run_client(
        ["node", "it.mjs"], env=env, folder=tmp_path, it_mjs=EXAMPLES["JavaScript"]
    )
    assert is_one_chat(tree)


@pytest.mark.parametrize("name", ["LangChain", "LiteLLM"])
def test_python(tree: Tree, env: dict[str, str], tmp_path: Path, name: str) -> None:
    command = [str(CLIENTS / "bin" / "python"), "-c", EXAMPLES[name]]
    assert " 0@" in run_client(command, env=env, folder=tmp_path)
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
    run_client(command, env=env, folder=tmp_path, it_mjs=JAVASCRIPT)
    assert_grown(tree, name)


def test_the_command_llm(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    shown = run_client(["sh", "-ec", EXAMPLES["LLM"]], env=env, folder=tmp_path)
    assert shown.count(" 0@") == 2
    assert is_one_chat(tree)


def turns_titled(tree: Tree, title: str) -> tuple[int, int]:
    """The branches and turns of the chats with a title that begins so."""
    rows = tree.database.rows(
        "SELECT count(DISTINCT branch_id) AS branches, count(*) AS turns FROM chats_turn"
        " JOIN chats_branch b ON b.id = branch_id JOIN chats_chat c ON c.id = b.chat_id"
        " WHERE client IS NOT NULL AND c.title LIKE %s",
        [f"{title}%"],
    )
    return rows[0]["branches"], rows[0]["turns"]


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_the_ai_sdk(tree: Tree, env: dict[str, str], tmp_path: Path, name: str) -> None:
    """Streams, a tool call and its result, a further turn; Responses by references to items."""
    title = f"AI SDK {name}"
    call = {"name": "look", "arguments": {"city": "Rome"}, "id": "call_1"}
    tree.fake.configure(replies=[{"tool_calls": [call], "match": title}])
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    env = {**env, "TITLE": title, "FORM": name}
    shown = run_client(["node", "it.mjs"], env=env, folder=tmp_path, it_mjs=AI_SDK)
    assert shown.count(" 0@") == 2
    assert turns_titled(tree, title) == (1, 3)


@pytest.mark.parametrize("name", ["LlamaIndex", "pydantic-ai", "openai-agents"])
def test_python_frameworks(tree: Tree, env: dict[str, str], tmp_path: Path, name: str) -> None:
    """A tool call with its result, a stream, and a further turn."""
    title = f"With {name}"
    call = {"name": "look", "arguments": {"city": "Rome"}, "id": "call_1"}
    tree.fake.configure(replies=[{"tool_calls": [call], "match": title}])
    command = [str(CLIENTS / "bin" / "python"), "-c", FRAMEWORKS[name]]
    shown = run_client(command, env={**env, "TITLE": title}, folder=tmp_path)
    assert shown.count(" 0@") == 2
    assert turns_titled(tree, title) == (1, 3)


def test_opencode(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    """A stream with a tool call, and a session that is resumed."""
    config = json.loads(EXAMPLES["opencode"].replace("MODEL", env["MODEL"]))
    config["provider"]["palimpsest"]["options"]["baseURL"] = env["OPENAI_BASE_URL"]
    call = {"name": "bash", "arguments": {"command": "echo palimpsest", "description": "Echo"}}
    # It requests a title first.
    replies: list[dict[str, Any]] = [{"text": "A look"}, {"tool_calls": [{**call, "id": "call_1"}]}]
    tree.fake.configure(replies=[{**reply, "match": "Look at opencode"} for reply in replies])
    env = {**env, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    ask = ["opencode", "run"]
    shown = run_client(
        [*ask, "Look at opencode"], env=env, folder=tmp_path, opencode_json=json.dumps(config)
    )
    assert "0@" in shown
    tree.fake.configure(replies=[])
    assert "0@" in run_client([*ask, "--continue", "And now?"], env=env, folder=tmp_path)
    assert turns_titled(tree, "%Look at opencode") == (1, 3)


def test_aider(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    """Two turns of a session whose reminders move, and a restored one; aider calls no tools."""
    env = {**env, "OPENAI_API_BASE": env["OPENAI_BASE_URL"]}
    ask = [str(CLIENTS / "aider" / "bin" / "aider"), "--model", f"openai/{env['MODEL']}", *QUIET]
    shown = run_client(ask, env=env, folder=tmp_path, said="Look at aider\nAnd now?\n")
    assert shown.count(" 1@") == 2
    assert is_one_chat(tree)
    more = ["--restore-chat-history", "--message", "And then?"]
    assert "0@" in run_client([*ask, *more], env=env, folder=tmp_path)


# Aider in scripting mode: no repository, no questions, no network except the gateway.
QUIET = (
    *(
        "--no-git",
        "--yes-always",
        "--no-fancy-input",
        "--no-check-update",
        "--no-show-model-warnings",
    ),
    *("--analytics-disable", "--no-pretty", "--no-show-release-notes", "--edit-format", "ask"),
)
# Typical use of these packages: a question that needs a tool, then one more turn.
AI_SDK = """
import { streamText, tool, stepCountIs, jsonSchema } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
const { MODEL, TITLE, FORM, OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey } = process.env;
const model = FORM === "responses"
  ? createOpenAI({ baseURL, apiKey })(MODEL)
  : createOpenAICompatible({ name: "palimpsest", baseURL, apiKey })(MODEL);
const properties = { city: { type: "string" } };
const look = tool({
  description: "Looks at a city",
  inputSchema: jsonSchema({ type: "object", properties, required: ["city"] }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const messages = [{ role: "user", content: TITLE }];
for (const next of ["And now?", ""]) {
  const stopWhen = stepCountIs(3);
  const result = streamText({ model, messages, tools: { look }, stopWhen, maxRetries: 0 });
  for await (const piece of result.textStream) process.stdout.write(piece);
  messages.push(...(await result.responseMessages), { role: "user", content: next });
}
"""
# A chat without a user interface, as the package's own hooks build it.
USE_CHAT = """
import { AbstractChat, DefaultChatTransport, safeValidateUIMessages } from "ai";
const { API, OPENAI_API_KEY } = process.env;
const headers = { Authorization: `Bearer ${OPENAI_API_KEY}` };
const api = `${API}/ui-chats`;
class State {
  status = "ready"; error = undefined; messages = [];
  constructor(messages) { this.messages = messages ?? []; }
  pushMessage = (m) => { this.messages = [...this.messages, m]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (i, m) => { this.messages = this.messages.map((o, j) => (j === i ? m : o)); };
  snapshot = (thing) => structuredClone(thing);
}
const errors = [];
class Chat extends AbstractChat {
  constructor({ messages, ...rest }) {
    const transport = new DefaultChatTransport({ api, headers });
    const onError = (e) => errors.push(e.message);
    super({ ...rest, transport, state: new State(messages), onError });
  }
}
const text = (m) => m.parts.filter((p) => p.type === "text").map((p) => p.text).join("");
const load = async (id) => (await fetch(`${api}/${id}`, { headers })).json();
const same = (shown, stored) =>
  JSON.stringify(shown.map((m) => [m.id, m.role, text(m)])) ===
  JSON.stringify(stored.map((m) => [m.id, m.role, text(m)]));
const out = { equal: [] };
const id = `front-end ${process.pid}`;
const chat = new Chat({ id });
const compare = async () => {
  const stored = (await load(id)).messages;
  const valid = await safeValidateUIMessages({ messages: stored });
  out.equal.push(valid.success && same(chat.messages, stored));
};
await chat.sendMessage({ text: "Hello from useChat", metadata: { mood: "fine" } });
out.sent = chat.messages.map((m) => m.role);
await compare();
await chat.sendMessage({ text: "And now?" });
await compare();
await chat.sendMessage({ text: "Other words", messageId: chat.messages[0].id });
out.edited = [text(chat.messages[0]), chat.messages.length];
await compare();
const before = chat.messages.at(-1).id;
await chat.regenerate();
out.regenerated = [chat.messages.length, chat.messages.at(-1).id !== before];
await compare();
const running = chat.sendMessage({ text: "Count [[fake tokens=400 ms=50]]" });
await new Promise((done) => setTimeout(done, 1500));
await chat.stop();
await running;
const loaded = await load(id);
const other = new Chat({ id, messages: loaded.messages });
setTimeout(() => fetch(`${api}/${id}/stream`, { method: "DELETE", headers }), 1500);
await other.resumeStream();
out.stopped = [chat.status];
const last = (await load(id)).messages.at(-1);
const ended = other.messages.at(-1);
out.resumed = [ended.role === "assistant" && ended.id === last.id, other.status];
const foreign = [{ id: "a1", role: "assistant", parts: [{ type: "text", text: "Earlier" }] }];
const far = await fetch(api, {
  method: "POST",
  headers: { ...headers, "Content-Type": "application/json" },
  body: JSON.stringify({
    id: `${id} elsewhere`,
    messages: [...foreign, { id: "u1", role: "user", parts: [{ type: "text", text: "x" }] }],
  }),
});
out.refused = (await far.json()).error.code;
out.errors = errors;
console.log(JSON.stringify(out));
"""
FRAMEWORKS = {
    "LlamaIndex": """
import json
import os
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

def look(city: str) -> str:
    "Looks at a city."
    return f"sunny in {city}"

tool = FunctionTool.from_defaults(look)
model = OpenAILike(
    model=os.environ["MODEL"], api_base=os.environ["OPENAI_BASE_URL"], max_retries=0,
    api_key=os.environ["OPENAI_API_KEY"], is_chat_model=True, is_function_calling_model=True,
)
said = [ChatMessage(role="user", content=os.environ["TITLE"])]
reply = model.chat(said, tools=[tool.metadata.to_openai_tool()])
said.append(reply.message)
for call in reply.message.additional_kwargs["tool_calls"]:
    made = look(**json.loads(call.function.arguments))
    told = {"tool_call_id": call.id}
    said.append(ChatMessage(role="tool", content=made, additional_kwargs=told))
for question in ("And now?", ""):
    for piece in model.stream_chat(said):
        print(piece.delta or "", end="")
    said += [piece.message, ChatMessage(role="user", content=question)]
""",
    "pydantic-ai": """
import asyncio
import os
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel(os.environ["MODEL"]))

@agent.tool_plain
def look(city: str) -> str:
    "Looks at a city."
    return f"sunny in {city}"

async def main() -> None:
    history = None
    for question in (os.environ["TITLE"], "And now?"):
        async with agent.run_stream(question, message_history=history) as result:
            async for piece in result.stream_text(delta=True):
                print(piece, end="")
        history = result.all_messages()

asyncio.run(main())
""",
    "openai-agents": """
import asyncio
import os
from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)

@function_tool
def look(city: str) -> str:
    "Looks at a city."
    return f"sunny in {city}"

async def main() -> None:
    agent = Agent(name="Guide", model=os.environ["MODEL"], tools=[look])
    said = []
    for question in (os.environ["TITLE"], "And now?"):
        said.append({"role": "user", "content": question})
        result = Runner.run_streamed(agent, said)
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    print(event.data.delta, end="")
        said = result.to_input_list()

asyncio.run(main())
""",
}


@pytest.mark.parametrize("package", ["ai5", "ai6", "ai"])
def test_use_chat(tree: Tree, env: dict[str, str], tmp_path: Path, package: str) -> None:
    """The default transport of `useChat`: send, reload, edit, regenerate, stop and resume."""
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    script = USE_CHAT.replace('from "ai"', f'from "{package}"')
    env = {**env, "API": env["OPENAI_BASE_URL"].replace("/v1", "/api/v1")}
    shown = json.loads(run_client(["node", "it.mjs"], env=env, folder=tmp_path, it_mjs=script))
    assert shown["sent"] == ["user", "assistant"]
    assert shown["equal"] == [True, True, True, True]
    assert shown["edited"] == ["Other words", 2]
    assert shown["regenerated"] == [2, True]
    assert shown["stopped"][0] == "ready"
    assert shown["resumed"] == [True, "ready"]
    assert shown["refused"] == "history_not_stored"
    assert shown["errors"] == []


def test_codex(tree: Tree, env: dict[str, str], tmp_path: Path) -> None:
    text = EXAMPLES["Codex"].replace('"MODEL"', '"fake"')
    home = Path(env["CODEX_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text.replace("OPENAI_BASE_URL", env["OPENAI_BASE_URL"]))
    call = {"name": "exec_command", "arguments": {"cmd": "echo palimpsest"}, "id": "call_1"}
    tree.fake.configure(replies=[{"tool_calls": [call], "match": "Look around"}])
    ask = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
    shown = run_client([*ask, "Look around"], env=env, folder=tmp_path)
    assert " 0@" in shown
    tree.fake.configure(replies=[])
    again = [*ask[:2], "resume", "--last", "--skip-git-repo-check", "And now?"]
    assert " 0@" in run_client(again, env=env, folder=tmp_path)
    rows = tree.database.rows(
        "SELECT count(DISTINCT branch_id) AS branches, count(*) AS turns FROM chats_turn"
        " JOIN chats_branch b ON b.id = branch_id JOIN chats_chat c ON c.id = b.chat_id"
        " WHERE client IS NOT NULL AND c.title LIKE %s",
        ["Look around%"],
    )
    assert (rows[0]["branches"], rows[0]["turns"]) == (1, 3)
