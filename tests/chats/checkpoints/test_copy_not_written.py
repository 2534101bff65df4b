"""A checkpoint whose copy cannot be written is signed. With an unreadable file, none is signed."""

from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from pytest_django.fixtures import Settings

from chats.checkpoints import external_copy, signing, upkeep
from contextpolicy import ledger
from contextpolicy.models import LedgerCheckpoint, LedgerLeaf

pytestmark = [pytest.mark.usefixtures("transactional_ledger")]


def record_row(now: datetime) -> None:
    """Record a row, in a separate transaction."""
    with transaction.atomic():
        ledger.record_event("policy.assigned", actor="system", now=now)


@pytest.fixture
def blocked(now: datetime) -> Path:
    """A row, and a checkpoint file that cannot be replaced. The folder in its way."""
    record_row(now)
    place = external_copy.get_checkpoint_path()
    folder = place.with_name(f"{place.name}.new")
    folder.mkdir(parents=True)
    return folder


def test_the_refusal_says_that_the_checkpoint_is_signed(
    blocked: Path, now: datetime, settings: Settings, tmp_path: Path, caplog: Any
) -> None:
    listed = tmp_path / "checkpoints.jsonl"
    settings.LEDGER_CHECKPOINT_LIST = str(listed)
    with (
        caplog.at_level("INFO", logger="chats.checkpoints.signing"),
        pytest.raises(external_copy.CopyNotWritten) as refused,
    ):
        signing.sign_checkpoint(actor="system", now=now, reason="command")
    row = LedgerCheckpoint.objects.get()
    assert refused.value.code != external_copy.FileUnreadable.code
    # The other copies are written all the same.
    assert len(listed.read_text().splitlines()) == 1
    assert "checkpoint {" in caplog.text
    blocked.rmdir()
    later = now + timedelta(minutes=1)
    assert signing.sign_checkpoint(actor="system", now=later, reason="command").size > row.size


def test_the_command_prints_the_checkpoint_before_the_error(blocked: Path) -> None:
    del blocked
    out = StringIO()
    with pytest.raises(CommandError, match=external_copy.CopyNotWritten.sentence[:30]):
        call_command("ledger_checkpoint", stdout=out)
    assert out.getvalue() == LedgerCheckpoint.objects.get().note


def test_workers_log_what_is_true(blocked: Path, now: datetime, caplog: Any) -> None:
    assert upkeep.sign_at_end(now=now)
    assert external_copy.CopyNotWritten.sentence in caplog.text
    assert "no checkpoint:" not in caplog.text
    caplog.clear()
    upkeep.maintain_ledger(now=now + timedelta(hours=2))
    assert LedgerCheckpoint.objects.count() == 2
    assert "no checkpoint:" not in caplog.text
    blocked.rmdir()
    external_copy.get_checkpoint_path().write_bytes(b"\xff\xfe")
    upkeep.maintain_ledger(now=now + timedelta(hours=4))
    assert LedgerCheckpoint.objects.count() == 2
    assert f"no checkpoint: {external_copy.FileUnreadable.sentence}" in caplog.text


def test_an_unreadable_file_signs_nothing(now: datetime) -> None:
    record_row(now)
    external_copy.get_checkpoint_path().parent.mkdir(parents=True, exist_ok=True)
    external_copy.get_checkpoint_path().write_bytes(b"\xff\xfe")
    with pytest.raises(external_copy.FileUnreadable):
        signing.sign_checkpoint(actor="system", now=now, reason="command")
    assert not LedgerCheckpoint.objects.exists()


def test_a_previous_file_that_cannot_be_renamed_is_named(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_row(now)
    last = signing.sign_checkpoint(actor="system", now=now, reason="command")
    LedgerCheckpoint.objects.all().delete()
    LedgerLeaf.objects.all().delete()
    place = external_copy.get_checkpoint_path()

    def refuse(*_: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(external_copy.OldCopyNotMoved) as refused:
            signing.open_origin(actor="system", now=now, reason="disk failed")
    made = LedgerCheckpoint.objects.get()
    name = f"{place.name}.{made.origin_id}"
    assert name in refused.value.sentence
    # The evidence of the previous origin is not overwritten.
    assert place.read_text() == last.note
    place.rename(place.with_name(name))
    signing.sign_checkpoint(actor="system", now=now + timedelta(hours=1), reason="command")
    assert external_copy.load_checkpoint_note() == LedgerCheckpoint.objects.latest("pk").note
