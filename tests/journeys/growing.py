"""A conversation of sixty turns with tool calls in a small window: requirements of its prompts."""

import json
from itertools import pairwise
from typing import Any

from tests.faults.harness import Tree

LIMIT = 8000
TURNS = 60
MOST_COMPACTIONS = 12
# The share of each prompt's bytes that is a prefix of the next, unless a compaction is between.
LEAST_SHARE = 0.95
RECEIPTS = """
SELECT r.compaction_id, r.left_out FROM chats_receipt r
JOIN chats_turn t ON t.id = r.turn_id JOIN chats_branch b ON b.id = t.branch_id
JOIN chats_chat c ON c.id = b.chat_id
WHERE c.title LIKE %s AND r.outcome = 'ok' AND r.step > 0 AND r.call > 0 ORDER BY r.created_at
"""
# The behaviour of third-party clients: ask, answer calls, and send the whole history each time.
LANGCHAIN = """
import os
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def look(n: int) -> str:
    "Looks something up."
    return f"found{n} " * 40

model = ChatOpenAI(model=os.environ["MODEL"], max_retries=0).bind_tools([look])
said = [SystemMessage("You look things up.")]
for n in range(int(os.environ["TURNS"])):
    said.append(HumanMessage(f"{os.environ['TITLE']} {n}: " + f"word{n} " * 60))
    while True:
        said.append(model.invoke(said))
        if not said[-1].tool_calls:
            break
        said += [look.invoke(call) for call in said[-1].tool_calls]
"""
JAVASCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ maxRetries: 0 });
const { MODEL: model, TITLE, TURNS } = process.env;
const parameters = { type: "object", properties: {} };
const tools = [{ type: "function", function: { name: "look", parameters } }];
const messages = [{ role: "system", content: "You look things up." }];
for (let n = 0; n < Number(TURNS); n += 1) {
  messages.push({ role: "user", content: `${TITLE} ${n}: ` + `word${n} `.repeat(60) });
  for (;;) {
    const reply = await client.chat.completions.create({ model, messages, tools });
    const message = reply.choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) break;
    for (const call of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: `found${n} `.repeat(40) });
    }
  }
}
"""


def prepare(tree: Tree, title: str) -> None:
    """Let the model call a tool in every other turn, and refuse prompts over its window."""
    calls = [{"name": "look", "arguments": {"n": n}, "id": f"call_{n}"} for n in range(TURNS)]
    replies = [
        {"tool_calls": [made], "match": f"{title} {n}:"} for n, made in enumerate(calls) if n % 2
    ]
    tree.fake.configure(context_limit=LIMIT, tokens=20, ms=0, replies=replies, faults=[])
    tree.fake.forget_requests()


def is_turn(record: Any) -> bool:
    """Return True if the request is for a reply to the client, not for a summary."""
    return "tools" in record["body"]


def assert_grown(tree: Tree, title: str) -> None:
    """Check that every prompt fits, is whole, and extends the previous one until a compaction."""
    records = [record for record in tree.fake.requests() if is_turn(record)]
    done = [record for record in records if record["outcome"] == "done"]
    sent = [record["body"]["messages"] for record in done]
    assert len(sent) == TURNS + TURNS // 2
    assert all(record["prompt_tokens"] <= LIMIT for record in done)
    # The provider refused a prompt at most once: that taught the limit.
    assert len(records) - len(sent) <= 1
    for messages in sent:
        open_calls = {c["id"] for m in messages for c in m.get("tool_calls") or ()}
        assert open_calls == {m["tool_call_id"] for m in messages if m["role"] == "tool"}
    chats = tree.database.rows(
        "SELECT archived FROM chats_chat WHERE title LIKE %s", [f"{title} 0%"]
    )
    assert [bool(row["archived"]) for row in chats] == [False]
    rows = tree.database.rows(RECEIPTS, [f"{title} 0%"])
    assert len(rows) == len(sent)
    # Identifies the prompt's history: it changes after a summary or a window move.
    states = [(row["compaction_id"], str(row["left_out"])) for row in rows]
    shares = [
        share(before, after)
        for (before, after), (old, new) in zip(pairwise(sent), pairwise(states), strict=True)
        if old == new
    ]
    compactions = len(sent) - 1 - len(shares)
    assert 0 < compactions <= MOST_COMPACTIONS
    assert min(shares) >= LEAST_SHARE, f"{title}: {compactions} compactions, {min(shares):.4f}"


def share(before: list[Any], after: list[Any]) -> float:
    """The share of a prompt's bytes that is a prefix of the next."""
    old, new = ("".join(json.dumps(m) for m in messages) for messages in (before, after))
    same = (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    return next(same, min(len(old), len(new))) / len(old)
