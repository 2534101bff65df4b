"""The OpenAPI schema: shared responses and parameters, authentication, and the event stream."""

import re
from collections.abc import Mapping
from typing import Any, cast

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import is_patched_serializer
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from chats.api.core.base import ANY_KEY, NO_KEY, Endpoint
from chats.api.core.conditional import EDIT_ACTIONS, ConditionalEndpoint
from chats.api.core.outputs import ErrorBody

ERRORS = {
    400: "A part of the request is invalid; `code` names the problem.",
    401: "No valid API key or session.",
    403: "The key or the user lacks the permission.",
    404: "The resource does not exist, or you do not have access to it.",
    409: "The current state of the resource does not allow the request.",
    412: "The resource changed after the client read it; see If-Match.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The values in the body are invalid.",
    429: "Too many requests, failures or running replies. Wait for the time in Retry-After.",
}
# Any write can return these. An edit guarded by `If-Match` can also return 412.
WRITE_ERRORS = tuple(code for code in ERRORS if code != 412)
EDIT_ERRORS = tuple(ERRORS)
# A status, or a status with a content type.
Code = int | tuple[int, str]
READ_ERRORS = (400, 401, 403, 404, 429)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="1 to 255 printable ASCII characters. Within 24 hours, a repeated request with "
    "the same key, path and body returns the stored response, without `secret`, and has no "
    "further effect. `Idempotent-Replayed: true` marks such a response.",
)
# For requests that store a message or a chat: their response is built again from current rows.
MESSAGE_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="1 to 255 printable ASCII characters. Within 24 hours, a repeated request with "
    "the same key, path and body has no further effect. It returns the same objects in their "
    "current state. `Idempotent-Replayed: true` marks such a response.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` that you last received. The change is applied only if it still "
    "matches; otherwise 412.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` that you last received. Returns 304 if it still matches.",
)
# The last part of the operation ids of the usual actions. Other actions are named as their methods.
ACTIONS = {"retrieve": "get", "partial_update": "change", "update": "change", "destroy": "delete"}
# Carries the permissions of an operation to `describe_responses`, which removes it.
PERMISSIONS = "x-permissions"
# The sentence of a docstring that names Python exceptions.
EXCEPTIONS = re.compile(r"\s*\bRaises\b.*?\.(?=\s|$)", re.DOTALL)
EVENTS = """Stream the server-sent events of a turn. The data of each event is the JSON object
`{turn, attempt, step, offset, text}`.

- `snapshot`: the text of the running step so far. It replaces the text received before.
- `delta`: more text. `offset` is its position in the text of the step, in code points.
- `state`: a status message of the turn. Empty text means that the turn continues.
- `reshaped`: another step or attempt started, or the text was restarted. A snapshot follows. Only
  this event removes text that was sent before.
- `done`: the turn has ended. `status` gives the outcome, `code` the reason for a failure. Retrieve
  the turn for details.
- `server.restarting`, `server.resume`: the stream ends. Reconnect.

The id of `snapshot`, `delta` and `done` is the position in the text. To resume the stream without
lost or repeated characters, send the last id as `Last-Event-ID`. Your access is checked again
every minute.

API keys need the scope `chats:read`.
"""
ACCEPTED_EVENTS = """A stream of server-sent events: first `accepted`, with the body of the 202
response, then the events of the turn.

The operation `chats_turns_events` describes these events. After a disconnect, resume the stream
there with `Last-Event-ID`. The server completes the reply even if the client disconnects."""


class EndpointSchema(AutoSchema):
    """Describes the headers, permissions and error responses that the base classes add."""

    @property
    def endpoint(self) -> Endpoint:
        """The view, as an `Endpoint`."""
        return cast(Endpoint, self.view)

    @property
    def action(self) -> str:
        """The action of the operation."""
        return str(self.endpoint.action)

    @property
    def is_guarded(self) -> bool:
        """Return True if the operation uses ETags."""
        conditional = isinstance(self.view, ConditionalEndpoint)
        return conditional and self.action in ("retrieve", *EDIT_ACTIONS)

    def _map_basic_serializer(self, serializer: Any, direction: str) -> dict[str, Any]:
        """Return the schema of a serializer. Bodies of PATCH can have required fields too."""
        schema: dict[str, Any] = super()._map_basic_serializer(  # type: ignore[no-untyped-call]  # untyped library
            serializer, direction
        )
        if is_patched_serializer(serializer, direction):
            needed = [name for name, field in serializer.fields.items() if field.required]
            if needed:
                schema["required"] = sorted(needed)
        return schema

    def get_operation_id(self) -> str:
        """Return the view set's base name with the action. `extend_schema` can replace it."""
        return f"{self.endpoint.basename}_{ACTIONS.get(self.action, self.action)}"

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular has it
        """Return the docstring and the required scope.

        The sentence about exceptions is removed, because the responses list the errors.
        """
        text = EXCEPTIONS.sub("", super().get_description()).strip()
        scope = describe_scope(self.endpoint.get_scope(self.method) or ANY_KEY)
        return f"{text}\n\n{scope}".strip()

    def get_extensions(self) -> dict[str, Any]:
        """Return the permissions that the operation requires."""
        needed = self.endpoint.permissions.get(self.action)
        return {PERMISSIONS: needed} if needed else {}

    def get_override_parameters(self) -> list[Any]:
        """Return the declared parameters, and the headers that the endpoint supports."""
        listed = super().get_override_parameters()
        is_done_once = self.action not in self.endpoint.repeatable
        added = [IDEMPOTENCY_KEY] if is_done_once and self.method == "POST" else []
        if self.is_guarded:
            added += [IF_NONE_MATCH] if self.method == "GET" else [IF_MATCH]
        return [*listed, *added]

    def get_request_serializer(self) -> Any:
        """Return None: operations with a body declare it."""
        return None

    def get_response_serializers(self) -> Any:
        """Return the usual response of the view set."""
        if self.method == "DELETE":
            return {204: None}
        return self.endpoint.serializer_class

    def _is_list_view(self, serializer: Any = None) -> bool:
        """Return False: lists declare the serializer of their page."""
        return False

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        """Return the declared responses and the error responses."""
        found: dict[str, Any] = super()._get_response_bodies(direction)
        is_read = self.method == "GET"
        bodies: dict[int, Any] = {304: None} if self.is_guarded and is_read else {}
        errors = READ_ERRORS if is_read else EDIT_ERRORS if self.is_guarded else WRITE_ERRORS
        bodies |= {code: OpenApiResponse(ErrorBody, ERRORS[code]) for code in errors}
        for code, body in bodies.items():
            described = self._get_response_for_code(body, str(code))  # type: ignore[no-untyped-call]  # untyped there
            found.setdefault(str(code), described)
        return found


def describe_scope(scope: str) -> str:
    """Return the sentence about the scope that an operation requires of an API key."""
    if scope == NO_KEY:
        return "Requires a session; API keys are refused."
    if scope == ANY_KEY:
        return "Any API key can be used."
    return f"API keys need the scope `{scope}`."


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """The security scheme for API keys."""

    target_class = "chats.api.core.authentication.KeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "plm_…"}


class Generator(SchemaGenerator):
    """Generates the schema of the endpoints, and of the event stream, which is not a DRF view."""

    def get_schema(self, request: Any = None, public: bool = False) -> Any:  # noqa: FBT001, FBT002  # the framework's signature
        """Return the schema, with a `type` for every nullable part."""
        schema = super().get_schema(request=request, public=public)  # type: ignore[no-untyped-call]  # untyped there
        if request is None:
            # Only in the file: the API page would show a selector with one unlabelled option.
            schema["servers"] = [{"url": "/", "description": "This instance."}]
        name_types_of_nullable(schema, schema["components"]["schemas"])
        return schema

    def parse(self, input_request: Any, public: bool) -> Any:  # noqa: FBT001  # the framework's signature
        """Return the paths of the endpoints and the path of the event stream."""
        paths = super().parse(input_request, public)  # type: ignore[no-untyped-call]  # untyped there
        turn = next(path for path in paths if path.endswith("/turns/{turn_id}"))
        paths[f"{turn}/events"] = {"get": describe_turn_stream(paths[turn]["get"])}
        return paths


def name_types_of_nullable(part: Any, components: Mapping[str, Any]) -> None:
    """Add the `type` that OpenAPI 3.0 requires next to `nullable`.

    A part without type and reference already allows null, so its `nullable` is removed.
    """
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            name_types_of_nullable(inner, components)
    if not isinstance(part, dict) or part.get("nullable") is not True or "type" in part:
        return
    references = [one["$ref"] for one in part.get("allOf", ()) if "$ref" in one]
    if references:
        part["type"] = components[references[0].rpartition("/")[2]]["type"]
    else:
        del part["nullable"]


def describe_turn_stream(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the event stream of a turn, based on the operation that retrieves the turn."""
    place = {
        "in": "header",
        "name": "Last-Event-ID",
        "schema": {"type": "string"},
        "description": (
            "Id of the last event that you received. Absent: the stream starts with a snapshot."
        ),
    }
    # Copies, because the codes of each operation are written into its own responses.
    refusals = {
        code: {**text} for code, text in turn["responses"].items() if not code.startswith("2")
    }
    text = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": "chats_turns_events",
        "summary": "Follow a turn",
        "description": EVENTS,
        "parameters": [*turn["parameters"], place],
        "tags": turn["tags"],
        "security": turn["security"],
        "responses": {"200": {"content": text, "description": "Server-sent events."}, **refusals},
    }
