"""Log probabilities of replies, until their requests can no longer be repeated."""

from datetime import datetime

from chats.models import ReplyLogprobs, Turn
from chats.record.idempotency import KEY_LIFETIME


def store_logprobs(turn: Turn, *, entries: str, is_partial: bool, now: datetime) -> None:
    """Store the log probabilities of a reply. Does nothing if the provider sent none."""
    if entries or is_partial:
        ReplyLogprobs.objects.create(
            turn=turn, entries=entries, is_partial=is_partial, created_at=now
        )


def delete_expired_logprobs(*, now: datetime) -> int:
    """Delete the log probabilities of replies that are older than a day. Return the count."""
    return ReplyLogprobs.objects.filter(created_at__lt=now - KEY_LIFETIME).delete()[0]
