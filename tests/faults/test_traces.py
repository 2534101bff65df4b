"""One trace follows a message from the request to the model server, and contains no text."""

import gzip
import http.server
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fakes.fake_server import FakeServer
from tests.faults.client import Client
from tests.faults.harness import Tree, new_folder
from tests.faults.programs import until
from tests.faults.stores import SQLite

pytestmark = pytest.mark.processes
QUESTION, ANSWER = "canary-question-41", "canary-answer-42"


class Collector(http.server.ThreadingHTTPServer):
    """An OpenTelemetry collector that keeps every span and the bytes it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[Any] = []
        self.heard = b""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        """Keep the spans of one export."""
        self.heard += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts exports."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_packed = self.headers.get("Content-Encoding") == "gzip"
        assert isinstance(self.server, Collector)
        self.server.take(gzip.decompress(body) if is_packed else body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    made = Collector()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def tree(collector: Collector) -> Iterator[Tree]:
    """A web process and a worker that send their spans to the collector."""
    folder = new_folder()
    with FakeServer() as fake:
        made = Tree(folder=folder, database=SQLite(folder), fake=fake)
        made.env |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        try:
            made.broker.start()
            made.prepare()
            made.worker()
            made.web()
            yield made
        finally:
            made.close()
            shutil.rmtree(folder)


def test_one_trace_follows_a_message_without_its_text(tree: Tree, collector: Collector) -> None:
    tree.fake.configure(reply=ANSWER)
    with Client(tree) as client:
        chat = client.new_chat()
        turn = client.send(chat, QUESTION)
        assert tree.wait_until_over(turn)["status"] == "completed"
        client.http.get(f"/search?q={QUESTION}")

    def complete() -> list[Any]:
        sent = [span for span in collector.spans if span.name == "reply"]
        trace = [span for span in collector.spans if sent and span.trace_id == sent[0].trace_id]
        names = {span.name for span in trace}
        return trace if {"request", "task", "reply", "model server"} <= names else []

    spans = {span.name: span for span in until(complete, seconds=20, what="the trace")}
    assert spans["task"].parent_span_id == spans["request"].span_id
    assert spans["reply"].parent_span_id == spans["task"].span_id
    assert spans["model server"].parent_span_id == spans["reply"].span_id
    facts = {each.key: each.value.string_value for each in spans["reply"].attributes}
    assert facts["turn.id"] == turn
    until(lambda: sum(span.name == "request" for span in collector.spans) >= 3, seconds=20)
    for text in (QUESTION, ANSWER, tree.keys["alice"]):
        assert text.encode() not in collector.heard
