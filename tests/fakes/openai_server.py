"""A scriptable OpenAI-compatible server for tests. Loopback only.

Serves   POST /v1/chat/completions (streamed and whole), POST /v1/embeddings, GET /v1/models
Control  GET or POST /_config (see scripting.Script), GET /_requests?since=SEQ, DELETE /_requests,
         GET /_stats

A request's options come from /_config, the fault queue, the model's name
(`fake-chat+tokens=50+fault=cut`) and the last user message (`[[fake tokens=5 fault=cut]]`), the
later ones winning.

Faults before the reply: 401 402 403 404 429 500 502 503 quota redirect filter400 context context413
context429 hang compressed bigheaders. In the reply, after `after` deltas: cut malformed
error_event context200 stall bigline. Of its form: crlf bom comments keepalives multiline split (by
`split=`). Of its end: nodone nofinish length filter. Of its content: empty whitespace
reasoning_only refusal unlimited (more than was asked for).

Every request is recorded with how it ended: `done`, `client_gone` (the client closed early, which
is how a test sees that a stop reached the provider), or the name of the fault.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import struct
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from chats.prompt.tokenizer import O200kCounter
from tests.fakes import scripting
from tests.fakes.http_server import (
    HttpRequest,
    read_request,
    send_json,
)
from tests.fakes.replies import (
    deltas,
    error_of,
    finish_of,
    logprobs_of,
    output_limit,
    usage_of,
)
from tests.fakes.scripting import Plan, Script
from tests.fakes.streamed import FOR_EVER, Interrupted, Stream


class FakeModel:
    """The server's state and its answers; one object for all connections."""

    path = "/v1/chat/completions"
    streamed: type[Stream] = Stream

    def __init__(self, counter: scripting.Counter) -> None:
        self.script = Script(counter)
        self.records: list[dict[str, Any]] = []
        self.stats: Counter[str] = Counter()
        self._seq = 0
        # The prompt in the cache, and a lock so that one prompt is read at a time.
        self._known: list[dict[str, Any]] = []
        self._slot = asyncio.Lock()

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of one connection, one after another."""
        self.stats["connections"] += 1
        with suppress(ConnectionError, Interrupted):
            while (request := await read_request(reader)) is not None:
                if not await self._answer(request, reader, writer):
                    break
        writer.close()

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request. Return True if the connection can be used again."""
        if (request.method, request.path) == ("POST", self.path):
            return await self._watched_chat(request, reader, writer)
        if (request.method, request.path) == ("POST", "/v1/embeddings"):
            await self._embeddings(self._record(request), writer)
            return True
        status, answer = self._control(request)
        await send_json(writer, answer, status=status)
        return True

    def _control(self, request: HttpRequest) -> tuple[int, object]:
        match request.method, request.path:
            case "GET", "/v1/models":
                return 200, {"object": "list", "data": self.script.listed()}
            case "POST", "/_config":
                self.script.configure(json.loads(request.body))
                return 200, self.script.settings()
            case "GET", "/_config":
                return 200, self.script.settings()
            case "GET", "/_requests":
                since = int(request.query.get("since", ["0"])[0])
                return 200, [record for record in self.records if record["seq"] > since]
            case "DELETE", "/_requests":
                self.records.clear()
                return 200, []
            case "GET", "/_stats":
                return 200, dict(self.stats)
        return 404, {"error": {"message": "There is no such path.", "code": "not_found"}}

    async def _watched_chat(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request and detect that the client disconnects."""
        record = self._record(request)
        self.stats["running"] += 1
        self.stats["most_running"] = max(self.stats["most_running"], self.stats["running"])
        chat = asyncio.create_task(self._chat(record, writer))
        # A client that waits for its answer sends nothing, so the end of the input means it left.
        leaving = asyncio.create_task(reader.read(1))
        await asyncio.wait({chat, leaving}, return_when=asyncio.FIRST_COMPLETED)
        unfinished = chat if leaving.done() and not chat.done() else leaving
        unfinished.cancel()
        results = await asyncio.gather(chat, leaving, return_exceptions=True)
        self.stats["running"] -= 1
        if unfinished is chat or isinstance(results[0], ConnectionError):
            record["outcome"] = "client_gone"
        elif isinstance(results[0], Exception) and not isinstance(results[0], Interrupted):
            raise results[0]
        self.stats[str(record["outcome"])] += 1
        return unfinished is leaving and results[0] is None

    def _record(self, request: HttpRequest) -> dict[str, Any]:
        self._seq += 1
        self.stats["chat"] += 1
        headers = dict(request.headers)
        if "authorization" in headers:
            headers["authorization"] = "…" + headers["authorization"][-4:]
        record: dict[str, Any] = {
            "seq": self._seq,
            "at": time.monotonic(),
            "tag": self.script.tag,
            "headers": headers,
            "body": json.loads(request.body),
            "body_sha256": hashlib.sha256(request.body).hexdigest(),
            "outcome": None,
            "tokens_sent": 0,
        }
        self.records.append(record)
        return record

    async def _chat(self, record: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        body = self.understood(record["body"])
        plan = self.script.plan(body)
        record["prompt_tokens"] = plan.prompt_tokens
        error = error_of(plan, body)
        if error is not None:
            record["outcome"] = plan.options.fault or "rejected"
            status, told = self.in_its_form(*error)
            await send_json(writer, told, status=status, headers=_error_headers(plan))
        elif plan.options.fault == "hang":
            record["outcome"] = "hang"
            await asyncio.sleep(FOR_EVER)
        elif plan.options.read_ms and body.get("stream"):
            async with self._slot:
                await self._read(record, ms=plan.options.read_ms)
                await self.streamed(plan, record, writer, body=body).send()
        elif body.get("stream"):
            await self.streamed(plan, record, writer, body=body).send()
        else:
            await asyncio.sleep((plan.options.ttft + plan.options.ms * plan.options.tokens) / 1000)
            await send_json(writer, self.whole(plan, record, body))

    def understood(self, body: dict[str, Any]) -> dict[str, Any]:
        """Parse a request for the script."""
        return body

    def in_its_form(self, status: int, error: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Convert an error of the script to OpenAI's format."""
        return status, error

    def whole(self, plan: Plan, record: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """A reply that is not streamed."""
        return _whole_reply(plan, record)

    async def _embeddings(self, record: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Answer with one short embedding for each input; faults before the reply as in chats."""
        body = record["body"]
        plan = self.script.plan({"model": body["model"]})
        error = error_of(plan, body)
        if error is not None:
            record["outcome"] = plan.options.fault or "rejected"
            await send_json(writer, error[1], status=error[0], headers=_error_headers(plan))
            return
        record["outcome"] = "done"
        await send_json(writer, _embedded(body))

    async def _read(self, record: dict[str, Any], *, ms: float) -> None:
        """Wait as long as reading the prompt takes, and put the prompt into the cache."""
        messages = record["body"]["messages"]
        record["unread"] = self.script.unread(messages, known=self._known)
        await asyncio.sleep(record["unread"] * ms / 1000)
        self._known = messages


def _error_headers(plan: Plan) -> dict[str, str]:
    if plan.options.fault == "redirect":
        return {"location": "http://169.254.169.254/latest/meta-data/"}
    return {"retry-after": plan.options.retry_after} if plan.options.retry_after else {}


def _whole_reply(plan: Plan, record: dict[str, Any]) -> dict[str, Any]:
    said = list(deltas(plan, record["body"]))[: output_limit(record["body"])]
    record["tokens_sent"] = len(said)
    record["outcome"] = "done"
    message: dict[str, Any] = {"role": "assistant"}
    for key in ("content", "reasoning_content", "refusal"):
        message[key] = "".join(delta.get(key, "") for delta in said) or None
    if plan.reply is not None and plan.reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.get("id", f"call_fake{n}"),
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for n, call in enumerate(plan.reply.tool_calls)
        ]
    finish = finish_of(plan, record["body"], len(said))
    asked = bool(record["body"].get("logprobs"))
    told = {"logprobs": logprobs_of(said, record["body"])} if asked else {}
    return {
        "id": f"fake-{record['seq']}",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **told}],
        "usage": usage_of(plan, len(said)),
    }


def _embedded(body: dict[str, Any]) -> dict[str, Any]:
    said = body["input"]
    inputs = said if isinstance(said, list) and not isinstance(said[0], int) else [said]
    size = body.get("dimensions") or 4
    vectors = [[len(one) / (place + 1) for place in range(size)] for one in inputs]
    is_packed = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": n,
            "embedding": base64.b64encode(struct.pack(f"<{size}f", *vector)).decode()
            if is_packed
            else vector,
        }
        for n, vector in enumerate(vectors)
    ]
    tokens = sum(map(len, inputs))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _quarter(text: str) -> int:
    return -(-len(text) // 4)


COUNTERS: dict[str, scripting.Counter] = {"chars4": _quarter, "o200k": O200kCounter().count}


async def _serve(port: int, counter: str, model_type: type[FakeModel]) -> None:
    model = model_type(COUNTERS[counter])
    server = await asyncio.start_server(model.serve_connection, "127.0.0.1", port, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - its starter reads the port
    async with server:
        await server.serve_forever()


def main(model_type: type[FakeModel] = FakeModel) -> None:
    """Serve until interrupted. The first line of output is the port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--counter", choices=COUNTERS, default="chars4")
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(arguments.port, arguments.counter, model_type))


if __name__ == "__main__":
    main()
