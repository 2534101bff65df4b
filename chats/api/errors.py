"""Answers errors of the API in one shape: `{"error": {message, type, param, code, request_id}}`.

Refusals of the domain pass through with their own code and words; errors that the framework raises
get a refusal of their own here. An unexpected error is left to the server's own handling and logs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from chats.ground.refusals import NotFound, Refusal


class NotAuthenticated(Refusal):
    """The request has neither a key nor a session."""

    code = "not_authenticated"
    status = 401
    sentence = "Sign in, or send an API key as “Authorization: Bearer plm_…”."


class Forbidden(Refusal):
    """The person is known, but without the right."""

    code = "permission_denied"
    status = 403
    sentence = "You may not do this."


class CsrfFailed(Refusal):
    """A request of a browser session came without its token."""

    code = "csrf_failed"
    status = 403
    sentence = (
        "The X-CSRFToken header is missing or wrong. Requests of a browser session that change"
        " something need it; requests with an API key do not."
    )


class MethodNotAllowed(Refusal):
    """The address exists, but not for this method."""

    code = "method_not_allowed"
    status = 405
    sentence = "This address does not take {method} requests."


class NotAcceptable(Refusal):
    """The client accepts nothing that we write."""

    code = "not_acceptable"
    status = 406
    sentence = "The answer is JSON; let the Accept header allow application/json."


class UnsupportedMediaType(Refusal):
    """The body does not claim to be JSON."""

    code = "unsupported_media_type"
    status = 415
    sentence = "Send the body as JSON with “Content-Type: application/json”."


class RequestTooLarge(Refusal):
    """The body is over the limit."""

    code = "request_too_large"
    status = 413
    sentence = "The request is larger than {limit:,} bytes. Send less at once."


class InvalidField(Refusal):
    """A field is missing, unknown, or has a value of the wrong kind."""

    status = 400
    sentence = "{param}: {problem}"

    def __init__(self, *, code: str, param: str | None, problem: str) -> None:
        super().__init__(param=param or "body", problem=problem)
        self.code = code
        self.param = param


SIMPLE: Sequence[tuple[type[Exception], type[Refusal]]] = (
    (Http404, NotFound),
    (exceptions.NotAuthenticated, NotAuthenticated),
    (exceptions.NotAcceptable, NotAcceptable),
    (exceptions.UnsupportedMediaType, UnsupportedMediaType),
    (exceptions.PermissionDenied, Forbidden),
)


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the response to an expected error; None leaves an unexpected one to Django."""
    request = context["request"]
    refusal = refusal_of(error, method=str(request.method))
    if refusal is None:
        return None
    response = Response(
        refusal.body(request_id=getattr(request, "request_id", "")), status=refusal.status
    )
    if refusal.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="Palimpsest"'
    if refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


def refusal_of(error: Exception, *, method: str) -> Refusal | None:
    """Return the refusal behind an exception, or None for an unexpected one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, exceptions.ValidationError):
        return invalid(error)
    if isinstance(error, exceptions.MethodNotAllowed):
        return MethodNotAllowed(method=method)
    if isinstance(error, RequestDataTooBig | TooManyFieldsSent):
        return UnsupportedMediaType()  # only a form, which we do not take, gets this far
    if isinstance(error, exceptions.PermissionDenied) and str(error).startswith("CSRF"):
        return CsrfFailed()
    return next((refusal() for kind, refusal in SIMPLE if isinstance(error, kind)), None)


def invalid(error: exceptions.ValidationError) -> InvalidField:
    """Return the first problem of the fields as a refusal.

    One at a time is what a person can fix.
    """
    param, problem = first_problem(error.detail)
    codes = {"required": "missing_field", "unknown_field": "unknown_field"}
    return InvalidField(
        code=codes.get(problem.code or "", "invalid_value"), param=param, problem=str(problem)
    )


def first_problem(
    detail: Any, *, path: tuple[str, ...] = ()
) -> tuple[str | None, exceptions.ErrorDetail]:
    """Return the first leaf of the framework's nested errors, with its dotted path."""
    if isinstance(detail, Mapping):
        name, inner = next(iter(detail.items()))
        step = () if name == "non_field_errors" else (str(name),)
        return first_problem(inner, path=path + step)
    if isinstance(detail, list):
        return first_problem(detail[0], path=path)
    return ".".join(path) or None, detail
