"""The account of the small model that the launcher runs."""

from datetime import datetime

from django.conf import settings

from chats.models import ProviderAccount
from chats.providers.accounts import save_provider_account

# Accounts are created with this name and found by its slug.
NAME = "Small model"
_SLUG = r"^small-model(-\d+)?$"


def find_small_model_url() -> str:
    """Return the URL of the local small model; empty if it is connected or not running.

    The server is not called, because right after the start it may not answer yet.
    """
    url: str = settings.SMALL_MODEL_URL
    return "" if ProviderAccount.objects.filter(base_url=url).exists() else url


def update_small_account(*, now: datetime) -> bool:
    """Update the small model's account to the port of this start.

    Returns True if the account exists but the model does not run.
    """
    url: str = settings.SMALL_MODEL_URL
    connected = ProviderAccount.objects.filter(
        kind="openai", slug__regex=_SLUG, base_url__startswith="http://127.0.0.1:"
    )
    if not url or connected.filter(base_url=url).exists():
        return not url and connected.exists()
    for account in connected[:1]:
        save_provider_account(account=account, values={"base_url": url}, actor="system", now=now)
    return False
