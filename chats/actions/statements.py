"""Prepared statements for creating a chat."""

from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery

from chats.models import Chat, ProviderAccount
from contextpolicy.models import ModelSpec
from speed import prepared


def select_enabled_models() -> QuerySet[ModelSpec]:
    """Return the enabled models with the required fields of their providers."""
    accounts = ProviderAccount.objects.filter(slug=OuterRef("provider"), enabled=True)
    return ModelSpec.objects.filter(enabled=True).annotate(
        provider_name=Subquery(accounts.values("name")[:1]),
        provider_kind=Subquery(accounts.values("kind")[:1]),
        provider_url=Subquery(accounts.values("base_url")[:1]),
        provider_warms_up=Subquery(accounts.values("warm_up")[:1]),
    )


ENABLED_MODELS: prepared.Select[Any] = prepared.Select(lambda _at: select_enabled_models())


CHATS_OF_OWNER = prepared.Select(
    lambda at: (
        Chat.objects.filter(owner=at("owner"), deleted_at=None)
        .order_by()
        .values("owner")
        .annotate(number=Count("pk"))
        .values_list("number")
    )
)


def count_owner_chats(owner_id: int) -> int:
    """Return the number of a user's chats that are not deleted."""
    return sum(number for (number,) in CHATS_OF_OWNER.tuples(owner=owner_id))
