"""The timestamps that an authority outside gave for checkpoints: which is due, and what came.

Only the newest checkpoint is stamped: its tree holds every entry before it.
"""

import base64
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from chats.checkpoints import signing
from contextpolicy.models import LedgerTimestamp

# After a failure, and while somebody may still wait for the answer.
AGAIN = timedelta(minutes=10)
LATE = timedelta(hours=6)
MISSING = (
    "No timestamp of a checkpoint came from the authority that LEDGER_TSA_URL names for more than "
    "six hours ({problem}). Checkpoints are signed all the same."
)


def is_due(*, now: datetime) -> bool:
    """Tell whether the newest checkpoint is to be stamped now."""
    newest = signing.newest() if settings.LEDGER_TSA_URL else None
    if newest is None:
        return False
    row = LedgerTimestamp.objects.filter(checkpoint=newest).first()
    return row is None or (not row.response and row.tried_at <= now - AGAIN)


@transaction.atomic
def claim(*, now: datetime) -> LedgerTimestamp | None:
    """Return the row of the newest checkpoint for whoever asks the authority; None: not now."""
    newest = signing.newest()
    if newest is None or not is_due(now=now):
        return None
    row, is_new = LedgerTimestamp.objects.get_or_create(
        checkpoint=newest, defaults={"authority": settings.LEDGER_TSA_URL, "tried_at": now}
    )
    tried = LedgerTimestamp.objects.filter(pk=row.pk, response="", tried_at__lte=now - AGAIN)
    claimed = is_new or tried.update(authority=settings.LEDGER_TSA_URL, tried_at=now)
    return row if claimed else None


def keep(row: LedgerTimestamp, *, response: bytes, problem: str, now: datetime) -> None:
    """Store what the authority answered, or why there is no answer."""
    rows = LedgerTimestamp.objects.filter(pk=row.pk, response="")
    if problem:
        rows.update(problem=problem)
    else:
        given = base64.b64encode(response).decode()
        rows.update(problem="", response=given, received_at=now)


def last() -> LedgerTimestamp | None:
    """Return the last timestamp that came."""
    rows = LedgerTimestamp.objects.exclude(response="").select_related("checkpoint__origin")
    return rows.order_by("-checkpoint__origin", "-checkpoint__size").first()


def unanswered() -> QuerySet[LedgerTimestamp]:
    """Return the tries that came to nothing, the oldest checkpoint first."""
    rows = LedgerTimestamp.objects.filter(response="").select_related("checkpoint")
    return rows.order_by("checkpoint__signed_at")


def late(*, now: datetime) -> str:
    """Say that timestamps are missing; empty when none is, or none is asked for."""
    row = LedgerTimestamp.objects.order_by("-tried_at").first() if settings.LEDGER_TSA_URL else None
    first = unanswered().first()
    came = last()
    since = (came.received_at if came else None) or (first.checkpoint.signed_at if first else now)
    if row is None or row.response or now - since <= LATE:
        return ""
    return MISSING.format(problem=row.problem or "no_answer")
