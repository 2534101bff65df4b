"""The page to set or change a password."""

from typing import cast

from django import forms
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from chats.ground.refusals import Refusal
from chats.people import accounts, keys, sessions, signin
from chats.web.account.signin import get_client_address, get_next_path, render_login_response
from chats.web.forms import PageRenderer, add_input_class


class PasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # Django has none at run time
    """A new password twice, and the current password if the user has one.

    `people.signin` checks the current password: a wrong one counts as a failed sign-in.
    """

    default_renderer = PageRenderer
    field_order = ("old_password", "new_password1", "new_password2")
    old_password = forms.CharField(
        label=gettext_lazy("Current password"),
        max_length=signin.PASSWORD_LENGTH,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    revoke_keys = forms.BooleanField(
        required=False,
        help_text=gettext_lazy(
            "A new password does not revoke your API keys. Revoke them too if another person "
            "may have used your account."
        ),
    )

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(user, data)
        add_input_class(self)
        if not (usable := keys.list_usable_keys(owner=user, now=timezone.now())):
            del self.fields["revoke_keys"]
        else:
            self.fields["revoke_keys"].label = ngettext(
                "Revoke my API key", "Revoke my {n} API keys", len(usable)
            ).format(n=len(usable))
        # Sign-in refuses longer passwords.
        self.fields["new_password1"].validators.append(MaxLengthValidator(signin.PASSWORD_LENGTH))
        if not user.has_usable_password():
            del self.fields["old_password"]


@sensitive_post_parameters()
@login_required
@require_http_methods(["GET", "POST"])
def password_change(request: HttpRequest) -> HttpResponse:
    """Set a new password and end every other session.

    The current password, if there is one, confirms the user's identity.
    """
    user = cast(User, request.user)
    has_one = user.has_usable_password()
    form = PasswordForm(user, request.POST if request.method == "POST" else None)
    refusal = None
    if request.method == "POST" and form.is_valid():
        now = timezone.now()
        try:
            accounts.change_password(
                user=user,
                old=form.cleaned_data.get("old_password"),
                new=form.cleaned_data["new_password1"],
                address=get_client_address(request),
                session=request.session,
                revoke_keys=form.cleaned_data.get("revoke_keys", False),
                now=now,
            )
        except Refusal as error:
            refusal = error
        else:
            update_session_auth_hash(request, user)
            sessions.drop_sessions(user=user, keep=request.session.session_key, now=now)
            return redirect(get_next_path(request) or resolve_url(settings.LOGIN_REDIRECT_URL))
    context = {
        "form": form,
        "refusal": refusal,
        "next": get_next_path(request),
        "title": gettext("Change password") if has_one else gettext("Set password"),
        "has_one": has_one,
    }
    return render_login_response(request, "registration/password_change.html", context, refusal)
