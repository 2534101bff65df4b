"""Base class of the endpoints: authentication, scopes and rate limits."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NoReturn, cast

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext_noop
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.api.core.idempotency import run_idempotent_request
from chats.ground import rates
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey
from chats.people import keys

# Special scopes: any key, or no key at all.
ANY_KEY = "any"
NO_KEY = "none"


class SessionRequired(Refusal):
    """The request uses an API key, but the operation needs a session. Sign in instead."""

    code = "session_required"
    status = 403
    sentence = gettext_noop("API keys cannot manage API keys. Sign in to do this.")


class HasScope(BasePermission):
    """Require the scope that the endpoint names for the method. Sessions need no scope."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return True if the request may use its method.

        Raises `InsufficientScope` for a key without the scope, `SessionRequired`, and
        `MethodNotAllowed`.
        """
        method = "GET" if request.method == "HEAD" else str(request.method)
        scope = cast(Endpoint, view).scopes.get(method)
        if scope is None:
            raise MethodNotAllowed(str(request.method))
        key = get_request_key(request)
        if key is not None and scope != ANY_KEY:
            if scope == NO_KEY:
                raise SessionRequired
            keys.require_scope(key=key, scope=scope)
        return True


class Endpoint(APIView):
    """Base class of all endpoints. `scopes` maps each supported method to its scope."""

    scopes: ClassVar[Mapping[str, str]] = {}
    permission_classes = (IsAuthenticated, HasScope)
    # OPTIONS is left out because it would describe the code. The schema describes the API.
    http_method_names: ClassVar = [  # type: ignore[misc]  # the base class declares no ClassVar
        "get",
        "head",
        "post",
        "patch",
        "delete",
    ]
    rate: rates.Rate | None = None
    # True if POST is idempotent already, or handles `Idempotency-Key` itself.
    knows_repetitions = False

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Wrap POST with idempotency if the request has an `Idempotency-Key`."""
        super().setup(request, *args, **kwargs)
        known = self.knows_repetitions or "Idempotency-Key" not in request.headers
        if not known and hasattr(self, "post"):
            vars(self)["post"] = partial(run_idempotent_request, self.post)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Accept chunked bodies, which DRF treats as empty because they have no length."""
        if "chunked" in request.headers.get("Transfer-Encoding", ""):
            request.META["CONTENT_LENGTH"] = "-1"
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, check the scope, then count the request. Raises `RateLimited`."""
        super().initial(request, *args, **kwargs)
        key = get_request_key(request)
        client = f"user:{request.user.pk}" if key is None else f"key:{key.pk}"
        self.rate = rates.REQUESTS.take(client, now=time.monotonic())

    def handle_exception(self, exc: Exception) -> Response:
        """Return the error response. For an exceeded rate, remember which one for the headers."""
        if isinstance(exc, rates.RateLimited):
            self.rate = exc.rate
        return super().handle_exception(exc)

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Add the rate limit headers."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        if self.rate is not None:
            answer["X-RateLimit-Limit"] = str(self.rate.limit)
            answer["X-RateLimit-Remaining"] = str(self.rate.remaining)
            answer["X-RateLimit-Reset"] = str(self.rate.reset)
        return answer


@csrf_exempt
def raise_not_found(request: HttpRequest) -> NoReturn:
    """Raise `NotFound` for any method. The middleware renders it as JSON."""
    raise NotFound


def get_request_user(request: Request) -> User:
    """Return the authenticated user. The permission classes have refused anonymous requests."""
    return cast(User, request.user)


def get_request_key(request: Request) -> ApiKey | None:
    """Return the API key of the request, or None in a session."""
    return request.auth if isinstance(request.auth, ApiKey) else None


def count_message_request(request: Request) -> None:
    """Count a request that starts a reply. The limit is per user, across all their keys.

    Raises `RateLimited`.
    """
    rates.MESSAGES.take(f"user:{request.user.pk}", now=time.monotonic())
