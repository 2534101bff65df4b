"""The breaker of a provider account: a refused key is not tried again and again.

While it is open, it refuses new turns with its reason; it closes by itself after a while, or at
once when an operator saves the account.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from chats.models import ProviderAccount
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# The failures after which every further call would fail as well, until an operator acts.
REASONS = {
    "provider_auth": "its provider refused the key, which an operator has to check",
}


def trip(*, model: ModelSpec | None, code: str, now: datetime) -> None:
    """Pause the model's provider if the failure asks for it; call inside a transaction.

    The first failure opens the breaker and is recorded in the ledger; later ones change nothing.
    """
    if code not in REASONS or model is None:
        return
    until = now + timedelta(seconds=settings.BREAKER_SECONDS)
    closed = Q(paused_until=None) | Q(paused_until__lt=Now())
    accounts = ProviderAccount.objects.filter(closed, slug=model.provider)
    if accounts.update(paused_until=until, paused_reason=REASONS[code]):
        ledger.record(
            "provider.breaker_opened",
            actor="worker",
            now=now,
            data={"provider": model.provider, "code": code, "until": until.isoformat()},
        )
