"""Serializers for policies."""

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import serializers

from chats.api.policies.preview_outputs import FixedWarningOut, PreviewSideOut
from contextpolicy.linter.policy_warning import PolicyWarning
from contextpolicy.models import PolicyAssignment

Row = Mapping[str, Any]


class FieldSideOut(serializers.Serializer[Row]):
    """The value of a field in one version, and whether it is locked."""

    value = serializers.JSONField(allow_null=True, help_text="The value. Null: explicitly none.")
    locked = serializers.BooleanField(
        help_text="True: policies of more specific levels cannot override the value."
    )


class FieldChangeOut(serializers.Serializer[Row]):
    """A field that a version changed, with its value before and after. Null: not set."""

    field = serializers.CharField(help_text="Name of the field.")
    before = FieldSideOut(
        allow_null=True, help_text="Value in the previous version. Null: not set."
    )
    after = FieldSideOut(allow_null=True, help_text="Value in this version. Null: not set.")


class VersionRowOut(serializers.Serializer[Row]):
    """A version of a policy, without its values."""

    number = serializers.IntegerField(help_text="Version number, starting at 1.")
    state = serializers.ChoiceField(
        choices=["draft", "active", "retired"],
        help_text=(
            "`draft` (never published), `active`, or `retired` (was active, and another version "
            "replaced it)."
        ),
    )
    note = serializers.CharField(help_text="Reason for the change in this version. Empty: none.")
    created_by = serializers.CharField(
        allow_null=True,
        help_text="User name of the author. Null: a built-in version, or the user was deleted.",
    )
    created_at = serializers.DateTimeField()
    activated_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the version was published. Null: never."
    )


class VersionOut(VersionRowOut):
    """A version with its values, its changes since the previous version, and warnings."""

    values = serializers.DictField(
        help_text="Values of the policy by field name. Fields that are left out are not set."
    )
    locks = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of fields that policies of more specific levels cannot override.",
    )
    changes = FieldChangeOut(many=True, help_text="Fields that differ from the previous version.")
    findings = FixedWarningOut(many=True, help_text="Warnings about the values. Empty: none.")


class PolicyRowOut(serializers.Serializer[Row]):
    """A policy with the version numbers of its active version and its draft, without its fields."""

    slug = serializers.CharField(help_text="Permanent identifier of the policy in URLs.")
    name = serializers.CharField(help_text="Display name.")
    description = serializers.CharField(help_text="Description for administrators. Empty: none.")
    retired = serializers.BooleanField(help_text="True: the policy cannot be assigned.")
    version = serializers.IntegerField(
        allow_null=True, help_text="Active version number. Null: none."
    )
    draft = serializers.IntegerField(
        allow_null=True,
        help_text="Newest version number, if that version is an unpublished draft. Null: none.",
    )
    places = serializers.IntegerField(
        help_text="Number of assignments to everyone, groups, users and chats."
    )


class AssignmentOut(serializers.Serializer[PolicyAssignment]):
    """An assignment of a policy to everyone (`instance`), a group, a user or a chat."""

    id = serializers.IntegerField()
    policy = serializers.CharField(source="policy.slug", help_text="Slug of the policy.")
    level = serializers.ChoiceField(
        choices=PolicyAssignment.Level.choices,
        help_text="Level of the assignment: `instance`, `group`, `user` or `chat`.",
    )
    group = serializers.CharField(
        source="group.name",
        default=None,
        allow_null=True,
        help_text="Name of the group. Null: the policy is not assigned to a group.",
    )
    user = serializers.CharField(
        source="user.username",
        default=None,
        allow_null=True,
        help_text="User name. Null: the policy is not assigned to a user.",
    )
    chat = serializers.UUIDField(
        source="chat_id",
        allow_null=True,
        help_text="Id of the chat. Null: the policy is not assigned to a chat.",
    )


class PolicyDetailOut(PolicyRowOut):
    """A policy with its active version and its assignments."""

    current = VersionOut(allow_null=True, help_text="Active version. Null: none is published.")
    assignments = AssignmentOut(many=True, help_text="Assignments of the policy.")


class LintOut(serializers.Serializer[Row]):
    """The result of a policy check: conflicts (`error`), risks and notes about values and locks."""

    findings = FixedWarningOut(many=True, help_text="Conflicts and warnings. Empty: none.")


class ExportedPolicyOut(serializers.Serializer[Row]):
    """A policy with its newest version, in the import format."""

    palimpsest_policy = serializers.IntegerField(help_text="Version of the export format: 1.")
    slug = serializers.CharField(help_text="Slug of the policy.")
    name = serializers.CharField(help_text="Display name of the policy.")
    description = serializers.CharField(help_text="Description for administrators. Empty: none.")
    values = serializers.DictField(help_text="Values of the newest version, by field name.")
    locks = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of fields that policies of more specific levels cannot override.",
    )
    skills = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="Skills of the policy: `slug`, `name`, `description`, `mode`, `enabled`, `text` "
        "and `files`. Absent: none.",
    )
    skills_left_out = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Slugs of skills that are too large or that you may not read. Absent: none.",
    )
    skills_left_out_help = serializers.CharField(
        required=False,
        help_text="Reason why skills are left out, and how to get them. Absent: none are left out.",
    )


def serialize_warnings(warnings: Iterable[PolicyWarning]) -> list[dict[str, Any]]:
    return [
        {
            "code": warning.code,
            "field": warning.field,
            "level": warning.level,
            "message": warning.sentence,
            "mend": dict(warning.fix),
        }
        for warning in warnings
    ]


class SampledChatOut(serializers.Serializer[Mapping[str, Any]]):
    """A chat whose next prompt would change, with the numbers of both prompts."""

    chat = serializers.UUIDField(help_text="Id of the chat.")
    now = PreviewSideOut(help_text="Next prompt under the active policy.")
    proposed = PreviewSideOut(help_text="Next prompt under the unsaved policy.")


class PolicySampleOut(serializers.Serializer[Mapping[str, Any]]):
    """Warnings about a policy, and the share of chats that it would affect, from a sample.

    Counts refer to the evaluated chats. `low` and `high` are the 95% confidence bounds of the share
    among all chats in use.
    """

    findings = FixedWarningOut(many=True, help_text="Conflicts and warnings. Empty: none.")
    in_use = serializers.IntegerField(
        help_text="Number of chats without a team that were used in the last 90 days."
    )
    judged = serializers.IntegerField(
        help_text="Number of evaluated chats. 0: the values are invalid, or no chat is in use."
    )
    changed = serializers.IntegerField(
        help_text="Number of evaluated chats whose next prompt would change."
    )
    would_refuse = serializers.IntegerField(
        help_text=(
            "Number of evaluated chats whose next message would be refused, although the active "
            "policy accepts it."
        )
    )
    low = serializers.FloatField(
        help_text="Lower 95% confidence bound of the share of affected chats, 0 to 1."
    )
    high = serializers.FloatField(
        help_text="Upper 95% confidence bound of the share of affected chats, 0 to 1."
    )
    worst = SampledChatOut(
        many=True, help_text="Up to 10 evaluated chats with the largest changes."
    )


class RecommendationOut(serializers.Serializer[Row]):
    """A policy that lacks recommended values."""

    slug = serializers.CharField(help_text="Slug of the policy.")
    draft = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Version number of the policy's unpublished draft; a policy with a draft is skipped. "
            "Null: none."
        ),
    )
    values = serializers.DictField(help_text="Recommended values that the policy does not set.")


class RecommendationsOut(serializers.Serializer[Row]):
    """The policies that lack recommended values."""

    data = RecommendationOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class CreatedDraftOut(serializers.Serializer[Row]):
    """A policy and its new draft with the recommended values."""

    slug = serializers.CharField(help_text="Slug of the policy.")
    version = serializers.IntegerField(help_text="Version number of the draft.")


class SkippedPolicyOut(serializers.Serializer[Row]):
    """A policy for which no draft was created, with the reason."""

    slug = serializers.CharField(help_text="Slug of the policy.")
    reason = serializers.CharField(
        help_text="Human-readable reason why no draft was created, in the language of the request."
    )


class CreatedDraftsOut(serializers.Serializer[Row]):
    """The drafts that were created, and the policies that were skipped."""

    data = CreatedDraftOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`
    skipped = SkippedPolicyOut(
        many=True, help_text="Policies for which no draft was created. Empty: none."
    )
