"""Verifies the ledger after each test that leaves erased content.

A test that tampers with rows has a marker. The check costs other tests two queries.
"""

import re
from collections.abc import Iterator

import pytest

_DATABASE = {"db", "transactional_db", "transactional_ledger"}
# Reasons of rows that a test created directly.
UNNAMED = re.compile("no audit log entry (has|mentions)")


def uses_database(item: pytest.Item) -> bool:
    """Return True if the test uses the test database."""
    if item.get_closest_marker("tampers"):
        return False
    fixtures = _DATABASE.intersection(getattr(item, "fixturenames", ()))
    return bool(fixtures) or item.get_closest_marker("django_db") is not None


def breaks_after_erasure() -> list[str]:
    """Return the verification's result if a receipt or a summary is marked as erased."""
    # Django is not set up when plugins are loaded.
    from django.db import connection  # noqa: PLC0415  # settings come first

    from chats.models import Compaction, Receipt  # noqa: PLC0415
    from contextpolicy import ledger  # noqa: PLC0415

    if connection.connection is None or connection.needs_rollback:
        return []
    rows = (Receipt.objects, Compaction.objects)
    if not any(some.exclude(erased_at=None).exists() for some in rows):
        return []
    breaks = [found for found in ledger.find_ledger_breaks() if not UNNAMED.match(found.reason)]
    return [f"{found.scope}: {found.reason}" for found in breaks]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Verify before the test's rows are rolled back. Skip failed tests."""
    yield
    if uses_database(item):
        found = breaks_after_erasure()
        assert not found, f"the ledger does not hold after this test: {found}"
