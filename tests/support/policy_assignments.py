"""Policies that tests assign without the checks of the product."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from contextpolicy.models import ContextPolicy

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


class Lay(Protocol):
    """Writes a policy and its assignment without validation."""

    def __call__(
        self,
        slug: str,
        values: Mapping[str, Any],
        *,
        locks: tuple[str, ...] = (),
        version: int = 1,
        **target: Any,
    ) -> ContextPolicy: ...
