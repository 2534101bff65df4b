"""The account of the small model that the launcher runs beside the rest."""

from datetime import datetime

from django.conf import settings

from chats.models import ProviderAccount
from chats.providers.accounts import save_account

# It is made with this name, and found by the slug of it.
NAME = "Small model"
_SLUG = r"^small-model(-\d+)?$"


def offer() -> str:
    """Return the address of the small model that runs here and is not connected yet, or nothing.

    It is not asked: whoever opens the page right after the start would not be offered it.
    """
    url: str = settings.SMALL_MODEL_URL
    return "" if ProviderAccount.objects.filter(base_url=url).exists() else url


def follow(*, now: datetime) -> bool:
    """Let the account of the small model follow it to the port that it has since this start.

    Returns whether it is connected and does not run.
    """
    url: str = settings.SMALL_MODEL_URL
    connected = ProviderAccount.objects.filter(
        kind="openai", slug__regex=_SLUG, base_url__startswith="http://127.0.0.1:"
    )
    if not url or connected.filter(base_url=url).exists():
        return not url and connected.exists()
    for account in connected[:1]:
        save_account(account=account, values={"base_url": url}, actor="system", now=now)
    return False
