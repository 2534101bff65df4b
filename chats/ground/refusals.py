"""The base of every expected refusal: a stable code, a sentence for people, a status for doors."""

from collections.abc import Mapping, Sequence
from typing import Any


class Refusal(Exception):
    """A request that will not be done, and why.

    Subclasses stand beside the function that raises them and set `code` (stable, for programs),
    `status` (HTTP) and `sentence` (what happened and what to do, with `{names}` filled from the
    keyword arguments). `each` tells programs the single reasons, where there are several.
    """

    code = "refused"
    status = 400
    sentence = "This cannot be done."
    param: str | None = None
    retry_after: int | None = None
    each: Sequence[Mapping[str, Any]] | None = None

    def __init__(self, *, retry_after: int | None = None, **details: Any) -> None:
        self.details = details
        if retry_after is not None:
            self.retry_after = retry_after
        self.sentence = self.sentence.format(**details)
        super().__init__(self.sentence)

    def body(self, *, request_id: str) -> dict[str, Any]:
        """Return the refusal in the one JSON shape of every error."""
        return {
            "error": {
                "message": self.sentence,
                "type": "server_error" if self.status >= 500 else "invalid_request_error",
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
                **({} if self.each is None else {"details": self.each}),
            }
        }


class NotFound(Refusal):
    """The thing does not exist, or not for this person: the two are never told apart."""

    code = "not_found"
    status = 404
    sentence = "There is nothing here, or it is not yours to see."
