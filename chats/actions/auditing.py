"""Shows auditors the words of a call of somebody's chat: never before the ledger has it."""

import uuid
from datetime import datetime

from chats.compaction.rebuilt import SummaryRequest, beside_the_call_before
from chats.ground.refusals import NotFound
from chats.models import Compaction, Receipt
from chats.prompt.as_sent import AsSent, as_sent
from chats.record import reading


def receipt_of(receipt_id: uuid.UUID) -> Receipt:
    """Return the receipt of a call in anybody's chat. Raises `NotFound`."""
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    row = rows.filter(pk=receipt_id).first()
    if row is None:
        raise NotFound
    return row


def summary_of(compaction_id: uuid.UUID) -> Compaction:
    """Return a compaction of anybody's chat. Raises `NotFound`."""
    rows = Compaction.objects.select_related("effective_policy", "branch")
    row = rows.filter(pk=compaction_id).first()
    if row is None:
        raise NotFound
    return row


def read_prompt(receipt: Receipt, *, actor: str, now: datetime, form: str = "") -> AsSent:
    """Return what a call was sent, for a file where `form` names one; the ledger has it first.

    Raises `ReadingNotOpen` where nobody said why the chat is read.
    """
    chat_id = receipt.turn.branch.chat_id
    reading.require_open(chat_id=chat_id, actor=actor, now=now)
    sent = as_sent(receipt, sees_hidden=True)
    reading.note_read(
        chat_id=chat_id,
        call={"receipt": str(receipt.pk)},
        actor=actor,
        now=now,
        # One that cannot be given whole is no file.
        form="" if sent.found.fault else form,
    )
    return sent


def read_summary_request(
    row: Compaction, *, number: int, actor: str, now: datetime, form: str = ""
) -> SummaryRequest:
    """Return what a summariser was asked, for a file where `form` names one.

    The ledger has it first.

    Raises `ReadingNotOpen` where nobody said why the chat is read, and `NoSuchCall`.
    """
    chat_id = row.branch.chat_id
    reading.require_open(chat_id=chat_id, actor=actor, now=now)
    found = beside_the_call_before(row, number=number, sees_hidden=True)
    call = {"compaction": str(row.pk)}
    # One that cannot be given whole is no file.
    form = form if found.file else ""
    reading.note_read(chat_id=chat_id, call=call, actor=actor, now=now, form=form)
    return found
