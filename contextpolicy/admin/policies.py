"""The policy editor, which makes versions, and the pages that describe a policy."""

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from contextpolicy import publish
from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.importing import import_page
from contextpolicy.admin.policy_form import PolicyForm, with_configs
from contextpolicy.admin.policy_groups import groups
from contextpolicy.admin.site import actor_of
from contextpolicy.admin.words import plain_words
from contextpolicy.admin.written import rules_text, schema_text
from contextpolicy.engine.policy import PolicyValues, defaults_for, from_json
from contextpolicy.findings import findings
from contextpolicy.models import ContextPolicy, PolicyVersion

VERSIONS_SHOWN = 20


class ContextPolicyAdmin(DomainAdmin):
    """The policy editor: saving makes a new immutable version, in force at once."""

    form = PolicyForm
    refusals = (publish.PolicyProblems, publish.PolicyChangedMeanwhile, publish.PolicyInUse)
    list_display = ("name", "version", "strategy", "applies", "retired")
    list_filter = ("retired",)
    search_fields = ("name", "slug")
    change_list_template = "admin/contextpolicy/contextpolicy/change_list.html"

    class Media:
        js = ("admin_policy.js",)

    def get_urls(self) -> list[URLPattern]:
        """Add the page that imports a strategy."""
        page = self.admin_site.admin_view(self.import_strategy)
        return [path("import/", page, name="contextpolicy_policy_import"), *super().get_urls()]

    def import_strategy(self, request: HttpRequest) -> HttpResponse:
        """Make a policy, or a version of one, from a strategy in import form."""
        return import_page(self, request, tell=self.tell_findings)

    def get_form(
        self,
        request: HttpRequest,
        obj: ContextPolicy | None = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **options: Any,
    ) -> Any:
        """Add the config fields of the strategies of packages."""
        return super().get_form(request, obj, change, form=with_configs(PolicyForm), **options)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ContextPolicy]:
        """Fetch the version in force and the number of assignments in one query."""
        rows: QuerySet[ContextPolicy] = super().get_queryset(request)
        return rows.select_related("current").annotate(places=Count("assignments"))

    def get_fieldsets(self, request: HttpRequest, obj: ContextPolicy | None = None) -> Any:
        """Return the editor, or what the policy says for those who may only look."""
        if obj is not None and not self.has_change_permission(request, obj):
            told = ["name", "slug", "description", "retired", "in_plain_words", "to_know"]
            return [(None, {"fields": [*told, "where_it_applies", "says", "versions"]})]
        name = ["name", "slug", "description"]
        if obj is not None:
            name += ["retired", "in_plain_words", "to_know", "where_it_applies"]
        sets = [
            (None, {"fields": name}),
            *groups(),
            ("This version", {"fields": [("note", "based_on")]}),
        ]
        return [*sets, ("Versions", {"fields": ["versions"]})] if obj is not None else sets

    def get_readonly_fields(
        self, request: HttpRequest, obj: ContextPolicy | None = None
    ) -> tuple[str, ...]:
        """Return what is shown about a policy; its slug stays once it has one."""
        told = ("in_plain_words", "to_know", "where_it_applies", "says", "versions")
        return told if obj is None else ("slug", *told)

    def get_prepopulated_fields(
        self, request: HttpRequest, obj: ContextPolicy | None = None
    ) -> dict[str, Sequence[str]]:
        """Let the slug follow the name only while the policy is new."""
        return {"slug": ("name",)} if obj is None else {}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Rename or describe the policy, and make a version when a value or lock changed."""
        common: dict[str, Any] = {"actor": actor_of(request), "now": timezone.now()}
        version: dict[str, Any] = {
            "values": form.policy_values,
            "locks": form.policy_locks,
            "note": form.cleaned_data["note"],
        }
        if not change:
            made = publish.create_policy(
                slug=obj.slug, name=obj.name, description=obj.description, **version, **common
            )
            obj.pk = made.pk
            obj.refresh_from_db()
        else:
            is_new = form.is_new_version()
            publish.change_policy(
                policy=obj,
                name=obj.name,
                description=obj.description,
                retired=obj.retired,
                **common,
            )
            if is_new:
                publish.new_version(
                    policy=obj, based_on=form.cleaned_data["based_on"], **version, **common
                )
        self.tell_findings(request, obj)

    def response_add(
        self, request: HttpRequest, obj: ContextPolicy, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Say of a new policy that it governs nobody yet, and where that is changed."""
        response = super().response_add(request, obj, post_url_continue)
        if "_continue" in request.POST:
            # The page that follows says it itself.
            return response
        address = reverse(
            "admin:contextpolicy_policyassignment_add", current_app=self.admin_site.name
        )
        sentence = format_html(
            'It applies to nobody yet. <a href="{}?policy={}">Assign it</a>', address, obj.pk
        )
        self.message_user(request, sentence, messages.INFO)
        return response

    def tell_findings(self, request: HttpRequest, policy: ContextPolicy) -> None:
        """Show what works but may surprise, as messages."""
        for finding in findings(whole(policy.current)):
            self.message_user(request, finding.sentence, messages.WARNING)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: receipts name versions. A policy is retired instead."""
        return False

    @admin.display(description="Version")
    def version(self, policy: ContextPolicy) -> str:
        """Name the version in force."""
        return f"v{policy.current.number}" if policy.current else "none"

    @admin.display(description="Strategy")
    def strategy(self, policy: ContextPolicy) -> str:
        """Name the strategy, if the policy sets one."""
        said = policy.current.values if policy.current else {}
        return str(said.get("strategy", "not set"))

    @admin.display(description="Applies in", ordering="places")
    def applies(self, policy: ContextPolicy) -> str:
        """Count its assignments."""
        places = getattr(policy, "places", 0)
        return f"{places} place" if places == 1 else f"{places} places"

    @admin.display(description="In plain words")
    def in_plain_words(self, policy: ContextPolicy) -> str:
        """Say what it does where no other policy applies."""
        return plain_words(whole(policy.current))

    @admin.display(description="To know")
    def to_know(self, policy: ContextPolicy) -> SafeString:
        """List what works but may surprise."""
        context = {"findings": findings(whole(policy.current))}
        return render_to_string("admin/contextpolicy/contextpolicy/_findings.html", context)

    @admin.display(description="Applies to")
    def where_it_applies(self, policy: ContextPolicy) -> SafeString:
        """List its assignments, with links."""
        rows = policy.assignments.select_related("group", "user")
        context = {"policy": policy, "assignments": rows}
        return render_to_string("admin/contextpolicy/contextpolicy/_assignments.html", context)

    @admin.display(description="Says")
    def says(self, policy: ContextPolicy) -> SafeString:
        """List the fields that are set, for those who may only look."""
        version = policy.current
        values = version.values if version else {}
        locks = version.locks if version else []
        rows = [(name, told_value(name, values[name]), name in locks) for name in values]
        context = {"rows": rows}
        return render_to_string("admin/contextpolicy/contextpolicy/_values.html", context)

    @admin.display(description="Versions")
    def versions(self, policy: ContextPolicy) -> SafeString:
        """List the newest versions, each with what it changed."""
        rows = list(policy.versions.order_by("-number")[: VERSIONS_SHOWN + 1])
        people = User.objects.in_bulk([row.created_by_id for row in rows if row.created_by_id])
        told = [
            {
                "row": row,
                "by": people.get(row.created_by_id) if row.created_by_id else "the product",
                "changes": differences(older, row),
            }
            for row, older in zip(rows, [*rows[1:], None], strict=True)
        ]
        context = {"versions": told[:VERSIONS_SHOWN]}
        return render_to_string("admin/contextpolicy/contextpolicy/_versions.html", context)


def whole(version: PolicyVersion | None) -> PolicyValues:
    """Return a version's values over the defaults of its strategy."""
    values = version.values if version else {}
    strategy = values.get("strategy", PolicyValues().strategy)
    return from_json(values, base=defaults_for(strategy))


def differences(older: PolicyVersion | None, newer: PolicyVersion) -> list[dict[str, Any]]:
    """List what a version changed: the field with its value before and after, locks included."""
    before = told_values(older) if older else {}
    after = told_values(newer)
    return [
        {"field": name, "before": before.get(name), "after": after.get(name)}
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def told_values(version: PolicyVersion) -> dict[str, str]:
    """Return the values of a version as texts, a lock in words."""
    return {
        name: f"{told_value(name, value)}{', locked' if name in version.locks else ''}"
        for name, value in version.values.items()
    }


def told_value(name: str, value: Any) -> str:
    """Write a stored value as a text; structured ones as the form writes them."""
    if name == "tool_output_rules":
        return rules_text(value)
    if name == "state_schema":
        return schema_text(value)
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
