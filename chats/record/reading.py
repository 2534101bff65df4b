"""Reading other people's chats: for auditors, with a reason, one chat for half an hour.

The ledger row with the reason is the permission itself: nobody can read without having left it.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction

from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.record import locking
from contextpolicy import ledger
from contextpolicy.models import AuditEvent

HALF_AN_HOUR = timedelta(minutes=30)
SHORTEST, LONGEST = 10, 300


class ReasonNeeded(Refusal):
    """The reason for reading a chat is missing, too short or too long."""

    code = "reason_needed"
    sentence = (
        "Say why you read this chat, in {shortest} to {longest} characters: a case, a complaint, "
        "an order. The reason stands in the ledger before anything is shown."
    )

    def __init__(self) -> None:
        super().__init__(shortest=SHORTEST, longest=LONGEST)


def open_chat(*, chat_id: uuid.UUID, actor: str, reason: str, now: datetime) -> datetime:
    """Write the reason into the chat's chain and return until when the chat may be read.

    Raises `ReasonNeeded`, and Chat.DoesNotExist where the chat is gone.
    """
    words = " ".join(reason.split())
    if not SHORTEST <= len(words) <= LONGEST:
        raise ReasonNeeded
    until = now + HALF_AN_HOUR
    with transaction.atomic():
        locking.locked_chat(chat_id)
        data = {"reason": words, "until": until.isoformat(timespec="seconds")}
        ledger.record("content.opened", actor=actor, now=now, chat_id=chat_id, data=data)
    return until


def open_until(*, chat_id: uuid.UUID, actor: str, now: datetime) -> datetime | None:
    """Return until when somebody may read a chat; None if they have to say why first."""
    rows = AuditEvent.objects.filter(
        chat_id=chat_id, type="content.opened", actor=actor, at__gt=now - HALF_AN_HOUR, at__lte=now
    )
    opened = rows.order_by("-pk").values_list("at", flat=True).first()
    is_there = Chat.objects.filter(pk=chat_id).exists()
    return opened + HALF_AN_HOUR if opened and is_there else None


def note_read(
    *, chat_id: uuid.UUID, call: Mapping[str, str], actor: str, now: datetime, form: str = ""
) -> None:
    """Record that a prompt is shown, or goes out as a file, before it does.

    `call`: the receipt, or the compaction, whose prompt it is.
    """
    kind = "content.downloaded" if form else "content.read"
    data = {**call, **({"form": form} if form else {})}
    with transaction.atomic():
        ledger.record(kind, actor=actor, now=now, chat_id=chat_id, data=data)
