"""Refuses an erasure while a running reply may still use the text."""

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Chat, Message, Turn, TurnReference
from chats.models.turns import UNFINISHED


class StillAnswering(Refusal):
    """A running reply belongs to the chat or uses the message. Stop the reply first."""

    code = "turn_not_over"
    status = 409
    sentence = gettext_noop(
        "A reply is still being written in this chat. Stop the reply, then try again."
    )


class StillReferred(Refusal):
    """A running reply in another of your chats uses the text. Wait for that reply, or stop it."""

    code = "reply_elsewhere_not_over"
    status = 409
    sentence = gettext_noop(
        "A reply in another chat is using this text. Wait until that reply ends, or stop it, "
        "then try again."
    )


def check_over(message: Message) -> None:
    """Raise `StillAnswering` or `StillReferred` if a turn may still use the message.

    Such a turn is an unfinished turn with the message, any running turn of its chat, or a
    running turn of another chat that refers to the message. A running turn's prompt may
    contain the message even before its receipt is written. No turn can start while the chat is
    locked.
    """
    # A turn that waits for consent ends with the erasure.
    own = Turn.objects.filter(
        Q(pk=message.turn_id) | Q(trigger=message), status__in=UNFINISHED, awaits_consent=False
    )
    running = Turn.objects.filter(branch__chat=message.branch.chat_id, status=Turn.Status.RUNNING)
    # Two queries: a combined one would scan all turns.
    if own.exists() or running.exists():
        raise StillAnswering
    check_not_referred(TurnReference.objects.filter(message=message))


def check_not_referred(rows: QuerySet[TurnReference]) -> None:
    """Raise `StillReferred` if one of these references belongs to a running turn.

    While the chat is locked, no other turn can retrieve the text.
    """
    if rows.filter(turn__status=Turn.Status.RUNNING).exists():
        raise StillReferred


def check_chat_over(chat: Chat) -> None:
    """Raise `StillAnswering` if a turn of the chat is unfinished, or `StillReferred`."""
    if Turn.objects.filter(branch__chat=chat, status__in=UNFINISHED).exists():
        raise StillAnswering
    check_not_referred(TurnReference.objects.filter(message__branch__chat=chat))
