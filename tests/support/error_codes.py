"""The error code of a refused request."""

from typing import Any


def read_status_and_code(answer: Any) -> tuple[int, str]:
    """Return status and error code."""
    return answer.status_code, answer.json()["error"]["code"]
