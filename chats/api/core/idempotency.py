"""Idempotency-Key support: replay the stored response for a repeated POST.

The key is stored in the transaction of the request itself. Of two concurrent requests, the second
waits for the first and gets its response. A refused or rolled back request can be retried with the
same key. Responses are stored encrypted for a day, and never longer than the text of their chat.
Endpoints that accept messages use `chats.record.idempotency` instead, which rebuilds the response
from current rows.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http.response import HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from chats.ground import secrets
from chats.record.idempotency import IdempotentRequest, InvalidIdempotencyKey

REPLAYED = "Idempotent-Replayed"
# The headers of a response with a file that a repetition repeats.
FILE_HEADERS = ("Content-Type", "Content-Disposition", "Content-Security-Policy")
# Shown once. Only a hash of it is stored.
NEVER_KEPT = "secret"


def get_idempotency_key(request: Request) -> str:
    """Return the `Idempotency-Key` header, or an empty string without one.

    Raises `InvalidIdempotencyKey` for an empty header, which would protect nothing.
    """
    key = request.headers.get("Idempotency-Key")
    if key is not None and not key:
        raise InvalidIdempotencyKey
    return key or ""


def run_idempotent_request(
    post: Callable[..., HttpResponseBase], request: Request, *args: Any, **kwargs: Any
) -> HttpResponseBase:
    """Call `post`, or replay its response to an earlier request with the same key.

    Raises `InvalidIdempotencyKey`, `IdempotencyKeyReused`, `SecretUnreadable` for a stored response
    that cannot be decrypted, `TypeError` for a stream, and the errors of `post`. After an error,
    nothing is stored.
    """
    sent = json.dumps([request.query_params.dict(), identify_body(request.data)], sort_keys=True)
    key = get_idempotency_key(request)
    keyed = IdempotentRequest(user=cast(User, request.user), route=request.path, key=key, body=sent)
    now = timezone.now()
    if (kept := keyed.find(now=now)) is not None:
        return replay_response(kept)
    try:
        with transaction.atomic():
            record = keyed.kept(result={}, now=now)
            answer = post(request, *args, **kwargs)
            record.result = pack_response(answer, chat_id=kwargs.get("chat_id"))
            record.save(update_fields=["result"])
            return answer
    except IntegrityError:
        if (kept := keyed.find(now=now)) is not None:
            return replay_response(kept)
        raise


def build_replay_header(*, repeated: bool) -> dict[str, str]:
    """Return the header that marks a replayed response."""
    return {REPLAYED: "true"} if repeated else {}


def identify_body(body: Any) -> Any:
    """Return the part of a body that identifies the request: the body, or the hash of its file."""
    if not hasattr(body, "read"):
        return body
    digest = hashlib.file_digest(body, "sha256").hexdigest()
    body.seek(0)
    return digest


def pack_response(answer: HttpResponseBase, *, chat_id: object) -> dict[str, Any]:
    """Return the status and the encrypted body of a response, for storage.

    Raises `TypeError` for a stream, whose body is not known yet: its action must be in `repeatable`
    and handle the key itself.
    """
    more: dict[str, Any] = {"answer_of": str(chat_id)} if chat_id else {}
    if isinstance(answer, Response):
        said = answer.data
        if isinstance(said, dict):
            said = {name: value for name, value in said.items() if name != NEVER_KEPT}
        words = json.dumps(said, cls=JSONEncoder)
    elif isinstance(answer, HttpResponse):
        words = base64.b64encode(answer.content).decode()
        more["headers"] = {name: answer[name] for name in FILE_HEADERS if name in answer}
    else:
        raise TypeError("a stream cannot be stored for an Idempotency-Key")
    return {"status": answer.status_code, "answer": secrets.encrypt(words), **more}


def replay_response(kept: dict[str, Any]) -> HttpResponseBase:
    """Rebuild a stored response. Raises `SecretUnreadable` if it cannot be decrypted."""
    words = secrets.decrypt(kept["answer"])
    headers = {REPLAYED: "true", **kept.get("headers", {})}
    if "headers" in kept:
        return HttpResponse(base64.b64decode(words), status=kept["status"], headers=headers)
    return Response(json.loads(words), status=kept["status"], headers=headers)
