"""Error responses of the API: `{"error": {message, type, param, code, request_id}}`.

Domain errors (`Refusal`) keep their code and message. DRF's errors are converted to refusals here.
Unexpected errors are left to Django's handling and logs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import Http404
from django.utils.functional import Promise
from django.utils.translation import gettext_noop
from rest_framework import exceptions
from rest_framework.response import Response

from chats.ground import csrf
from chats.ground.refusals import NotFound, Refusal


class NotAuthenticated(Refusal):
    """The request has neither an API key nor a session."""

    code = "not_authenticated"
    status = 401
    sentence = gettext_noop("Sign in, or send an API key as “Authorization: Bearer plm_…”.")


class Forbidden(Refusal):
    """The user is known but lacks the permission."""

    code = "permission_denied"
    status = 403
    sentence = gettext_noop(
        "Your account does not have permission to do this. Ask an administrator."
    )


class CsrfFailed(Refusal):
    """The session request has no valid `X-CSRFToken` header, or comes from another origin."""

    code = "csrf_failed"
    status = 403
    sentence = gettext_noop(
        "The X-CSRFToken header is missing or wrong. Requests that change data in a browser "
        "session need it. Requests with an API key do not."
    )

    def __init__(self, cause: str | Promise = "") -> None:
        if cause:
            self.sentence = "{cause}"
        super().__init__(cause=cause)


class MethodNotAllowed(Refusal):
    """The URL exists but does not support this method."""

    code = "method_not_allowed"
    status = 405
    sentence = gettext_noop(
        "This URL does not support {method} requests. Use a method that the API "
        "documentation lists."
    )


class NotAcceptable(Refusal):
    """The client accepts no format that the API offers."""

    code = "not_acceptable"
    status = 406
    sentence = gettext_noop("Responses are JSON. Allow application/json in the Accept header.")


class UnsupportedMediaType(Refusal):
    """The `Content-Type` is not accepted. JSON bodies need `application/json`."""

    code = "unsupported_media_type"
    status = 415
    sentence = gettext_noop("Send the body as JSON with “Content-Type: application/json”.")


class RequestTooLarge(Refusal):
    """The body exceeds the server's size limit, which the error message gives."""

    code = "request_too_large"
    status = 413
    sentence = gettext_noop("The request is larger than {limit:,} bytes. Send a smaller request.")


class MessageBodyTooLarge(RequestTooLarge):
    """The body of a message exceeds the size limit. Its files can be uploaded instead."""

    sentence = gettext_noop(
        "The request is larger than {limit:,} bytes. Upload its files with POST /api/v1/files and "
        "refer to them, or send a smaller request."
    )


class InvalidField(Refusal):
    """A field is missing, unknown or invalid."""

    status = 400
    sentence = "{param}: {problem}"

    def __init__(self, *, code: str, param: str | None, problem: str | Promise) -> None:
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


def handle_api_error(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the response for an expected error. None leaves unexpected errors to Django."""
    request = context["request"]
    refusal = convert_exception(error, method=str(request.method))
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


def convert_exception(error: Exception, *, method: str) -> Refusal | None:
    """Return the refusal for an exception, or None if it is unexpected."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, exceptions.ValidationError):
        return convert_validation_error(error)
    if isinstance(error, exceptions.MethodNotAllowed):
        return MethodNotAllowed(method=method)
    if isinstance(error, RequestDataTooBig | TooManyFieldsSent):
        return UnsupportedMediaType()  # Only form data, which the API refuses, reaches this line.
    if isinstance(error, exceptions.PermissionDenied) and str(error).startswith("CSRF"):
        return CsrfFailed(csrf.explain_csrf_failure(str(error)))
    return next((refusal() for kind, refusal in SIMPLE if isinstance(error, kind)), None)


def convert_validation_error(error: exceptions.ValidationError) -> InvalidField:
    """Return a refusal for the first invalid field.

    Error responses name one field at a time.
    """
    param, problem = find_first_problem(error.detail)
    codes = {"required": "missing_field", "unknown_field": "unknown_field"}
    return InvalidField(
        code=codes.get(problem.code or "", "invalid_value"), param=param, problem=str(problem)
    )


def find_first_problem(
    detail: Any, *, path: tuple[str, ...] = ()
) -> tuple[str | None, exceptions.ErrorDetail]:
    """Return the first of DRF's nested errors, with its dotted path."""
    if isinstance(detail, Mapping):
        name, inner = next(iter(detail.items()))
        step = () if name == "non_field_errors" else (str(name),)
        return find_first_problem(inner, path=path + step)
    if isinstance(detail, list):
        return find_first_problem(detail[0], path=path)
    return ".".join(path) or None, detail
