"""Timestamps of checkpoints from a timestamp authority (TSA).

Only the newest checkpoint is stamped: its tree contains all earlier entries.
"""

import base64
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_noop

from chats.checkpoints import signing
from contextpolicy.models import LedgerTimestamp

# Retry interval. It also protects a request that is still in progress.
AGAIN = timedelta(minutes=10)
LATE = timedelta(hours=6)
MISSING = gettext_noop(
    "The timestamp authority at LEDGER_TSA_URL has returned no valid timestamp for more "
    "than six hours (error code: {problem}). Check the URL and the network connection. "
    "Checkpoints are still signed."
)


def is_timestamp_due(*, now: datetime) -> bool:
    """Return True if the newest checkpoint needs a timestamp now."""
    newest = signing.find_newest_checkpoint() if settings.LEDGER_TSA_URL else None
    if newest is None:
        return False
    row = LedgerTimestamp.objects.filter(checkpoint=newest).first()
    return row is None or (not row.response and row.tried_at <= now - AGAIN)


@transaction.atomic
def claim_timestamp(*, now: datetime) -> LedgerTimestamp | None:
    """Claim the newest checkpoint for a timestamp request; None if none is due."""
    newest = signing.find_newest_checkpoint()
    if newest is None or not is_timestamp_due(now=now):
        return None
    row, is_new = LedgerTimestamp.objects.get_or_create(
        checkpoint=newest, defaults={"authority": settings.LEDGER_TSA_URL, "tried_at": now}
    )
    tried = LedgerTimestamp.objects.filter(pk=row.pk, response="", tried_at__lte=now - AGAIN)
    claimed = is_new or tried.update(authority=settings.LEDGER_TSA_URL, tried_at=now)
    return row if claimed else None


def store_timestamp_response(
    row: LedgerTimestamp, *, response: bytes, problem: str, now: datetime
) -> None:
    """Store the authority's response, or the problem that prevented one."""
    rows = LedgerTimestamp.objects.filter(pk=row.pk, response="")
    if problem:
        rows.update(problem=problem)
    else:
        given = base64.b64encode(response).decode()
        rows.update(problem="", response=given, received_at=now)


def find_last_timestamp() -> LedgerTimestamp | None:
    rows = LedgerTimestamp.objects.exclude(response="").select_related("checkpoint__origin")
    return rows.order_by("-checkpoint__origin", "-checkpoint__size").first()


def list_unanswered_timestamps() -> QuerySet[LedgerTimestamp]:
    """Return the requests without a response, oldest checkpoint first."""
    rows = LedgerTimestamp.objects.filter(response="").select_related("checkpoint")
    return rows.order_by("checkpoint__signed_at")


def describe_late_timestamps(*, now: datetime) -> str:
    """Return a warning if timestamps are overdue, otherwise an empty string."""
    row = LedgerTimestamp.objects.order_by("-tried_at").first() if settings.LEDGER_TSA_URL else None
    first = list_unanswered_timestamps().first()
    came = find_last_timestamp()
    since = (came.received_at if came else None) or (first.checkpoint.signed_at if first else now)
    if row is None or row.response or now - since <= LATE:
        return ""
    return gettext(MISSING).format(problem=row.problem or "no_answer")
