"""Fixtures: a ledger with the events of seven chats, and a function that signs it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from chats.checkpoints import signing
from contextpolicy import ledger
from contextpolicy.models import LedgerCheckpoint
from tests.support.ledger_checkpoints import LEDGER_CHATS, Capture


@pytest.fixture
def said(now: datetime) -> None:
    """Seven chats with ledger rows."""
    for number, chat in enumerate(LEDGER_CHATS):
        for _ in range(number + 1):
            ledger.record_event("chat.created", actor="user:1", now=now, chat_id=chat)


@pytest.fixture
def sign(now: datetime, django_capture_on_commit_callbacks: Capture) -> Callable[..., Any]:
    """Sign as the product does, including the steps after the commit."""

    def signed(**given: Any) -> LedgerCheckpoint:
        with django_capture_on_commit_callbacks(execute=True):
            fixed: dict[str, Any] = {"actor": "system", "now": now, "reason": "command"}
            return signing.sign_checkpoint(**(fixed | given))

    return signed
