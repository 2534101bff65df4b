"""Checkpoints of the ledger: pages, documented commands, and changes behind its back."""

import importlib
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import connection
from django.test import Client

from chats.checkpoints import upkeep
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, LedgerHead
from tests.support.repository import ROOT
from tests.support.streamed_responses import read_stream

LEDGER_CHATS = [uuid.UUID(int=number) for number in range(1, 8)]
CHECKPOINT_PAGE = "/admin/contextpolicy/auditevent/checkpoints/"
OFFLINE_PAGE = "/admin/contextpolicy/auditevent/offline/"
Capture = Callable[..., Any]


def list_ledger_warnings(now: datetime) -> set[str]:
    """Return the codes of the warnings about the ledger."""
    return {warning.code for warning in upkeep.list_check_warnings(now=now)}


def run_without_triggers(*statements: str) -> None:
    """Change the tables as a database owner who disables the triggers."""
    triggers = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in [*triggers.DROP[connection.vendor], *statements]:
            cursor.execute(statement)


def rewrite_chain(scope: str) -> None:
    """Change the first row of a chain and recompute all later hashes."""
    previous = ledger.GENESIS
    for event in AuditEvent.objects.filter(scope=scope).order_by("seq"):
        event.actor, event.previous_hash = "user:9", previous
        previous = ledger.compute_event_hash(event)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE contextpolicy_auditevent SET actor = 'user:9', previous_hash = %s,"
                " hash = %s WHERE id = %s",
                [event.previous_hash, previous, event.pk],
            )
    LedgerHead.objects.filter(pk=scope).update(last_hash=previous)


def download_file(browser: Client, url: str, fields: dict[str, str]) -> bytes:
    """Return the body of a file."""
    answer: Any = browser.post(url, fields)
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment")
    if not answer.is_async:
        return b"".join(answer.streaming_content)

    return read_stream(answer)


def list_documented_commands() -> list[str]:
    """Return the command blocks of the documentation about checkpoints."""
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    text, _, _ = text.partition("## The certificate of a run of retention")
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert len(commands) == 6
    return commands
