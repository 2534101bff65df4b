"""Conditional requests: `ETag`, `If-Match` and `If-None-Match`.

The ETag of a resource is a hash of its JSON (RFC 9110, 8.8.3). An edit with `If-Match` runs in a
transaction that locks the resource, reads it again and compares the hash, so that no other edit can
interfere. An edit without the header is not checked.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from django.utils.translation import gettext_noop
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from chats.api.core.base import Endpoint
from chats.ground.refusals import Refusal

EDIT_ACTIONS = ("update", "partial_update", "destroy")
ANY = "*"


class PreconditionFailed(Refusal):
    """The resource changed after the client read it. Nothing was saved. Read it again."""

    code = "changed_meanwhile"
    status = 412
    sentence = gettext_noop(
        "The resource has changed since you read it, so nothing was saved. Read it again, and "
        "send the new ETag in If-Match."
    )


class ConditionalEndpoint(Endpoint):
    """Base class of view sets whose `retrieve`, `update`, `partial_update` and `destroy` use ETags.

    Locking `rows` must prevent other edits of the resource.
    """

    def rows(self) -> QuerySet[Any, Any]:
        """Return the rows to lock while a resource is compared and edited."""
        raise NotImplementedError

    def lock_rows(self) -> None:
        """Lock the rows until the end of the transaction."""
        list(self.rows().select_for_update(of=("self",), no_key=True))

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Add the ETag to reads, and check it before edits that send `If-Match`."""
        super().initial(request, *args, **kwargs)
        own, method = vars(self), str(request.method).lower()
        if self.action == "retrieve":
            own[method] = partial(respond_with_etag, own[method])
        elif self.action in EDIT_ACTIONS and "If-Match" in request.headers:
            own[method] = partial(edit_if_match, own[method], read=own["get"], lock=self.lock_rows)


def compute_etag(answer: Response) -> str:
    said = json.dumps(answer.data, sort_keys=True, cls=JSONEncoder)
    return f'"{hashlib.sha256(said.encode()).hexdigest()[:32]}"'


def has_matching_etag(header: str, tag: str) -> bool:
    """Return True if a header with ETags, or with `*`, matches this ETag.

    Compression makes an ETag weak. It still matches, because the hash covers the content, not the
    bytes.
    """
    return any(given in {ANY, tag, f"W/{tag}"} for given in parse_etags(header))


def respond_with_etag(
    read: Callable[..., Response], request: Request, *args: Any, **kwargs: Any
) -> HttpResponseBase:
    """Return the response of `read` with its ETag, or 304 if the client has this version."""
    answer = read(request, *args, **kwargs)
    tag = compute_etag(answer)
    if has_matching_etag(request.headers.get("If-None-Match", ""), tag):
        answer = Response(status=304)
    answer["ETag"] = tag
    return answer


def edit_if_match(
    edit: Callable[..., Response],
    request: Request,
    *args: Any,
    read: Callable[..., Response],
    lock: Callable[[], None],
    **kwargs: Any,
) -> HttpResponseBase:
    """Run `edit`, and return its response with the new ETag.

    Raises `PreconditionFailed` if the resource does not match `If-Match`, and the errors of `edit`.
    """
    read(request, *args, **kwargs)  # Refuses another user's resource before it is locked.
    with transaction.atomic():
        lock()
        if not has_matching_etag(
            request.headers["If-Match"], compute_etag(read(request, *args, **kwargs))
        ):
            raise PreconditionFailed
        answer = edit(request, *args, **kwargs)
        if answer.status_code == 200:
            answer["ETag"] = compute_etag(read(request, *args, **kwargs))
        return answer
