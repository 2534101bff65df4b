"""Describes the endpoints: their errors, their keys, and the one that streams."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from chats.api.outputs import ErrorBody

ERRORS = {
    400: "The request is malformed.",
    401: "Neither a valid API key nor a session.",
    403: "The key or the person may not do this.",
    404: "It does not exist, or it is not yours.",
    409: "The state of the chat does not allow it now.",
    412: "It changed after the client read it; see If-Match.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The content is refused.",
    429: "Too many requests, failures or running replies; see Retry-After.",
}
# What any write may be answered; an edit that `If-Match` guards has 412 besides.
WRITE_ERRORS = tuple(code for code in ERRORS if code != 412)
EDIT_ERRORS = tuple(ERRORS)
# A status, or a status and what kind of body it has.
Code = int | tuple[int, str]
READ_ERRORS = (400, 401, 403, 404, 429)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="1 to 255 printable ASCII characters. A repetition within 24 hours with the same"
    " body gives the same answer and does nothing new. `Idempotent-Replayed` is set where it"
    " is the first answer as it was.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of the thing as it was read: it is changed only if it is still that.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of the thing as it was read: 304 if it is still that.",
)
EVENTS = """Server-sent events of one turn; data is JSON `{turn, attempt, step, offset, text}`.

- `snapshot`: the text of the running step so far; replaces what was shown.
- `delta`: more text, `offset` code points into the step.
- `state`: a sentence about the turn, or an empty text when it goes on.
- `reshaped`: another step or attempt began, or the text begins anew; a snapshot follows. Without
  it no text is taken back.
- `done`: the turn is over; `status` says how, `code` why it failed. Read the turn for the rest.
- `server.restarting`, `server.resume`: the stream ends here, connect again.

`snapshot`, `delta` and `done` carry an id, which names the place in the text. Sent back as
`Last-Event-ID`, it resumes the stream without a lost or doubled character. Permission is checked
again every minute.
"""
ACCEPTED_EVENTS = """`accepted`, with what a 202 says, then the events of the turn.

They are those of `chats_turns_events`. A stream that broke goes on there with its `Last-Event-ID`;
the reply is written all the same."""


class EndpointSchema(AutoSchema):
    """Adds the headers of some endpoints: the key of repetitions, the tag of what was read."""

    def get_override_parameters(self) -> list[Any]:
        """Return the parameters that no path and no serializer tells of."""
        listed = super().get_override_parameters()
        is_done_once = not getattr(self.view, "knows_repetitions", True)
        added = [IDEMPOTENCY_KEY] if is_done_once and self.method == "POST" else []
        if getattr(self.view, "guards_edits", False):
            added += [IF_NONE_MATCH] if self.method == "GET" else [IF_MATCH]
        return [*listed, *added]


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """The API keys as the schema names them."""

    target_class = "chats.api.authentication.KeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the key as a bearer token."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "plm_…"}


class Generator(SchemaGenerator):
    """The schema of the endpoints, and of the stream, which is no view of the framework."""

    def get_schema(self, request: Any = None, public: bool = False) -> Any:  # noqa: FBT001, FBT002  # the framework's signature
        """Return the whole schema."""
        schema = super().get_schema(request=request, public=public)  # type: ignore[no-untyped-call]  # untyped there
        turn = next(path for path in schema["paths"] if path.endswith("/turns/{turn_id}"))
        schema["paths"][f"{turn}/events"] = {"get": stream_of(schema["paths"][turn]["get"])}
        return schema


def stream_of(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the stream beside the turn that it follows."""
    place = {
        "in": "header",
        "name": "Last-Event-ID",
        "schema": {"type": "string"},
        "description": "The id of the last event received.",
    }
    refusals = {code: text for code, text in turn["responses"].items() if code != "200"}
    text = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": "chats_turns_events",
        "description": EVENTS,
        "parameters": [*turn["parameters"], place],
        "tags": turn["tags"],
        "security": turn["security"],
        "responses": {"200": {"content": text, "description": "The events."}, **refusals},
    }


def answers(
    successes: Mapping[Code, Any], *, errors: tuple[int, ...] = WRITE_ERRORS
) -> dict[Code, Any]:
    """Return the given responses and those of the possible errors."""
    failures: dict[Code, Any] = {code: OpenApiResponse(ErrorBody, ERRORS[code]) for code in errors}
    return {**successes, **failures}
