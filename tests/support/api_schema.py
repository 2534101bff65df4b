"""The schema of the API, shared by the tests of a process."""

from functools import cache
from typing import Any

from chats.api.core.schema import Generator


@cache
def describe_api() -> dict[str, Any]:
    """Return the schema of all endpoints, generated once per process. Callers change nothing."""
    make: Any = Generator
    found: dict[str, Any] = make().get_schema(request=None, public=True)
    return found
