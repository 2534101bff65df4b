"""Sign-in requirement, time zone and rate limits of the page views."""

import functools
import time
import zoneinfo
from collections.abc import Callable
from datetime import tzinfo
from typing import Any, cast
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext_noop
from django_htmx.middleware import HtmxDetails

from chats.ground import rates
from chats.ground.refusals import Refusal
from chats.people import zones
from chats.web.errors import render_refusal

# Set by the page's script to the browser's time zone.
ZONE_COOKIE = "zone"


class PersonRequest(HttpRequest):
    """A request of a signed-in user."""

    user: User
    htmx: HtmxDetails


class SignedOut(Refusal):
    """A request of a script has no session."""

    code = "signed_out"
    status = 401
    sentence = gettext_noop(
        "You are signed out. Sign in in another tab, then try again. This page keeps your text."
    )


View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Require a session: pages redirect to sign-in, htmx requests get 401.

    An htmx request is not redirected, because its page may contain unsaved text.
    """

    @functools.wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            if request.method == "GET" and not cast(PersonRequest, request).htmx:
                zones.refresh_session(user=request.user, session=request.session)
            zone = get_reader_zone(request)
            if isinstance(zone, zoneinfo.ZoneInfo):
                zones.remember_zone(user=request.user, session=request.session, zone=zone.key)
            with timezone.override(zone):
                return view(cast(PersonRequest, request), *args, **kwargs)
        if cast(PersonRequest, request).htmx:
            return render_refusal(request, SignedOut())
        back = request.get_full_path() if request.method == "GET" else "/"
        return HttpResponseRedirect(f"{settings.LOGIN_URL}?next={quote(back)}")

    return wrapped


def get_reader_zone(request: HttpRequest) -> tzinfo:
    """Return the reader's time zone: the one in the settings, else the browser's, else UTC."""
    return zones.resolve_session_zone(
        session=request.session, browser=request.COOKIES.get(ZONE_COOKIE, "")
    )


def color_scheme(request: HttpRequest) -> dict[str, str]:
    """Return the template variable `color_scheme`, the value of the `color-scheme` meta element."""
    session = getattr(request, "session", None)
    chosen = session.get(zones.APPEARANCE) if session is not None else None
    return {"color_scheme": chosen if chosen in ("light", "dark") else "light dark"}


def format_actor(request: PersonRequest) -> str:
    """Return the user as an actor of the ledger."""
    return f"user:{request.user.pk}"


def count_message(request: PersonRequest) -> None:
    """Count a request that starts a reply against the user's rate limit, shared with API keys.

    Raises `RateLimited`.
    """
    rates.MESSAGES.take(f"user:{request.user.pk}", now=time.monotonic())


def count_meter_update(request: PersonRequest) -> None:
    """Count an update of the context meter against its limit. Raises `RateLimited`."""
    rates.METER_UPDATES.take(f"user:{request.user.pk}", now=time.monotonic())


def count_warm_up(request: PersonRequest) -> None:
    """Count a request that may cause a cache warm-up against its limit. Raises `RateLimited`."""
    rates.WARM_UPS.take(f"user:{request.user.pk}", now=time.monotonic())
