"""Serializers for the effective policy of a chat and its explanation."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.explanation import LOST, WON


class SourceOut(serializers.Serializer[Mapping[str, Any]]):
    """The source of a value: the level (such as `group`), slug, version and lock of a policy.

    A value that no policy sets has the level `setting` or `default`.
    """

    level = serializers.CharField(
        help_text=(
            "Level of the policy: `instance`, `group`, `user`, `agent` or `chat`. `setting`: a "
            "server setting. `default`: the default of the strategy."
        )
    )
    policy = serializers.CharField(help_text="Slug of the policy. Empty: no policy sets the value.")
    version = serializers.IntegerField(
        help_text="Active version number of the policy. 0: no policy sets the value."
    )
    locked = serializers.BooleanField(
        help_text="True: policies of more specific levels cannot override the value."
    )


class AdjustmentOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that was adjusted, because it does not work with the model or the other values."""

    field = serializers.CharField(help_text="Name of the policy field.")
    wanted = serializers.JSONField(help_text="Value that the policies set.")
    used = serializers.JSONField(
        help_text=(
            "Value that applies instead, because `wanted` does not work with the model or the "
            "other values."
        )
    )


class SystemTextOut(serializers.Serializer[Mapping[str, Any]]):
    """The size and hash of a system text, even if the policy hides the text itself."""

    hidden = serializers.BooleanField(help_text="True: the policy hides the text from users.")
    characters = serializers.IntegerField(help_text="Length of the text in characters.")
    sha256 = serializers.CharField(help_text="SHA-256 of the text in UTF-8, in hex.")


class PolicyOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a chat: its values and the policies that set them."""

    digest = serializers.CharField(
        help_text=(
            "Digest of the effective policy: SHA-256 of its label, values, sources and "
            "adjustments, in hex."
        )
    )
    label = serializers.CharField(  # type: ignore[assignment]  # DRF's metaclass removes fields
        help_text=(
            "Name and version of the most specific policy, such as `Support v7`. `Built-in "
            "defaults`: no policy applies."
        )
    )
    values = serializers.DictField(
        help_text=(
            f"Values by name: {', '.join(PolicyValues().to_json())}. "
            "Texts are null if the policy hides them."
        )
    )
    system_text = SystemTextOut(help_text="Size and hash of the system text that policies set.")
    sources = serializers.DictField(
        child=SourceOut(), help_text="Source of each value, by field name."
    )
    adjusted = AdjustmentOut(
        many=True,
        help_text="Values that were adjusted to work with the model and the other values.",
    )


class LostOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that another policy overrides, and the reason."""

    value = serializers.JSONField(
        allow_null=True, help_text="The overridden value. Null: not set, or you may not read it."
    )
    source = SourceOut(help_text="Policy that sets the overridden value. `locked` is always false.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    reason = serializers.ChoiceField(
        choices=list(LOST.items()),
        help_text="\n".join(f"- `{code}`: {text}." for code, text in LOST.items()),
    )


class ExplainedFieldOut(serializers.Serializer[Mapping[str, Any]]):
    """One field of a policy: the effective value, its source, and overridden values."""

    field = serializers.CharField(help_text="Name of the policy field.")
    value = serializers.JSONField(
        allow_null=True,
        help_text="Value that applies. Null: not set, or a policy text that you may not read.",
    )
    wanted = serializers.JSONField(
        allow_null=True,
        help_text=(
            "Value that the policies set. It differs from `value` if it does not work with the "
            "model or the other values. Null: not set, or a policy text that you may not read."
        ),
    )
    source = SourceOut(help_text="Policy, setting or default that sets the value that applies.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    reason = serializers.ChoiceField(
        choices=list(WON.items()),
        help_text="\n".join(f"- `{code}`: {text}." for code, text in WON.items()),
    )
    used = serializers.BooleanField(help_text="False: the policy's strategy ignores this field.")
    lost = LostOut(many=True, help_text="Values of other policies, which this value overrides.")


class ExplanationOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a user, field by field, with overridden values."""

    person = serializers.CharField(help_text="Name of the user whose policy is explained.")
    chat = serializers.UUIDField(
        allow_null=True, help_text="Id of the chat whose policies apply. Null: no chat."
    )
    agent = serializers.CharField(
        allow_null=True, help_text="Id of the agent's role. Null: no agent."
    )
    model = serializers.CharField(
        allow_null=True, help_text="Id of the model. Null: no model is chosen."
    )
    fields = ExplainedFieldOut(many=True, help_text="All fields of the policy.")  # type: ignore[assignment]  # DRF's metaclass removes fields
