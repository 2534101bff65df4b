"""Bodies of streamed responses."""

from typing import Any

from asgiref.sync import async_to_sync


def read_content(answer: Any) -> bytes:
    """Return the body of a response, streamed or not."""
    return read_stream(answer) if answer.streaming else bytes(answer.content)


def read_stream(answer: Any) -> bytes:
    """Return the body of a streamed response."""

    async def collect() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(collect)()
