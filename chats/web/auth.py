"""The way into every page: a signed-in person, and times in that person's zone."""

import functools
import time
import zoneinfo
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Any, cast
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django_htmx.middleware import HtmxDetails

from chats.ground import rates
from chats.ground.refusals import Refusal
from chats.people.zones import remember_zone
from chats.web.errors import refusal_response

# Set by the page's script from the browser's own setting.
ZONE_COOKIE = "zone"


class PersonRequest(HttpRequest):
    """A request whose sender is signed in."""

    user: User
    htmx: HtmxDetails


class SignedOut(Refusal):
    """A part of a page was requested without a session."""

    code = "signed_out"
    status = 401
    sentence = "You are signed out. Sign in in another tab, then try again. Your text stays here."


View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Require a session: redirect a page to the sign-in page, answer an htmx request with 401.

    An htmx request must not be redirected: the page that sent it may hold text that is not saved.
    """

    @functools.wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            zone = zone_of(request)
            if isinstance(zone, zoneinfo.ZoneInfo):
                remember_zone(user=request.user, session=request.session, zone=zone.key)
            with timezone.override(zone):
                return view(cast(PersonRequest, request), *args, **kwargs)
        if cast(PersonRequest, request).htmx:
            return refusal_response(request, SignedOut())
        back = request.get_full_path() if request.method == "GET" else "/"
        return HttpResponseRedirect(f"{settings.LOGIN_URL}?next={quote(back)}")

    return wrapped


def zone_of(request: HttpRequest) -> tzinfo:
    """Return the reader's time zone; UTC until the browser has told it."""
    try:
        return zoneinfo.ZoneInfo(request.COOKIES[ZONE_COOKIE])
    except (KeyError, ValueError, OSError):
        # No cookie, no zone of this server, or no name of a zone: ZoneInfo reads files by name.
        return UTC


def actor(request: PersonRequest) -> str:
    """Return the person as the ledger names them."""
    return f"user:{request.user.pk}"


def count_message(request: PersonRequest) -> None:
    """Count a request that starts a reply; the same person's keys count with it.

    Raises `RateLimited`.
    """
    rates.MESSAGES.take(f"user:{request.user.pk}", now=time.monotonic())


def count_warm_up(request: PersonRequest) -> None:
    """Count a request that may have a prompt read ahead. Raises `RateLimited`."""
    rates.WARM_UPS.take(f"user:{request.user.pk}", now=time.monotonic())
