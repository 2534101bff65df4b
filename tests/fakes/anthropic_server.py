"""A scriptable server with Anthropic's Messages API for tests. Loopback only.

Serves   POST /v1/messages (streamed and whole), GET /v1/models
Control  as `openai_server`, with the same options, faults and records

Like the real server it caches the blocks before a cache breakpoint. A later request reads them from
the cache if it has the same blocks up to a breakpoint, or up to 20 blocks before one. The three
kinds of input tokens are counted separately.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from tests.fakes import scripting
from tests.fakes.openai_server import FakeModel, main
from tests.fakes.replies import deltas, finish_of, output_limit
from tests.fakes.scripting import Plan
from tests.fakes.streamed import Stream

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
FINISHES = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
LOOK_BACK = 20
MOST_MARKS = 4


class EventStream(Stream):
    """One streamed reply, as named events and numbered blocks."""

    async def _begin(self) -> None:
        self._kinds: list[object] = []
        usage_now = usage(self._plan, self._body, 1)
        message = {"id": "msg_fake", "type": "message", "role": "assistant", "content": []}
        await self._json({"type": "message_start", "message": {**message, "usage": usage_now}})
        await self._json({"type": "ping"})

    async def _say(self, delta: dict[str, Any]) -> None:
        for call in delta.get("tool_calls", []):
            function = call["function"]
            if "name" in function:
                start = {"type": "tool_use", "id": call["id"], "name": function["name"]}
                await self._block(call["id"], {**start, "input": {}})
            await self._delta("input_json_delta", "partial_json", function["arguments"])
        if thought := delta.get("reasoning_content"):
            await self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            await self._delta("thinking_delta", "thinking", thought)
        if text := delta.get("content") or delta.get("refusal"):
            await self._block("text", {"type": "text", "text": ""})
            await self._delta("text_delta", "text", text)

    async def _end(self, sent: int) -> None:
        await self._stop()
        fault = self._options.fault
        if fault != "nofinish":
            finish = FINISHES[finish_of(self._plan, self._body, sent)]
            counted = {"usage": {"output_tokens": sent}} if self._options.usage else {}
            end = {"type": "message_delta", "delta": {"stop_reason": finish}}
            await self._json({**end, **counted})
        if fault not in {"nodone", "nofinish"}:
            await self._json({"type": "message_stop"})

    async def _complain(self, error: dict[str, Any]) -> None:
        is_context = error.get("code") == "context_length_exceeded"
        kind = "invalid_request_error" if is_context else "overloaded_error"
        told = _overflow(error["message"]) or "Overloaded"
        await self._json({"type": "error", "error": {"type": kind, "message": told}})

    async def _block(self, kind: object, start: dict[str, Any]) -> None:
        """Begin a block unless the open block is of the same kind."""
        if self._kinds and self._kinds[-1] == kind:
            return
        await self._stop()
        self._kinds.append(kind)
        await self._json(
            {"type": "content_block_start", "index": self._index, "content_block": start}
        )

    async def _stop(self) -> None:
        if not self._kinds:
            return
        if self._kinds[-1] == "thinking":
            await self._delta("signature_delta", "signature", "c2lnbmVk")
        await self._json({"type": "content_block_stop", "index": self._index})

    async def _delta(self, kind: str, name: str, text: str) -> None:
        await self._json(
            {
                "type": "content_block_delta",
                "index": self._index,
                "delta": {"type": kind, name: text},
            }
        )

    @property
    def _index(self) -> int:
        return len(self._kinds) - 1


class FakeAnthropic(FakeModel):
    """The server's state and its answers."""

    path = "/v1/messages"
    streamed = EventStream

    def __init__(self, counter: scripting.Counter) -> None:
        super().__init__(counter)
        self._kept: set[str] = set()

    def understood(self, body: dict[str, Any]) -> dict[str, Any]:
        """Parse a request for the script and count its input tokens once."""
        shares = self._counted(body)
        told = _text(body.get("system", []))
        messages = [{"role": "system", "content": told}] if told else []
        for message in body["messages"]:
            for block in message["content"]:
                role = "tool" if block["type"] == "tool_result" else message["role"]
                messages.append({"role": role, "content": _text([block])})
        return {**body, "messages": messages, "input_shares": shares}

    def in_its_form(self, status: int, error: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Convert an error of the script to Anthropic's format."""
        said = error["error"]
        status, message = {
            "insufficient_quota": (400, "Your credit balance is too low to access the API."),
            "content_filter": (400, "Output blocked by content filtering policy"),
        }.get(str(said.get("code")), (status, said["message"]))
        kind = TYPES.get(status, "api_error")
        error = {"type": kind, "message": _overflow(message) or message}
        return status, {"type": "error", "error": error, "request_id": "req_fake"}

    def whole(self, plan: Plan, record: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """A reply that is not streamed."""
        said = list(deltas(plan, body))[: output_limit(body)]
        record["tokens_sent"] = len(said)
        record["outcome"] = "done"
        content: list[dict[str, Any]] = []
        for kind, name in (("thinking", "reasoning_content"), ("text", "content")):
            if text := "".join(delta.get(name, "") for delta in said):
                signed = {"signature": "c2lnbmVk"} if kind == "thinking" else {}
                content.append({"type": kind, kind: text, **signed})
        for n, call in enumerate(plan.reply.tool_calls if plan.reply else []):
            content.append(
                {
                    "type": "tool_use",
                    "id": call.get("id", f"call_fake{n}"),
                    "name": call["name"],
                    "input": call["arguments"],
                }
            )
        return {
            "id": f"msg_fake{record['seq']}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": FINISHES[finish_of(plan, body, len(said))],
            "usage": usage(plan, body, len(said)),
        }

    def _counted(self, body: dict[str, Any]) -> tuple[float, float]:
        """The numbers of input tokens read from the cache and written to it.

        Raises ValueError for more breakpoints than the real server accepts.
        """
        blocks = list(_blocks(body))
        marks = [place for place, (_, is_marked) in enumerate(blocks) if is_marked]
        if len(marks) > MOST_MARKS:
            raise ValueError("A maximum of 4 blocks with cache_control may be provided.")
        chain = hashlib.sha256()
        ends, sizes = [], [0]
        for text, _ in blocks:
            chain.update(text.encode())
            ends.append(chain.hexdigest())
            sizes.append(sizes[-1] + len(text))
        near = {p for mark in marks for p in range(max(0, mark - LOOK_BACK), mark + 1)}
        read = max((sizes[p + 1] for p in near if ends[p] in self._kept), default=0)
        self._kept |= {ends[mark] for mark in marks}
        written = max(sizes[marks[-1] + 1] - read, 0) if marks else 0
        return read / sizes[-1], written / sizes[-1]


def usage(plan: Plan, body: dict[str, Any], sent: int) -> dict[str, Any]:
    """The usage object: uncached input tokens, cache reads and cache writes."""
    if not plan.options.usage:
        return {}
    prompt = plan.options.billed or plan.prompt_tokens
    read, written = (round(prompt * share) for share in body["input_shares"])
    return {
        "input_tokens": prompt - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": sent,
    }


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Each block of a request in cache order, and whether it has a cache breakpoint."""
    found = [("", tool) for tool in body.get("tools", [])]
    found += [("", block) for block in body.get("system", [])]
    found += [(m["role"], block) for m in body["messages"] for block in m["content"]]
    for role, block in found:
        plain = {name: said for name, said in block.items() if name != "cache_control"}
        yield json.dumps([role, plain], sort_keys=True), "cache_control" in block


def _text(blocks: list[dict[str, Any]]) -> str:
    told = [b.get("text") or b.get("content") or json.dumps(b.get("input", "")) for b in blocks]
    return "\n\n".join(told)


def _overflow(message: str) -> str:
    """The error message for a prompt that is too long, derived from OpenAI's."""
    limit, _, rest = message.partition("maximum context length is ")[2].partition(" tokens")
    sent = rest.partition("resulted in ")[2].partition(" tokens")[0]
    return f"prompt is too long: {sent} tokens > {limit} maximum" if sent else ""


if __name__ == "__main__":
    main(FakeAnthropic)
