"""The file with the last checkpoint detects changes that the database alone cannot show."""

import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from chats.checkpoints import checks, external_copy, signing
from chats.management.commands import ledger_verify
from contextpolicy import ledger, verification
from contextpolicy.models import LedgerCheckpoint, LedgerKey, LedgerLeaf, LedgerOrigin
from tests.support.ledger_checkpoints import rewrite_chain, run_without_triggers
from tests.support.stored_messages import run_ledger_verify

pytestmark = pytest.mark.django_db
CHATS = [uuid.UUID(int=number) for number in range(1, 4)]


@pytest.fixture
def sign(
    now: datetime, django_capture_on_commit_callbacks: Callable[..., Any]
) -> Callable[[], Any]:
    """Sign, including the steps after the commit, and return the file."""
    for chat in CHATS:
        ledger.record_event("chat.created", actor="user:1", now=now, chat_id=chat)

    def signed() -> LedgerCheckpoint:
        with django_capture_on_commit_callbacks(execute=True):
            return signing.sign_checkpoint(actor="system", now=now, reason="command")

    return signed


def forget_checkpoints() -> None:
    """Delete log, checkpoints and keys."""
    for model in (LedgerLeaf, LedgerCheckpoint, LedgerOrigin, LedgerKey):
        model.objects.all().delete()


@pytest.mark.parametrize("signs_anew", [True, False], ids=["own keys", "no keys"])
def test_a_database_that_was_written_anew_meets_the_file(
    signs_anew: bool, sign: Callable[[], Any]
) -> None:
    sign()
    kept = external_copy.load_checkpoint_note()
    assert f"{checks.KEPT}: 1" in run_ledger_verify()

    run_without_triggers()
    rewrite_chain(f"chat:{CHATS[0]}")
    forget_checkpoints()
    if signs_anew:
        external_copy.get_checkpoint_path().unlink()
        sign()
        external_copy.replace_checkpoint_note(kept)
    said = run_ledger_verify()
    assert "FAILED" in said
    assert checks.FILE_KEY_UNKNOWN in said


def test_a_newer_checkpoint_in_the_file_is_told(sign: Callable[[], Any], now: datetime) -> None:
    sign()
    old = {model: list(model.objects.values_list("pk", flat=True)) for model in (LedgerLeaf,)}
    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=CHATS[0])
    newest = sign()
    # Simulates a restored backup: the file is newer than the database.
    LedgerLeaf.objects.exclude(pk__in=old[LedgerLeaf]).delete()
    LedgerCheckpoint.objects.filter(pk=newest.pk).delete()
    said = run_ledger_verify()
    assert "FAILED" in said
    assert checks.OTHER_LEDGER in said


def test_an_older_file_and_none_are_no_break(sign: Callable[[], Any], now: datetime) -> None:
    sign()
    older = external_copy.load_checkpoint_note()
    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=CHATS[0])
    sign()
    external_copy.replace_checkpoint_note(older)
    assert f"{checks.KEPT}: 1" in run_ledger_verify()
    external_copy.get_checkpoint_path().unlink()
    said = run_ledger_verify()
    assert "FAILED" not in said
    assert ledger_verify.ALONE in said


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"nonsense\n", b"a\n1\n!!\n\n"])
def test_a_file_that_holds_no_checkpoint_is_said(content: bytes, sign: Callable[[], Any]) -> None:
    sign()
    external_copy.get_checkpoint_path().write_bytes(content)
    said = run_ledger_verify()
    if content:
        assert checks.FILE_UNREADABLE in said
        assert "FAILED" in said
    else:
        assert ledger_verify.ALONE in said


def test_one_chain_is_verified_without_the_file(sign: Callable[[], Any]) -> None:
    sign()
    external_copy.get_checkpoint_path().write_text("nonsense")
    assert "FAILED" not in run_ledger_verify(scope=f"chat:{CHATS[0]}")


def test_the_command_names_what_it_compared(sign: Callable[[], Any], tmp_path: Path) -> None:
    head = sign()
    kept = tmp_path / "kept.txt"
    kept.write_text(head.note, encoding="utf-8")
    said = run_ledger_verify(anchor=kept)
    for path in (external_copy.get_checkpoint_path(), kept):
        assert f"Compared with {path}: {head.origin.name}, {head.size} entries." in said


def test_the_nightly_run_compares_the_file_too(
    sign: Callable[[], Any], now: datetime, tmp_path: Path
) -> None:
    sign()
    kept = external_copy.load_checkpoint_note()
    run_without_triggers()
    rewrite_chain(f"chat:{CHATS[0]}")
    forget_checkpoints()
    external_copy.get_checkpoint_path().unlink()
    sign()
    # The database is unchanged. The file holds the previous checkpoint.
    external_copy.replace_checkpoint_note(kept)
    night = verification.request_verification(scope="", actor="system", now=now, since_leaf=0)
    verification.run_verification(pk=night.pk, clock=lambda: now)
    night.refresh_from_db()
    assert [scope for scope, _, _ in night.breaks] != []
    assert any(reason == checks.FILE_KEY_UNKNOWN for _, _, reason in night.breaks)
