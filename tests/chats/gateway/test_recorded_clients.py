"""Recorded requests of other clients: each conversation is recognised.

The tests of `make clients` made the recordings. Long texts are shortened. Those of Open WebUI and
Chainlit follow their documentation. `docs/clients.md` has the table.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from chats.providers.base import Finished, TextDelta, ToolCallDelta
from contextpolicy.models import ModelSpec
from tests.support.gateway_clients import Answer, GatewayClient

pytestmark = pytest.mark.django_db

FOLDER = Path(__file__).parents[2] / "recordings" / "clients"
TABLE = Path(__file__).parents[3] / "docs" / "clients.md"
FILES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def items_in(body: Mapping[str, Any]) -> Sequence[Any]:
    """Return the messages or items of a request."""
    said = body.get("messages") or body.get("input")
    return said if isinstance(said, list) else [{"role": "user", "content": said}]


def is_reply(item: Mapping[str, Any]) -> bool:
    """Return True for output of a model."""
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def reply_to(body: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return the script of the first reply that a later request contains and this one does not."""
    known = [item for item in items_in(body) if is_reply(item)]
    for other in later:
        new = [item for item in items_in(other) if is_reply(item) and item not in known]
        if new:
            return script_of(new[0])
    return (TextDelta("Said."), Finished("stop"))


def script_of(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the script that produces this reply."""
    calls = [item] if item.get("type") == "function_call" else item.get("tool_calls") or []
    if calls:
        told = [call.get("function", call) for call in calls]
        ids = [str(call.get("call_id") or call["id"]) for call in calls]
        made = [
            ToolCallDelta(n, ids[n], one["name"], one["arguments"]) for n, one in enumerate(told)
        ]
        return (*made, Finished("tool_calls"))
    content = item["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return (TextDelta(text), Finished("stop"))


def outputs_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the items of a streamed response. Empty for a chat completion."""
    last = [
        json.loads(block.partition("data: ")[2])
        for block in answer.body.split("\n\n")
        if block.startswith("event: response.completed")
    ]
    return list(last[-1]["response"]["output"]) if last else []


def with_known_ids(body: dict[str, Any], sent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Replace the ids of item references with the ids of the stored items."""
    left = list(sent)
    for item in items_in(body):
        if item.get("type") == "item_reference":
            prefix = item["id"].partition("_")[0]
            own = next(one for one in left if one["id"].startswith(prefix))
            item["id"] = own["id"]
    return body


@pytest.mark.parametrize("name", FILES)
def test_each_recorded_conversation_is_found_again(
    program: GatewayClient, demo_model: ModelSpec, name: str
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(slug="fake", supports_tools=True)
    records = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
    sent: list[dict[str, Any]] = []
    decisions = []
    for place, record in enumerate(records):
        later = [one["body"] for one in records[place + 1 :] if one["decision"] == "continue"]
        body = with_known_ids(record["body"], sent)
        response = program.open(body, path=record["path"], **record["headers"])
        assert response.status_code == 200, response.content
        program.work(response["X-Context-Report-Id"], *reply_to(record["body"], later))
        answer = program.close(response)
        assert answer.status == 200, answer.body
        decisions.append(answer.headers["X-Context-Decision"])
        sent += outputs_of(answer)
    assert decisions == [record["decision"] for record in records]


def test_the_table_names_each_recording() -> None:
    text = TABLE.read_text()
    assert [name for name in FILES if f"`{name}`" not in text] == []
