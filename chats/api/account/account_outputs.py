"""Serializers for models and API keys."""

from typing import Any

from rest_framework import serializers

from chats.models import ApiKey
from chats.people import keys


class ModelOut(serializers.Serializer[Any]):
    """A model that the instance offers."""

    id = serializers.CharField(
        source="spec.slug", help_text="Id of the model, as used in the field `model` of requests."
    )
    label = serializers.CharField(source="spec", help_text="Display name of the model.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    provider = serializers.CharField(source="provider_name", help_text="Name of the provider.")
    context_window = serializers.IntegerField(
        source="spec.window",
        allow_null=True,
        help_text="Maximum number of tokens in the prompt and the reply together. Null: unknown.",
    )
    max_output = serializers.IntegerField(
        source="spec.max_output",
        allow_null=True,
        help_text="Maximum number of tokens in a reply. Null: unknown.",
    )
    allowed = serializers.BooleanField(
        help_text="True: your policy allows the model in a new chat."
    )
    why_not = serializers.SerializerMethodField()
    default = serializers.BooleanField(
        source="current", help_text="True: new chats use this model if the request names no model."
    )
    is_demo = serializers.BooleanField(
        help_text="True: a built-in demonstration model without a provider."
    )
    cannot_stream = serializers.BooleanField(
        source="spec.cannot_stream", help_text="True: replies arrive as a whole, not as a stream."
    )

    def get_why_not(self, choice: Any) -> str:
        """Human-readable reason why the model is forbidden. Empty: the model is allowed."""
        return "" if choice.allowed else choice.why_not


class KeyOut(serializers.Serializer[ApiKey]):
    """An API key without its secret. `prefix` contains the first characters of the key."""

    id = serializers.UUIDField()
    name = serializers.CharField(help_text="Name that you gave the key.")
    prefix = serializers.CharField(
        help_text="First 12 characters of the secret, by which you can recognise the key."
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=keys.SCOPES),
        help_text="The key's scopes, which limit its access.",
    )
    unmanaged = serializers.BooleanField(
        help_text=(
            "True: if the policy allows it, requests to `/v1` are passed through unchanged, and no "
            "text is stored."
        )
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="Time at which the key expires.")
    last_used_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time of the last request, accurate to a minute. Null: never used.",
    )
    revoked_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the key was revoked. Null: not revoked."
    )


class NewKeyOut(KeyOut):
    """A new API key with its secret, which no later response contains."""

    secret = serializers.CharField(
        help_text=(
            "The API key for the `Authorization` header. It is shown only once; store it now."
        )
    )
