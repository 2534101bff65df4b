"""Describes the error responses in the OpenAPI schema: each code, and when it is returned."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from chats.api.core import errors, schema, strict_json
from chats.api.core.base import SessionRequired
from chats.api.core.conditional import PreconditionFailed
from chats.api.operation_refusals import OPERATIONS
from chats.api.policies.policy_access import STATUS
from chats.api.refusal_groups import Case, Foreseen
from chats.ground.refusals import NotFound
from chats.people.keys import InsufficientScope, InvalidKey, KeyInAddress
from chats.record.idempotency import IdempotencyKeyReused, InvalidIdempotencyKey

# Responses with these statuses are dropped unless the operation lists a code with the status.
SPECIFIC = ("404", "409", "415", "422")
TOO_MANY_REQUESTS = Case(
    429,
    "rate_limit_exceeded",
    "The API key or your sessions sent more than 300 requests within a minute (the default of "
    "`API_REQUESTS_PER_MINUTE`). `Retry-After` gives the number of seconds to wait.",
)
TOO_MANY_KEYS = Case(
    429,
    "login_throttled",
    "Your IP address sent more than 10 invalid API keys within a minute (the default of "
    "`LOGIN_FAILURES_PER_IP`). Requests with a valid key are still accepted.",
)
FIELDS = (
    Case(400, "missing_field", "A required field is missing; `param` names it."),
    Case(400, "unknown_field", "The operation has no such field; `param` names it."),
    Case(400, "invalid_value", "A field has a wrong type or value; `param` names it."),
)

PARAMETERS = (
    Case(400, "missing_field", "A required parameter is missing; `param` names it."),
    Case(400, "unknown_field", "The operation has no such parameter; `param` names it."),
    Case(400, "invalid_value", "A parameter has an invalid value; `param` names it."),
)
NO_PERMISSION = "You lack the permission that this operation requires."
# 403 would reveal the operation to users who cannot view any policy.
NO_VIEW = "Staff members who can view policies get 403 `permission_denied` instead."
# The refusals if a client sends a body to an operation that has none.
NO_FIELDS = (
    Case(400, "invalid_json", "The body is neither empty nor a JSON object."),
    Case(
        400,
        "unknown_field",
        "The operation accepts no fields; `param` names the first field of the body.",
    ),
    Case(413, "request_too_large", "The request has a body that exceeds the server's size limit."),
    Case(415, "unsupported_media_type", "The request has a body that is not `application/json`."),
)


def describe_refusals(result: Any, **unused: Any) -> Any:
    """Return the schema with the error codes of each operation in its responses.

    A drf-spectacular postprocessing hook.
    """
    components = result["components"]["schemas"]
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            describe_operation(operation, components, method=method, path=path)
    return result


def describe_operation(
    operation: dict[str, Any], components: Mapping[str, Any], *, method: str, path: str
) -> None:
    """Add the codes to the error responses of an operation, and the permissions to its text."""
    if needed := operation.get(schema.PERMISSIONS):
        operation["description"] += f" {describe_permissions(needed)}"
    responses = operation["responses"]
    content = responses["401"]["content"]
    listed: dict[str, dict[str, list[str]]] = {}
    for case in list_cases(operation, components, method=method, path=path):
        conditions = listed.setdefault(str(case.status), {}).setdefault(case.code, [])
        if case.condition not in conditions:
            conditions.append(case.condition)
    for status, codes in listed.items():
        found = responses.setdefault(status, {"content": content})
        found["description"] = format_codes(codes)
    for status in SPECIFIC:
        if status not in listed:
            responses.pop(status, None)
    for status, response in responses.items():
        response["description"] = response.get("description") or HTTPStatus(int(status)).phrase
    operation["responses"] = dict(sorted(responses.items()))
    operation.pop(schema.PERMISSIONS, None)


def list_cases(
    operation: Mapping[str, Any], components: Mapping[str, Any], *, method: str, path: str
) -> Iterator[Case]:
    """Yield the refusals of an operation: those of every request, then its own."""
    yield from list_body_cases(operation, components, method=method)
    headers = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "header"}
    if "Idempotency-Key" in headers:
        yield build_case(InvalidIdempotencyKey)
        yield build_case(IdempotencyKeyReused)
    if "If-Match" in headers:
        yield build_case(PreconditionFailed)
    is_for_sessions = path.startswith("/api/v1/keys")
    # The event stream is not a DRF view, and its requests are not counted.
    is_counted = operation["operationId"] != "chats_turns_events"
    common = (
        errors.NotAuthenticated,
        InvalidKey,
        SessionRequired if is_for_sessions else InsufficientScope,
        *(() if method == "get" else (errors.CsrfFailed,)),
        *((NotFound,) if "{" in path else ()),
        KeyInAddress,
        *((TOO_MANY_REQUESTS,) if is_counted else ()),
        TOO_MANY_KEYS,
    )
    if schema.PERMISSIONS in operation:
        yield Case(404, "not_found", f"{NO_PERMISSION} {NO_VIEW}")
        yield Case(403, "permission_denied", NO_PERMISSION)
    for kind in (*common, *OPERATIONS.get(operation["operationId"], ())):
        yield build_case(kind)


def describe_permissions(needed: Sequence[str]) -> str:
    """Return the sentence about the permissions that an operation requires of a user."""
    noun = "the permission" if len(needed) == 1 else "the permissions"
    names = " and ".join(f"`{name}`" for name in needed)
    return f"Users need staff status and {noun} {names}."


def list_body_cases(
    operation: Mapping[str, Any], components: Mapping[str, Any], *, method: str
) -> Iterator[Case]:
    """Yield the refusals of an operation's body and of its query parameters."""
    has_body = "requestBody" in operation
    content = operation["requestBody"]["content"] if has_body else {}
    # An upload is a file or a form: it has no JSON to be invalid, and any other type of content
    # is refused as invalid content.
    has_json = "application/json" in content
    if has_json:
        yield build_case(strict_json.InvalidJSON)
        yield build_case(errors.UnsupportedMediaType)
    if has_body:
        yield build_case(errors.RequestTooLarge)
    elif method != "get":
        yield from NO_FIELDS
    query = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    if has_json:
        yield from FIELDS if has_required_field(content, components) else FIELDS[1:]
    elif query:
        yield from PARAMETERS if any(each.get("required") for each in query) else PARAMETERS[1:]


def has_required_field(part: Any, components: Mapping[str, Any]) -> bool:
    """Return True if a part of a request's schema, or an object inside it, requires a field."""
    if not isinstance(part, dict | list):
        return False
    if isinstance(part, dict) and (part.get("required") or "$ref" in part):
        name = part.get("$ref", "").rpartition("/")[2]
        return not name or has_required_field(components[name], components)
    inner = part.values() if isinstance(part, dict) else part
    return any(has_required_field(each, components) for each in inner)


def build_case(kind: Foreseen) -> Case:
    """Return the status, code and condition of a refusal or of a policy error."""
    if isinstance(kind, Case):
        return kind
    condition = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    status: int = STATUS[kind] if kind in STATUS else getattr(kind, "status", 400)
    return Case(status, str(getattr(kind, "code", "")), condition)


def format_codes(codes: Mapping[str, list[str]]) -> str:
    """Return the codes of one status as Markdown: one line, or a list with a line per condition."""
    lines = [f"`{code}`: {each}" for code, conditions in codes.items() for each in conditions]
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)
