"""Log probabilities in requests to /v1, and in their replies."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from chats.gateway.errors import InvalidRequest
from chats.models import ReplyLogprobs

# The maximum number of alternatives for each token.
MOST = 20


class TokenLogprob(NamedTuple):
    """A provider's log probabilities for one token, and its position in the reply's text."""

    start: int
    entry: Mapping[str, Any]


Logprobs = Sequence[TokenLogprob]


def parse_logprob_count(body: Mapping[str, Any], name: str) -> int | None:
    """Parse the field for the number of alternatives per token.

    None if the field is absent. Raises `InvalidRequest`.
    """
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InvalidRequest(f"{name} must be a number from 0 to {MOST}.", param=name)
    return value


def build_logprob_fields(count: int | None) -> dict[str, Any]:
    """Return the fields that request log probabilities, with `count` alternatives per token."""
    return {"logprobs": True, **({} if count is None else {"top_logprobs": count})}


def parse_logprobs(entries: str) -> Logprobs:
    """Return log probabilities from the JSON of `TokenLog.dump_entries`."""
    return [TokenLogprob(*pair) for pair in json.loads(entries)] if entries else []


class StoredLogprobs(NamedTuple):
    """The log probabilities of a finished reply.

    `is_partial` is True if a part of the reply's text has no log probabilities.
    """

    found: Logprobs = ()
    is_partial: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The response header that states whether some log probabilities are missing."""
        return {"X-Context-Logprobs": "partial"} if self.is_partial else {}


def load_logprobs(turn_id: uuid.UUID, *, prefill: int = 0) -> StoredLogprobs:
    """Return the stored log probabilities of a finished turn. They are deleted after a day.

    `prefill`: length of the prefill in code points. Positions are counted from its end.
    """
    row = ReplyLogprobs.objects.filter(turn=turn_id).first()
    if row is None:
        return StoredLogprobs()
    found = remove_prefill_entries(parse_logprobs(row.entries), prefill)
    return StoredLogprobs(list(found), row.is_partial)


def remove_prefill_entries(found: Logprobs, prefill: int) -> Iterator[TokenLogprob]:
    """Yield the entries after the prefill, with positions counted from its end."""
    for start, entry in found:
        if start >= prefill:
            yield TokenLogprob(start - prefill, entry)


class LogprobCursor:
    """The log probabilities that a stream has sent so far, in order and without gaps.

    If frames are lost, all later log probabilities are sent at the end of the stream.
    """

    def __init__(self) -> None:
        self.count = 0
        # Start of the newest token that was sent.
        self.last = -1

    def take(self, lines: str, *, prefill: int = 0) -> Logprobs:
        """Return the entries of a frame that directly continue those already sent.

        `prefill`: length of the prefill in code points, whose text has no log probabilities.
        """
        found = []
        for number, start, entry in json.loads(f"[{lines}]") if lines else ():
            if number == self.count:
                self.count += 1
                found.append(TokenLogprob(start, entry))
        kept = list(remove_prefill_entries(found, prefill))
        self.last = kept[-1].start if kept else self.last
        return kept

    def rest(self, found: Logprobs | None, *, moved: int = 0) -> Logprobs:
        """Return the entries of the finished reply that were not sent.

        `moved`: number of code points that the stream sent before the text of the reply.
        """
        return [each for each in found or () if each.start + moved > self.last]


def build_chat_logprobs(found: Logprobs | None) -> dict[str, Any] | None:
    """Return log probabilities in the format of chat completions. None if there are none."""
    return {"content": [each.entry for each in found], "refusal": None} if found else None


def build_text_logprobs(
    found: Logprobs | None, *, offset: int, has_top: bool
) -> dict[str, Any] | None:
    """Return log probabilities in the format of /v1/completions. None if there are none.

    `offset`: length of the text that precedes the reply. As in OpenAI's API, the alternatives of a
    token include the token itself.
    """
    if not found:
        return None
    entries = [each.entry for each in found]
    return {
        "tokens": [entry["token"] for entry in entries],
        "token_logprobs": [entry.get("logprob") for entry in entries],
        "top_logprobs": [collect_alternatives(entry) for entry in entries] if has_top else None,
        "text_offset": [offset + each.start for each in found],
    }


def collect_alternatives(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the most likely tokens at one position with their log probabilities."""
    listed = entry.get("top_logprobs")
    found = {
        each["token"]: each.get("logprob")
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and isinstance(each.get("token"), str)
    }
    return found | {entry["token"]: entry.get("logprob")}


def list_entries(found: Logprobs | None) -> list[Mapping[str, Any]]:
    """Return log probabilities in the format of *Responses*. Empty if there are none."""
    return [each.entry for each in found or ()]
