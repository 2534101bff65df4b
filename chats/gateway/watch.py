"""Watches a running response: whether its API key is valid, and whether a ping is due."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from chats.ground import databases
from chats.people import keys

# Idle streams send a ping after this time, because proxies close silent connections.
SILENCE_SECONDS = 20.0
# A comment without the blank line that ends an event: openai-go reports an empty event as an error.
PING = ": waiting\n"


async def call_database(call: Callable[[], Any]) -> Any:
    """Call a database function from the event loop, and release its connection."""
    return await sync_to_async(databases.close_connections_after(call))()


class Watch:
    """A timer for one response, which re-checks the API key and detects silence."""

    def __init__(self, key_id: uuid.UUID) -> None:
        self.key_id = key_id
        now = asyncio.get_running_loop().time()
        self.silent_at = now + SILENCE_SECONDS
        self.check_at = now + settings.STREAM_RECHECK_SECONDS

    def note_words(self) -> None:
        """Restart the silence timer after something was sent to the client."""
        self.silent_at = asyncio.get_running_loop().time() + SILENCE_SECONDS

    async def is_silent(self) -> bool:
        """Return True if the silence limit is reached, and restart the timer.

        Raises `InvalidKey` if the key was revoked or has expired.
        """
        now = asyncio.get_running_loop().time()
        if now >= self.check_at:
            self.check_at = now + settings.STREAM_RECHECK_SECONDS
            if not await call_database(
                partial(keys.is_living, key_id=self.key_id, now=timezone.now())
            ):
                raise keys.InvalidKey
        if now < self.silent_at:
            return False
        self.note_words()
        return True
