"""Creates spans for the processing of messages, if the operator configured OpenTelemetry.

Spans have ids, names and numbers, never the text of a message, a URL with a query, or an error
message.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

Attributes = Mapping[str, str | int]


class Tracing(Protocol):
    """The OpenTelemetry functions that spans need (`project.telemetry`)."""

    def start(self, name: str, attributes: Attributes, carrier: Mapping[str, str] | None) -> Any:
        """Return a context manager for a span, whose parent may be in a carrier."""
        ...

    def inject(self) -> dict[str, str]:
        """Return the carrier of the current span."""
        ...


# The functions that this process uses; empty: no spans are created.
_used: list[Tracing] = []


def use_tracing(tracing: Tracing | None) -> None:
    """Use these functions to create spans from now on. None disables spans."""
    _used[:] = [tracing] if tracing else []


@contextmanager
def trace_span(
    name: str, attributes: Attributes | None = None, *, carrier: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Create a span for the block and yield it; None if tracing is off."""
    if not _used:
        yield None
        return
    with _used[0].start(name, attributes or {}, carrier) as span:
        yield span


def build_carrier() -> dict[str, str]:
    """Return the current span for another thread or process. Empty if tracing is off."""
    return _used[0].inject() if _used else {}
