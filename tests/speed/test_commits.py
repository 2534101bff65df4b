"""Commits that do not wait for the disk, and commits that do."""

from typing import Any

import pytest
from django.db import connection, transaction

from speed.commits import unflushed_transaction

pytestmark = pytest.mark.usefixtures("transactional_ledger")
SETTING = {"sqlite": "PRAGMA synchronous", "postgresql": "SHOW synchronous_commit"}
WAITS = {"sqlite": 2, "postgresql": "on"}
DOES_NOT = {"sqlite": 1, "postgresql": "off"}


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    """Without this setting every commit waits for the disk."""
    settings.SPEED = True


def setting() -> object:
    with connection.cursor() as cursor:
        cursor.execute(SETTING[connection.vendor])
        return cursor.fetchone()[0]


def test_only_this_transaction_does_not_wait() -> None:
    assert setting() == WAITS[connection.vendor]
    with unflushed_transaction():
        assert connection.in_atomic_block
        assert setting() == DOES_NOT[connection.vendor]
    assert setting() == WAITS[connection.vendor]


def test_the_next_one_waits_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError), unflushed_transaction():
        raise ZeroDivisionError
    with transaction.atomic():
        assert setting() == WAITS[connection.vendor]


def test_within_a_transaction_that_waits_nothing_changes() -> None:
    with transaction.atomic(), unflushed_transaction():
        assert setting() == WAITS[connection.vendor]
