"""Real processes with a model server of Anthropic's API: pages, the gateway, summaries."""

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.fakes.fake_server import FakeServer
from tests.faults.client import Client, Screen
from tests.faults.harness import Tree, running_tree
from tests.faults.programs import until
from tests.faults.promises import reply_of, text_of

pytestmark = pytest.mark.processes
WORDS = "the order of a heron and a page " * 10


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    """One instance with its fake model server."""
    with FakeServer(kind="anthropic") as fake, running_tree(fake) as made:
        yield made


@pytest.fixture
def alice(tree: Tree) -> Iterator[Client]:
    """Alice's API client."""
    tree.fake.configure(replies=[], faults=[], reply="")
    tree.fake.forget_requests()
    with Client(tree) as client:
        yield client


def count_closed(tree: Tree) -> int:
    """The number of requests that ended because their client closed the connection."""
    return sum(record["outcome"] == "client_gone" for record in tree.fake.requests())


def test_a_stop_ends_the_call_at_the_server(tree: Tree, alice: Client) -> None:
    before = count_closed(tree)
    chat = alice.new_chat()
    turn = alice.send(chat, "Stop me [[fake tokens=1000 ms=40]]")
    screen = Screen()
    with alice.events(chat, turn) as events:
        for event in events:
            screen.show(event)
            if screen.text:
                break
        assert alice.stop(chat, turn).status_code == 202
        screen.show_all(events)
    assert (screen.status, screen.text) == ("stopped", text_of(reply_of(tree, turn)))
    # The title of the chat can be requested later.
    until(lambda: count_closed(tree) == before + 1, seconds=15, what="a closed connection")


def test_summaries_are_written_and_sent_in_place_of_messages(tree: Tree, alice: Client) -> None:
    chat = alice.new_chat()
    tree.desk.ask("fold_early", chat=chat)
    tree.fake.configure(reply="summary")
    for number in range(3):
        turn = tree.post(f"Round {number} {WORDS}", chat=chat)
        assert tree.wait_until_over(turn)["status"] == "completed"
    asked = "SELECT * FROM chats_compaction WHERE status = 'ready' OR published_at IS NOT NULL"
    until(lambda: tree.database.rows(asked, []), seconds=40, what="a summary")
    turn = tree.post("And now?", chat=chat)
    assert tree.wait_until_over(turn)["status"] == "completed"
    (newest,) = tree.fake.requests()[-1:]
    assert "Summary of the earlier messages" in str(newest["body"]["messages"][0])
    assert "Round 0" not in str(newest["body"]["messages"][1:])


def test_openai_programs_speak_to_it_through_the_gateway(tree: Tree, alice: Client) -> None:
    transport = httpx2.HTTPTransport(uds=tree.socket)
    tool: Any = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
    }
    messages: list[Any] = [{"role": "user", "content": "Look. " + WORDS}]
    with httpx2.Client(transport=transport, timeout=60) as http:
        client = openai.OpenAI(
            base_url="http://localhost/v1",
            api_key=tree.keys["alice"],
            http_client=http,
            max_retries=0,
        )
        call = {"name": "look", "arguments": {"at": "é"}, "id": "toolu_1"}
        # Without a match, a late call of an earlier test would get it.
        said = {"match": "Look. ", "text": "I look.", "tool_calls": [call]}
        tree.fake.configure(replies=[said])
        chunks = client.chat.completions.create(
            model="fake",
            messages=messages,
            tools=[tool],
            stream=True,
            temperature=0.2,
            stream_options={"include_usage": True},
        )
        heard = list(chunks)
        deltas = [chunk.choices[0].delta for chunk in heard if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "I look."
        called = [c for delta in deltas for c in delta.tool_calls or []]
        assert called[0].id == "toolu_1"
        assert [c.choices[0].finish_reason for c in heard if c.choices][-1] == "tool_calls"

        messages.append(
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "toolu_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": "é"}'},
                    }
                ],
            }
        )
        messages.append({"role": "tool", "tool_call_id": "toolu_1", "content": "A heron."})
        answer = client.chat.completions.with_raw_response.create(
            model="fake", messages=messages, tools=[tool]
        )
    whole = answer.parse()
    assert answer.headers["X-Context-Decision"] == "continue"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage
    assert whole.usage.prompt_tokens_details
    assert (whole.usage.prompt_tokens_details.cached_tokens or 0) > 0
    last = tree.fake.requests()[-1]["body"]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]
    assert last["messages"][1]["content"][1]["input"] == {"at": "é"}
    assert "temperature" not in last
