"""OpenAI's client and plain requests against a running server with a small model."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest

from tests.faults.harness import Tree
from tests.faults.programs import MANAGE, free_port, python, run, until
from tests.journeys.growing import TURNS, assert_grown, prepare
from tests.support.client_programs import GATEWAY_PAGE, is_answering

pytestmark = pytest.mark.processes
TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}
EXAMPLE = re.compile(r"```(?:sh|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture
def client(tree: Tree) -> Iterator[openai.OpenAI]:
    """The client with Alice's key."""
    tree.fake.configure(context_limit=0, tokens=20, ms=0, reply="", replies=[], faults=[])
    transport = httpx2.HTTPTransport(uds=tree.socket)
    with httpx2.Client(transport=transport, timeout=60) as http:
        yield openai.OpenAI(
            base_url="http://localhost/v1",
            api_key=tree.keys["alice"],
            http_client=http,
            max_retries=0,
        )


def test_the_client_lists_asks_streams_and_is_refused(client: openai.OpenAI) -> None:
    assert "fake" in [model.id for model in client.models.list()]
    assert client.models.retrieve("fake").object == "model"
    question: Any = [{"role": "user", "content": "Hello"}]
    answer = client.chat.completions.with_raw_response.create(model="fake", messages=question)
    assert answer.headers["X-Context-Decision"] == "new"
    whole = answer.parse()
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage
    assert whole.usage.completion_tokens == 20
    stream = client.chat.completions.create(
        model="fake", messages=question, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).startswith(" 0@")
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 20
    made = client.embeddings.create(model="fake", input=["One", "Two"], dimensions=3)
    assert [len(each.embedding) for each in made.data] == [3, 3]
    assert made.usage.prompt_tokens == 6
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(
            model="fake", messages=question, extra_headers={"X-Context-Policy": "off"}
        )
    dry = client.chat.completions.with_raw_response.create(
        model="fake", messages=question, extra_headers={"X-Context-Dry-Run": "true"}
    )
    assert dry.http_response.json()["decision"] == "new"
    for wrong, error in (
        ({"model": "nothing"}, openai.NotFoundError),
        ({"model": "closed"}, openai.APIStatusError),
        ({"model": "fake", "extra_body": {"base_url": "http://x"}}, openai.BadRequestError),
        ({"model": "fake+fault=context"}, openai.NotFoundError),
    ):
        with pytest.raises(error):
            client.chat.completions.create(messages=question, **wrong)
    filtered: Any = [{"role": "user", "content": "Hello [[fake fault=filter400]]"}]
    for streamed in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="fake", messages=filtered, stream=streamed)
        assert caught.value.code == "content_filter"


WORDS = "Good_day,_é_and_so_on."


def test_the_client_reads_log_probabilities(tree: Tree, client: openai.OpenAI) -> None:
    tree.fake.configure(reply=WORDS)
    question: Any = [{"role": "user", "content": "Hello"}]
    asked: Any = {"model": "fake", "messages": question, "logprobs": True, "top_logprobs": 3}
    [whole] = client.chat.completions.create(**asked).choices
    assert whole.logprobs
    told = whole.logprobs.content or []
    assert "".join(each.token for each in told) == whole.message.content
    assert [each.logprob for each in told] == [-len(each.token) / 8 for each in told]
    assert {len(each.top_logprobs) for each in told} == {3}
    with client.chat.completions.stream(**asked) as stream:
        events = list(stream)
        [streamed] = stream.get_final_completion().choices
    assert streamed.logprobs
    assert streamed.logprobs.content == told
    chunks = [event.chunk.choices[0] for event in events if event.type == "chunk"]
    for chunk in chunks:
        listed = chunk.logprobs.content if chunk.logprobs else None
        assert "".join(each.token for each in listed or ()) == (chunk.delta.content or "")
    [text] = client.completions.create(model="fake", prompt="Hello", logprobs=1, echo=True).choices
    assert text.logprobs
    assert text.logprobs.text_offset
    assert "".join(text.logprobs.tokens or ()) == text.text.removeprefix("Hello")
    assert text.logprobs.token_logprobs == [each.logprob for each in told]
    assert text.text[text.logprobs.text_offset[0] :] == whole.message.content
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fake", messages=question, top_logprobs=3)
    assert caught.value.param == "top_logprobs"


def parts_of(response: Any) -> list[Any]:
    """Return the parts of a response that has only a message."""
    [message] = response.output
    return list(message.content)


def test_the_client_reads_log_probabilities_of_responses(tree: Tree, client: openai.OpenAI) -> None:
    tree.fake.configure(reply=WORDS)
    made = client.responses.create(
        model="fake", input="Hello", include=["message.output_text.logprobs"], top_logprobs=1
    )
    part = parts_of(made)[0]
    assert "".join(each.token for each in part.logprobs) == made.output_text == part.text
    assert {len(each.top_logprobs) for each in part.logprobs} == {1}
    with client.responses.stream(
        model="fake", input="Hello", include=["message.output_text.logprobs"], top_logprobs=1
    ) as responses:
        deltas = [e for e in responses if e.type == "response.output_text.delta"]
        last = parts_of(responses.get_final_response())[0]
    for delta in deltas:
        assert "".join(each.token for each in delta.logprobs) == delta.delta
    assert last.logprobs == part.logprobs


def test_the_client_goes_on_from_its_responses(tree: Tree, client: openai.OpenAI) -> None:
    tree.fake.forget_requests()
    answer = client.responses.with_raw_response.create(
        model="fake", input="First", instructions="Be brief.", store=True
    )
    first = answer.parse()
    assert (first.status, first.usage and first.usage.output_tokens) == ("completed", 20)
    with client.responses.stream(
        model="fake", input="Second", previous_response_id=first.id
    ) as stream:
        kinds = {event.type for event in stream}
        second = stream.get_final_response()
    assert {"response.created", "response.output_text.delta", "response.completed"} <= kinds
    assert second.output_text.startswith(" 0@")
    bodies = [record["body"] for record in tree.fake.requests()]
    said = [m["content"] for m in bodies[-1]["messages"] if m["role"] != "system"]
    assert said == ["First", first.output_text, "Second"]
    assert "previous_response_id" not in bodies[-1]
    compacted = client.responses.compact(
        model="fake", input="Third", previous_response_id=second.id
    )
    kept: Any = [item.model_dump(exclude_none=True) for item in compacted.output]
    more: Any = [*kept, {"role": "user", "content": "Fourth"}]
    third = client.responses.with_raw_response.create(model="fake", input=more)
    assert third.headers["X-Context-Chat"] == answer.headers["X-Context-Chat"]
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="fake", input="x", previous_response_id="resp_x")
    assert caught.value.code == "previous_response_not_found"


def test_the_examples_of_the_documentation_work(tree: Tree, client: openai.OpenAI) -> None:
    port = free_port()
    tree.start("web", python(MANAGE, "web", "--port", str(port)))
    address = f"http://127.0.0.1:{port}"
    until(lambda: is_answering(address), seconds=30, what="the start of a web process")
    env = {
        "PATH": os.environ["PATH"],
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": tree.keys["alice"],
        "MODEL": "fake",
    }
    _, curl, *examples = re.findall(
        EXAMPLE, GATEWAY_PAGE.read_text().partition("### Other clients")[0]
    )
    shown = run(["sh", "-c", curl], env=env)
    assert '"object": "chat.completion"' in shown
    assert len(examples) == 2
    for example in examples:
        assert " 0@" in run(python("-c", example), env=env)


@pytest.mark.gateway_case(26)
@pytest.mark.gateway_case(32)
def test_a_conversation_of_sixty_turns_with_tools_in_a_small_window(
    tree: Tree, client: openai.OpenAI
) -> None:
    prepare(tree, "Question")
    said: list[Any] = [{"role": "system", "content": "You look things up."}]
    for n in range(TURNS):
        said.append({"role": "user", "content": f"Question {n}: " + f"word{n} " * 60})
        message = ask(client, said)
        said.append(message)
        if message.get("tool_calls"):
            call_id = message["tool_calls"][0]["id"]
            found = {"role": "tool", "tool_call_id": call_id, "content": f"found{n} " * 40}
            said.append(found)
            said.append(ask(client, said))
    assert_grown(tree, "Question")


def ask(client: openai.OpenAI, said: list[Any]) -> Any:
    """The reply to a conversation, in the format in which it is sent back."""
    reply = client.chat.completions.create(model="fake", messages=said, tools=[TOOL])
    return reply.choices[0].message.model_dump(exclude_none=True)


@pytest.mark.parametrize("many", [20, pytest.param(200, marks=pytest.mark.whole)])
def test_conversations_at_once_under_one_key_do_not_mix(
    tree: Tree, client: openai.OpenAI, many: int
) -> None:
    tree.fake.forget_requests()

    def talk(number: int) -> int:
        said: list[Any] = [{"role": "system", "content": "The same for all."}]
        for n in range(4):
            said.append({"role": "user", "content": f"<talk{number}> {n}"})
            reply = client.chat.completions.create(model="fake", messages=said)
            said.append(reply.choices[0].message.model_dump(exclude_none=True))
        return len(said)

    with ThreadPoolExecutor(many) as pool:
        assert set(pool.map(talk, range(many))) == {9}
    asked = set()
    # A call that a busy machine delayed too long is repeated once.
    for record in tree.fake.requests():
        texts = [m["content"] for m in record["body"]["messages"] if m["role"] == "user"]
        assert len({text.split(">")[0] for text in texts}) == 1
        assert [text.rpartition(" ")[2] for text in texts] == [str(n) for n in range(len(texts))]
        asked.add(texts[-1])
    assert asked == {f"<talk{number}> {n}" for number in range(many) for n in range(4)}


def test_a_stream_whose_worker_is_killed_ends_with_an_error(
    tree: Tree, client: openai.OpenAI
) -> None:
    question: Any = [{"role": "user", "content": "Long [[fake tokens=400 ms=25]]"}]
    stream = client.chat.completions.create(model="fake", messages=question, stream=True)
    pieces: list[str] = []

    def read() -> None:
        for chunk in stream:
            pieces.append(chunk.choices[0].delta.content or "")
            if len(pieces) == 3:
                tree.clear("worker")
                tree.worker(wait=False)

    with pytest.raises(openai.APIError) as caught:
        read()
    assert caught.value.code in {"reply_restarted", "worker_lost"}
    query = "SELECT * FROM chats_turn WHERE status IN ('queued', 'running')"
    until(lambda: not tree.database.rows(query, []), seconds=20, what="the end of its turn")
