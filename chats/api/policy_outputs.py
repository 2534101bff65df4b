"""The outputs about policies: each field by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import serializers

from chats.api.outputs import MendedFindingOut, PreviewSideOut
from contextpolicy.linter.findings import Finding
from contextpolicy.models import PolicyAssignment

Row = Mapping[str, Any]


class FieldSideOut(serializers.Serializer[Row]):
    """A value that a version sets."""

    value = serializers.JSONField(allow_null=True)
    locked = serializers.BooleanField()


class FieldChangeOut(serializers.Serializer[Row]):
    """A field that a version changed; null where it is not set."""

    field = serializers.CharField()
    before = FieldSideOut(allow_null=True)
    after = FieldSideOut(allow_null=True)


class VersionRowOut(serializers.Serializer[Row]):
    """A version of a policy."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["draft", "active", "retired"])
    note = serializers.CharField()
    created_by = serializers.CharField(
        allow_null=True, help_text="Null: the product, or somebody who is gone."
    )
    created_at = serializers.DateTimeField()
    activated_at = serializers.DateTimeField(allow_null=True)


class VersionOut(VersionRowOut):
    """A version with what it says and what it changed of the one before."""

    values = serializers.DictField(help_text="The fields that are set, by name.")
    locks = serializers.ListField(child=serializers.CharField())
    changes = FieldChangeOut(many=True)
    findings = MendedFindingOut(many=True)


class PolicyRowOut(serializers.Serializer[Row]):
    """A policy."""

    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    retired = serializers.BooleanField()
    version = serializers.IntegerField(allow_null=True, help_text="The number in force.")
    draft = serializers.IntegerField(allow_null=True, help_text="The number of a newer draft.")
    places = serializers.IntegerField(help_text="The number of its assignments.")


class AssignmentOut(serializers.Serializer[PolicyAssignment]):
    """A place where a policy applies."""

    id = serializers.IntegerField()
    policy = serializers.CharField(source="policy.slug")
    level = serializers.ChoiceField(choices=PolicyAssignment.Level.choices)
    group = serializers.CharField(source="group.name", default=None, allow_null=True)
    user = serializers.CharField(source="user.username", default=None, allow_null=True)
    chat = serializers.UUIDField(source="chat_id", allow_null=True)


class OnePolicyOut(PolicyRowOut):
    """A policy with the version in force and where it applies."""

    current = VersionOut(allow_null=True)
    assignments = AssignmentOut(many=True)


class LintOut(serializers.Serializer[Row]):
    """All that is to be known of values and locks."""

    findings = MendedFindingOut(many=True)


class ExportedPolicyOut(serializers.Serializer[Row]):
    """A policy with its newest version as an import reads it."""

    palimpsest_policy = serializers.IntegerField(help_text="The version of this form.")
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    values = serializers.DictField()
    locks = serializers.ListField(child=serializers.CharField())


def findings_told(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as they are written down."""
    return [
        {
            "code": finding.code,
            "field": finding.field,
            "level": finding.level,
            "message": finding.sentence,
            "mend": dict(finding.mend),
        }
        for finding in findings
    ]


class SampledChatOut(serializers.Serializer[Mapping[str, Any]]):
    """A chat that would change, with its next prompt now and with the policy."""

    chat = serializers.UUIDField()
    now = PreviewSideOut()
    proposed = PreviewSideOut()


class PolicySampleOut(serializers.Serializer[Mapping[str, Any]]):
    """Findings of a policy, and how many chats in use it would change by a random sample.

    The counts are of the chats that were judged; `low` and `high` bound the share of all in use,
    with 95 % certainty.
    """

    findings = MendedFindingOut(many=True)
    in_use = serializers.IntegerField()
    judged = serializers.IntegerField()
    changed = serializers.IntegerField()
    would_refuse = serializers.IntegerField()
    low = serializers.FloatField()
    high = serializers.FloatField()
    worst = SampledChatOut(many=True)


class RecommendationOut(serializers.Serializer[Row]):
    """A policy without the recommended values."""

    slug = serializers.CharField()
    draft = serializers.IntegerField(
        allow_null=True, help_text="Its unpublished version; such a policy is skipped."
    )
    values = serializers.DictField(help_text="The recommended values that the policy leaves open.")


class RecommendationsOut(serializers.Serializer[Row]):
    """The policies without the recommended values."""

    data = RecommendationOut(many=True)  # type: ignore[assignment]  # the base has another


class CreatedDraftOut(serializers.Serializer[Row]):
    """A draft with the recommended values."""

    slug = serializers.CharField()
    version = serializers.IntegerField()


class SkippedPolicyOut(serializers.Serializer[Row]):
    """A policy that got no draft."""

    slug = serializers.CharField()
    reason = serializers.CharField()


class CreatedDraftsOut(serializers.Serializer[Row]):
    """The new drafts, and the policies that got none."""

    data = CreatedDraftOut(many=True)  # type: ignore[assignment]  # the base has another
    skipped = SkippedPolicyOut(many=True)
