"""Confirms the user's identity within a form, so that typed text is not lost.

A form that requires a recent sign-in includes `_confirm.html`, which is shown if the sign-in is too
old. A page that requires a recent sign-in redirects to the confirmation page, which redirects back.
"""

from typing import Any, cast

from django import forms
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from chats.ground.refusals import Refusal
from chats.people import sessions, signin
from chats.web.account.signin import get_client_address, get_next_path
from chats.web.forms import PageForm, TextField


class ConfirmForm(PageForm):
    """The user's password, or a new sign-in link of a user without a password."""

    confirm_password = TextField(
        label=gettext_lazy("Your password"),
        help_text=gettext_lazy(
            "You signed in more than 15 minutes ago. Enter your password to continue."
        ),
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    # `_confirm.html` has its help text, which links to another page.
    confirm_link = TextField(
        label=gettext_lazy("A new sign-in link"),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "aria-describedby": "confirm-link-help"}
        ),
    )


def confirm_here(request: HttpRequest) -> None:
    """Verify the password or link in a form, unless the sign-in is recent.

    Raises the refusals of `signin.verify_identity`.
    """
    if not is_recently_confirmed(request):
        sent = ConfirmForm(request.POST).read_values()
        signin.verify_identity(
            user=cast(User, request.user),
            password=sent["confirm_password"],
            link=sent["confirm_link"],
            address=get_client_address(request),
            session=request.session,
            now=timezone.now(),
        )


def is_recently_confirmed(request: HttpRequest) -> bool:
    """Return True if the user confirmed their identity in the last 15 minutes."""
    return sessions.has_recent_reauthentication(session=request.session, now=timezone.now())


def build_confirm_form(request: HttpRequest) -> ConfirmForm | None:
    """Return the form that asks for the user's identity; None after a recent sign-in."""
    return None if is_recently_confirmed(request) else ConfirmForm()


@sensitive_post_parameters("confirm_password", "confirm_link")
@login_required
@require_http_methods(["GET", "POST"])
def confirm_identity(request: HttpRequest) -> HttpResponse:
    """Ask for the password or a new sign-in link, then redirect to the requested page."""
    refusal: Refusal | None = None
    if request.method == "POST":
        try:
            confirm_here(request)
        except Refusal as error:
            refusal = error
        else:
            return redirect(get_next_path(request) or resolve_url("chats:home"))
    context: dict[str, Any] = {
        "refusal": refusal,
        "next": get_next_path(request),
        "confirm": ConfirmForm(),
    }
    status = refusal.status if refusal else 200
    return render(request, "registration/confirm.html", context, status=status)
