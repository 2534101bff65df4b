"""Request bodies about policies. Values and locks are passed to the domain unchanged."""

import re
from typing import Any

from django.utils.translation import gettext
from rest_framework import serializers

from chats.api.core.inputs import Flag, Identifier, PageQuery, PlainText, Strict, WholeNumber
from chats.record.message_text import check_characters
from contextpolicy.import_json import collect_json_strings
from contextpolicy.models import PolicyAssignment

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,60}")
MOST_LOCKS = 100


class Words(PlainText):
    """A string with a minimum and a maximum length."""

    def __init__(self, *, most: int, least: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if len(text.strip()) < self.least or len(text) > self.most:
            said = (
                gettext("Enter {least} to {most:,} characters.")
                if self.least
                else gettext("Enter at most {most:,} characters.")
            )
            raise serializers.ValidationError(said.format(least=self.least, most=self.most))
        return text


class Slug(PlainText):
    """The slug of a policy: its stable identifier in the API."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not SLUG.fullmatch(text):
            raise serializers.ValidationError(
                gettext(
                    "Enter 1 to 60 characters: unaccented letters, digits, hyphens and underscores."
                )
            )
        return text


class PoliciesQuery(PageQuery):
    """Filter for the list of policies, by retirement."""

    retired = serializers.BooleanField(
        required=False,
        help_text=(
            "True: only retired policies. False: only policies that are not retired. Absent: both."
        ),
    )


class Lint(Strict):
    """The unsaved values and locks of a policy, to check them."""

    values = serializers.DictField(
        default=dict,
        help_text="Values of the policy by field name. Fields that are left out are not set.",
    )
    locks = serializers.ListField(
        child=PlainText(),
        default=list,
        max_length=MOST_LOCKS,
        help_text="Names of fields that policies of more specific levels cannot override.",
    )


class NewPolicy(Lint):
    """A policy to create, with the values of its first version."""

    slug = Slug(
        help_text=(
            "Permanent identifier in URLs: 1 to 60 letters without accents, digits, hyphens and "
            "underscores."
        )
    )
    name = Words(
        least=1, most=200, help_text="Display name, 1 to 200 characters, unique ignoring case."
    )
    description = Words(
        most=2000, default="", help_text="Description for administrators, at most 2,000 characters."
    )
    note = Words(
        most=500,
        default="",
        help_text="Reason for the change, shown in the list of versions. At most 500 characters.",
    )
    draft = Flag(
        default=False,
        help_text="True: the version is saved as a draft and not used until it is published.",
    )


class NewVersion(Lint):
    """The complete next version of a policy. Fields that are left out become unset."""

    note = Words(
        most=500,
        default="",
        help_text="Reason for the change, shown in the list of versions. At most 500 characters.",
    )
    draft = Flag(
        default=False,
        help_text="True: the version is saved as a draft and not used until it is published.",
    )
    based_on = WholeNumber(
        help_text=(
            "Newest version number that you know. Returns 409 if a newer version exists, 404 if "
            "the policy has no such version."
        )
    )


class PolicyChange(Strict):
    """The unversioned fields of a policy to change. Omitted fields keep their values."""

    name = Words(
        least=1,
        most=200,
        required=False,
        help_text="Display name, 1 to 200 characters, unique ignoring case.",
    )
    description = Words(
        most=2000,
        required=False,
        help_text="Description for administrators, at most 2,000 characters.",
    )
    retired = Flag(
        required=False,
        help_text=(
            "True: retire the policy, so it cannot be assigned. Remove its assignments first. "
            "False: reactivate it."
        ),
    )


class PolicyImport(Strict):
    """A file to import as a policy, and its destination."""

    form = serializers.DictField(
        help_text=(
            "An exported policy, a strategy of an installed package, or a `context.history` "
            "configuration of another product. The last two formats keep the locks of an "
            "existing policy, and its values that are not part of the strategy."
        )
    )
    into = PlainText(
        default="",
        help_text="Slug of the existing policy that gets a new version. Empty: create a policy.",
    )
    name = Words(
        most=200,
        default="",
        help_text=(
            "Name of the new policy. Empty: the `name` of an exported policy, or the `id` of any "
            "other format. Ignored if `into` is set."
        ),
    )


class AssignmentsQuery(PageQuery):
    """Filter for the policy assignments, by policy."""

    policy = PlainText(
        required=False,
        help_text="Only assignments of the policy with this slug. Absent: all policies.",
    )


class NewAssignment(Strict):
    """A policy assignment to create. Set only the target that the level requires."""

    policy = PlainText(help_text="Slug of the policy, which must have an active version.")
    level = serializers.ChoiceField(
        choices=PolicyAssignment.Level.choices,
        help_text="`instance`: everyone. `group`, `user` or `chat`: the target of that name.",
    )
    group = PlainText(default="", help_text="Name of the group, for level `group`.")
    user = PlainText(default="", help_text="User name, for level `user`.")
    chat = Identifier(default=None, allow_null=True, help_text="Id of the chat, for level `chat`.")


def validate_storable_texts(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the input if the database can store its strings. Raises `InvalidCharacter` if not."""
    for text in collect_json_strings(asked):
        check_characters(text)
    return asked


class Activation(Strict):
    """Options for publishing a policy version."""

    emergency = Words(
        most=500,
        default="",
        help_text=(
            "Reason for publishing without the required second person or count of affected "
            "chats, at most 500 characters. The audit log records it. Empty: not an "
            "emergency."
        ),
    )


class SampleRequest(Lint):
    """Unsaved values and locks of a policy, and the level at which the policy would apply."""

    policy = PlainText(
        default="",
        help_text=(
            "Slug of the policy whose next version would have these values. Empty: a new policy."
        ),
    )
    place = serializers.ChoiceField(
        choices=["instance", "assigned"],
        default="instance",
        help_text=(
            "`instance`: as if the policy applied to everyone. `assigned`: only where it is "
            "assigned now."
        ),
    )


class PreviewRequest(SampleRequest):
    """Unsaved values and locks of a policy, and the chat in which to preview them."""

    place = serializers.ChoiceField(
        choices=["instance", "chat"],
        default="instance",
        help_text=(
            "Level at which the policy would apply: `instance` or `chat`. Ignored if the policy "
            "already applies to the chat."
        ),
    )
    chat = Identifier(help_text="Id of the chat.")
