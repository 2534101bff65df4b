"""Limits the size of requests before Django reads them, and lets large bodies take turns."""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop

from chats.api.core.errors import MessageBodyTooLarge, RequestTooLarge
from chats.gateway.errors import BodyTooLarge
from chats.gateway.held_response import HELD, WaitingHead
from chats.ground.refusals import Refusal
from project.body_turns import LARGE, BodyTurns

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# The scope key for the reason why a request was refused before it was read.
REFUSED = "palimpsest.refused"
# Requests with all messages of a chat.
WHOLE_CHATS = re.compile(r"/api/v1/(chats/[0-9a-f-]{36}/team/snapshot|ui-chats)")
# Requests with a message, whose files can be uploaded instead.
WITH_FILES = re.compile(r"/api/v1/(chats|chats/[0-9a-f-]{36}/messages|ui-chats)")
IMPORTS = frozenset({"/api/v1/imports", "/settings/exchange/import"})
UPLOADS = frozenset({"/api/v1/files", "/files/attach"})
# The size of the form fields around an uploaded file.
FORM_BYTES = 64 * 1024


class AddressTooLong(Refusal):
    """Path and query together exceed the limit. Shorten the address."""

    code = "address_too_long"
    status = 414
    sentence = gettext_noop(
        "This URL is longer than {limit:,} bytes. Send long values in the body."
    )


class HeadersTooLarge(Refusal):
    """One header, or all headers together, are too large."""

    code = "headers_too_large"
    status = 431
    sentence = gettext_noop("The request headers are too large. Delete this site’s cookies.")


class RequestSizeLimits:
    """Checks each request's size before Django reads it.

    Django stores a body of any length before it is checked, and limits neither URLs nor headers. A
    request that is too large is passed on without its body, with the reason in its scope.
    `ForeseenErrorsMiddleware` returns the error in the format of its API.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.turns = BodyTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, without its body if it is too large."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        scope[REFUSED] = check_request_size(scope)

        head = HeldHead(scope, send)

        async def answer(message: Mapping[str, Any]) -> None:
            if scope[REFUSED] and message["type"] == "http.response.start":
                # Unread bytes of the body would be parsed as the next request.
                headers = [*message["headers"], (b"Connection", b"close")]
                message = {**message, "headers": headers}
            await head.send(message)

        body = RequestBody(scope, receive, turns=self.turns)
        try:
            await self.application(scope, body.read, answer)
        finally:
            body.end_storing()


class HeldHead:
    """Holds back the head of a response until its first bytes if they determine its status.

    Below /v1, an error before the first text of a reply is returned with its own status. To enable
    this, a view puts a `WaitingHead` into the request's scope.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.onward = send
        self.message: Mapping[str, Any] | None = None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a part of the response, or hold back its head."""
        held = self.scope.get(HELD)
        if held is not None and message["type"] == "http.response.start":
            self.message = message
            return
        if held is not None and self.message is not None:
            head, self.message = self.message, None
            await self.onward(apply_waiting_head(head, held))
        await self.onward(message)


def apply_waiting_head(message: Mapping[str, Any], held: WaitingHead) -> Mapping[str, Any]:
    """Return the head of a response with the final status and headers."""
    if message["status"] >= HTTPStatus.BAD_REQUEST:
        return message
    changed = {name.lower().encode(): said.encode() for name, said in held.headers.items()}
    kept = [(name, said) for name, said in message["headers"] if name.lower() not in changed]
    return {**message, "status": held.status, "headers": [*kept, *changed.items()]}


class RequestBody:
    """The body of one request, read in pieces and refused above its size limit."""

    def __init__(self, scope: Scope, receive: Receive, *, turns: BodyTurns) -> None:
        self.scope = scope
        self.receive = receive
        self.turns = turns
        self.taken = 0
        self.has_ended = self.is_storing = False

    async def read(self) -> Mapping[str, Any]:
        """Return the next part; at the limit return an end, and discard the remaining parts."""
        while True:
            if self.scope[REFUSED] and not self.has_ended:
                self.has_ended = True
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await self.receive()
            self.taken += len(message.get("body", b""))
            if message["type"] != "http.request":
                return message
            limit = get_body_limit(self.scope)
            if self.taken > limit:
                self.scope[REFUSED] = build_size_refusal(self.scope, limit=limit)
            elif not self.scope[REFUSED]:
                await self.take_turn(is_last=not message.get("more_body"))
                return message

    async def take_turn(self, *, is_last: bool) -> None:
        """Wait for the turn of a piece of a large body, or of a complete upload.

        An upload waits only when it is complete, so that slow clients do not occupy a slot.
        """
        if is_last:
            self.state_length()
        if self.taken <= LARGE:
            return
        await self.turns.wait_for_piece()
        if is_last and self.scope["path"] in IMPORTS | UPLOADS:
            await self.turns.storing.acquire()
            self.is_storing = True

    def end_storing(self) -> None:
        """Let the next upload be stored."""
        if self.is_storing:
            self.is_storing = False
            self.turns.storing.release()

    def state_length(self) -> None:
        """Set the length of a chunked body, which Django and DRF would otherwise treat as empty.

        Django reads the headers after the whole body.
        """
        headers = self.scope["headers"]
        if self.taken and not any(name == b"content-length" for name, _ in headers):
            self.scope["headers"] = [*headers, (b"content-length", b"%d" % self.taken)]


def check_request_size(scope: Scope) -> Refusal | None:
    """Return the refusal for a request that is too large, before its body is read, or None."""
    address = len(scope["raw_path"]) + len(scope["query_string"])
    if address > settings.ADDRESS_BYTES:
        return AddressTooLong(limit=settings.ADDRESS_BYTES)
    sizes = [len(name) + len(value) for name, value in scope["headers"]]
    if max(sizes, default=0) > settings.HEADER_BYTES or sum(sizes) > settings.HEADERS_BYTES:
        return HeadersTooLarge()
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    limit = get_body_limit(scope)
    if any(value.isdigit() and int(value.lstrip(b"0")[:20] or 0) > limit for value in lengths):
        return build_size_refusal(scope, limit=limit)
    return None


def build_size_refusal(scope: Scope, *, limit: int) -> Refusal:
    """Return the refusal for a body of more than `limit` bytes.

    It mentions uploads if the path accepts files.
    """
    if scope["path"].startswith("/v1/"):
        return BodyTooLarge(limit=limit)
    has_files = WITH_FILES.fullmatch(scope["path"]) is not None
    return (MessageBodyTooLarge if has_files else RequestTooLarge)(limit=limit)


def get_body_limit(scope: Scope) -> int:
    """Return the maximum body size of a request in bytes, by its path."""
    if scope["path"] in IMPORTS:
        # The form around the file takes additional bytes.
        return settings.IMPORT_FILE_BYTES + FORM_BYTES
    if scope["path"] in UPLOADS:
        return settings.FILE_BYTES + FORM_BYTES
    if scope["path"].startswith("/v1/"):
        return settings.GATEWAY_BYTES
    is_whole = WHOLE_CHATS.fullmatch(scope["path"])
    return settings.SNAPSHOT_BYTES if is_whole else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
