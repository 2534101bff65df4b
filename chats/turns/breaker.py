"""Circuit breaker of a provider account, for errors such as a rejected API key.

An open breaker refuses new turns with its reason. It closes after `BREAKER_SECONDS`, or when an
operator saves the account.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_noop

from chats.models import ProviderAccount
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# Failures that repeat on every call until an operator acts.
REASONS = {
    "provider_auth": gettext_noop(
        "its provider rejected the API key, so an operator must check the key"
    ),
}


def trip_breaker(*, model: ModelSpec | None, code: str, now: datetime) -> None:
    """Open the breaker of the model's provider if `code` requires it, such as a rejected key.

    Call inside a transaction. Only the failure that opens the breaker is recorded in the ledger.
    """
    if code not in REASONS or model is None:
        return
    until = now + timedelta(seconds=settings.BREAKER_SECONDS)
    closed = Q(paused_until=None) | Q(paused_until__lt=Now())
    accounts = ProviderAccount.objects.filter(closed, slug=model.provider)
    if accounts.update(paused_until=until, paused_reason=REASONS[code]):
        ledger.record_event(
            "provider.breaker_opened",
            actor="worker",
            now=now,
            data={"provider": model.provider, "code": code, "until": until.isoformat()},
        )
