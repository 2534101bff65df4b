"""Requires a recent sign-in before keys and roles are changed."""

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from chats.admin.bases import DomainAdmin
from chats.people.sessions import has_recent_reauthentication


class FreshSignInAdmin(DomainAdmin):
    """Admin page whose forms require a sign-in within the last 15 minutes."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form, or redirect to confirm the sign-in."""
        if not is_recently_confirmed(request):
            return sign_in_again(request)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the confirmation, or redirect to confirm the sign-in."""
        if not is_recently_confirmed(request):
            return sign_in_again(request)
        return super().delete_view(request, object_id, extra_context)


def is_recently_confirmed(request: HttpRequest) -> bool:
    """Return True if the user confirmed their identity within the last 15 minutes."""
    return has_recent_reauthentication(session=request.session, now=timezone.now())


def sign_in_again(request: HttpRequest) -> HttpResponse:
    """Redirect to the identity confirmation, which then returns to this page."""
    return redirect_to_login(request.get_full_path(), reverse("confirm"))
