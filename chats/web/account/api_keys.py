"""API key pages: create a key, show it once, revoke it."""

import uuid
from datetime import datetime

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from chats.ground.refusals import Refusal
from chats.models import ApiKey
from chats.people import keys
from chats.web.account.confirming import confirm_here, is_recently_confirmed
from chats.web.auth import PersonRequest, format_actor, signed_in

# Endpoint of the sample curl command, by the first scope the key has. Any key may read the schema.
TRIALS = {"chats:read": "/api/v1/chats", "gateway": "/v1/models"}


@require_http_methods(["GET", "POST"])
@signed_in
def api_keys(request: PersonRequest) -> HttpResponse:
    """List the user's keys, or create one. Only this response shows the new secret."""
    if request.method == "GET":
        return render_api_keys(request)
    try:
        confirm_here(request)
        key, secret = keys.create_key(
            owner=request.user,
            name=request.POST.get("name", ""),
            scopes=request.POST.getlist("scopes"),
            lifetime_days=parse_lifetime_days(request),
            unmanaged="unmanaged" in request.POST,
            now=timezone.now(),
        )
    except Refusal as refusal:
        return render_api_keys(request, refusal=refusal)
    return render_api_keys(request, made=key, secret=secret)


def parse_lifetime_days(request: PersonRequest) -> int:
    """Return the chosen lifetime in days.

    Returns 0 if the value is not a number; validation then refuses it.
    """
    chosen = request.POST.get("lifetime_days", str(keys.DEFAULT_DAYS))
    return int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 5 else 0


def render_api_keys(
    request: PersonRequest,
    *,
    refusal: Refusal | None = None,
    made: ApiKey | None = None,
    secret: str = "",
) -> HttpResponse:
    """Render the keys and the form. After a `refusal`, the form keeps the typed values."""
    now = timezone.now()
    typed = request.POST if refusal else {}
    chosen = request.POST.getlist("scopes") if refusal else ["chats:read", "chats:write"]
    context = {
        "keys": [
            (key, get_key_state(key, now=now)) for key in keys.list_api_keys(owner=request.user)
        ],
        "scopes": [(name, words, name in chosen) for name, words in keys.SCOPE_WORDS.items()],
        "name": typed.get("name", ""),
        "lifetime_days": typed.get("lifetime_days", keys.DEFAULT_DAYS),
        "unmanaged": "unmanaged" in typed,
        "longest": keys.LONGEST_DAYS,
        "is_fresh": is_recently_confirmed(request),
        "refusal": refusal,
        "made": made,
        "secret": secret,
        "curl": build_curl_command(request, made=made, secret=secret),
    }
    status = refusal.status if refusal else 200
    return render(request, "api_keys.html", context, status=status)


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
