"""API key pages: create a key, show it once, revoke it."""

import uuid
from datetime import datetime

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from chats.models import ApiKey
from chats.people import keys
from chats.web.account.confirming import build_confirm_form, confirm_here
from chats.web.auth import PersonRequest, format_actor, signed_in
from chats.web.forms import (
    OptionsField,
    PageForm,
    TextField,
    WholeNumberField,
    build_text_input,
    format_code,
    format_html_lazy,
)

# Endpoint of the sample curl command, by the first scope the key has. Any key may read the schema.
TRIALS = {"chats:read": "/api/v1/chats", "gateway": "/v1/models"}


class KeyForm(PageForm):
    """A new API key. `unmanaged`: the text of requests to `/v1` is not stored."""

    id_format = "key-%s"

    name = TextField(
        label=gettext_lazy("Name"),
        max_length=keys.NAME_LENGTH,
        help_text=gettext_lazy("Name the application that uses the key."),
        widget=build_text_input(),
    )
    scopes = OptionsField(
        label=gettext_lazy("Permissions"),
        widget=forms.CheckboxSelectMultiple,
        choices=lambda: [
            (scope, format_html("{} {}", words, format_code(scope)))
            for scope, words in keys.SCOPE_WORDS.items()
        ],
        initial=("chats:read", "chats:write"),
    )
    unmanaged = forms.BooleanField(
        label=format_html_lazy(
            gettext_lazy("Do not store requests to {path}"), path=format_code("/v1")
        ),
        required=False,
        help_text=gettext_lazy(
            "Requests are passed through unchanged. No chat, summary or text is stored. The audit "
            "log records the key, the model, the tokens and the time. If your policy does not "
            "allow this, requests are refused."
        ),
    )
    lifetime_days = WholeNumberField(
        label=gettext_lazy("Expires in (days)"),
        min_value=1,
        max_value=keys.LONGEST_DAYS,
        initial=keys.DEFAULT_DAYS,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def api_keys(request: PersonRequest) -> HttpResponse:
    """List the user's keys, or create one. Only this response shows the new secret."""
    if request.method == "GET":
        return render_api_keys(request, KeyForm())
    form = KeyForm(request.POST)
    with form.catch_refusal():
        confirm_here(request)
        key, secret = keys.create_key(owner=request.user, now=timezone.now(), **form.read_values())
        return render_api_keys(request, KeyForm(), made=key, secret=secret)
    return render_api_keys(request, form)


def render_api_keys(
    request: PersonRequest, form: KeyForm, *, made: ApiKey | None = None, secret: str = ""
) -> HttpResponse:
    """Render the list and the form.

    `made`, `secret`: a key that was just created, and its secret.
    """
    now = timezone.now()
    context = {
        "keys": [
            (key, get_key_state(key, now=now)) for key in keys.list_api_keys(owner=request.user)
        ],
        "form": form,
        "confirm": build_confirm_form(request),
        "refusal": form.refusal,
        "made": made,
        "secret": secret,
        "curl": build_curl_command(request, made=made, secret=secret),
    }
    return render(request, "api_keys.html", context, status=form.status)


def build_curl_command(request: PersonRequest, *, made: ApiKey | None, secret: str) -> str:
    """Return a sample curl command with the new key's secret, or with a placeholder."""
    scopes = made.scopes if made else [*TRIALS]
    path = next((path for scope, path in TRIALS.items() if scope in scopes), "/api/v1/schema")
    address = f"{settings.PUBLIC_URL or request.build_absolute_uri('/').rstrip('/')}{path}"
    return f'curl -H "Authorization: Bearer {secret or "plm_…"}" {address}'


def get_key_state(key: ApiKey, *, now: datetime) -> str:
    """Return the key's state: `living` (usable), `revoked` or `expired`."""
    if key.revoked_at:
        return "revoked"
    return "living" if key.expires_at > now else "expired"


@require_POST
@signed_in
def api_key_revoke(request: PersonRequest, key_id: uuid.UUID) -> HttpResponse:
    """Revoke a key immediately and permanently."""
    key = keys.get_own_api_key(user=request.user, key_id=key_id)
    keys.revoke_key(key=key, actor=format_actor(request), now=timezone.now())
    return redirect("chats:api-keys")
