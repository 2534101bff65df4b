"""Streams in the format of the AI SDK: messages, chunks and texts."""

import json
from typing import Any

from tests.support.streamed_responses import read_stream

UI_CHATS = "ui-chats"


def build_user_message(text: str, own_id: str = "m1", **more: Any) -> dict[str, Any]:
    """Return a user's UI message."""
    return {"id": own_id, "role": "user", "parts": [{"type": "text", "text": text}], **more}


def read_chunks(answer: Any) -> list[dict[str, Any]]:
    """Return the chunks of a response, which must end with [DONE]."""
    assert answer.status_code == 200, answer.content
    assert answer["x-vercel-ai-ui-message-stream"] == "v1"
    return parse_chunks(read_stream(answer).decode())


def parse_chunks(text: str) -> list[dict[str, Any]]:
    """Return the chunks of a text of events."""
    events = [
        block.removeprefix("data: ") for block in text.split("\n\n") if block.startswith("data: ")
    ]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def join_text_chunks(found: list[dict[str, Any]]) -> str:
    """Return the text of all text parts."""
    return "".join(chunk["delta"] for chunk in found if chunk["type"] == "text-delta")


def describe_chunks(found: list[dict[str, Any]]) -> list[str]:
    """Return the types of the chunks, with the text of deltas."""
    return [chunk.get("delta") or chunk["type"] for chunk in found]
