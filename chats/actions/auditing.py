"""Lets auditors read the content of model calls; records each access in the ledger first."""

import uuid
from datetime import datetime

from chats.compaction.reconstruction import SummaryRequest, compare_with_previous_call
from chats.ground.refusals import NotFound
from chats.models import Compaction, Receipt
from chats.prompt.sent_request import AsSent, load_sent_request
from chats.record import audit_access


def find_any_receipt(receipt_id: uuid.UUID) -> Receipt:
    """Return a receipt from any user's chat. Raises `NotFound`."""
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    row = rows.filter(pk=receipt_id).first()
    if row is None:
        raise NotFound
    return row


def find_any_compaction(compaction_id: uuid.UUID) -> Compaction:
    """Return a compaction from any user's chat. Raises `NotFound`."""
    rows = Compaction.objects.select_related("effective_policy", "branch")
    row = rows.filter(pk=compaction_id).first()
    if row is None:
        raise NotFound
    return row


def read_prompt(receipt: Receipt, *, actor: str, now: datetime, form: str = "") -> AsSent:
    """Record the auditor's access in the ledger, then return the prompt of a call.

    `form` is the file format to download, which the ledger also records. It is ignored if the
    request is incomplete, because it then has no file. Raises `ReadingNotOpen` if the auditor has
    not opened the chat with a reason.
    """
    chat_id = receipt.turn.branch.chat_id
    audit_access.require_open(chat_id=chat_id, actor=actor, now=now)
    sent = load_sent_request(receipt, sees_hidden=True)
    audit_access.note_read(
        chat_id=chat_id,
        call={"receipt": str(receipt.pk)},
        actor=actor,
        now=now,
        # An incomplete request cannot be a file.
        form="" if sent.found.fault else form,
    )
    return sent


def read_summary_request(
    row: Compaction, *, number: int, actor: str, now: datetime, form: str = ""
) -> SummaryRequest:
    """Record the auditor's access in the ledger, then return a summary request.

    `number` counts the summary's calls from 1. `form` is the file format to download, which the
    ledger also records if the request has a file. Raises `ReadingNotOpen` if the auditor has not
    opened the chat with a reason, and `NoSuchCall` if the summary has no call with this number.
    """
    chat_id = row.branch.chat_id
    audit_access.require_open(chat_id=chat_id, actor=actor, now=now)
    found = compare_with_previous_call(row, number=number, sees_hidden=True)
    call = {"compaction": str(row.pk)}
    # An incomplete request cannot be a file.
    form = form if found.file else ""
    audit_access.note_read(chat_id=chat_id, call=call, actor=actor, now=now, form=form)
    return found
