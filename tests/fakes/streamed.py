"""The fake model's streamed reply, and the faults of a stream."""

import asyncio
import json
from typing import Any

from tests.fakes.http_server import begin_stream, end_stream, send_chunk
from tests.fakes.replies import (
    deltas,
    finish_of,
    has_usage,
    logprobs_of,
    output_limit,
    overflow_error,
    usage_of,
)
from tests.fakes.scripting import Plan

FOR_EVER = 3600.0
BIG_LINE = 1_100_000


class Interrupted(Exception):
    """A fault ended the answer and closed the connection."""


class Stream:
    """One streamed reply."""

    def __init__(
        self,
        plan: Plan,
        record: dict[str, Any],
        writer: asyncio.StreamWriter,
        *,
        body: dict[str, Any],
    ) -> None:
        self._plan = plan
        self._options = plan.options
        self._record = record
        self._body = body
        self._writer = writer
        self._is_first = True

    async def send(self) -> None:
        await begin_stream(self._writer, _stream_headers(self._options.fault))
        await asyncio.sleep(self._options.ttft / 1000)
        await self._begin()
        limit = None if self._options.fault == "unlimited" else output_limit(self._body)
        for number, delta in enumerate(deltas(self._plan, self._body)):
            if limit is not None and number >= limit:
                break
            if number == self._options.after:
                await self._fail()
            await self._say(delta)
            self._record["tokens_sent"] = number + 1
            if self._options.ms:
                await asyncio.sleep(self._options.ms / 1000)
        if self._record["tokens_sent"] <= self._options.after:
            await self._fail()
        await self._end(self._record["tokens_sent"])
        await end_stream(self._writer)
        self._record["outcome"] = "done"

    async def _begin(self) -> None:
        """Send the events before the first delta."""
        await self._event({"choices": [_choice({"role": "assistant", "content": ""})]})

    async def _say(self, delta: dict[str, Any]) -> None:
        """Send one delta."""
        choice = _choice(delta)
        if self._body.get("logprobs"):
            choice["logprobs"] = logprobs_of([delta], self._body)
        await self._event({"choices": [choice]})

    async def _end(self, sent: int) -> None:
        """Send the events after `sent` deltas."""
        if self._options.fault != "nofinish":
            finish = finish_of(self._plan, self._body, sent)
            await self._event({"choices": [_choice({}, finish)]})
        if has_usage(self._body, self._options):
            await self._event({"choices": [], "usage": usage_of(self._plan, sent)})
        if self._options.fault not in {"nodone", "nofinish"}:
            await self._line("[DONE]")

    async def _complain(self, error: dict[str, Any]) -> None:
        """Send an error in the middle of the stream."""
        await self._event({"error": error})

    async def _fail(self) -> None:
        """Apply the scripted fault at this point of the reply. Raises Interrupted."""
        fault = self._options.fault
        if fault == "malformed":
            await self._line('{"id":"broken","choices":[{"delta":{"conte')
        elif fault == "bigline":
            await self._line("x" * BIG_LINE)
        elif fault == "error_event":
            await self._complain({"message": "Overloaded.", "type": "server_error"})
        elif fault == "context200":
            tokens = self._plan.prompt_tokens
            await self._complain(overflow_error(tokens - 1, tokens))
        elif fault == "stall":
            self._record["outcome"] = fault
            await asyncio.sleep(FOR_EVER)
        elif fault != "cut":
            return
        self._record["outcome"] = fault
        raise Interrupted

    async def _event(self, content: dict[str, Any]) -> None:
        head = {"id": f"fake-{self._record['seq']}", "object": "chat.completion.chunk"}
        await self._json({**head, "model": self._body.get("model"), **content})

    async def _json(self, chunk: dict[str, Any]) -> None:
        indent = 1 if self._options.fault == "multiline" else None
        # Characters are not escaped, so that a split can fall into the middle of one.
        await self._line(json.dumps(chunk, ensure_ascii=False, indent=indent))

    async def _line(self, data: str) -> None:
        end = "\r\n" if self._options.fault == "crlf" else "\n"
        lines = "".join(f"data: {line}{end}" for line in data.split("\n")) + end
        if self._options.fault == "keepalives":
            lines = "data: : keepalive\n\nevent: ping\ndata: ping\n\n" + lines
        if self._options.fault == "comments":
            lines = f": PROCESSING{end}{end}" + lines
        if self._options.fault == "bom" and self._is_first:
            lines = "\ufeff" + lines
        self._is_first = False
        await send_chunk(self._writer, lines.encode(), writes=self._options.split)


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _stream_headers(fault: str) -> dict[str, str]:
    if fault == "bigheaders":
        return {f"x-filler-{n}": "x" * 4000 for n in range(12)}
    return {"content-encoding": "gzip"} if fault == "compressed" else {}
