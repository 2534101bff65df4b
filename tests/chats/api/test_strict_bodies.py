"""Request bodies accept only the JSON type of each field: nothing is converted."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework import serializers

import chats.api.urls  # noqa: F401  # loads every body
from chats.api.core import inputs
from chats.models import Chat, Webhook
from tests.chats.api.programs import Program

# Fields of DRF that convert values: "yes" and 1 to true, "90" and true to 90, 5 to "5" or a UUID.
LAX = {
    serializers.BooleanField,
    serializers.CharField,
    serializers.DecimalField,
    serializers.FloatField,
    serializers.IntegerField,
    serializers.UUIDField,
}


def list_bodies(base: type[inputs.Strict] = inputs.Strict) -> Iterator[type[inputs.Strict]]:
    """Yield every request body. In a query, all values are strings."""
    for each in base.__subclasses__():
        if not each.__name__.endswith("Query") and each.__module__.startswith("chats."):
            yield each
        yield from list_bodies(each)


def list_fields(field: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a field with the fields in it, by path."""
    yield path, field
    if isinstance(field, serializers.Serializer):
        for name, inner in field.fields.items():
            yield from list_fields(inner, f"{path}.{name}")
    elif hasattr(field, "child"):
        yield from list_fields(field.child, f"{path}[]")


def test_bodies_use_only_strict_fields() -> None:
    bodies = set(list_bodies())
    assert len(bodies) > 20
    fields = [found for body in bodies for found in list_fields(body(), body.__name__)]
    assert [path for path, field in fields if type(field) in LAX] == []


@pytest.mark.parametrize("value", ["no", "true", 0, 1, None])
def test_a_webhook_is_disabled_only_by_a_boolean(
    value: object, of_alice: Program, alice: User, now: Any
) -> None:
    hook = Webhook.objects.create(
        owner=alice, url="https://example.org/hook", created_at=now, tidied_at=now
    )
    answer = of_alice.call("PATCH", f"webhooks/{hook.pk}", {"is_on": value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "is_on")
    hook.refresh_from_db()
    assert hook.off == ""


@pytest.mark.parametrize("value", [5, True, 1.5])
def test_an_id_is_a_string(value: object, of_alice: Program, chat: Chat) -> None:
    answer = of_alice.call("PATCH", f"chats/{chat.pk}", {"folder": value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "folder")
