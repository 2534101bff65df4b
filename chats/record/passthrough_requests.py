"""Records model calls without a chat, such as pass-through requests. Stores no text.

When a call ends, the ledger records its key, model, tokens and time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground import databases
from chats.ground.refusals import Refusal
from chats.models import ApiKey, PassedOn, SkippedRow
from chats.record import quotas
from contextpolicy import ledger
from contextpolicy.engine.policy.costs import Prices
from contextpolicy.models import ModelSpec

# Added to the longest duration of a call: after that, the process that made the call must have
# died.
GRACE = timedelta(minutes=1)
TRIED = "summary.tried"
# The token counts in the ledger event.
USAGE_FIELDS = ("input", "output", "cached", "written")
# The outcomes of calls that the provider answered, or may have answered.
ANSWERED = ("ok", "stopped", "lost")


class TooManyPassthroughRequests(Refusal):
    """The key has too many pass-through requests (`GATEWAY_TURNS_PER_KEY`, 100 by default).

    Wait for one to end.
    """

    code = "too_many_passed_on"
    status = 429
    sentence = gettext_noop(
        "This API key already has {limit} requests in progress. Wait for one to end."
    )
    retry_after = 5


class TrialUnderWay(Refusal):
    """Your previous trial summary is still running. Wait until it ends."""

    code = "trial_under_way"
    status = 429
    sentence = gettext_noop("You already have a running test summary. Wait until it ends.")
    retry_after = 5


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a call: outcome, the provider's token count, and an error code."""

    outcome: str
    usage: Mapping[str, int]
    error_code: str = ""


def start_passthrough(
    *,
    key: ApiKey,
    model: ModelSpec,
    kind: str,
    why: str,
    now: datetime,
    meter: quotas.QuotaMeter | None = None,
) -> PassedOn:
    """Store a pass-through request before it is sent.

    Raises `TooManyPassthroughRequests` and `quotas.QuotaExceeded`.
    """
    limit = settings.GATEWAY_TURNS_PER_KEY
    open_rows = PassedOn.objects.filter(
        api_key=key, outcome="open", created_at__gt=now - get_longest_call()
    )
    with transaction.atomic():
        if meter:
            User.objects.select_for_update(no_key=True).get(pk=meter.owner_id)
            quotas.check_usage_quota(meter, now=now)
        # Parallel requests of the key count each other.
        ApiKey.objects.select_for_update(of=("self",), no_key=True).get(pk=key.pk)
        if open_rows.count() >= limit:
            raise TooManyPassthroughRequests(limit=limit)
        return PassedOn.objects.create(
            owner=key.owner,
            api_key=key,
            kind=kind,
            why=why,
            model_slug=model.slug,
            model_name=model.name,
            prompt_tokens=meter.estimate if meter else None,
            created_at=now,
        )


def start_summary_trial(
    *, owner: User, model: ModelSpec, now: datetime, meter: quotas.QuotaMeter | None = None
) -> PassedOn:
    """Store a trial summary before its call.

    Raises `TrialUnderWay` if one is running, and `quotas.QuotaExceeded`.
    """
    kind, open_row = PassedOn.Kind.SUMMARY, PassedOn.objects.filter(owner=owner, outcome="open")
    with transaction.atomic():
        # Serialises concurrent requests of the user.
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)
        if open_row.filter(kind=kind, created_at__gt=now - get_longest_call()).exists():
            raise TrialUnderWay
        if meter:
            quotas.check_usage_quota(meter, now=now)
        return PassedOn.objects.create(
            owner=owner,
            kind=kind,
            why=PassedOn.Why.PREVIEW,
            model_slug=model.slug,
            model_name=model.name,
            prompt_tokens=meter.estimate if meter else None,
            created_at=now,
        )


def finish_passthrough(
    row: PassedOn,
    ended: Ended,
    *,
    now: datetime,
    meter: quotas.QuotaMeter | None = None,
    received: int = 0,
) -> None:
    """Store the end of a call, at most once, and record it in the ledger.

    `meter`: how the call counts towards the quotas of the key's owner. `received`: local tokens of
    the reply, if the provider reported none.
    """
    with transaction.atomic():
        changed = PassedOn.objects.filter(pk=row.pk, outcome="open").update(
            outcome=ended.outcome,
            usage=dict(ended.usage),
            error_code=ended.error_code,
            finished_at=now,
        )
        if not changed:
            return
        if meter:
            is_answered = ended.outcome in ANSWERED
            quotas.add_usage(
                meter, usage=ended.usage, is_answered=is_answered, received=received, now=now
            )
        data = {
            "model": row.model_slug,
            "outcome": ended.outcome,
            "code": ended.error_code,
            "began": row.created_at.isoformat(),
            **{f"{name}_tokens": ended.usage.get(name, 0) for name in USAGE_FIELDS},
        }
        event = TRIED
        if row.kind != PassedOn.Kind.SUMMARY:
            event = "gateway.passed_on"
            data |= {"key": str(row.api_key_id), "kind": row.kind, "why": row.why}
        ledger.record_event(event, actor=f"user:{row.owner_id}", now=now, data=data)


def sweep_passthrough(*, now: datetime) -> int:
    """End up to 100 calls of dead processes. Return the count, including failures."""
    rows = PassedOn.objects.filter(outcome="open", created_at__lt=now - get_longest_call())
    lost = list(rows.order_by("pk")[:100])
    for row in lost:
        try:
            finish_passthrough(row, Ended("lost", {}), now=now, meter=build_lost_meter(row))
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="passed-on requests", row=str(row.pk), error=error, now=now)
    return len(lost)


def build_lost_meter(row: PassedOn) -> quotas.QuotaMeter | None:
    """Return the meter of a call whose process has died. None if no quota applied to it."""
    if row.prompt_tokens is None:
        return None
    model = ModelSpec.objects.filter(slug=row.model_slug).first()
    prices = model.prices if model else Prices()
    return quotas.QuotaMeter(row.owner_id, quotas.Quotas(), prices, row.prompt_tokens)


def get_longest_call() -> timedelta:
    """Return the maximum duration of a call. The process of an older open call has died."""
    return timedelta(seconds=settings.PROVIDER_TIMEOUTS["total"]) + GRACE
