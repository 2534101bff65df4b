"""The provider pages of the administration."""

from django.urls import reverse

from chats.models import ProviderAccount

ADD_PROVIDER = "/admin/chats/provideraccount/add/"
PROVIDER_LIST = "/admin/chats/provideraccount/"


def get_provider_page(account: ProviderAccount) -> str:
    """Return the page of the account."""
    return reverse("admin:chats_provideraccount_change", args=[account.pk])
