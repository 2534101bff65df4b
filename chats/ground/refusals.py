"""The base class of all expected refusals: a stable code, a sentence for users, an HTTP status."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from chats.ground.sentences import Sentence, render_english


class Refusal(Exception):
    """A request that is refused, with the reason.

    Define subclasses next to the function that raises them, with `code` (stable, for
    clients), `status` (HTTP) and `sentence` (what happened and what to do; keyword
    arguments fill `{names}`). Mark the sentence with `gettext_noop`. Keyword arguments that
    contain words must be lazy translations. `sentence` of an instance is English, for rows
    and logs; `localized` is in the reader's language. A subclass with several sentences
    sets `sentence` before it calls `__init__` of this class. `each` lists individual
    reasons for clients, if there are several.
    """

    code = "refused"
    status = 400
    sentence = gettext_noop("This action is not possible now. Reload the page and try again.")
    param: str | None = None
    retry_after: int | None = None
    each: Sequence[Mapping[str, Any]] | None = None

    def __init__(self, *, retry_after: int | None = None, **details: Any) -> None:
        self.details = details
        if retry_after is not None:
            self.retry_after = retry_after
        # The sentence keeps its values, for rows that are shown in the reader's language.
        self.full = Sentence(self.sentence, **details)
        self.sentence = render_english(self.full)
        super().__init__(self.sentence)

    @property
    def localized(self) -> str:
        return str(self.full)

    def body(self, *, request_id: str) -> dict[str, Any]:
        """Return the refusal in the JSON format of all errors, in the active language."""
        return {
            "error": {
                "message": self.localized,
                "type": "server_error" if self.status >= 500 else "invalid_request_error",
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
                **({} if self.each is None else {"details": self.each}),
            }
        }


class NotFound(Refusal):
    """The object does not exist, or you do not have access to it."""

    code = "not_found"
    status = 404
    sentence = gettext_noop(
        "This page or resource does not exist, or you do not have access to it. Check the address."
    )
