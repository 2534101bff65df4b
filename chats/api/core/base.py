"""Base classes of the endpoints: authentication, scopes, permissions and rate limits."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_noop
from django.views.decorators.csrf import csrf_exempt
from rest_framework import serializers
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from chats.api.core.errors import Forbidden
from chats.api.core.idempotency import run_idempotent_request
from chats.api.core.inputs import PageQuery
from chats.api.core.outputs import serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
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
    """Requires the scope that the view set names for the action. Sessions need no scope."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return True if the API key or session may perform the action.

        Raises `InsufficientScope` for a key without the scope, `SessionRequired`, and
        `MethodNotAllowed`.
        """
        method = "GET" if request.method == "HEAD" else str(request.method)
        scope = cast(Endpoint, view).get_scope(method)
        if scope is None:
            raise MethodNotAllowed(str(request.method))
        key = get_request_key(request)
        if key is not None and scope != ANY_KEY:
            if scope == NO_KEY:
                raise SessionRequired
            keys.require_scope(key=key, scope=scope)
        return True


class RequestThrottle(BaseThrottle):
    """Counts the requests of an API key, or of a user's sessions."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count the request, and return True. Raises `RateLimited` above the limit."""
        key = get_request_key(request)
        client = f"user:{request.user.pk}" if key is None else f"key:{key.pk}"
        cast(Endpoint, view).rate = rates.REQUESTS.take(client, now=time.monotonic())
        return True


class Endpoint(ViewSet):
    """Base class of the view sets. Reading requires `read_scope`, anything else `write_scope`."""

    permission_classes = (IsAuthenticated, HasScope)
    throttle_classes = (RequestThrottle,)
    # OPTIONS is left out because it would describe the code. The schema describes the API.
    http_method_names: ClassVar = [  # type: ignore[misc]  # the base class declares no ClassVar
        "get",
        "head",
        "post",
        "patch",
        "delete",
        "put",
    ]
    lookup_value_converter = "uuid"
    # The serializer of the response, for actions that declare none.
    serializer_class: type[serializers.Serializer[Any]] | None = None
    read_scope, write_scope = "chats:read", "chats:write"
    # Permissions that actions require of a user, who must also be staff.
    permissions: ClassVar[Mapping[str, Sequence[str]]] = {}
    # Actions that require another scope.
    scopes: ClassVar[Mapping[str, str]] = {}
    # Actions that are idempotent already, or handle `Idempotency-Key` themselves.
    repeatable: ClassVar[Sequence[str]] = ()
    rate: rates.Rate | None = None

    @property
    def user(self) -> User:
        """The authenticated user. The permission classes have refused anonymous requests."""
        return get_request_user(self.request)

    @property
    def actor(self) -> str:
        """The user as an actor of the audit log."""
        return f"user:{self.user.pk}"

    def get_scope(self, method: str) -> str | None:
        """Return the scope of the action. None: the view set does not support the method."""
        if self.action not in self.action_map.values():
            return None
        usual = self.read_scope if method == "GET" else self.write_scope
        return self.scopes.get(self.action, usual)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, check the scope, count the request, then check the permissions.

        A POST with an `Idempotency-Key` becomes idempotent. Raises `RateLimited`, `Forbidden` and
        `NotFound`.
        """
        super().initial(request, *args, **kwargs)
        require_permissions(self.user, *self.permissions.get(self.action, ()))
        is_keyed = request.method == "POST" and "Idempotency-Key" in request.headers
        if is_keyed and self.action not in self.repeatable:
            vars(self)["post"] = partial(run_idempotent_request, vars(self)["post"])

    def handle_exception(self, exc: Exception) -> Response:
        """Return the error response. If a rate limit was exceeded, remember it for the headers."""
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

    def respond(self, row: object, *, status: int = 200) -> Response:
        """Return a response with a row, serialized by `serializer_class`."""
        return Response(serialize_row(self.get_serializer_class(), row), status=status)

    def respond_page(
        self,
        rows: QuerySet[Any, Any],
        *,
        order: Sequence[str],
        name: str,
        kind: type[serializers.Serializer[Any]] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Response:
        """Return the requested page of a list. See `paginate_rows`. Raises `InvalidCursor`."""
        asked = PageQuery.read(self.request.query_params.dict()) if query is None else query
        page = paginate_rows(rows, order=order, name=name, **asked)
        data = serialize_rows(kind or self.get_serializer_class(), page.rows)
        return Response({"data": data, "next_cursor": page.next_cursor})

    def get_serializer_class(self) -> type[serializers.Serializer[Any]]:
        """Return the serializer of the usual response. Raises TypeError if there is none."""
        if self.serializer_class is None:
            raise TypeError(f"{type(self).__name__} has no serializer_class")
        return self.serializer_class


def require_permissions(user: User, *names: str) -> None:
    """Require staff status and the given permissions, as the admin pages do.

    Raises `Forbidden` for staff with permission to view policies, else `NotFound`.
    """
    if not names or (user.is_staff and user.has_perms(names)):
        return
    if user.is_staff and user.has_perm("contextpolicy.view_contextpolicy"):
        raise Forbidden
    raise NotFound


@csrf_exempt
def raise_not_found(request: HttpRequest) -> NoReturn:
    """Raise `NotFound` for any method. The middleware renders it as JSON."""
    raise NotFound


def get_request_user(request: Request) -> User:
    """Return the authenticated user. The permission classes have already refused anonymous
    requests.
    """
    return cast(User, request.user)


def get_request_key(request: Request) -> ApiKey | None:
    """Return the API key of the request, or None in a session."""
    return request.auth if isinstance(request.auth, ApiKey) else None


def count_message_request(request: Request) -> None:
    """Count a request that starts a reply. The limit is per user, over all API keys.

    Raises `RateLimited`.
    """
    rates.MESSAGES.take(f"user:{request.user.pk}", now=time.monotonic())
