"""Requests to the gateway without a context policy."""

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync

from tests.support.scripted_worker import ScriptedProvider

POLICY_OFF = {"X-Context-Policy": "off"}
ScriptModel = Callable[..., ScriptedProvider]


@async_to_sync
async def leave_stream(response: Any, *, after: bytes) -> None:
    """Read the first piece of a stream, then close the connection during the next one."""
    pieces = response.streaming_content
    assert after in await anext(pieces)
    reading = asyncio.create_task(anext(pieces))
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
