"""The admin site, with the product's own sign-in and a menu grouped by task."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django_stubs_ext import StrOrPromise

from contextpolicy.ledger import record_event

# The titles of the groups, by a name that is the same in all languages.
TITLES = {
    "govern": gettext_lazy("Governance"),
    "check": gettext_lazy("Audit and usage"),
    "run": gettext_lazy("Model servers"),
    "people": gettext_lazy("Users"),
    "more": gettext_lazy("Other"),
}
# The menu: model class names of each group, in the order shown.
MENU: Mapping[str, Mapping[str, StrOrPromise]] = {
    "govern": {
        "ContextPolicy": gettext_lazy("Policies"),
        "PolicyAssignment": gettext_lazy("Assignments"),
        "BlastRadius": gettext_lazy("Blast radius"),
        "Evaluation": gettext_lazy("Evaluations"),
        "Skill": gettext_lazy("Skills"),
        "Team": gettext_lazy("Teams"),
        "LegalHold": gettext_lazy("Legal holds"),
        "KeptText": gettext_lazy("Texts under legal hold"),
        "RetentionRun": gettext_lazy("Retention"),
    },
    "check": {
        "DailyCount": gettext_lazy("Dashboard"),
        "AuditEvent": gettext_lazy("Audit log"),
        "EffectivePolicy": gettext_lazy("Effective policies"),
        "Compaction": gettext_lazy("Compactions"),
        "Receipt": gettext_lazy("Receipts"),
        "Turn": gettext_lazy("Turns"),
    },
    "run": {
        "ProviderAccount": gettext_lazy("Providers"),
        "ModelSpec": gettext_lazy("Models"),
        "ToolServer": gettext_lazy("Tool servers"),
        "ToolDefinition": gettext_lazy("Tools"),
    },
    "people": {"User": gettext_lazy("Users and roles"), "Group": gettext_lazy("Groups")},
}


class PalimpsestAdminSite(admin.AdminSite):
    """Django's admin with the product's sign-in page, so that sign-ins are always throttled."""

    site_header = "Palimpsest"
    site_title = gettext_lazy("Palimpsest administration")
    index_title = gettext_lazy("Administration")
    enable_nav_sidebar = True

    @method_decorator(never_cache)
    @login_not_required
    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the product's sign-in page.

        Raises PermissionDenied for signed-in users without a role.
        """
        if request.user.is_authenticated:
            raise PermissionDenied
        target = request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index")
        return redirect_to_login(target, settings.LOGIN_URL)

    def logout(  # type: ignore[override]  # the stubs name the class of Django's own page
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        with transaction.atomic():
            if request.method == "POST":
                data = {"user": request.user.pk}
                record_event(
                    "logout.succeeded",
                    actor=get_request_actor(request),
                    now=timezone.now(),
                    data=data,
                )
            return super().logout(request, extra_context)

    def password_change(  # type: ignore[override]  # the same
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the product's password page, which is throttled and audited."""
        return HttpResponseRedirect(reverse("password-change"))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the menu, grouped by task.

        Models without a group come last.
        """
        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        models = {model["object_name"]: model for app in apps for model in app["models"]}
        groups = [
            (group, [{**models.pop(key), "name": words[key]} for key in words if key in models])
            for group, words in MENU.items()
        ]
        groups.append(("more", list(models.values())))
        return [
            {
                "name": TITLES[group],
                "app_label": group,
                "app_url": reverse("admin:index"),
                "has_module_perms": True,
                "models": members,
            }
            for group, members in groups
            if members
        ]


def get_request_actor(request: HttpRequest) -> str:
    """Return the signed-in user's actor name in the ledger."""
    return f"user:{request.user.pk}"


site = PalimpsestAdminSite(name="admin")
