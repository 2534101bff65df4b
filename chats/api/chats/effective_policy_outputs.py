"""Serializers for the effective policy of a chat and its explanation."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.explanation import LOST, WON


class SourceOut(serializers.Serializer[Mapping[str, Any]]):
    """The policy that set a value: its level (such as `group`), slug, version and lock."""

    level = serializers.CharField(
        help_text="Level of the policy: `instance`, `group`, `user`, `agent` or `chat`."
    )
    policy = serializers.CharField(help_text="Slug of the policy.")
    version = serializers.IntegerField(help_text="Number of the policy's active version.")
    locked = serializers.BooleanField(
        help_text="True: policies of more specific levels cannot override the value."
    )


class AdjustmentOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that was lowered because values of several policies conflict.

    `wanted` is the value that the policies set, `used` the one that applies.
    """

    field = serializers.CharField(help_text="Name of the field of the policy.")
    wanted = serializers.JSONField(help_text="Value that the policies set.")
    used = serializers.JSONField(
        help_text="Lower value that applies, because the values of the policies conflict."
    )


class SystemTextOut(serializers.Serializer[Mapping[str, Any]]):
    """The size and hash of a system text, even if the policy hides the text itself."""

    hidden = serializers.BooleanField(help_text="True: the policy hides the text from users.")
    characters = serializers.IntegerField(help_text="Length of the text in characters.")
    sha256 = serializers.CharField(help_text="SHA-256 of the text, in hex.")


class PolicyOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a chat: its values and the policies that set them."""

    digest = serializers.CharField(
        help_text="Digest of the effective policy: SHA-256 of its values and sources, in hex."
    )
    label = serializers.CharField(  # type: ignore[assignment]  # DRF's metaclass removes fields
        help_text=(
            "Human-readable name and version of the most specific policy, such as `Support v7`."
        )
    )
    values = serializers.DictField(
        help_text=f"Values by name: {', '.join(PolicyValues().to_json())}."
    )
    system_text = SystemTextOut(help_text="Size and hash of the system text that policies set.")
    sources = serializers.DictField(
        child=SourceOut(), help_text="Policy that sets each value, by field name."
    )
    adjusted = AdjustmentOut(
        many=True, help_text="Values that were lowered because values of several policies conflict."
    )


class LostOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that another policy overrides, and the reason."""

    value = serializers.JSONField(
        allow_null=True, help_text="The overridden value. Null: not set, or you may not read it."
    )
    source = SourceOut(help_text="Policy that sets the overridden value.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    reason = serializers.ChoiceField(
        choices=list(LOST.items()),
        help_text="\n".join(f"- `{code}`: {text}." for code, text in LOST.items()),
    )


class ExplainedFieldOut(serializers.Serializer[Mapping[str, Any]]):
    """One field of a policy: the effective value, its source, and overridden values."""

    field = serializers.CharField(help_text="Name of the field of the policy.")
    value = serializers.JSONField(
        allow_null=True,
        help_text="Value that applies. Null: not set, or a text of a policy that you may not read.",
    )
    wanted = serializers.JSONField(
        allow_null=True,
        help_text=(
            "Value that the policies set, if the model requires a different value. Null: the value "
            "that the policies set applies."
        ),
    )
    source = SourceOut(help_text="Policy that sets the value that applies.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    reason = serializers.ChoiceField(
        choices=list(WON.items()),
        help_text="\n".join(f"- `{code}`: {text}." for code, text in WON.items()),
    )
    used = serializers.BooleanField(help_text="False: the policy's strategy ignores this field.")
    lost = LostOut(many=True, help_text="Values of other policies, which this value overrides.")


class ExplanationOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a user, field by field, with overridden values."""

    person = serializers.CharField(help_text="User name of the user whose policy is explained.")
    chat = serializers.UUIDField(
        allow_null=True, help_text="Id of the chat whose policies count. Null: no chat."
    )
    agent = serializers.CharField(
        allow_null=True, help_text="Id of the agent's role. Null: no agent."
    )
    model = serializers.CharField(
        allow_null=True, help_text="Id of the model. Null: no model is chosen."
    )
    fields = ExplainedFieldOut(many=True, help_text="All fields of the policy.")  # type: ignore[assignment]  # DRF's metaclass removes fields
