"""What every answer carries: a request id, the security headers, and words for refusals.

Each class works around a sync and an async handler alike: one sync-only middleware would push
every open event stream through a thread.
"""

import re
import secrets
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from chats.refusals import Refusal
from chats.web.errors import refusal_response

Handler = Callable[[HttpRequest], Any]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PERMISSIONS = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"


class Around:
    """A step before and a step after the view, the same for sync and async handlers."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.is_async = bool(iscoroutinefunction(get_response))
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self.around_async(request)
        self.before(request)
        response: HttpResponseBase = self.get_response(request)
        return self.after(request, response)

    async def around_async(self, request: HttpRequest) -> HttpResponseBase:
        self.before(request)
        return self.after(request, await self.get_response(request))

    def before(self, request: HttpRequest) -> None:
        """Prepare the request."""

    def after(self, _request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Complete the answer."""
        return response


class RequestIdMiddleware(Around):
    """Gives each request an id that errors and logs name; a well-formed incoming one is kept."""

    def before(self, request: HttpRequest) -> None:
        offered = request.headers.get("X-Request-ID", "")
        keep = settings.TRUSTED_PROXY and REQUEST_ID.fullmatch(offered)
        cast(Any, request).request_id = offered if keep else uuid.uuid4().hex

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-ID"] = cast(Any, request).request_id
        return response


class SecurityHeadersMiddleware(Around):
    """The content security policy with a fresh nonce, and the headers Django does not set."""

    def before(self, request: HttpRequest) -> None:
        cast(Any, request).csp_nonce = secrets.token_urlsafe(16)

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", self.policy(request))
        response["Permissions-Policy"] = PERMISSIONS
        response["Cross-Origin-Resource-Policy"] = "same-origin"
        if not request.path.startswith(settings.STATIC_URL):
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    def policy(self, request: HttpRequest) -> str:
        """The policy text; nothing in it allows inline code or another origin."""
        nonce = cast(Any, request).csp_nonce
        rules = [
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            f"style-src 'self' 'nonce-{nonce}'",
            "img-src 'self' data:",
            *(f"{kind}-src 'self'" for kind in ("font", "connect", "media", "manifest", "worker")),
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "object-src 'none'",
        ]
        if settings.BEHIND_TLS:
            rules.append("upgrade-insecure-requests")
        return "; ".join(rules)


class ForeseenErrorsMiddleware(Around):
    """Turns a refusal or an absent database into its sentence instead of a stack trace."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer for a foreseen error; anything else stays an error of ours."""
        if isinstance(error, Refusal):
            return refusal_response(request, error)
        if isinstance(error, OperationalError | InterfaceError):
            return refusal_response(request, DatabaseBusy())
        return None


class DatabaseBusy(Refusal):
    """The database did not answer in time; nothing was written."""

    code = "database_busy"
    status = 503
    sentence = "The database is busy. Nothing was changed; try again in a few seconds."
    retry_after = 5


def csp_nonce(request: HttpRequest) -> dict[str, str]:
    """Template context: the nonce for the few inline elements a page needs."""
    return {"csp_nonce": getattr(request, "csp_nonce", "")}
