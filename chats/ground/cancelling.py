"""Cancels asyncio tasks reliably."""

import asyncio
from typing import Any

# Seconds that a task may take to clean up before it is cancelled again.
PATIENCE = 0.5


async def cancel_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until all have ended. Does not retrieve their results or errors.

    A single cancellation can get lost: before Python 3.12, `asyncio.wait_for`, which the bus client
    uses for each write, drops a cancellation that arrives as its work completes.
    """
    while left := {task for task in tasks if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=PATIENCE)


def is_lost() -> bool:
    """Return True if the current task was cancelled but continues; see `cancel_tasks`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
