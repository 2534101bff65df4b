"""The id of the request that is being processed, in web processes and workers.

The web process sets it, tasks carry it in their headers, and a worker sets it for the
task and for its turn. Error pages and all log lines show it.
"""

import contextvars

from chats.ground.tracing import build_carrier

NONE = "-"
REQUEST = contextvars.ContextVar("request", default=NONE)
# The header of a task.
HEADER = "request_id"


def build_task_headers() -> dict[str, str]:
    """Return the headers of a task that is sent for the current request, with its span."""
    request_id = REQUEST.get()
    carrier = build_carrier()
    return carrier if request_id == NONE else {HEADER: request_id, **carrier}
