"""Signals for developers, sent after the commit; a receiver that fails undoes nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

# With `chat_id` and `message`, a `contextpolicy.engine.team.TeamMessage`.
message_added = Signal()
# With `chat_id` and `task`, the text as it is stored; None: there is none any more.
task_changed = Signal()


def tell(signal: Signal, **told: Any) -> None:
    """Send the signal when this transaction has committed; failures are logged by Django."""
    send: Callable[[], Any] = partial(signal.send_robust, sender=None, **told)
    transaction.on_commit(send, robust=True)
