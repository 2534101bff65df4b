"""Rows F1 and F5 through `/v1`: an interrupted reply never looks complete, and is never lost."""

import json
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from tests.faults.client import Client
from tests.faults.harness import Tree
from tests.faults.programs import until

KILLS = 3
TOKENS = 150
LOGPROBS = "message.output_text.logprobs"
WORDS = f"[[fake tokens={TOKENS} ms=25]]"


def asked(path: str, number: int) -> dict[str, Any]:
    """A request for a stream with log probabilities."""
    text = f"Killed {number} {WORDS}"
    if path == "responses":
        return {"model": "fake", "stream": True, "input": text, "include": [LOGPROBS]}
    messages = [{"role": "user", "content": text}]
    return {"model": "fake", "stream": True, "messages": messages, "logprobs": True}


def data_of(lines: Iterator[str]) -> Iterator[Any]:
    """The data of the stream's events in order; `[DONE]` is not parsed."""
    for line in lines:
        if line.startswith("data: "):
            said = line.removeprefix("data: ")
            yield said if said == "[DONE]" else json.loads(said)


def count_words(said: Any) -> int:
    """Return the number of the reply's words in an event. A busy machine sends several in one."""
    return len(text_in([said]).split())


def text_in(said: list[Any]) -> str:
    """Return the reply's text in these events."""
    deltas = [c["delta"].get("content") for each in said for c in choices_of(each)]
    deltas += [each["delta"] for each in said if is_delta(each)]
    return "".join(delta or "" for delta in deltas)


def tokens_in(said: list[Any]) -> str:
    """Return the text of the tokens that have log probabilities in these events."""
    listed = [c["logprobs"]["content"] for e in said for c in choices_of(e) if c["logprobs"]]
    listed += [each["logprobs"] for each in said if is_delta(each)]
    return "".join(entry["token"] for entries in listed for entry in entries)


def choices_of(said: Any) -> list[Any]:
    """Return the choices in an event of chat completions."""
    return [] if said == "[DONE]" else said.get("choices", [])


def is_delta(said: Any) -> bool:
    """Return True if an event of Responses has text."""
    return bool(said != "[DONE]" and said.get("type") == "response.output_text.delta")


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_f01_a_stream_of_the_gateway_whose_worker_is_killed_ends_with_an_error(
    tree: Tree, alice: Client, path: str
) -> None:
    seed = random.randrange(2**32)  # noqa: S311  # a moment, no secret
    print(f"seed {seed}")  # noqa: T201  # shown where the test fails
    moments = random.Random(seed)  # noqa: S311  # as above
    for number in range(KILLS):
        after, heard, last = moments.randint(1, TOKENS // 2), 0, []
        address = f"http://localhost/v1/{path}"
        body, key = asked(path, number), {"Idempotency-Key": f"{path}-{seed}-{number}"}
        with alice.http.stream("POST", address, json=body, headers=key) as answer:
            assert answer.status_code == 200, answer.read()
            turn = answer.headers["X-Context-Report-Id"]
            for said in data_of(answer.iter_lines()):
                before, heard = heard, heard + count_words(said)
                last.append(said)
                if before < after <= heard:
                    tree.worker_of(turn).kill()
                    tree.worker(wait=False)
        assert heard >= after
        assert ends_with_an_error(last, path), last[-3:]
        assert text_in(last).startswith(tokens_in(last))
        # The turn continues, and the repeated request gets its reply.
        assert tree.wait_until_over(turn)["status"] == "completed"
        again = alice.http.post(address, json=body, headers=key)
        assert (again.status_code, again.headers["X-Context-Report-Id"]) == (200, turn)
        whole = list(data_of(iter(again.text.splitlines())))
        assert is_whole(whole, path)
        # Each token is from the attempt that wrote the text.
        assert tokens_in(whole) == text_in(whole) != ""


def is_whole(said: list[Any], path: str) -> bool:
    """Return True if a stream reports at its end that it is complete."""
    if path == "responses":
        return bool(said[-1]["type"] == "response.completed")
    return bool(said[-1] == "[DONE]")


def ends_with_an_error(said: list[Any], path: str) -> bool:
    """Return True if a stream ends with an error and never reports completion."""
    if "[DONE]" in said:
        return False
    if path == "responses":
        kinds = [event["type"] for event in said]
        return kinds[-2:] == ["error", "response.failed"] and "response.completed" not in kinds
    finished = [c["finish_reason"] for event in said for c in event.get("choices", ())]
    return not any(finished) and said[-1]["error"]["code"] in {"reply_restarted", "worker_lost"}


# The client's error for a broken connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("number", "stream"), [(signal.SIGTERM, False), (signal.SIGKILL, True)], ids=["term", "kill"]
)
def test_f05_a_web_process_that_ends_stops_no_reply_of_a_program(
    tree: Tree, number: signal.Signals, stream: bool
) -> None:
    """The same request with its key gets the reply of the turn that continued."""
    address = "http://localhost/v1/chat/completions"
    number_of = random.randrange(2**32)  # noqa: S311  # no secret
    body = {**asked("chat/completions", number_of), "stream": stream}
    key = {"Idempotency-Key": str(number_of)}
    if not tree.running("web"):
        tree.web()
    text = str(body["messages"][0]["content"])

    def end_web() -> None:
        until(lambda: text in json.dumps([r["body"] for r in tree.fake.requests()]), seconds=30)
        for web in tree.running("web"):
            web.send(number)

    with Client(tree) as before:
        if stream:
            with (
                suppress(httpx2.TransportError),
                before.http.stream("POST", address, json=body, headers=key) as answer,
            ):
                end_web()
                list(answer.iter_lines())
        else:
            threading.Thread(target=end_web).start()
            with suppress(httpx2.TransportError):
                cut = before.http.post(address, json=body, headers=key)
                assert (cut.status_code, cut.json()["error"]["code"]) == (503, "server_restarting")
    for web in tree.running("web"):
        web.process.wait(20)
    tree.web()
    with Client(tree) as after:
        again = after.http.post(address, json=body, headers=key)
        assert (again.status_code, again.headers["X-Context-Decision"]) == (200, "repeat")
        turn = tree.wait_until_over(again.headers["X-Context-Report-Id"])
        assert turn["status"] == "completed"
        assert "[DONE]" in again.text or again.json()["choices"][0]["finish_reason"] == "stop"
