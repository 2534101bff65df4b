"""The policy editor, which makes versions, and the pages that describe a policy."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from contextpolicy import controls, publish, recommended
from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.importing import import_page
from contextpolicy.admin.plain_words import plain_words
from contextpolicy.admin.policy_form import OF_THE_POLICY, PolicyForm, with_configs
from contextpolicy.admin.policy_groups import groups
from contextpolicy.admin.policy_page import editor_of
from contextpolicy.admin.site import actor_of
from contextpolicy.admin.stored_values import shown
from contextpolicy.admin.told_values import differences, told_value
from contextpolicy.admin.viewpoint import ViewpointForm
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.imports import exported
from contextpolicy.linter.judge import judge, read_whole
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.presets import RETRIEVED
from contextpolicy.two_persons import SecondPersonNeeded

VERSIONS_SHOWN = 20
DRAFT, RESTORE, EMERGENCY = "_draft", "_restore", "emergency"
LONGEST_REASON = 500
TEMPLATES = "admin/contextpolicy/contextpolicy"


class ContextPolicyAdmin(DomainAdmin):
    """The policy editor: saving makes a new immutable version, in force at once unless a draft."""

    form = PolicyForm
    # What is redrawn alone, by the id of its element without "policy-".
    parts: tuple[str, ...] = ("told",)
    refusals: tuple[type[Exception], ...] = (
        publish.PolicyProblems,
        publish.PolicyChangedMeanwhile,
        publish.PolicyInUse,
        publish.NoSuchVersion,
        SecondPersonNeeded,
        BlastRadiusNeeded,
    )
    list_display = ("name", "version", "strategy", "applies", "retired")
    list_filter = ("retired",)
    search_fields = ("name", "slug")
    change_list_template = f"{TEMPLATES}/change_list.html"
    change_form_template = f"{TEMPLATES}/change_form.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the page that imports a policy or a strategy."""
        page = self.admin_site.admin_view(self.import_strategy)
        drafts = self.admin_site.admin_view(require_POST(self.create_recommended))
        return [
            path("import/", page, name="contextpolicy_policy_import"),
            path("recommended/", drafts, name="contextpolicy_policy_recommended"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, and to editors the policies without recommended values."""
        context = dict(extra_context or {})
        if self.has_change_permission(request):
            found = recommended.recommendations()
            context["recommended"] = [each for each in found if each.draft is None]
            context["in_draft"] = [each for each in found if each.draft is not None]
        return super().changelist_view(request, context)

    def create_recommended(self, request: HttpRequest) -> HttpResponse:
        """Create drafts with the recommended values. Raises PermissionDenied."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        made = recommended.create_drafts(actor=actor_of(request), now=timezone.now())
        count = len(made.drafts)
        drafts = "1 draft was" if count == 1 else f"{count} drafts were"
        sentence = f"{drafts} created. Nothing changes until you publish them: open each policy."
        self.message_user(request, sentence, messages.SUCCESS if count else messages.WARNING)
        for slug, reason in made.skipped.items():
            self.message_user(request, f"{slug}: {reason}", messages.WARNING)
        name = "admin:contextpolicy_contextpolicy_changelist"
        return HttpResponseRedirect(reverse(name, current_app=self.admin_site.name))

    def import_strategy(self, request: HttpRequest) -> HttpResponse:
        """Make a policy, or a version of one, from a file."""
        return import_page(self, request, tell=self.tell_findings)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form, bring an older version back, or hand the policy out as JSON."""
        if request.method == "POST" and RESTORE in request.POST and object_id:
            return self.or_said(request, lambda: self.restored(request, object_id))
        if request.method == "GET" and "export" in request.GET and object_id:
            return self.as_file(request, object_id)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def or_said(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Return the view's response; a version saved meanwhile is shown beside what was typed."""

        def once_more() -> HttpResponse:
            try:
                return view()
            except publish.PolicyChangedMeanwhile:
                return view()

        return super().or_said(request, once_more)

    def restored(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make a new version of an older one's values. Raises what `publish.restore` raises."""
        policy = self.get_object(request, object_id)
        if policy is None or not self.has_change_permission(request, policy):
            raise PermissionDenied
        wanted = request.POST[RESTORE]
        number = int(wanted[:9]) if wanted.isdecimal() else 0
        version = publish.restore(
            policy=policy, number=number, actor=actor_of(request), now=timezone.now()
        )
        sentence = (
            f"Version {version.number} has the values and locks of version {number}. Its name, its "
            "retirement and its assignments are as they were."
        )
        self.message_user(request, sentence, messages.SUCCESS)
        self.tell_of_waiting(request, version, is_draft=False)
        return HttpResponseRedirect(request.get_full_path())

    def as_file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Hand the newest version out as a file. Raises PermissionDenied."""
        policy = self.get_object(request, object_id)
        if policy is None or not self.has_view_permission(request, policy):
            raise PermissionDenied
        response = JsonResponse(exported(policy), json_dumps_params={"indent": 2})
        response["Content-Disposition"] = f'attachment; filename="{policy.slug}.policy.json"'
        return response

    def get_form(
        self,
        request: HttpRequest,
        obj: ContextPolicy | None = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **options: Any,
    ) -> Any:
        """Add the config fields of the strategies of packages."""
        return super().get_form(request, obj, change, form=with_configs(PolicyForm), **options)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin a new policy with the recommended values, or as a copy of another one.

        The address names the other one.
        """
        start = request.GET.get("start", "")
        rows = ContextPolicy.objects.filter(slug=start, current__isnull=False)
        policy = rows.select_related("current").first() if start else None
        if policy is None:
            return {name: shown(name, value) for name, value in RETRIEVED.items()}
        return {"start": policy.current, "description": policy.description}

    def get_queryset(self, request: HttpRequest) -> QuerySet[ContextPolicy]:
        """Fetch the version in force and the number of assignments in one query."""
        rows: QuerySet[ContextPolicy] = super().get_queryset(request)
        return rows.select_related("current").annotate(places=Count("assignments"))

    def get_fieldsets(self, request: HttpRequest, obj: ContextPolicy | None = None) -> Any:
        """Return the fields of the editor, or what the policy says for those who only look."""
        if obj is not None and not self.has_change_permission(request, obj):
            told = ["name", "slug", "description", "retired", "in_plain_words", "to_know"]
            return [(None, {"fields": [*told, "where_it_applies", "says", "versions"]})]
        name = ["name", "slug", "description", *(["retired"] if obj else [])]
        # The page arranges them itself; see `policy_page`.
        return [(None, {"fields": name}), *groups(), (None, {"fields": ["note", "based_on"]})]

    def get_readonly_fields(
        self, request: HttpRequest, obj: ContextPolicy | None = None
    ) -> tuple[str, ...]:
        """Return what is shown about a policy; its slug stays once it has one."""
        told = ("in_plain_words", "to_know", "where_it_applies", "says", "versions")
        return told if obj is None else ("slug", *told)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show the page, or the part of it that a change of the unsaved form redraws."""
        may_edit = self.has_change_permission(request, obj) if obj else True
        if may_edit:
            context |= self.editor_context(request, context["adminform"].form, obj)
        if may_edit and getattr(request, "htmx", False):
            target = request.headers.get("HX-Target", "").removeprefix("policy-")
            part = target if target in self.parts else "editor"
            html = render_to_string(f"{TEMPLATES}/_{part}.html", context, request)
            return HttpResponse(html)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def editor_context(
        self, request: HttpRequest, form: PolicyForm, policy: ContextPolicy | None
    ) -> dict[str, Any]:
        """Return what the editor's templates show."""
        seen = ViewpointForm(request.POST or request.GET)
        editor = editor_of(
            form, viewpoint=seen.viewpoint(), search=request.POST.get("_find", "").strip()[:80]
        )
        found: dict[str, Any] = {"editor": editor, "seen": seen, "is_look": form.is_look}
        if policy is None:
            rows = ContextPolicy.objects.filter(retired=False, current__isnull=False)
            return found | {"starts": rows, "start": request.GET.get("start", "")}
        newest = form.newest
        draft = newest if newest and newest.pk != policy.current_id else None
        return found | {
            "policy": policy,
            "draft": draft,
            "waits_for_another": draft is not None and self.waits_for_another(request, draft),
            "uncounted": uncounted(draft) if draft else "",
            "assigned": self.where_it_applies(policy),
            "history": self.history(policy, may_restore=True),
        }

    def waits_for_another(self, request: HttpRequest, draft: PolicyVersion) -> bool:
        """Tell whether the reader wrote this draft and may not put it in force alone."""
        change = controls.version_change(
            draft.policy,
            values=draft.values,
            locks=draft.locks,
            author=draft.created_by_id,
            by=request.user.pk,
        )
        return controls.judge(change, now=timezone.now()).waits

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Rename or describe the policy, and make a version when a value or lock changed."""
        common: dict[str, Any] = {"actor": actor_of(request), "now": timezone.now()}
        version: dict[str, Any] = {
            "values": form.policy_values,
            "locks": form.policy_locks,
            "note": form.cleaned_data["note"],
            "is_draft": DRAFT in request.POST,
        }
        if not change:
            made = publish.create_policy(
                slug=obj.slug, name=obj.name, description=obj.description, **version, **common
            )
            obj.pk = made.pk
            obj.refresh_from_db()
        else:
            newest, is_new = form.newest, form.is_new_version()
            publish.change_policy(policy=obj, **self.own_changes(obj, form), **common)
            if is_new:
                based_on = form.cleaned_data["based_on"]
                made_now = publish.new_version(
                    policy=obj, based_on=based_on, may_wait=True, **version, **common
                )
                self.tell_of_waiting(request, made_now, is_draft=version["is_draft"])
            elif newest is not None and not version["is_draft"]:
                emergency = request.POST.get(EMERGENCY, "")[:LONGEST_REASON]
                publish.activate(policy=obj, number=newest.number, emergency=emergency, **common)
        self.tell_findings(request, obj)

    def tell_of_waiting(
        self, request: HttpRequest, version: PolicyVersion, *, is_draft: bool
    ) -> None:
        """Say that a version waits for a person or a count, where nobody asked for a draft."""
        if version.activated_at is not None or is_draft:
            return
        sentence = (
            f"Version {version.number} is saved and waits: this instance asks for two persons. "
            "Somebody else who may change policies puts it in force."
        )
        if not self.waits_for_another(request, version):
            sentence = (
                f"Version {version.number} is saved as a draft and not in force: this instance "
                "asks for a count of the chats that would change. Choose it under “Preview”, and "
                "put the draft in force when the count allows it."
            )
        self.message_user(request, sentence, messages.WARNING)

    def own_changes(self, policy: ContextPolicy, form: PolicyForm) -> dict[str, Any]:
        """Return name, description and retirement, those that nobody touched as they are stored."""
        stored: dict[str, Any] = ContextPolicy.objects.values(*OF_THE_POLICY).get(pk=policy.pk)
        touched = [name for name in OF_THE_POLICY if name in form.changed_data]
        return stored | {name: getattr(policy, name) for name in touched}

    def response_add(
        self, request: HttpRequest, obj: ContextPolicy, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Say of a new policy that it governs nobody yet, and where that is changed."""
        response = super().response_add(request, obj, post_url_continue)
        if "_continue" in request.POST or obj.current is None:
            # The page that follows says it itself; a draft cannot be assigned.
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
        newest = policy.newest
        for finding in judge(newest.values if newest else {}):
            self.message_user(request, finding.sentence, messages.WARNING)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: receipts name versions. A policy is retired instead."""
        return False

    @admin.display(description="Version")
    def version(self, policy: ContextPolicy) -> str:
        """Name the version in force."""
        return f"v{policy.current.number}" if policy.current else "draft"

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
        values = read_whole(policy.current.values if policy.current else {})
        return plain_words(values) if values else ""

    @admin.display(description="To know")
    def to_know(self, policy: ContextPolicy) -> SafeString:
        """List what works but may surprise."""
        found = judge(policy.current.values if policy.current else {})
        return render_to_string(f"{TEMPLATES}/_findings.html", {"findings": found})

    @admin.display(description="Applies to")
    def where_it_applies(self, policy: ContextPolicy) -> SafeString:
        """List its assignments, with links."""
        rows = policy.assignments.select_related("group", "user")
        context = {"policy": policy, "assignments": rows}
        return render_to_string(f"{TEMPLATES}/_assignments.html", context)

    @admin.display(description="Says")
    def says(self, policy: ContextPolicy) -> SafeString:
        """List the fields that are set, for those who may only look."""
        version = policy.current
        values = version.values if version else {}
        locks = version.locks if version else []
        rows = [(name, told_value(name, values[name]), name in locks) for name in values]
        return render_to_string(f"{TEMPLATES}/_values.html", {"rows": rows})

    @admin.display(description="Versions")
    def versions(self, policy: ContextPolicy) -> SafeString:
        """List the newest versions, for those who only look."""
        return self.history(policy, may_restore=False)

    def history(self, policy: ContextPolicy, *, may_restore: bool) -> SafeString:
        """List the newest versions, each with its state and what it changed."""
        rows = list(policy.versions.order_by("-number")[: VERSIONS_SHOWN + 1])
        people = User.objects.in_bulk([row.created_by_id for row in rows if row.created_by_id])
        told = [
            {
                "row": row,
                "state": row.state,
                "by": people.get(row.created_by_id) if row.created_by_id else "the product",
                "changes": differences(older, row),
            }
            for row, older in zip(rows, [*rows[1:], None], strict=True)
        ]
        context = {"versions": told[:VERSIONS_SHOWN], "may_restore": may_restore}
        return render_to_string(f"{TEMPLATES}/_versions.html", context)


def uncounted(draft: PolicyVersion) -> str:
    """Return why a draft may not be put in force before its chats are counted; empty if it may."""
    change = controls.version_change(
        draft.policy, values=draft.values, locks=draft.locks, author=None, by=None
    )
    return str(controls.judge(change, now=timezone.now()).needs_count or "")
