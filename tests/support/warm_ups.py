"""Cache warm-ups that were enqueued."""

from chats.ground import queue

Sent = list[tuple[str, dict[str, str]]]


def list_warm_up_causes(sent: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return the causes of the enqueued warm-ups."""
    return [given["cause"] for task, given in sent if task == queue.WARM_UP]
