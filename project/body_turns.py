"""Lets large request bodies take turns, so that concurrent uploads do not delay other requests.

Otherwise the event loop would copy a piece of each body before it handles the next request, and
complete uploads would occupy the threads of all requests. Bodies up to `LARGE` never wait.
"""

import asyncio

# Bytes of a body from which on it takes turns.
LARGE = 256 * 1024
# Uploads that are stored at the same time by this process.
STORED_AT_ONCE = 2


class BodyTurns:
    """The queues in which the large request bodies of one web process wait for their turn."""

    def __init__(self) -> None:
        self.piece = asyncio.Lock()
        self.storing = asyncio.Semaphore(STORED_AT_ONCE)

    async def wait_for_piece(self) -> None:
        """Wait until other bodies and other requests have had their turn."""
        async with self.piece:
            await asyncio.sleep(0)
