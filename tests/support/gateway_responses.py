"""The Responses endpoint of the gateway: requests, responses and events."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.gateway_clients import TOOLS, Answer, GatewayClient

STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FUNCTION: Any = TOOLS[0]["function"]
FUNCTION_TOOL = {"type": "function", **FUNCTION}


def create_response(program: GatewayClient, said: Any, *script: Any, **more: Any) -> Answer:
    """Send items, let the model reply with the script, and return the response."""
    headers = more.pop("headers", {})
    body = {"model": "demo", "input": said, **more}
    response = program.open(body, path="responses", **headers)
    if response.streaming:
        program.work(response["X-Context-Report-Id"], *script)
    return program.close(response)


def parse_response(answer: Answer) -> Response:
    """Parse a complete response in OpenAI's format."""
    assert answer.status == 200, answer.body
    return Response.model_validate(answer.json)


def parse_events(body: str) -> list[Any]:
    """Return the typed events of a stream and check their sequence numbers."""
    found = []
    for block in body.strip().split("\n\n"):
        name, data = block.split("\n")
        told = json.loads(data.removeprefix("data: "))
        assert name == f"event: {told['type']}"
        found.append(STREAM_EVENT.validate_python(told))
    assert [event.sequence_number for event in found] == list(range(len(found)))
    return found


def build_tool_output(call_id: str, text: Any) -> dict[str, Any]:
    """Return a tool result."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}
