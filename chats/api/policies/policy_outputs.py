"""Serializers for policies."""

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import serializers

from chats.api.core.outputs import FixedWarningOut, PreviewSideOut
from contextpolicy.linter.findings import Finding
from contextpolicy.models import PolicyAssignment

Row = Mapping[str, Any]


class FieldSideOut(serializers.Serializer[Row]):
    """A value that a version sets."""

    value = serializers.JSONField(allow_null=True)
    locked = serializers.BooleanField()


class FieldChangeOut(serializers.Serializer[Row]):
    """A field that a version changed, with its value before and after. Null: not set."""

    field = serializers.CharField()
    before = FieldSideOut(allow_null=True)
    after = FieldSideOut(allow_null=True)


class VersionRowOut(serializers.Serializer[Row]):
    """A version of a policy."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["draft", "active", "retired"])
    note = serializers.CharField()
    created_by = serializers.CharField(
        allow_null=True,
        help_text=("User name of the author. Null: a built-in version, or the user was deleted."),
    )
    created_at = serializers.DateTimeField()
    activated_at = serializers.DateTimeField(allow_null=True)


class VersionOut(VersionRowOut):
    """A version with its values, its changes since the previous version, and warnings."""

    values = serializers.DictField(
        help_text="Values of the policy by field name. Fields that are left out are not set."
    )
    locks = serializers.ListField(child=serializers.CharField())
    changes = FieldChangeOut(many=True)
    findings = FixedWarningOut(many=True)


class PolicyRowOut(serializers.Serializer[Row]):
    """A policy with the numbers of its versions and assignments, without values."""

    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    retired = serializers.BooleanField()
    version = serializers.IntegerField(
        allow_null=True, help_text="Number of the active version. Null: none."
    )
    draft = serializers.IntegerField(
        allow_null=True, help_text="Number of the unpublished draft. Null: none."
    )
    places = serializers.IntegerField(
        help_text="Number of assignments to everyone, groups, users and chats."
    )


class AssignmentOut(serializers.Serializer[PolicyAssignment]):
    """An assignment of a policy to everyone (`instance`), a group, a user or a chat."""

    id = serializers.IntegerField()
    policy = serializers.CharField(source="policy.slug")
    level = serializers.ChoiceField(choices=PolicyAssignment.Level.choices)
    group = serializers.CharField(source="group.name", default=None, allow_null=True)
    user = serializers.CharField(source="user.username", default=None, allow_null=True)
    chat = serializers.UUIDField(source="chat_id", allow_null=True)


class PolicyDetailOut(PolicyRowOut):
    """A policy with its active version and its assignments."""

    current = VersionOut(allow_null=True)
    assignments = AssignmentOut(many=True)


class LintOut(serializers.Serializer[Row]):
    """Conflicts (level `error`), risks and notes about values and locks. Empty: none."""

    findings = FixedWarningOut(many=True)


class ExportedPolicyOut(serializers.Serializer[Row]):
    """A policy with its newest version, in the import format."""

    palimpsest_policy = serializers.IntegerField(help_text="Version of the export format: 1.")
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    values = serializers.DictField()
    locks = serializers.ListField(child=serializers.CharField())


def serialize_findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
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
    """A chat that would change, with its next prompt with and without the policy."""

    chat = serializers.UUIDField()
    now = PreviewSideOut()
    proposed = PreviewSideOut()


class PolicySampleOut(serializers.Serializer[Mapping[str, Any]]):
    """Warnings about a policy, and the share of chats that it would change, from a sample.

    Counts refer to the evaluated chats. `low` and `high` are the 95% confidence bounds of the share
    among all chats in use.
    """

    findings = FixedWarningOut(many=True)
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
        allow_null=True,
        help_text=(
            "Number of the policy's unpublished draft; a policy with a draft is skipped. "
            "Null: none."
        ),
    )
    values = serializers.DictField(help_text="Recommended values that the policy does not set.")


class RecommendationsOut(serializers.Serializer[Row]):
    """The policies without the recommended values."""

    data = RecommendationOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class CreatedDraftOut(serializers.Serializer[Row]):
    """A draft with the recommended values."""

    slug = serializers.CharField()
    version = serializers.IntegerField()


class SkippedPolicyOut(serializers.Serializer[Row]):
    """A policy for which no draft was created, and the reason."""

    slug = serializers.CharField()
    reason = serializers.CharField()


class CreatedDraftsOut(serializers.Serializer[Row]):
    """The created drafts, and the skipped policies."""

    data = CreatedDraftOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`
    skipped = SkippedPolicyOut(many=True)
