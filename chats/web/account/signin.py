"""Sign-in by password or one-time link, and sign-out."""

from collections.abc import Mapping

from django import forms
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from chats.actions import deletion
from chats.ground.refusals import Refusal
from chats.people import invitations, sessions, signin, zones
from chats.web.forms import PageForm


class LoginForm(PageForm):
    """A user name and a password. Spaces are kept."""

    username = forms.CharField(
        label=pgettext_lazy("person", "Name"),
        max_length=150,
        strip=False,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        max_length=signin.PASSWORD_LENGTH,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Sign in with name and password.

    A signed-in user can sign in again to confirm their identity.
    """
    form = LoginForm(request.POST if request.method == "POST" else None)
    refusal = None
    if request.method == "POST" and form.is_valid():
        now = timezone.now()
        try:
            user = signin.check_credentials(
                **form.cleaned_data, address=get_client_address(request), now=now
            )
        except (signin.WrongCredentials, signin.LoginThrottled) as error:
            refusal = error
        else:
            return login_and_redirect(request, user)
    context = {"form": form, "refusal": refusal, "next": get_next_path(request)}
    return render_login_response(request, "registration/login.html", context, refusal)


@require_http_methods(["GET", "POST"])
def login_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in with a one-time link.

    A user who was invited is then asked to set a password. A GET changes nothing, because mail
    scanners open links too.
    """
    refusal: Refusal | None = None
    if request.method == "POST":
        now = timezone.now()
        try:
            user = signin.use_link(token=token, address=get_client_address(request), now=now)
        except signin.LoginThrottled as error:
            refusal = error
        except signin.LinkInvalid as error:
            is_over = invitations.is_over_invitation(token, now=now)
            refusal = invitations.InvitationOver() if is_over else error
        else:
            response = login_and_redirect(request, user)
            is_new = invitations.is_invitation(token, now=now) and not user.has_usable_password()
            return redirect("password-change") if is_new else response
    return render_login_response(
        request, "registration/login_link.html", {"refusal": refusal}, refusal
    )


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        deletion.sign_out(user=request.user, now=timezone.now())
    auth.logout(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)


def render_login_response(
    request: HttpRequest, template: str, context: Mapping[str, object], refusal: Refusal | None
) -> HttpResponse:
    """Render the page with status 200, or 429 if too many sign-ins failed."""
    shut = isinstance(refusal, signin.LoginThrottled)
    response = render(request, template, dict(context), status=429 if shut else 200)
    if refusal is not None and refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


def login_and_redirect(request: HttpRequest, user: User) -> HttpResponse:
    """Start a session with a new ID and redirect to the requested page."""
    auth.login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    sessions.begin_session(session=request.session, now=timezone.now())
    zones.refresh_session(user=user, session=request.session)
    return redirect(get_next_path(request) or resolve_url(settings.LOGIN_REDIRECT_URL))


def get_next_path(request: HttpRequest) -> str:
    """Return the path to open after sign-in if it is local, otherwise ""."""
    wanted = request.POST.get("next", request.GET.get("next", ""))
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_ours and wanted.startswith("/") else ""


def get_client_address(request: HttpRequest) -> str:
    """Return the client address by which failed sign-ins are counted."""
    return signin.resolve_client_address(
        remote_addr=request.META.get("REMOTE_ADDR", ""),
        forwarded_for=request.headers.get("X-Forwarded-For", ""),
    )


class SessionLimitsMiddleware(MiddlewareMixin):
    """Ends staff sessions that were idle for `STAFF_IDLE_SECONDS`.

    Place it after the authentication middleware.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Sign out a user whose session was idle for too long.

        Runs no query for anonymous requests.
        """
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return
        user = request.user
        if user.is_authenticated and not sessions.can_continue_session(
            session=request.session, is_staff=user.is_staff, now=timezone.now()
        ):
            auth.logout(request)
