"""The clock for leases: the clock of the database, which all processes share.

A worker writes `lease_until` into its row and extends it while it works. A row with an
expired lease has no owner. The same clock measures waiting times.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, ExpressionWrapper, Q
from django.db.models.functions import Now


class LeaseLost(Exception):
    """The worker no longer holds the row, so it must not write anything.

    The work was stopped, or the lease expired and another worker may have claimed the row.
    """


def get_lease_duration() -> timedelta:
    return timedelta(seconds=settings.LEASE_SECONDS)


def add_to_now(duration: Any) -> ExpressionWrapper[Any]:
    """Return the database's current time plus a timedelta or a placeholder for one."""
    return ExpressionWrapper(Now() + duration, output_field=DateTimeField())


def subtract_from_now(duration: Any) -> ExpressionWrapper[Any]:
    """Return the database's current time minus a timedelta or a placeholder for one."""
    return ExpressionWrapper(Now() - duration, output_field=DateTimeField())


def compute_lease_end() -> ExpressionWrapper[Any]:
    """Return the end of a lease that starts or is renewed now."""
    return add_to_now(get_lease_duration())


def compute_expired_end() -> ExpressionWrapper[Any]:
    """Return a lease end in the past.

    It is 5 ms before now, so that even a coarse clock sees it as past.
    """
    return subtract_from_now(timedelta(milliseconds=5))


def match_held_leases() -> Q:
    """Return the condition for rows that a live worker holds."""
    return Q(lease_until__gte=Now())


def match_expired_leases() -> Q:
    return Q(lease_until__lt=Now())


def match_free_leases() -> Q:
    """Return the condition for rows that no live worker holds."""
    return Q(lease_until=None) | match_expired_leases()
