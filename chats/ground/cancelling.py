"""Ends tasks of an event loop for certain."""

import asyncio
from typing import Any

# A task that clears up may take so many seconds before it is told again.
PATIENCE = 0.5


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until all have ended; their results and errors stay theirs.

    One cancellation can be lost: before Python 3.12 `asyncio.wait_for`, which the client of the bus
    uses for every write, forgets one that comes in the moment in which its work is done.
    """
    while left := {task for task in tasks if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=PATIENCE)


def is_lost() -> bool:
    """Tell whether the running task was cancelled and goes on all the same; see `end`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
