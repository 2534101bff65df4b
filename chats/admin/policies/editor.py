"""The policy editor, which creates versions."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.views.decorators.http import require_POST

from chats.actions.skills import READS_SKILLS
from chats.admin.policies.form_values import format_form_value
from chats.admin.policies.importing import import_strategy_view
from chats.admin.policies.policy_form import (
    OF_THE_POLICY,
    UNSAVED,
    PolicyForm,
    add_config_fields,
)
from chats.admin.policies.policy_groups import build_policy_fieldsets
from chats.admin.policies.policy_page import build_policy_editor
from chats.admin.policies.preview_as import ViewpointForm
from chats.admin.policies.saved_policy import TEMPLATES, SavedPolicyAdmin
from chats.admin.policies.saved_version import describe_saved_version, explain_missing_count
from chats.admin.site import get_request_actor
from contextpolicy import controls, policy_refusals, publish, recommended
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.imports import export_policy
from contextpolicy.linter.lint import lint_policy
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.presets import RETRIEVED
from contextpolicy.two_persons import SecondPersonNeeded
from contextpolicy.wording import join_items

DRAFT, RESTORE, EMERGENCY = "_draft", "_restore", "emergency"
LONGEST_REASON = 500
# Key of the request for the message about a save, until Django reports the save.
SAVED = "palimpsest.saved_policy"


class ContextPolicyAdmin(SavedPolicyAdmin):
    """The policy editor. Saving creates an immutable version, active at once or as a draft."""

    form = PolicyForm
    # The parts of the page that can be redrawn alone, by element id without "policy-".
    parts: tuple[str, ...] = ("told",)
    refusals: tuple[type[Exception], ...] = (
        policy_refusals.PolicyProblems,
        policy_refusals.PolicyChangedMeanwhile,
        policy_refusals.PolicyInUse,
        policy_refusals.PolicyNameTaken,
        policy_refusals.NoSuchVersion,
        SecondPersonNeeded,
        BlastRadiusNeeded,
    )
    repeated = (policy_refusals.PolicyChangedMeanwhile,)
    change_list_template = f"{TEMPLATES}/change_list.html"
    change_form_template = f"{TEMPLATES}/change_form.html"

    def get_urls(self) -> list[URLPattern]:
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
        """Show the list. For editors, it includes the policies that lack recommended values."""
        context = dict(extra_context or {})
        if self.has_change_permission(request):
            found = recommended.list_recommendations()
            context["recommended"] = [each for each in found if each.draft is None]
            context["in_draft"] = [each for each in found if each.draft is not None]
        return super().changelist_view(request, context)

    def create_recommended(self, request: HttpRequest) -> HttpResponse:
        """Create drafts with the recommended values.

        Raises PermissionDenied without the permission to change policies.
        """
        if not self.has_change_permission(request):
            raise PermissionDenied
        made = recommended.create_drafts(actor=get_request_actor(request), now=timezone.now())
        count = len(made.drafts)
        sentence = ngettext(
            "Created {n} draft. Open the policy to review and publish it. Until then, nothing "
            "changes.",
            "Created {n} drafts. Open each policy to review and publish them. Until then, nothing "
            "changes.",
            count,
        ).format(n=count)
        self.message_user(request, sentence, messages.SUCCESS if count else messages.WARNING)
        for slug, reason in made.skipped.items():
            self.message_user(request, f"{slug}: {reason}", messages.WARNING)
        name = "admin:contextpolicy_contextpolicy_changelist"
        return HttpResponseRedirect(reverse(name, current_app=self.admin_site.name))

    def import_strategy(self, request: HttpRequest) -> HttpResponse:
        """Show the import form, or create a policy or a version from the given JSON or file."""
        return import_strategy_view(self, request, tell=self.show_policy_warnings)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form, restore an older version, or export the policy as JSON."""
        if request.method == "POST" and RESTORE in request.POST and object_id:
            return self.or_said(request, lambda: self.restored(request, object_id))
        if request.method == "GET" and "export" in request.GET and object_id:
            return self.as_file(request, object_id)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def saves_nothing(self, request: HttpRequest) -> bool:
        """Return True if the form requests a redraw, a preview or a trial."""
        return request.method == "POST" and not UNSAVED.isdisjoint(request.POST)

    def or_said(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Return the view's response. After a concurrent save, show both users' changes."""

        def once_more() -> HttpResponse:
            try:
                return view()
            except policy_refusals.PolicyChangedMeanwhile:
                return view()

        return super().or_said(request, once_more)

    def restored(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a version with the values of an older version.

        Raises PermissionDenied if the user may not change the policy, and the errors of
        `restore_policy_version`.
        """
        policy = self.get_object(request, object_id)
        if policy is None or not self.has_change_permission(request, policy):
            raise PermissionDenied
        wanted = request.POST[RESTORE]
        number = int(wanted[:9]) if wanted.isdecimal() else 0
        version = publish.restore_policy_version(
            policy=policy, number=number, actor=get_request_actor(request), now=timezone.now()
        )
        sentence = gettext(
            "Version {number} has the values and locks of version {restored}. The policy keeps "
            "its name, its assignments and its retired state."
        ).format(number=version.number, restored=number)
        self.message_user(request, sentence, messages.SUCCESS, extra_tags="version_restored")
        self.tell_of_waiting(request, version, is_draft=False)
        return HttpResponseRedirect(request.get_full_path())

    def as_file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Export the newest version as a file.

        Raises PermissionDenied without the permission to view the policy.
        """
        policy = self.get_object(request, object_id)
        if policy is None or not self.has_view_permission(request, policy):
            raise PermissionDenied
        reads = request.user.has_perm(READS_SKILLS)
        form = export_policy(policy, with_skills=reads)
        if left_out := form.get("skills_left_out"):
            # The response is a file, so the next page shows the message.
            sentence = gettext(
                "The export of {policy} does not contain these skills: {skills}. The file gives "
                "the reason and explains how to get them."
            ).format(policy=policy, skills=join_items(left_out))
            self.message_user(request, sentence, messages.WARNING, extra_tags="skills_left_out")
        response = JsonResponse(form, json_dumps_params={"indent": 2})
        response["Content-Disposition"] = f'attachment; filename="{policy.slug}.policy.json"'
        return response

    def get_form(
        self,
        request: HttpRequest,
        obj: ContextPolicy | None = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **options: Any,
    ) -> Any:
        return super().get_form(request, obj, change, form=add_config_fields(PolicyForm), **options)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return initial values: the recommended ones, or those of the policy named in the URL."""
        start = request.GET.get("start", "")
        rows = ContextPolicy.objects.filter(slug=start, current__isnull=False)
        policy = rows.select_related("current").first() if start else None
        if policy is None:
            return {name: format_form_value(name, value) for name, value in RETRIEVED.items()}
        return {"start": policy.current, "description": policy.description}

    def get_queryset(self, request: HttpRequest) -> QuerySet[ContextPolicy]:
        """Fetch the active version and the number of assignments in the same query."""
        rows: QuerySet[ContextPolicy] = super().get_queryset(request)
        return rows.select_related("current").annotate(places=Count("assignments"))

    def get_fieldsets(self, request: HttpRequest, obj: ContextPolicy | None = None) -> Any:
        """Return the fields of the editor, or read-only fields for users who cannot edit."""
        if obj is not None and not self.has_change_permission(request, obj):
            fields = ["name", "slug", "description", "retired", "in_plain_words", "to_know"]
            return [(None, {"fields": [*fields, "where_it_applies", "says", "versions"]})]
        name = ["name", "slug", "description", *(["retired"] if obj else [])]
        # The page arranges the fields; see `policy_page`.
        return [
            (None, {"fields": name}),
            *build_policy_fieldsets(),
            (None, {"fields": ["note", "based_on"]}),
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: ContextPolicy | None = None
    ) -> tuple[str, ...]:
        """Return the read-only fields. The slug cannot be changed once it is set."""
        fields = ("in_plain_words", "to_know", "where_it_applies", "says", "versions")
        return fields if obj is None else ("slug", *fields)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show the page, or only the part that a change in the unsaved form updates."""
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
        seen = ViewpointForm(request.POST or request.GET)
        editor = build_policy_editor(
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
            "uncounted": explain_missing_count(draft) if draft else "",
            "assigned": self.where_it_applies(policy),
            "history": self.history(policy, may_restore=True),
        }

    def waits_for_another(self, request: HttpRequest, draft: PolicyVersion) -> bool:
        """Return True if the user wrote this draft and may not publish it alone."""
        change = controls.build_version_change(
            draft.policy,
            values=draft.values,
            locks=draft.locks,
            author=draft.created_by_id,
            by=request.user.pk,
        )
        return controls.check_change(change, now=timezone.now()).waits

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Save the policy's own fields, and create a version if a value or lock changed.

        If nothing changed, the newest version is published, unless it is saved as a draft.
        """
        common: dict[str, Any] = {"actor": get_request_actor(request), "now": timezone.now()}
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
                made_now = publish.create_policy_version(
                    policy=obj, based_on=based_on, may_wait=True, **version, **common
                )
                self.tell_of_waiting(request, made_now, is_draft=version["is_draft"])
            elif newest is not None and not version["is_draft"]:
                emergency = request.POST.get(EMERGENCY, "")[:LONGEST_REASON]
                publish.activate_version(
                    policy=obj, number=newest.number, emergency=emergency, **common
                )
        self.show_policy_warnings(request, obj)

    def tell_of_waiting(
        self, request: HttpRequest, version: PolicyVersion, *, is_draft: bool
    ) -> None:
        """Show a message if the version waits for approval or a count.

        There is no message if the user chose to save the version as a draft.
        """
        if version.activated_at is not None or is_draft:
            return
        code = "waits_for_second_person"
        sentence = gettext(
            "Version {number} is saved as a draft. This instance requires two people: another "
            "policy administrator must publish it."
        )
        if not self.waits_for_another(request, version):
            code = "waits_for_count"
            sentence = gettext(
                "Version {number} is saved as a draft. This instance requires a count of the "
                "affected chats before a change. Start the count under “Preview”. Publish the "
                "draft if the result allows it."
            )
        self.message_user(
            request, sentence.format(number=version.number), messages.WARNING, extra_tags=code
        )

    def own_changes(self, policy: ContextPolicy, form: PolicyForm) -> dict[str, Any]:
        """Return name, description and retirement; for unchanged fields, the stored values."""
        stored: dict[str, Any] = ContextPolicy.objects.values(*OF_THE_POLICY).get(pk=policy.pk)
        touched = [name for name in OF_THE_POLICY if name in form.changed_data]
        return stored | {name: getattr(policy, name) for name in touched}

    def message_user(
        self,
        request: HttpRequest,
        message: Any,
        level: int | str = messages.INFO,
        extra_tags: str = "",
        fail_silently: bool = False,  # noqa: FBT001, FBT002 - Django's signature
    ) -> None:
        """Show a message. The message about a save also names the active version."""
        saved = request.META.pop(SAVED, "")
        super().message_user(request, saved or message, level, extra_tags, fail_silently)

    def response_change(self, request: HttpRequest, obj: ContextPolicy) -> HttpResponse:
        """Show a message that names the active version after the change."""
        request.META[SAVED] = describe_saved_version(obj)
        response: HttpResponse = super().response_change(request, obj)
        return response

    def response_add(
        self, request: HttpRequest, obj: ContextPolicy, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show a message that the new policy has no assignments yet, with a link to add one."""
        request.META[SAVED] = describe_saved_version(obj)
        response = super().response_add(request, obj, post_url_continue)
        if "_continue" in request.POST or obj.current is None:
            # The next page shows the message. A draft cannot be assigned.
            return response
        address = reverse(
            "admin:contextpolicy_policyassignment_add", current_app=self.admin_site.name
        )
        sentence = format_html(
            '{} <a href="{}?policy={}">{}</a>',
            gettext("The policy has no assignments yet."),
            address,
            obj.pk,
            gettext("Assign policy"),
        )
        self.message_user(request, sentence, messages.INFO)
        return response

    def show_policy_warnings(self, request: HttpRequest, policy: ContextPolicy) -> None:
        """Show the linter's warnings as messages."""
        newest = policy.newest
        for warning in lint_policy(newest.values if newest else {}):
            self.message_user(request, warning.sentence, messages.WARNING, extra_tags=warning.code)
