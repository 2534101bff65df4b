"""Asks for a fresh sign-in before keys and roles change: an open browser is not enough."""

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from chats.people.sessions import reauthenticated_recently
from contextpolicy.admin.bases import DomainAdmin


class FreshSignInAdmin(DomainAdmin):
    """A page whose forms open only within 15 minutes of a sign-in; else it leads there first."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form, or send the person to sign in again."""
        if not is_fresh(request):
            return sign_in_again(request)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the confirmation, or send the person to sign in again."""
        if not is_fresh(request):
            return sign_in_again(request)
        return super().delete_view(request, object_id, extra_context)


def is_fresh(request: HttpRequest) -> bool:
    """Tell whether the person proved who they are a short while ago."""
    return reauthenticated_recently(session=request.session, now=timezone.now())


def sign_in_again(request: HttpRequest) -> HttpResponse:
    """Send the person to the page that asks who they are, and from there back here."""
    return redirect_to_login(request.get_full_path(), reverse("confirm"))
