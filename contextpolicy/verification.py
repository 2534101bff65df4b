"""Verifies the ledger and stores the result.

A large ledger takes minutes to verify, so this happens in the background. A small one is verified
within the request.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db.models import Sum

from contextpolicy.ledger import ANCHORS, CONTENTS, Break, find_ledger_breaks
from contextpolicy.models import AuditEvent, LedgerHead, LedgerLeaf, LedgerVerification

# In rows: a page that verifies this many rows takes about a tenth of a second.
SMALL = 2_000
# Maximum number of stored breaks; the others are only counted.
KEPT_BREAKS = 200
# Maximum seconds for comparing stored content, in the background and on a page.
CONTENT_SECONDS = 300.0
PAGE_SECONDS = 1.0
# A verification that takes longer is dead: its worker ended.
LONGEST = timedelta(hours=2)


def count_chain_rows(scope: str) -> int:
    """Count the rows of a chain, or of all chains if `scope` is empty."""
    heads = LedgerHead.objects.filter(scope=scope) if scope else LedgerHead.objects.all()
    return int(heads.aggregate(rows=Sum("count"))["rows"] or 0)


def request_verification(
    *, scope: str, actor: str, now: datetime, since_leaf: int | None = None
) -> LedgerVerification:
    """Request a verification of the ledger; a pending request is reused.

    `since_leaf`: verify only the chains that have a log entry from this one on.
    """
    waiting = LedgerVerification.objects.filter(scope=scope, started_at=None, finished_at=None)
    found = waiting.filter(since_leaf=since_leaf).order_by("-pk").first()
    return found or LedgerVerification.objects.create(
        scope=scope, asked_by=actor, asked_at=now, since_leaf=since_leaf
    )


def run_verification(*, pk: int, clock: Callable[[], datetime]) -> None:
    """Run a requested verification and store the result.

    A second delivery of the task finds the request running and does nothing.
    """
    rows = LedgerVerification.objects.filter(pk=pk, started_at=None)
    if not rows.update(started_at=clock()):
        return
    asked = LedgerVerification.objects.get(pk=pk)
    counts = Counter[str]()
    scopes = select_verification_scopes(asked)
    found = [each for scope in scopes for each in find_ledger_breaks(scope=scope, tally=counts)]
    if asked.since_leaf is not None:
        found += [each for compare in ANCHORS for each in compare(tally=counts)]
    # A nightly run also checks some other chains, because changed content adds no row.
    others = [*scopes, None] if asked.since_leaf is not None else scopes
    found += verify_contents(others, tally=counts, seconds=CONTENT_SECONDS)
    asked.breaks = [[each.scope, each.seq, each.reason] for each in found[:KEPT_BREAKS]]
    asked.broken = len({each.scope for each in found})
    asked.told = dict(counts)
    if scopes == [None]:
        asked.chains, asked.rows = LedgerHead.objects.count(), AuditEvent.objects.count()
    else:
        asked.chains, asked.rows = (
            len(scopes),
            sum(count_chain_rows(str(scope)) for scope in scopes),
        )
    asked.finished_at = clock()
    asked.save()


def verify_contents(
    scopes: Sequence[str | None], *, tally: Counter[str], seconds: float
) -> list[Break]:
    """Return the differences between stored content and recorded hashes, within the time limit."""
    end = time.monotonic() + seconds

    def is_late() -> bool:
        return time.monotonic() > end

    checks = [check(scopes=scopes, tally=tally, is_late=is_late) for check in CONTENTS]
    return [each for found in checks for each in found]


def select_verification_scopes(asked: LedgerVerification) -> list[str | None]:
    """Return the chains to verify; [None] means every chain."""
    if asked.scope:
        return [asked.scope]
    if asked.since_leaf is None:
        return [None]
    leaves = LedgerLeaf.objects.filter(place__gte=asked.since_leaf).exclude(scope="")
    origin = leaves.order_by("-origin").values("origin")[:1]
    return list(leaves.filter(origin__in=origin).values_list("scope", flat=True).distinct())


def list_overdue_verifications(*, now: datetime, age: timedelta) -> list[int]:
    """Close lost requests, and return the ids of at most 100 that have been pending too long.

    A request is lost if it started more than `LONGEST` ago and did not finish. It has been pending
    too long if it was made more than `age` ago and did not start.
    """
    gone = LedgerVerification.objects.filter(finished_at=None, started_at__lt=now - LONGEST)
    gone.update(finished_at=now, error="worker_lost")
    waiting = LedgerVerification.objects.filter(started_at=None, asked_at__lt=now - age)
    return list(waiting.values_list("pk", flat=True)[:100])
