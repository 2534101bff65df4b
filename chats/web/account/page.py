"""The account page: name, password, sessions, appearance, keyboard."""

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone, translation
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.ground.refusals import NotFound
from chats.models import AccountSettings
from chats.people import sessions, zones
from chats.web import languages
from chats.web.account import signin
from chats.web.auth import ZONE_COOKIE, PersonRequest, signed_in
from chats.web.forms import PageForm


@require_GET
@signed_in
def settings_page(request: PersonRequest) -> HttpResponse:
    """Show the account's data, sessions and interface settings."""
    context = {
        "sessions": sessions.list_sessions(user=request.user, now=timezone.now()),
        "here": get_session_id(request),
        "version": settings.VERSION,
    }
    return render(request, "settings.html", context)


class AppearanceForm(PageForm):
    """Colours, language and time zone of the user's pages."""

    appearance = forms.ChoiceField(
        label=gettext_lazy("Colours"),
        choices=AccountSettings.Appearance.choices,
        widget=forms.RadioSelect,
        help_text=gettext_lazy(
            "“System” follows your device. The administration uses the same colours."
        ),
    )
    language = forms.ChoiceField(
        label=gettext_lazy("Language"),
        required=False,
        help_text=gettext_lazy(
            "The pages and the administration use this language. Chats and summaries keep "
            "their own language."
        ),
    )
    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"),
        required=False,
        help_text=gettext_lazy(
            "Times on pages and dates in the prompts of new chats use this zone. Once a prompt "
            "with a date has been sent, the chat keeps its time zone."
        ),
    )

    def __init__(self, *args: Any, browser: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        named = (
            gettext("The browser’s time zone ({zone})").format(zone=browser)
            if browser
            else gettext("The browser’s time zone")
        )
        offered = [("", gettext("The browser’s language")), *settings.LANGUAGES]
        cast(forms.ChoiceField, self.fields["language"]).choices = offered
        names = [(name, name.replace("_", " ")) for name in zones.list_time_zones()]
        zone_choices = [("", named), ("UTC", "UTC"), *names]
        cast(forms.ChoiceField, self.fields["time_zone"]).choices = zone_choices


@require_http_methods(["GET", "POST"])
@signed_in
def appearance_page(request: PersonRequest) -> HttpResponse:
    """Show or change the colours, language and time zone of the user's pages."""
    browser = request.COOKIES.get(ZONE_COOKIE, "")
    browser = browser if browser in zones.list_time_zones() else ""
    if request.method == "POST":
        form = AppearanceForm(request.POST, browser=browser)
        if form.is_valid():
            zones.save_account_settings(
                user=request.user,
                session=request.session,
                appearance=form.cleaned_data["appearance"],
                chosen_zone=form.cleaned_data["time_zone"],
                language=form.cleaned_data["language"],
            )
            # The message is in the language that was just chosen.
            with translation.override(languages.select_request_language(request)):
                messages.success(request, gettext("Appearance saved."))
            return redirect("chats:appearance")
    else:
        account = zones.load_account_settings(request.user)
        chosen = account.time_zone if account.time_zone_chosen else ""
        initial = {
            "appearance": account.appearance,
            "language": account.language,
            "time_zone": chosen,
        }
        form = AppearanceForm(initial=initial, browser=browser)
    return render(request, "appearance.html", {"form": form, "now": timezone.now()})


@require_POST
@signed_in
def session_end(request: PersonRequest, session: str) -> HttpResponse:
    """End one of the user's sessions, in this or another browser. Raises `NotFound`."""
    if session == get_session_id(request):
        return signin.logout(request)
    if not sessions.revoke_session(user=request.user, session=session, now=timezone.now()):
        raise NotFound
    return redirect("chats:settings")


def get_session_id(request: PersonRequest) -> str:
    return sessions.derive_session_id(request.session.session_key or "")
