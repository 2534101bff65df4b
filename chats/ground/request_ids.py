"""The id of the request that the current code works for, in each process.

The web process sets it, tasks carry it in their headers, and a worker sets it for the task and for
its turn. Error pages show it and every log line has it.
"""

import contextvars

NONE = "-"
REQUEST = contextvars.ContextVar("request", default=NONE)
# The header of a task.
HEADER = "request_id"


def build_task_headers() -> dict[str, str]:
    """Return the headers of a task that is sent for the current request."""
    request_id = REQUEST.get()
    return {} if request_id == NONE else {HEADER: request_id}
