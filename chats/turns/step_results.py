"""The result of a step, and the data about it that ledger events and turns store."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.functional import Promise

from chats.ground.sentences import build_sentence_columns
from chats.models import Message, Receipt, Turn
from chats.prompt.calibration import PromptEstimate
from chats.prompt.follow_ups import NO_FOLLOW_UPS, FollowUps
from chats.providers.logprobs import TokenLog
from chats.record import quotas, receipts
from chats.record.images import Bytes
from chats.record.message_commitments import build_stored_data, list_turn_replies

# The maximum number of characters of `Turn.error_sentence`.
LONGEST_SENTENCE = 500


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step or turn: its parts, finish reason, usage, error, and follow-up jobs."""

    parts: Sequence[Mapping[str, Any]] = ()
    # The bytes of the images in tool results, by their hashes.
    images: Mapping[str, Bytes] = field(default_factory=dict)
    finish: str = Message.Finish.STOP
    usage: Mapping[str, Any] = field(default_factory=dict)
    # SHA-256 of the request body as sent.
    body_sha256: str = ""
    # Options to store with the model, see `providers.learned_options`.
    learned: Mapping[str, Any] = field(default_factory=dict)
    receipt_id: uuid.UUID | None = None
    first_token_at: datetime | None = None
    error_code: str = ""
    error_sentence: str | Promise = ""
    follow_ups: FollowUps = NO_FOLLOW_UPS
    # Tools of servers ran: the stored copy of the step is due for deletion, and calls may be open.
    runs_servers: bool = False
    # An interrupted step called tools of servers, so later prompts contain it.
    has_calls: bool = False
    # The model declined in its own words.
    is_refusal: bool = False
    # Log probabilities of the text, if the client asked for them.
    token_log: TokenLog | None = None
    estimate: PromptEstimate = field(default_factory=PromptEstimate)
    # How the call counts towards the quotas of its policy.
    meter: quotas.QuotaMeter | None = None

    @property
    def outcome(self) -> str:
        """The outcome for the receipt of the call."""
        if self.error_code:
            return Receipt.Outcome.FAILED
        stopped = self.finish == Message.Finish.STOPPED
        return Receipt.Outcome.STOPPED if stopped else Receipt.Outcome.OK


def build_ending_data(*, turn: Turn, reply: Message | None, ending: StepResult) -> dict[str, Any]:
    """Return the ledger data of an ended turn: ids, numbers, and a commitment to each call."""
    attempt = build_attempt_data(turn, reply=reply)
    data: dict[str, Any] = {"finish": ending.finish if reply else "", **attempt}
    if reply is not None:
        data |= {"reply": str(reply.pk), "seq": reply.seq}
    if ending.usage:
        data["usage"] = dict(ending.usage)
    if ending.error_code:
        data["code"] = ending.error_code
    return data


def clear_client_options(turn: Turn, *, ending: StepResult) -> dict[str, Any]:
    """Return the column with the client's options: cleared, except that the model declined."""
    if turn.client is None:
        return {}
    return {"client": {"is_refusal": True} if ending.is_refusal else {}}


def build_failure_fields(sentence: str | Promise) -> dict[str, Any]:
    """Return the columns of a turn that store its error message."""
    text, values = build_sentence_columns(sentence, longest=LONGEST_SENTENCE)
    return {"error_sentence": text, "error_details": values}


def build_attempt_data(turn: Turn, *, reply: Message | None = None) -> dict[str, Any]:
    """Return the ledger data of an ending attempt: its number, its calls and its replies."""
    calls, bodies = receipts.list_attempt_calls(turn_id=turn.pk, attempt=turn.attempt)
    # Most turns have a single step, and its reply is already loaded.
    is_only = reply is not None and turn.step == 1
    replies = [reply] if reply is not None and is_only else list_turn_replies(turn.pk)
    return {
        "attempt": turn.attempt,
        "calls": calls,
        **({"bodies": bodies} if bodies else {}),
        **build_stored_data(replies),
    }
