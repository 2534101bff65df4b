"""Verifies a ledger in the background and keeps the result: a large one takes minutes.

A small one is verified where it is asked for.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models import Sum

from contextpolicy.ledger import verify
from contextpolicy.models import AuditEvent, LedgerHead, LedgerVerification

# In rows: a page that verifies so many waits about a tenth of a second.
SMALL = 2_000
# So many of the breaks that were found are kept by name.
KEPT_BREAKS = 200
# A verification that takes longer than this is dead: its worker ended.
LONGEST = timedelta(hours=2)


def rows_of(scope: str) -> int:
    """Count the rows of a chain, or of all chains together where the scope is empty."""
    heads = LedgerHead.objects.filter(scope=scope) if scope else LedgerHead.objects.all()
    return int(heads.aggregate(rows=Sum("count"))["rows"] or 0)


def ask(*, scope: str, actor: str, now: datetime) -> LedgerVerification:
    """Write down that somebody wants the ledger verified; a request that waits is used again."""
    waiting = LedgerVerification.objects.filter(scope=scope, started_at=None, finished_at=None)
    found = waiting.order_by("-pk").first()
    return found or LedgerVerification.objects.create(scope=scope, asked_by=actor, asked_at=now)


def run(*, pk: int, clock: Callable[[], datetime]) -> None:
    """Verify what was asked for and keep what was found.

    A second delivery of the task finds the request begun and does nothing.
    """
    rows = LedgerVerification.objects.filter(pk=pk, started_at=None)
    if not rows.update(started_at=clock()):
        return
    asked = LedgerVerification.objects.get(pk=pk)
    scope = asked.scope or None
    told = Counter[str]()
    found = list(verify(scope=scope, told=told))
    asked.breaks = [[each.scope, each.seq, each.reason] for each in found[:KEPT_BREAKS]]
    asked.broken = len({each.scope for each in found})
    asked.told = dict(told)
    heads, events = LedgerHead.objects.all(), AuditEvent.objects.all()
    if scope:
        heads, events = heads.filter(pk=scope), events.filter(scope=scope)
    asked.chains, asked.rows = heads.count(), events.count()
    asked.finished_at = clock()
    asked.save()


def overdue(*, now: datetime, age: timedelta) -> list[int]:
    """Return requests that nobody began for so long; close those whose worker ended."""
    gone = LedgerVerification.objects.filter(finished_at=None, started_at__lt=now - LONGEST)
    gone.update(finished_at=now, error="worker_lost")
    waiting = LedgerVerification.objects.filter(started_at=None, asked_at__lt=now - age)
    return list(waiting.values_list("pk", flat=True)[:100])
