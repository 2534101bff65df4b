"""Lets an edit be done only to what its client has read: `ETag`, `If-Match` and `If-None-Match`.

A GET of one thing carries a hash of what it says (RFC 9110, 8.8.3). An edit that sends it back in
`If-Match` is done only while the thing still says that: in the transaction of the edit the thing is
locked, read again and compared, so nobody's edit can come between, from whichever door. An edit
without the header is done as it always was.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from chats.api.endpoint import Endpoint
from chats.ground.refusals import Refusal

EDITS = ("patch", "put", "delete")
ANY = "*"


class ChangedMeanwhile(Refusal):
    """The thing is no longer what the client of an edit has read."""

    code = "changed_meanwhile"
    status = 412
    sentence = (
        "This has changed since you read it, so nothing was done. Read it again, and send its new"
        " ETag in If-Match."
    )


class Unchanged(Endpoint):
    """The base of endpoints for one thing that is read and edited.

    It needs a `get`, and in `rows` the rows whose lock keeps everybody else from editing the thing.
    """

    guards_edits: ClassVar = True

    def rows(self, *args: Any, **kwargs: Any) -> QuerySet[Any, Any]:
        """Return the rows to lock while the thing is compared and edited."""
        raise NotImplementedError

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Let a read carry its tag, and an edit look at the one that it came with."""
        super().setup(request, *args, **kwargs)
        own = vars(self)
        read: Callable[..., Response] = self.get  # type: ignore[attr-defined]  # of each endpoint
        own["get"] = own["head"] = partial(tagged, read)
        if "If-Match" in request.headers:
            for name in EDITS:
                if hasattr(self, name):
                    own[name] = partial(guarded, getattr(self, name), read=read, rows=self.rows)


def tag_of(answer: Response) -> str:
    """Return the tag of what an answer says."""
    said = json.dumps(answer.data, sort_keys=True, cls=JSONEncoder)
    return f'"{hashlib.sha256(said.encode()).hexdigest()[:32]}"'


def names(header: str, tag: str) -> bool:
    """Tell whether a header with tags, or with `*` for any, names this one.

    A tag that a compressed answer turned into a weak one is the same: ours is of what is said, not
    of the bytes.
    """
    return any(given in {ANY, tag, f"W/{tag}"} for given in parse_etags(header))


def tagged(
    read: Callable[..., Response], request: Request, *args: Any, **kwargs: Any
) -> HttpResponseBase:
    """Return what `read` answers with its tag; 304 if that is what the client has."""
    answer = read(request, *args, **kwargs)
    tag = tag_of(answer)
    if names(request.headers.get("If-None-Match", ""), tag):
        answer = Response(status=304)
    answer["ETag"] = tag
    return answer


def guarded(
    edit: Callable[..., Response],
    request: Request,
    *args: Any,
    read: Callable[..., Response],
    rows: Callable[..., QuerySet[Model]],
    **kwargs: Any,
) -> HttpResponseBase:
    """Return what `edit` answers, with the tag of what it left.

    Raises `ChangedMeanwhile` if the thing is not what `If-Match` names, and what `edit` raises.
    """
    read(request, *args, **kwargs)  # what is not the person's is not locked either
    with transaction.atomic():
        list(rows(request, **kwargs).select_for_update(of=("self",), no_key=True))
        if not names(request.headers["If-Match"], tag_of(read(request, *args, **kwargs))):
            raise ChangedMeanwhile
        answer = edit(request, *args, **kwargs)
        if answer.status_code == 200:
            answer["ETag"] = tag_of(read(request, *args, **kwargs))
        return answer
