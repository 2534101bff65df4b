"""Requests as sent: a reply with its receipt, and the ledger events about reads."""

from typing import Any

from django.utils import timezone

from chats.models import Chat, Receipt
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent
from tests.support.chat_summaries import Work

REASON = "Complaint 2026-118"


def reply_and_get_receipt(chat: Chat, work: Work, text: str) -> Receipt:
    """Return the receipt of the call that replied to a message."""
    turn = start_turn(user=chat.owner, chat=chat, text=text, now=timezone.now()).turn
    work(turn, [TextDelta("An answer."), Finished("stop")])
    return Receipt.objects.select_related("turn__branch").get(turn=turn)


def list_read_events(kind: str, chat: Chat) -> list[dict[str, Any]]:
    """Return the ledger events about reads of a chat."""
    return list(
        AuditEvent.objects.filter(chat_id=chat.pk, type=kind)
        .order_by("seq")
        .values_list("data", flat=True)
    )
