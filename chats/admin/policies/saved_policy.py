"""The list of policies, and the page of a policy for users who cannot edit it."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext, pgettext_lazy

from chats.admin.bases import DomainAdmin
from chats.admin.policies.description import describe_policy
from chats.admin.policies.display_values import format_stored_value, list_version_changes
from contextpolicy.linter.lint import lint_policy, read_whole
from contextpolicy.models import ContextPolicy

VERSIONS_SHOWN = 20
TEMPLATES = "admin/contextpolicy/contextpolicy"
# The states of a version.
STATES = {
    "active": pgettext_lazy("version", "active"),
    "draft": pgettext_lazy("version", "draft"),
    "retired": pgettext_lazy("version", "retired"),
}


class SavedPolicyAdmin(DomainAdmin):
    """The columns of the list, and the read-only fields of a policy."""

    list_display = ("name", "version", "strategy", "applies", "state")
    list_filter = ("retired",)
    search_fields = ("name", "slug")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because receipts name versions. Policies are retired instead."""
        return False

    @admin.display(description=gettext_lazy("Version"))
    def version(self, policy: ContextPolicy) -> str:
        return f"v{policy.current.number}" if policy.current else pgettext("version", "draft")

    @admin.display(description=gettext_lazy("State"), ordering="retired")
    def state(self, policy: ContextPolicy) -> str:
        """Return the state: active, draft only, or retired."""
        if policy.retired:
            return pgettext("policy", "Retired")
        return pgettext("policy", "Active") if policy.current else pgettext("policy", "Draft")

    @admin.display(description=gettext_lazy("Strategy"))
    def strategy(self, policy: ContextPolicy) -> str:
        """Return the name of the strategy, if the policy sets one."""
        values = policy.current.values if policy.current else {}
        return str(values.get("strategy", gettext("not set")))

    @admin.display(description=gettext_lazy("Assignments"), ordering="places")
    def applies(self, policy: ContextPolicy) -> str:
        places = getattr(policy, "places", 0)
        return ngettext("{n} assignment", "{n} assignments", places).format(n=places)

    @admin.display(description=gettext_lazy("Description"))
    def in_plain_words(self, policy: ContextPolicy) -> str:
        """Describe the policy in words, assuming that no other policy applies.

        Empty if its values are invalid.
        """
        values = read_whole(policy.current.values if policy.current else {})
        return describe_policy(values) if values else ""

    @admin.display(description=gettext_lazy("Warnings"))
    def to_know(self, policy: ContextPolicy) -> SafeString:
        """Return the linter's warnings as a list."""
        found = lint_policy(policy.current.values if policy.current else {})
        return render_to_string(f"{TEMPLATES}/_warnings.html", {"warnings": found})

    @admin.display(description=gettext_lazy("Applies to"))
    def where_it_applies(self, policy: ContextPolicy) -> SafeString:
        """List the assignments, with links."""
        rows = policy.assignments.select_related("group", "user")
        context = {"policy": policy, "assignments": rows}
        return render_to_string(f"{TEMPLATES}/_assignments.html", context)

    @admin.display(description=gettext_lazy("Values"))
    def says(self, policy: ContextPolicy) -> SafeString:
        """List the fields that are set, for users who cannot edit."""
        version = policy.current
        values = version.values if version else {}
        locks = version.locks if version else []
        rows = [(name, format_stored_value(name, values[name]), name in locks) for name in values]
        return render_to_string(f"{TEMPLATES}/_values.html", {"rows": rows})

    @admin.display(description=gettext_lazy("Versions"))
    def versions(self, policy: ContextPolicy) -> SafeString:
        """List the newest versions, for users who cannot edit."""
        return self.history(policy, may_restore=False)

    def history(self, policy: ContextPolicy, *, may_restore: bool) -> SafeString:
        """List the newest versions, each with its state and changes."""
        rows = list(policy.versions.order_by("-number")[: VERSIONS_SHOWN + 1])
        people = User.objects.in_bulk([row.created_by_id for row in rows if row.created_by_id])
        told = [
            {
                "row": row,
                "state": row.state,
                "state_name": STATES[row.state],
                "by": people.get(row.created_by_id) if row.created_by_id else gettext("Palimpsest"),
                "changes": list_version_changes(older, row),
            }
            for row, older in zip(rows, [*rows[1:], None], strict=True)
        ]
        context = {"versions": told[:VERSIONS_SHOWN], "may_restore": may_restore}
        return render_to_string(f"{TEMPLATES}/_versions.html", context)
