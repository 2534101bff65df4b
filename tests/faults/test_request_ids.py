"""One id follows a request through the logs of the web process, its task and its model call."""

import json
import shutil
from collections.abc import Iterator

import httpx2
import pytest

from tests.fakes.fake_server import FakeServer
from tests.faults.harness import Tree, new_folder
from tests.faults.stores import SQLite

pytestmark = pytest.mark.processes
REQUEST = "trace-me.0815"
QUESTION = "a canary of a question"


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A web process and a worker that log everything as JSON."""
    folder = new_folder()
    with FakeServer() as fake:
        made = Tree(folder=folder, database=SQLite(folder), fake=fake)
        made.env |= {"LOG_FORMAT": "json", "LOG_LEVEL": "DEBUG", "TRUSTED_PROXY": "1"}
        try:
            made.broker.start()
            made.prepare()
            made.worker()
            made.web()
            yield made
        finally:
            made.close()
            shutil.rmtree(folder)


def lines_of(tree: Tree, name: str) -> list[dict[str, str]]:
    """The log lines of a kind of process that name the request."""
    said = [line for program in tree.running(name) for line in program.said().splitlines()]
    found = [json.loads(line) for line in said if line.startswith("{")]
    return [line for line in found if line["request_id"] == REQUEST]


def test_one_id_is_in_every_log(tree: Tree) -> None:
    transport = httpx2.HTTPTransport(uds=tree.socket)
    headers = {"Authorization": f"Bearer {tree.keys['alice']}", "X-Request-ID": REQUEST}
    body = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=30) as client:
        answer = client.post("/v1/chat/completions", json=body, headers=headers)
        assert (answer.status_code, answer.headers["X-Request-ID"]) == (200, REQUEST)
        other = client.get("/healthz", headers={"X-Request-ID": "not allowed"})
        assert other.headers["X-Request-ID"] != "not allowed"
    web = {line["message"] for line in lines_of(tree, "web")}
    worker = {line["message"] for line in lines_of(tree, "worker")}
    assert "POST /v1/chat/completions 200" in web
    assert "chats.run_turn begins" in worker
    assert "model server 127.0.0.1 answered 200" in worker
    assert QUESTION not in tree.said()
