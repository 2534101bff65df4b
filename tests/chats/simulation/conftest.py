"""Fixtures: a fixed time on pages."""

from datetime import datetime

import pytest


@pytest.fixture
def at_one_time(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of the pages to the time of the fixture."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
