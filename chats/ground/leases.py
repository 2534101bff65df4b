"""The one clock of leases: the database's, which all processes share.

Who works on a row writes `lease_until` into it, and moves it on while it lives; a row whose lease
has ended belongs to nobody. The same clock tells how long something has waited.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, ExpressionWrapper, Q
from django.db.models.functions import Now


class LeaseLost(Exception):
    """The row is no longer this worker's: it was stopped, swept or taken over. Write nothing."""


def length() -> timedelta:
    """Return how long a lease holds without being renewed."""
    return timedelta(seconds=settings.LEASE_SECONDS)


def from_now(duration: Any) -> ExpressionWrapper[Any]:
    """Return the time so much later: a timedelta, or a placeholder of a prepared statement."""
    return ExpressionWrapper(Now() + duration, output_field=DateTimeField())


def ago(duration: Any) -> ExpressionWrapper[Any]:
    """Return the time so much earlier: a timedelta, or a placeholder of a prepared statement."""
    return ExpressionWrapper(Now() - duration, output_field=DateTimeField())


def until() -> ExpressionWrapper[Any]:
    """Return the end of a lease that begins or is renewed now."""
    return from_now(length())


def just_ended() -> ExpressionWrapper[Any]:
    """Return the end of a lease that is over for whoever looks next, by a coarse clock too."""
    return ago(timedelta(milliseconds=5))


def held() -> Q:
    """Return the condition of rows that a living worker holds."""
    return Q(lease_until__gte=Now())


def ended() -> Q:
    """Return the condition of rows whose worker has stopped renewing."""
    return Q(lease_until__lt=Now())
