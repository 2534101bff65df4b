"""The administration's front door: the product's own sign-in, and the menu by what people do."""

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
from django.views.decorators.cache import never_cache

from contextpolicy.ledger import record

# The menu: each group's models by class name, under the words that people use.
MENU = {
    "Govern": {
        "ContextPolicy": "Policies",
        "PolicyAssignment": "Assignments",
        "BlastRadius": "Blast radius",
        "Evaluation": "Evaluations",
        "Skill": "Skills",
        "Team": "Teams",
        "LegalHold": "Legal holds",
        "RetentionRun": "Retention",
    },
    "Check": {
        "DailyCount": "Dashboard",
        "AuditEvent": "Audit ledger",
        "EffectivePolicy": "Effective policies",
        "Compaction": "Compactions",
        "Receipt": "Receipts",
        "Turn": "Turns",
    },
    "Run": {"ProviderAccount": "Providers", "ModelSpec": "Models"},
    "People": {"User": "People and roles", "Group": "Groups"},
}


class PalimpsestAdminSite(admin.AdminSite):
    """Django's admin behind the product's sign-in, so that its throttle stands at every door."""

    site_header = "Palimpsest"
    site_title = "Palimpsest administration"
    index_title = "Administration"
    enable_nav_sidebar = True

    @method_decorator(never_cache)
    @login_not_required
    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Send people to the product's sign-in.

        Raises PermissionDenied for those who are signed in without a role.
        """
        if request.user.is_authenticated:
            raise PermissionDenied
        target = request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index")
        return redirect_to_login(target, settings.LOGIN_URL)

    def logout(  # type: ignore[override]  # the stubs name the class of Django's own page
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Sign out and record it."""
        with transaction.atomic():
            if request.method == "POST":
                data = {"user": request.user.pk}
                record("logout.succeeded", actor=actor_of(request), now=timezone.now(), data=data)
            return super().logout(request, extra_context)

    def password_change(  # type: ignore[override]  # the same
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Send people to the product's page for their password, with its throttle and record."""
        return HttpResponseRedirect(reverse("password-change"))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the menu, grouped by what people come to do.

        Models that are not in it stand last.
        """
        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        models = {model["object_name"]: model for app in apps for model in app["models"]}
        groups = [
            (title, [{**models.pop(key), "name": words[key]} for key in words if key in models])
            for title, words in MENU.items()
        ]
        groups.append(("More", list(models.values())))
        return [
            {
                "name": title,
                "app_label": title.lower(),
                "app_url": reverse("admin:index"),
                "has_module_perms": True,
                "models": members,
            }
            for title, members in groups
            if members
        ]


def actor_of(request: HttpRequest) -> str:
    """Name the person behind a request as the ledger does."""
    return f"user:{request.user.pk}"


site = PalimpsestAdminSite(name="admin")
