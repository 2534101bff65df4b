"""The base of every endpoint: authenticated, within a scope, within a rate."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NoReturn, cast

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.api.once import once
from chats.ground import rates
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey
from chats.people import keys

# Instead of a scope: every key may, or none.
ANY_KEY = "any"
NO_KEY = "none"


class SessionRequired(Refusal):
    """A key tried to manage keys, which only a session may."""

    code = "session_required"
    status = 403
    sentence = "API keys are managed by a signed-in person, not by another key. Sign in for this."


class HasScope(BasePermission):
    """A key needs the scope that the endpoint names for the method; a session needs none."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return True if the request has the scope of the method.

        Raises `SessionRequired`, `InsufficientScope`, and `MethodNotAllowed`.
        """
        method = "GET" if request.method == "HEAD" else str(request.method)
        scope = cast(Endpoint, view).scopes.get(method)
        if scope is None:
            raise MethodNotAllowed(str(request.method))
        key = key_of(request)
        if key is not None and scope != ANY_KEY:
            if scope == NO_KEY:
                raise SessionRequired
            keys.require_scope(key=key, scope=scope)
        return True


class Endpoint(APIView):
    """The base of all endpoints. `scopes` names a scope for each method it answers."""

    scopes: ClassVar[Mapping[str, str]] = {}
    permission_classes = (IsAuthenticated, HasScope)
    # Not OPTIONS, which would describe the code; the schema describes the API.
    http_method_names: ClassVar = [  # type: ignore[misc]  # the base class declares no ClassVar
        "get",
        "head",
        "post",
        "patch",
        "delete",
    ]
    rate: rates.Rate | None = None
    # Whether its POST knows its own key, or is the same when it is repeated.
    knows_repetitions = False

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Let a POST with an `Idempotency-Key` be done once."""
        super().setup(request, *args, **kwargs)
        known = self.knows_repetitions or "Idempotency-Key" not in request.headers
        if not known and hasattr(self, "post"):
            vars(self)["post"] = partial(once, self.post)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Let a chunked body be read: without a length the framework takes it for empty."""
        if "chunked" in request.headers.get("Transfer-Encoding", ""):
            request.META["CONTENT_LENGTH"] = "-1"
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, authorise, then count. Raises `RateLimited`."""
        super().initial(request, *args, **kwargs)
        key = key_of(request)
        client = f"user:{request.user.pk}" if key is None else f"key:{key.pk}"
        self.rate = rates.REQUESTS.take(client, now=time.monotonic())

    def handle_exception(self, exc: Exception) -> Response:
        """Answer an error; if a rate is used up, say which."""
        if isinstance(exc, rates.RateLimited):
            self.rate = exc.rate
        return super().handle_exception(exc)

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Add how much of the rate is left."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        if self.rate is not None:
            answer["X-RateLimit-Limit"] = str(self.rate.limit)
            answer["X-RateLimit-Remaining"] = str(self.rate.remaining)
            answer["X-RateLimit-Reset"] = str(self.rate.reset)
        return answer


@csrf_exempt
def nothing_here(request: HttpRequest) -> NoReturn:
    """Raise `NotFound`, which the middleware answers as JSON, for any method."""
    raise NotFound


def person(request: Request) -> User:
    """Return the person who asks; the permissions have made sure that there is one."""
    return cast(User, request.user)


def key_of(request: Request) -> ApiKey | None:
    """Return the key that a program asks with; None in a session."""
    return request.auth if isinstance(request.auth, ApiKey) else None


def count_message(request: Request) -> None:
    """Count a request that starts a reply, by person whatever key it came with.

    Raises `RateLimited`.
    """
    rates.MESSAGES.take(f"user:{request.user.pk}", now=time.monotonic())
