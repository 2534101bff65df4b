"""Responses that send their head only with the first bytes (`project.request_limits.HeldHead`)."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from django.http import HttpRequest, StreamingHttpResponse

from chats.gateway import wire
from chats.ground.refusals import Refusal

# Scope key that makes the server delay the response head.
HELD = "palimpsest.held"


@dataclass(slots=True)
class WaitingHead:
    """The status and headers of a response whose head has not been sent yet."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def fail(self, refusal: Refusal) -> str:
        """Set the status and headers for an error, and return the error body."""
        self.status = refusal.status
        self.headers["Content-Type"] = "application/json"
        self.headers |= wire.build_error_headers(refusal)
        return json.dumps(wire.format_openai_error(refusal))


class HeldResponse(StreamingHttpResponse):
    """A response that sends its head only with its first bytes."""

    held: WaitingHead


def build_held_response(
    request: HttpRequest,
    body: Callable[[WaitingHead], AsyncIterator[bytes]],
    *,
    is_stream: bool,
    headers: Mapping[str, str],
) -> HeldResponse:
    """Return a response whose body determines its head with the first bytes."""
    held = WaitingHead()
    kind = "text/event-stream; charset=utf-8" if is_stream else "application/json"
    answer = HeldResponse(body(held), content_type=kind)
    answer.held = held
    for name, value in {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers}.items():
        answer[name] = value
    scope = getattr(request, "scope", None)
    if scope is not None:
        scope[HELD] = held
    return answer
