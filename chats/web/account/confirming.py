"""Confirms who sits at the browser, in the midst of what they do: nothing that was typed is lost.

What asks for a recent sign-in has `_confirm.html` in its form, where it is filled in when the
sign-in is older. A page that cannot be opened without it leads to the page here, and back.
"""

from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from chats.ground.refusals import Refusal
from chats.people import sessions, signin
from chats.web.account.signin import address_of, next_of


def confirm_here(request: HttpRequest) -> None:
    """Take the proof that came with a form, unless the sign-in is recent.

    Raises what `signin.confirm` raises.
    """
    if not is_fresh(request):
        signin.confirm(
            user=cast(User, request.user),
            password=request.POST.get("confirm_password", ""),
            link=request.POST.get("confirm_link", ""),
            address=address_of(request),
            session=request.session,
            now=timezone.now(),
        )


def is_fresh(request: HttpRequest) -> bool:
    """Tell whether the person proved who they are a short while ago."""
    return sessions.reauthenticated_recently(session=request.session, now=timezone.now())


@sensitive_post_parameters("confirm_password", "confirm_link")
@login_required
@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest) -> HttpResponse:
    """Ask for the password, or a new sign-in link; then go on where the person was going."""
    refusal: Refusal | None = None
    if request.method == "POST":
        try:
            confirm_here(request)
        except Refusal as error:
            refusal = error
        else:
            return redirect(next_of(request) or resolve_url("chats:home"))
    context: dict[str, Any] = {"refusal": refusal, "next": next_of(request), "is_fresh": False}
    status = refusal.status if refusal else 200
    return render(request, "registration/confirm.html", context, status=status)
