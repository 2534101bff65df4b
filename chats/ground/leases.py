"""The clock of leases: the database's, which all processes share.

A worker writes `lease_until` into its row and extends it while it lives. A row with an expired
lease has no owner. The same clock measures waiting times.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, ExpressionWrapper, Q
from django.db.models.functions import Now


class LeaseLost(Exception):
    """The row no longer belongs to this worker: it was stopped, swept or reclaimed.

    Write nothing.
    """


def length() -> timedelta:
    """Return the duration of a lease."""
    return timedelta(seconds=settings.LEASE_SECONDS)


def from_now(duration: Any) -> ExpressionWrapper[Any]:
    """Return the time after `duration`, a timedelta or a placeholder of a prepared statement."""
    return ExpressionWrapper(Now() + duration, output_field=DateTimeField())


def ago(duration: Any) -> ExpressionWrapper[Any]:
    """Return the time before `duration`, a timedelta or a placeholder of a prepared statement."""
    return ExpressionWrapper(Now() - duration, output_field=DateTimeField())


def until() -> ExpressionWrapper[Any]:
    """Return the end of a lease that starts or is renewed now."""
    return from_now(length())


def just_ended() -> ExpressionWrapper[Any]:
    """Return an end in the past, by enough for a coarse clock."""
    return ago(timedelta(milliseconds=5))


def held() -> Q:
    """Return the condition for rows that a live worker holds."""
    return Q(lease_until__gte=Now())


def ended() -> Q:
    """Return the condition for rows with an expired lease."""
    return Q(lease_until__lt=Now())
