"""Does a POST once: a repetition with its `Idempotency-Key` gets the first answer and does nothing.

The key is stored in the transaction of the act itself. Of two requests at the same time the second
waits for the first, and then gets its answer; what was refused or rolled back may be tried again
with the same key. Answers are kept encrypted for a day, and no longer than the words of their chat.
Endpoints that accept messages know their own keys (`chats.record.idempotency`), because there the
answer is read anew from its rows.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from chats.ground import secrets
from chats.record.idempotency import IdempotentRequest, InvalidIdempotencyKey

REPLAYED = "Idempotent-Replayed"
# Shown once, and stored nowhere but as a hash.
NEVER_KEPT = "secret"


def idempotency_key(request: Request) -> str:
    """Return the key under which a repetition is known; empty without the header.

    Raises `InvalidIdempotencyKey` for a header without a value, which would protect nothing.
    """
    key = request.headers.get("Idempotency-Key")
    if key is not None and not key:
        raise InvalidIdempotencyKey
    return key or ""


def once(
    post: Callable[..., HttpResponseBase], request: Request, *args: Any, **kwargs: Any
) -> HttpResponseBase:
    """Return what `post` answers, or what it answered to the first request with this key.

    Raises `InvalidIdempotencyKey` and `IdempotencyKeyReused`, and what `post` raises.
    """
    sent = json.dumps([request.query_params.dict(), said_in(request.data)], sort_keys=True)
    key = idempotency_key(request)
    keyed = IdempotentRequest(user=cast(User, request.user), route=request.path, key=key, body=sent)
    now = timezone.now()
    if (kept := keyed.find(now=now)) is not None:
        return replayed(kept)
    try:
        with transaction.atomic():
            record = keyed.kept(result={}, now=now)
            answer = post(request, *args, **kwargs)
            if isinstance(answer, Response):
                record.result = kept_of(answer, chat_id=kwargs.get("chat_id"))
                record.save(update_fields=["result"])
            return answer
    except IntegrityError:
        if (kept := keyed.find(now=now)) is not None:
            return replayed(kept)
        raise


def said_in(body: Any) -> Any:
    """Return what tells one body from another: itself, or of a file its hash."""
    if not hasattr(body, "read"):
        return body
    digest = hashlib.file_digest(body, "sha256").hexdigest()
    body.seek(0)
    return digest


def kept_of(answer: Response, *, chat_id: object) -> dict[str, Any]:
    """Return what is kept of an answer: its status, and encrypted what it says."""
    said = answer.data
    if isinstance(said, dict):
        said = {name: value for name, value in said.items() if name != NEVER_KEPT}
    words = secrets.encrypt(json.dumps(said, cls=JSONEncoder))
    return {
        "status": answer.status_code,
        "answer": words,
        **({"answer_of": str(chat_id)} if chat_id else {}),
    }


def replayed(kept: dict[str, Any]) -> Response:
    """Return an answer once more. Raises `SecretUnreadable`."""
    said = json.loads(secrets.decrypt(kept["answer"]))
    return Response(said, status=kept["status"], headers={REPLAYED: "true"})
