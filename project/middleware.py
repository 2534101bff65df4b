"""Adds a request id and security headers to every response, and formats refusals.

The classes are synchronous, like every view: `speed.threads` runs them in the request's thread.
"""

import logging
import re
import secrets
import traceback
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.db import DataError, OperationalError
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_noop
from django.views import defaults

from chats.api.core.errors import RequestTooLarge
from chats.ground import csrf, databases, deleted_rows
from chats.ground.refusals import Refusal
from chats.ground.request_ids import REQUEST
from chats.ground.tracing import trace_span
from chats.web.auth import SignedOut
from chats.web.errors import is_api_request, render_refusal
from contextpolicy import resolution
from project.request_limits import REFUSED

LOGGER = logging.getLogger(__name__)
Handler = Callable[[HttpRequest], HttpResponseBase]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Django sets some of these too, but not on a request that is refused before its middleware.
HEADERS = {
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


# Response headers that scripts of another origin may read.
EXPOSED = (
    "Idempotent-Replayed",
    "X-Context-Chat",
    "X-Context-Choices",
    "X-Context-Decision",
    "X-Context-Identity",
    "X-Context-Items-Left-Out",
    "X-Context-Logprobs",
    "X-Context-Off",
    "X-Context-Parameters-Left-Out",
    "X-Context-Report",
    "X-Context-Report-Id",
    "X-Context-Status",
    "X-Context-Tools-Left-Out",
    "X-Context-Usage",
    "X-Request-Id",
    "X-Should-Retry",
    "Retry-After",
)


class Malformed(Refusal):
    """Django cannot parse the request: its host, form or encoding."""

    code = "bad_request"
    status = 400
    sentence = gettext_noop(
        "The request could not be read. Check the host, the encoding and the fields."
    )


class UnknownHost(Malformed):
    """The request names a host that this server does not serve."""

    sentence = gettext_noop(
        "This server does not serve the host name in this URL. Open the server at its "
        "public URL. An operator can add host names with PALIMPSEST_PUBLIC_URL or "
        "ALLOWED_HOSTS."
    )


class Around:
    """Base class: a step before and a step after the inner middleware and the view."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.after(request, self.before(request) or self.get_response(request))

    def before(self, request: HttpRequest) -> HttpResponseBase | None:
        """Prepare the request. If this returns a response, it is sent without calling the view.

        Otherwise returns None, and the view is called.
        """

    def after(self, _request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Change the response of the view before it is sent, and return it."""
        return response


class RequestIdMiddleware(Around):
    """Gives each request an id for errors, logs and traces, or keeps that of a trusted proxy."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Handle the request in a span, which ends before the body of a stream."""
        parent = request.headers.get("traceparent", "") if settings.TRUSTED_PROXY else ""
        facts = {"http.request.method": str(request.method)}
        with trace_span("request", facts, carrier={"traceparent": parent}) as span:
            response = super().__call__(request)
            if span is not None:
                match = request.resolver_match
                # Not the address: its query may contain searched words, its path a sign-in token.
                span.set_attribute("http.route", match.route if match else "")
                span.set_attribute("http.response.status_code", response.status_code)
            return response

    def before(self, request: HttpRequest) -> None:
        offered = request.headers.get("X-Request-ID", "")
        keep = settings.TRUSTED_PROXY and REQUEST_ID.fullmatch(offered)
        request_id = offered if keep else uuid.uuid4().hex
        cast(Any, request).request_id = request_id
        REQUEST.set(request_id)

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-ID"] = cast(Any, request).request_id
        # Without the query, which may contain searched words.
        LOGGER.debug("%s %s %d", request.method, request.path, response.status_code)
        return response


class SecurityHeadersMiddleware(Around):
    """Sets the content security policy with a new nonce, other security headers, and `no-store`."""

    def before(self, request: HttpRequest) -> None:
        cast(Any, request).csp_nonce = secrets.token_urlsafe(16)

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", self.policy(request))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if not request.path.startswith(settings.STATIC_URL):
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    def policy(self, request: HttpRequest) -> str:
        """Return the policy: only this origin, `data:` images, and inline code with the nonce."""
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


# The gateway, UI chats, and the files and images that UI messages refer to.
CROSS_ORIGIN_PATHS = re.compile(
    r"/v1/|/api/v1/(?:ui-chats|files)(?:/|$)"
    r"|/api/v1/chats/[0-9a-f-]{36}/messages/[0-9a-f-]{36}/images/"
)


class GatewayOriginsMiddleware(Around):
    """Lets scripts of the origins in GATEWAY_ORIGINS use /v1, UI chats and files (CORS).

    An API key is still required: browsers send no cookie from another origin.
    """

    def before(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return the response to a preflight request of an allowed origin; None for others."""
        is_preflight = "Access-Control-Request-Method" in request.headers
        if request.method != "OPTIONS" or not is_preflight or not self.is_allowed(request):
            return None
        return HttpResponse(
            status=HTTPStatus.NO_CONTENT,
            headers={
                "Access-Control-Allow-Methods": "GET, POST, DELETE",
                "Access-Control-Allow-Headers": request.headers.get(
                    "Access-Control-Request-Headers", "Authorization, Content-Type"
                ),
                "Access-Control-Max-Age": "600",
            },
        )

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the origin that may read the response."""
        if settings.GATEWAY_ORIGINS and CROSS_ORIGIN_PATHS.match(request.path):
            patch_vary_headers(cast(Any, response), ["Origin"])
        if self.is_allowed(request):
            response["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
            response["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    def is_allowed(self, request: HttpRequest) -> bool:
        """Return True if a request to these paths comes from an allowed origin."""
        origin = request.headers.get("Origin")
        is_open = CROSS_ORIGIN_PATHS.match(request.path) is not None
        return is_open and origin in settings.GATEWAY_ORIGINS


class CompressionMiddleware(GZipMiddleware):
    """Compresses pages and files, but neither event streams nor parts of files.

    Compressing an event stream would delay events until a block is full. If a page repeats a part
    of a request, its compressed length could reveal secrets (BREACH). The only secrets in a page
    are form tokens, which Django masks again for each response. The length also varies.
    """

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        is_stream = response.get("Content-Type", "").startswith("text/event-stream")
        # A range is counted in bytes of the uncompressed file.
        is_part = response.status_code == HTTPStatus.PARTIAL_CONTENT
        # Django compresses each part of such a response separately, and browsers read only the
        # first one: the download would be truncated without an error.
        in_pieces = response.streaming and response.is_async
        if is_stream or is_part or in_pieces:
            return response
        return super().process_response(request, response)


class WholeFilesMiddleware(Around):
    """Reads a file that WhiteNoise returns as an open file; the files are small.

    Without this, Django would also read the whole file before sending it asynchronously,
    and issue a warning.
    """

    def after(self, _request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, FileResponse):
            return response
        whole = HttpResponse(response.getvalue(), status=response.status_code)
        response.close()
        del whole["Content-Type"]
        for name, value in response.items():
            whole[name] = value
        return whole


class SignInTooOld(Refusal):
    """The page of the form requires a sign-in within the last 15 minutes."""

    code = "sign_in_too_old"
    status = 401
    sentence = gettext_noop(
        "You signed in more than 15 minutes ago. Confirm your identity in another tab, then try "
        "again. This page keeps your text."
    )


# The sign-in page, and the page of the admin that redirects to it.
SIGN_IN_PATHS = frozenset({settings.LOGIN_URL, "/admin/login/"})


class PageFormMiddleware(Around):
    """Gives a script that sent a form the URL of the next page, in `X-Location`.

    The script cannot see or show a redirect, so it gets status 204 and loads that URL. A redirect
    to a sign-in becomes an error instead, because the form may contain unsaved text.
    """

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_redirect = response.status_code in {HTTPStatus.FOUND, HTTPStatus.SEE_OTHER}
        if is_redirect and request.headers.get("X-Page-Form"):
            target = urlsplit(response["Location"])
            if "next=" in target.query and target.path == reverse("confirm"):
                refused = render_refusal(request, SignInTooOld())
                refused["X-Sign-In"] = response["Location"]
                return refused
            if "next=" in target.query and target.path in SIGN_IN_PATHS:
                return render_refusal(request, SignedOut())
            response["X-Location"] = response["Location"]
            del response["Location"]
            response.status_code = HTTPStatus.NO_CONTENT
        return response


class ForeseenErrorsMiddleware(Around):
    """Turns refusals, database outages and concurrent deletions into error messages."""

    def before(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return the error response to a request that is too large or malformed, else None.

        Also stores whether the request only reads.
        """
        resolution.ONLY_READS.set(request.method in {"GET", "HEAD"})
        refused = getattr(request, "scope", {}).get(REFUSED)
        if refused is None and is_malformed(request):
            refused = Malformed()
        return render_refusal(request, refused) if refused else None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the response to an expected error; None for others, which stay server errors."""
        if isinstance(error, Refusal):
            return render_refusal(request, error)
        if databases.is_retryable_error(error):
            return render_refusal(request, databases.build_database_refusal(error))
        is_too_large = isinstance(error, OverflowError) and is_of_database(error)
        if is_too_large or isinstance(error, DataError | OperationalError):
            # Usually a search for a number or character that no column can hold.
            LOGGER.warning("The database rejected a value.", exc_info=error)
            return render_refusal(request, Malformed())
        if deleted_rows.is_deleted_row(error):
            # The log also shows a fault that only looks like a concurrent deletion.
            LOGGER.warning("A row was deleted during a request.", exc_info=error)
            return render_refusal(request, deleted_rows.DeletedMeanwhile())
        return None


def is_of_database(error: Exception) -> bool:
    """Return True if the database layer raised the error, for a value that no column can hold.

    An overflow elsewhere, for example of a date, is a fault of this application.
    """
    frames = traceback.walk_tb(error.__traceback__)
    names = [frame.f_globals.get("__name__", "") for frame, _ in frames]
    # Django converts dates and times for the database in `django.utils`.
    found = next((name for name in reversed(names) if not name.startswith("django.utils.")), "")
    return found.startswith(("django.db.", "speed.", "psycopg."))


def is_malformed(request: HttpRequest) -> bool:
    """Return True if a part of the request would break code that reads it later.

    A form in an encoding other than UTF-8 could contain lone surrogates. A cookie can
    contain a NUL, which PostgreSQL text does not allow. The URL that htmx sends
    (`HX-Current-URL`) is parsed later without a check.
    """
    charset = (request.content_params or {}).get("charset", "utf-8")
    try:
        urlsplit(request.headers.get("HX-Current-URL", ""))
    except ValueError:
        return True
    is_foreign = charset.strip("\"' ").lower() not in {"utf-8", "utf8", "us-ascii"}
    return is_foreign or any("\x00" in value for value in request.COOKIES.values())


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the response to a request that Django refused, as a JSON error or a page."""
    if isinstance(exception, RequestDataTooBig):
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return render_refusal(request, RequestTooLarge(limit=limit))
    if isinstance(exception, DisallowedHost):
        return render_refusal(request, UnknownHost())
    if is_api_request(request):
        return render_refusal(request, Malformed())
    return defaults.bad_request(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the response to a browser form that Django's CSRF check refused, with the reason."""
    context = {"cause": csrf.explain_csrf_failure(reason)}
    return render(request, "403_csrf.html", context, status=HTTPStatus.FORBIDDEN)


def csp_nonce(request: HttpRequest) -> dict[str, str]:
    """Give templates the nonce for the few inline elements that pages need."""
    return {"csp_nonce": getattr(request, "csp_nonce", "")}
