"""Signals for developers, sent after the commit.

An exception in a receiver does not affect the transaction.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

# Arguments: `chat_id` and `message`, a `contextpolicy.engine.team.TeamMessage`.
message_added = Signal()
# Arguments: `chat_id` and `task`, the stored text, or None if there is no task.
task_changed = Signal()


def send_signal_on_commit(signal: Signal, **values: Any) -> None:
    """Send the signal after this transaction commits. Django logs failing receivers."""
    send: Callable[[], Any] = partial(signal.send_robust, sender=None, **values)
    transaction.on_commit(send, robust=True)
