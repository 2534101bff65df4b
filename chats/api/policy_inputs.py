"""The inputs about policies: values and locks as they are, names within their limits."""

import re
from typing import Any

from rest_framework import serializers

from chats.api.inputs import Flag, PageQuery, PlainText, Strict, WholeNumber
from chats.record.messages import UNSTORABLE, InvalidCharacter
from contextpolicy.imports import texts_in
from contextpolicy.models import PolicyAssignment

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,60}")
MOST_LOCKS = 100


class Words(PlainText):
    """A string of a limited length."""

    def __init__(self, *, most: int, least: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: Any) -> str:
        """Return the text itself. Raises the framework's ValidationError for another length."""
        text = super().to_internal_value(data)
        if len(text.strip()) < self.least or len(text) > self.most:
            limits = f"{self.least} to {self.most:,}" if self.least else f"at most {self.most:,}"
            raise serializers.ValidationError(f"Write {limits} characters.")
        return text


class Slug(PlainText):
    """The short name of a policy, by which programs know it."""

    def to_internal_value(self, data: Any) -> str:
        """Return the slug itself. Raises the framework's ValidationError if it is none."""
        text = super().to_internal_value(data)
        if not SLUG.fullmatch(text):
            raise serializers.ValidationError(
                "Write 1 to 60 letters without accents, digits, hyphens and underscores."
            )
        return text


class PoliciesQuery(PageQuery):
    """The policies to list: all, or some of them."""

    retired = serializers.BooleanField(
        required=False, help_text="True: only retired ones; false: only others."
    )


class Lint(Strict):
    """Values and locks as they are written."""

    values = serializers.DictField(default=dict, help_text="The fields that are set, by name.")
    locks = serializers.ListField(
        child=PlainText(),
        default=list,
        max_length=MOST_LOCKS,
        help_text="The fields that no nearer policy may override.",
    )


class NewPolicy(Lint):
    """A policy with its first version."""

    slug = Slug(help_text="Stays for good. 1 to 60 letters, digits, hyphens and underscores.")
    name = Words(least=1, most=200, help_text="1 to 200 characters.")
    description = Words(most=2000, default="", help_text="At most 2,000 characters.")
    note = Words(most=500, default="", help_text="Of the version: at most 500 characters.")
    draft = Flag(default=False, help_text="True: in force only when it is activated.")


class NewVersion(Lint):
    """The next version of a policy, whole: what is not named is not set any more."""

    note = Words(most=500, default="", help_text="At most 500 characters.")
    draft = Flag(default=False, help_text="True: in force only when it is activated.")
    based_on = WholeNumber(help_text="The number of the version that was read and changed.")


class PolicyChange(Strict):
    """The fields of a policy that no version has; absent fields stay."""

    name = Words(least=1, most=200, required=False, help_text="1 to 200 characters.")
    description = Words(most=2000, required=False, help_text="At most 2,000 characters.")
    retired = Flag(required=False, help_text="A policy that applies somewhere cannot be retired.")


class PolicyImport(Strict):
    """A policy or a strategy in a form that is read."""

    form = serializers.DictField(
        help_text="What an export of a policy says, a strategy of a plugin, or `context.history`."
    )
    into = PlainText(
        default="", help_text="The slug of the policy that gets a version. Empty: a new policy."
    )
    name = Words(most=200, default="", help_text="Of a new policy. Empty: the name in the form.")


class AssignmentsQuery(PageQuery):
    """The assignments to list: all, or those of a policy."""

    policy = PlainText(required=False, help_text="The slug of a policy.")


class NewAssignment(Strict):
    """A place where a policy applies: exactly the target that its level needs."""

    policy = PlainText(help_text="The slug of the policy.")
    level = serializers.ChoiceField(choices=PolicyAssignment.Level.choices)
    group = PlainText(default="", help_text="Of level `group`: its name.")
    user = PlainText(default="", help_text="Of level `user`: the name with which they sign in.")
    chat = serializers.UUIDField(default=None, allow_null=True, help_text="Of level `chat`.")


def storable(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked, whose texts a database can hold. Raises `InvalidCharacter`."""
    for text in texts_in(asked):
        found = UNSTORABLE.search(text)
        if found:
            raise InvalidCharacter(position=found.start())
    return asked


class Activation(Strict):
    """The activation of a draft."""

    emergency = Words(
        most=500,
        default="",
        help_text="Where two persons or a count of chats are asked for: why it is done without.",
    )
