"""Stored messages: change one behind the ledger, and verify the ledger."""

import io
from datetime import datetime
from typing import Any
from unittest.mock import patch

from django.core.management import CommandError, call_command

from chats.models import Message
from contextpolicy import verification
from contextpolicy.models import LedgerVerification


def run_ledger_verify(**options: Any) -> str:
    """Return the output of `ledger_verify`. A break raises CommandError."""
    out = io.StringIO()
    try:
        call_command("ledger_verify", stdout=out, **options)
    except CommandError as error:
        return f"{out.getvalue()}FAILED {error}"
    return out.getvalue()


def change_stored_text(message: Message, old: str, new: str) -> None:
    """Change the text of a message directly in the database."""
    (part,) = message.parts
    assert old in part["text"]
    parts = [{**part, "text": part["text"].replace(old, new)}]
    Message.objects.filter(pk=message.pk).update(parts=parts)


def verify_at_night(now: datetime, *, seconds: float = 60.0) -> LedgerVerification:
    """Return the findings of a nightly verification."""
    asked = verification.request_verification(scope="", actor="system", now=now, since_leaf=0)
    with patch.object(verification, "CONTENT_SECONDS", seconds):
        verification.run_verification(pk=asked.pk, clock=lambda: now)
    return LedgerVerification.objects.get(pk=asked.pk)
