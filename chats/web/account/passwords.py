"""The page on which people set their first password, or another one."""

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
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from chats.ground.refusals import Refusal
from chats.people import sessions, signin
from chats.web.account.signin import address_of, answer, next_of


class PasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # Django has none at run time
    """A new password twice, and the present one if the person has one.

    The present one is checked in `people.signin`, where a wrong one counts as a failed sign-in.
    """

    field_order = ("old_password", "new_password1", "new_password2")
    old_password = forms.CharField(
        label="Present password",
        max_length=signin.PASSWORD_LENGTH,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, user: User, data: object = None) -> None:
        super().__init__(user, data)
        # A longer one would be refused at every later sign-in.
        self.fields["new_password1"].validators.append(MaxLengthValidator(signin.PASSWORD_LENGTH))
        if not user.has_usable_password():
            del self.fields["old_password"]


@sensitive_post_parameters()
@login_required
@require_http_methods(["GET", "POST"])
def password_change(request: HttpRequest) -> HttpResponse:
    """Set a new password and end every other session.

    The present one confirms the person's identity, if there is one.
    """
    user = cast(User, request.user)
    has_one = user.has_usable_password()
    form = PasswordForm(user, request.POST if request.method == "POST" else None)
    refusal = None
    if request.method == "POST" and form.is_valid():
        now = timezone.now()
        try:
            signin.change_password(
                user=user,
                old=form.cleaned_data.get("old_password"),
                new=form.cleaned_data["new_password1"],
                address=address_of(request),
                session=request.session,
                now=now,
            )
        except Refusal as error:
            refusal = error
        else:
            update_session_auth_hash(request, user)
            sessions.drop_sessions(user=user, keep=request.session.session_key, now=now)
            return redirect(next_of(request) or resolve_url(settings.LOGIN_REDIRECT_URL))
    context = {
        "form": form,
        "refusal": refusal,
        "next": next_of(request),
        "has_one": has_one,
        "is_fresh": True,
    }
    return answer(request, "registration/password_change.html", context, refusal)
