"""Checkpoints: signing, verification by outsiders, and refusal after a restored backup."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from pytest_django import Settings

from chats import tasks
from chats.background import due_jobs, worker_signals
from chats.checkpoints import checks, external_copy, files, keys, signing, upkeep, verify_ledger
from chats.ground import queue
from contextpolicy import ledger, verification
from contextpolicy.audit import export, notes
from contextpolicy.audit.search import parse_search_line
from contextpolicy.audit.tree import compute_inclusion_path, compute_tree_root, hash_leaf
from contextpolicy.models import (
    AuditEvent,
    LedgerCheckpoint,
    LedgerHead,
    LedgerKey,
    LedgerLeaf,
    LedgerOrigin,
    LedgerVerification,
)
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from project import probes
from tests.contextpolicy.pages import message_codes, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.ledger_checkpoints import (
    CHECKPOINT_PAGE,
    LEDGER_CHATS,
    OFFLINE_PAGE,
    Capture,
    download_file,
    list_documented_commands,
    list_ledger_warnings,
    rewrite_chain,
    run_without_triggers,
)
from tests.support.repository import ROOT

pytestmark = pytest.mark.django_db

EXPORT = "/admin/contextpolicy/auditevent/export/"
PROOF = "chain.tlog-proof"
HOUR = timedelta(hours=1)
Sent = list[tuple[str, dict[str, str]]]


def faults() -> dict[str, str]:
    """Return the findings of the verification, by chain or log."""
    return {found.scope: found.reason for found in ledger.find_ledger_breaks()}


def test_trees_and_notes_are_those_of_others() -> None:
    # Tree roots and entries from the tests of the reference implementation of RFC 6962.
    entries = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
    entries.append("606162636465666768696a6b6c6d6e6f")
    leaves = [hash_leaf(bytes.fromhex(entry)) for entry in entries]
    assert compute_tree_root(leaves[:1]).hex().startswith("6e340b9cffb37a98")
    assert compute_tree_root(leaves[:2]).hex().startswith("fac54203e7cc696c")
    assert compute_tree_root(leaves[:3]).hex().startswith("aeb6bcfe274b70a1")
    assert compute_tree_root(leaves).hex().startswith("5dc9da79a70659a9")
    for size in range(1, 9):
        for index in range(size):
            path = compute_inclusion_path(leaves[:size], index)
            entry = bytes.fromhex(entries[index])
            assert verify_ledger.compute_proof_root(entry, index, size, path) == compute_tree_root(
                leaves[:size]
            )
            assert verify_ledger.compute_proof_root(b"x", index, size, path) != compute_tree_root(
                leaves[:size]
            )
        assert verify_ledger.compute_root(leaves[:size]) == compute_tree_root(leaves[:size])
    # The example note in the documentation of Go's package for signed notes.
    key = verify_ledger.Key("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    body = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
    )
    line = (
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotp"
        "RZb6KE6RyyBwJnAM=\n"
    )
    assert notes.is_signed(f"{body}\n{line}", name="PeterNeumann", public=key.public) is True
    assert notes.is_signed(f"{body}!\n{line}", name="PeterNeumann", public=key.public) is False
    assert notes.is_signed(f"{body}\n{line}", name="Somebody", public=key.public) is None
    # The base64 form of a key can contain the separator character.
    for first in range(256):
        public = bytes([first]) * 32
        assert verify_ledger.Key(notes.format_verifier_key("a/ledger", public)).public == public


@pytest.mark.policy_case(19)
@pytest.mark.usefixtures("said")
def test_an_outsider_verifies_it_by_the_documented_commands_and_by_the_program(
    sign: Callable[..., Any], tmp_path: Path, now: datetime
) -> None:
    sign()
    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=LEDGER_CHATS[4])
    sign()
    browser = signed_in(person("priya", AUDITOR))
    chain = f"chat:{LEDGER_CHATS[4]}"
    for name in ("checkpoint.txt", "log.txt", "ledger-key.pem", "verify_ledger.py", PROOF):
        fields = {"file": name, "scope": chain}
        (tmp_path / name).write_bytes(download_file(browser, OFFLINE_PAGE, fields))
    searched = {"q": f"chat:{LEDGER_CHATS[4]}", "form": "jsonl"}
    (tmp_path / "ledger.jsonl").write_bytes(download_file(browser, EXPORT, searched))
    (tmp_path / "verifier-key.txt").write_text(files.list_public_keys()[0][1])
    assert files.list_public_keys()[0][1] in opened(browser, CHECKPOINT_PAGE).words

    commands = list_documented_commands()
    done = run_shell(tmp_path, commands[:4])
    assert done.returncode == 0, done.stderr
    assert "Signature Verified Successfully" in done.stdout
    assert f"6 rows, last hash {LedgerHead.objects.get(pk=chain).last_hash}" in done.stdout
    assert "The chain is in the checkpoint." in done.stdout

    by_program = commands[4].split()[2:]
    found = run_script(tmp_path, *by_program)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{chain}: the proof confirms rows 1 to 6" in found.stdout
    whole_export = download_file(browser, EXPORT, {"q": "", "form": "jsonl"})
    (tmp_path / "ledger.jsonl").write_bytes(whole_export)
    found = run_script(tmp_path, *by_program)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Everything is verified." in found.stdout
    assert {row.data["file"] for row in AuditEvent.objects.filter(data__has_key="file")} >= {
        "log.txt",
        "chain.tlog-proof",
    }
    # One changed character, one missing row, half a file.
    for cut in (
        whole_export.replace(b"user:1", b"user:2", 1),
        whole_export.split(b"\n", 1)[1],
        whole_export[: len(whole_export) // 2],
    ):
        (tmp_path / "ledger.jsonl").write_bytes(cut)
        assert run_script(tmp_path, *by_program).returncode != 0


def run_shell(folder: Path, commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run documented commands with a shell that stops at the first failure."""
    whole = "set -e\n" + "\n".join(commands)
    return subprocess.run(["sh", "-c", whole], cwd=folder, capture_output=True, text=True)  # noqa: S607


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the downloaded program without access to the product's code."""
    command = [sys.executable, "-I", "verify_ledger.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def inv_54_scene(how: str) -> None:
    """Change the ledger as a database owner can."""
    scope = f"chat:{LEDGER_CHATS[2]}"
    events, heads = "contextpolicy_auditevent", "contextpolicy_ledgerhead"
    if how == "written anew":
        run_without_triggers()
        rewrite_chain(scope)
    elif how == "cut":
        run_without_triggers(f"DELETE FROM {events} WHERE scope = '{scope}' AND seq = 3")  # noqa: S608  # constants
        last = AuditEvent.objects.get(scope=scope, seq=2)
        LedgerHead.objects.filter(pk=scope).update(count=2, last_hash=last.hash)
    elif how == "a chat dropped":
        run_without_triggers(
            f"DELETE FROM {events} WHERE scope = '{scope}'",  # noqa: S608
            f"DELETE FROM {heads} WHERE scope = '{scope}'",  # noqa: S608
        )
    else:
        run_without_triggers(f"DELETE FROM {events}", f"DELETE FROM {heads}")  # noqa: S608  # constants


@pytest.mark.policy_case(17)
@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("how", ["written anew", "cut", "a chat dropped", "all dropped"])
def test_inv_54_S26_what_no_chain_shows_the_checkpoint_does(
    how: str, sign: Callable[..., Any], tmp_path: Path
) -> None:
    anchor = tmp_path / "anchor.txt"
    anchor.write_text(sign().note, encoding="utf-8")
    assert faults() == {}
    call_command("ledger_verify", anchor=anchor, stdout=StringIO())

    inv_54_scene(how)
    assert list(ledger.find_chain_breaks()) == []
    assert faults()[f"chat:{LEDGER_CHATS[2]}"] == checks.ROW_DIFFERS

    # An attacker who also rewrites log, keys and checkpoints contradicts the external copy.
    for model in (LedgerLeaf, LedgerCheckpoint, LedgerOrigin, LedgerKey):
        model.objects.all().delete()
    external_copy.get_checkpoint_path().unlink()
    sign()
    assert faults() == {}
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("ledger_verify", anchor=anchor, stdout=out)
    assert checks.FILE_KEY_UNKNOWN in out.getvalue()
    assert checks.OTHER_LEDGER in out.getvalue()


@pytest.mark.usefixtures("said")
def test_an_altered_log_or_signature_is_named(sign: Callable[..., Any], tmp_path: Path) -> None:
    made = sign()
    name = f"log {made.origin.name}"
    LedgerLeaf.objects.filter(place=2).update(last_hash="0" * 64)
    assert faults()[name] == checks.OTHER_ROOT
    kept = LedgerLeaf.objects.get(place=3)
    LedgerLeaf.objects.filter(place=2).update(last_hash=kept.last_hash)
    LedgerLeaf.objects.filter(place=2).delete()
    assert name in faults()

    with pytest.raises(CommandError, match="is not a readable checkpoint"):
        call_command("ledger_verify", anchor=tmp_path / "nothing")


@pytest.mark.policy_case(18)
@pytest.mark.usefixtures("said")
def test_a_changed_key_is_signed_by_both_and_an_unknown_one_is_no_bad_signature(
    sign: Callable[..., Any], settings: Settings, now: datetime
) -> None:
    first = sign()
    both = sign(new_key=True, reason="key")
    last = sign()
    old, new = LedgerKey.objects.order_by("pk")
    assert old.encrypted_private == ""
    assert old.retired_at == now
    name = both.origin.name

    def answers(made: LedgerCheckpoint) -> list[bool | None]:
        publics = [keys.decode_public_key(key) for key in (old, new)]
        return [notes.is_signed(made.note, name=name, public=public) for public in publics]

    assert [answers(made) for made in (first, both, last)] == [
        [True, None],
        [True, True],
        [None, True],
    ]
    changed = AuditEvent.objects.get(type="checkpoint.key_changed")
    assert changed.data["fingerprint"] == {"from": old.public, "to": new.public}
    assert faults() == {}
    LedgerKey.objects.filter(pk=new.pk).update(public=keys.create_signing_key(now=now).public[::-1])
    assert faults()[f"log {name}"] == checks.SIGNER_UNKNOWN


@pytest.mark.usefixtures("said")
def test_a_lost_encryption_key_refuses_and_a_new_one_encrypts_anew(
    sign: Callable[..., Any],
    settings: Settings,
    now: datetime,
    django_capture_on_commit_callbacks: Capture,
) -> None:
    sign()
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *settings.ENCRYPTION_KEYS]
    call_command("rotate_keys", stdout=StringIO())
    settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS[:1]
    sign()

    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    before = LedgerCheckpoint.objects.count()
    with pytest.raises(keys.SigningKeyUnreadable):
        sign()
    assert LedgerCheckpoint.objects.count() == before
    with django_capture_on_commit_callbacks(execute=True):
        call_command("ledger_checkpoint", open_origin="the key is lost", stdout=StringIO())
    sign()
    assert faults() == {}


@pytest.mark.usefixtures("said")
def test_a_damaged_external_copy_is_named_and_signs_nothing(
    sign: Callable[..., Any], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign()
    monkeypatch.setattr(external_copy, "load_checkpoint_note", lambda: "not a checkpoint")
    with pytest.raises(signing.CheckpointCopyUnreadable) as refused:
        sign(now=now + HOUR)
    assert "(0 entries" not in str(refused.value)
    assert refused.value.code == signing.LedgerIsOlder.code
    assert LedgerCheckpoint.objects.count() == 1


@pytest.mark.usefixtures("said")
def test_a_restored_backup_signs_nothing_until_the_next_origin_is_opened(
    sign: Callable[..., Any], now: datetime, django_capture_on_commit_callbacks: Capture
) -> None:
    sign()
    backup = external_copy.load_checkpoint_note()
    last = sign(now=now + HOUR)
    with pytest.raises(signing.NothingToOpen):
        signing.open_origin(actor="system", now=now, reason="for fun")
    # The state of the database before the last checkpoint.
    LedgerCheckpoint.objects.filter(pk=last.pk).delete()
    LedgerLeaf.objects.filter(place__gte=notes.parse_note_checkpoint(backup).size).delete()

    with pytest.raises(CommandError) as refused:
        call_command("ledger_checkpoint")
    assert isinstance(refused.value.__context__, signing.LedgerIsOlder)
    assert signing.LedgerIsOlder.code in list_ledger_warnings(now + HOUR)
    upkeep.maintain_ledger(now=now + 2 * HOUR)
    assert LedgerCheckpoint.objects.count() == 1
    out = StringIO()
    with django_capture_on_commit_callbacks(execute=True):
        call_command("ledger_checkpoint", open_origin="disk failed", stdout=out)
    made = notes.parse_note_checkpoint(out.getvalue())
    assert made.origin.endswith("/ledger/2")
    origin = LedgerOrigin.objects.get(name=made.origin)
    assert (origin.before, origin.reason) == (last.note, "disk failed")
    opening = AuditEvent.objects.get(type="checkpoint.origin_opened")
    assert opening.data["reason"] == "disk failed"
    assert external_copy.load_checkpoint_note() == out.getvalue()
    assert (
        external_copy.get_checkpoint_path()
        .with_name(f"{external_copy.get_checkpoint_path().name}.{origin.pk}")
        .read_text()
        == last.note
    )
    assert faults() == {}
    sign()
    assert faults() == {}


def test_S26_it_is_signed_each_hour_at_a_thousand_rows_and_when_nothing_happens(
    now: datetime, sent: Sent, monkeypatch: pytest.MonkeyPatch, sign: Callable[..., Any]
) -> None:
    assert not upkeep.is_checkpoint_due(now=now)
    ledger.record_event("chat.created", actor="user:1", now=now, chat_id=LEDGER_CHATS[0])
    assert not upkeep.is_checkpoint_due(now=now)
    monkeypatch.setattr(upkeep, "ROWS", 5)
    for _ in range(4):
        ledger.record_event("chat.titled", actor="worker", now=now, chat_id=LEDGER_CHATS[0])
    assert upkeep.is_checkpoint_due(now=now)
    tasks.keep_ledger()
    assert signing.find_newest_checkpoint() is not None
    LedgerCheckpoint.objects.update(signed_at=now)
    assert not upkeep.is_checkpoint_due(now=now)
    assert upkeep.is_checkpoint_due(now=now + HOUR)
    # No events happened, but the log still gets one more head.
    sizes = [sign(now=now + HOUR * n).size for n in (1, 2)]
    assert sizes[1] == sizes[0] + 1
    for _ in range(5):
        ledger.record_event("chat.titled", actor="worker", now=now, chat_id=LEDGER_CHATS[0])
    assert upkeep.is_checkpoint_due(now=now)


@pytest.mark.usefixtures("said")
def test_it_is_signed_once_more_when_a_process_of_upkeep_ends(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_signals.end_drained()
    assert signing.find_newest_checkpoint() is None, "this worker keeps no upkeep"
    monkeypatch.setattr(worker_signals, "keeps_upkeep", threading.Event())
    monkeypatch.setattr(worker_signals, "close_old_connections", lambda: None)
    worker_signals.keeps_upkeep.set()
    worker_signals.end_drained()
    signed = AuditEvent.objects.filter(type="checkpoint.signed")
    assert [event.data["reason"] for event in signed] == ["shutdown"]
    # No events happened since, so the next process end signs nothing.
    worker_signals.end_drained()
    assert signed.count() == 1
    assert faults() == {}


def test_a_process_ends_though_nothing_can_be_signed(
    now: datetime, sign: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not upkeep.sign_at_end(now=now), "there is no ledger yet"
    sign()
    ledger.record_event("chat.created", actor="user:1", now=now, chat_id=LEDGER_CHATS[0])
    LedgerCheckpoint.objects.update(note="another")
    assert not upkeep.sign_at_end(now=now)

    def broken(**_named: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(upkeep, "sign_at_end", broken)
    monkeypatch.setattr(worker_signals, "close_old_connections", lambda: None)
    worker_signals.sign_last()


@pytest.mark.usefixtures("said")
def test_each_night_what_is_new_is_verified_and_each_week_all(
    now: datetime,
    sent: Sent,
    sign: Callable[..., Any],
    django_capture_on_commit_callbacks: Capture,
    client: Client,
) -> None:
    night = now.replace(hour=2) + timedelta(days=1)

    def kept(at: datetime) -> LedgerVerification | None:
        asked = LedgerVerification.objects.count()
        with django_capture_on_commit_callbacks(execute=True):
            upkeep.maintain_ledger(now=at)
        if LedgerVerification.objects.count() == asked:
            return None
        row = LedgerVerification.objects.latest("pk")
        assert sent[-1] == (queue.VERIFY_LEDGER, {"verification_id": str(row.pk)})
        verification.run_verification(pk=row.pk, clock=lambda: at)
        row.refresh_from_db()
        return row

    assert upkeep.list_check_warnings(now=now) == []
    with django_capture_on_commit_callbacks(execute=True):
        assert due_jobs.run_all_due_jobs(now=now + HOUR) == 1
    assert sent[-1] == (queue.KEEP_LEDGER, {})
    assert kept(now + HOUR) is None
    first = kept(night + timedelta(days=7))
    assert first is not None
    assert (first.since_leaf, first.broken) == (None, 0)
    assert first.told[checks.SIGNED] >= 1
    assert kept(night + timedelta(days=7, hours=1)) is None
    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=LEDGER_CHATS[1])
    second = kept(night + timedelta(days=8))
    assert second is not None
    assert second.since_leaf is not None
    assert second.chains == 2, "the chat that grew, and the instance with its checkpoints"
    third = kept(night + timedelta(days=14))
    assert third is not None
    assert third.since_leaf is None


def test_what_is_late_or_broken_is_said(
    now: datetime, said: None, sent: Sent, django_capture_on_commit_callbacks: Capture
) -> None:
    later = now + timedelta(days=30)
    assert len(upkeep.list_check_warnings(now=later)) == 2
    run_without_triggers("UPDATE contextpolicy_auditevent SET actor = 'user:9' WHERE seq = 2")
    with django_capture_on_commit_callbacks(execute=True):
        upkeep.maintain_ledger(now=later)
    verification.run_verification(
        pk=LedgerVerification.objects.latest("pk").pk, clock=lambda: later
    )
    assert LedgerVerification.objects.latest("pk").broken > 0
    assert "verification_failed" in list_ledger_warnings(later)


def test_late_is_degraded_for_probes_and_a_sentence_for_auditors(
    now: datetime, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.record_event(
        "chat.created", actor="user:1", now=now - timedelta(days=900), chat_id=LEDGER_CHATS[0]
    )
    answer = client.get("/readyz").json()
    assert answer["warnings"] == [probes.AUDIT_LOG_LATE]
    assert answer["status"] in {"degraded", "unavailable"}
    browser = signed_in(person("priya", AUDITOR))
    listed = browser.get("/admin/contextpolicy/auditevent/").content.decode()
    assert 'data-reason="checkpoint_late"' in listed
    assert 'data-note="no-checkpoints"' in browser.get(CHECKPOINT_PAGE).content.decode()
    said = browser.post(OFFLINE_PAGE, {"file": "chain.tlog-proof", "scope": "chat:x"})
    assert message_codes(said) == [files.NoProof.code]
    charlie = signed_in(person("charlie", POLICY_ADMIN))
    assert charlie.get(CHECKPOINT_PAGE).status_code == 403
    assert charlie.post(OFFLINE_PAGE, {"file": "log.txt"}).status_code == 403


@pytest.mark.usefixtures("said")
def test_the_foot_of_an_export_has_the_last_checkpoint(
    sign: Callable[..., Any], now: datetime
) -> None:
    made = sign()
    exported = export.start_ledger_export(
        search=parse_search_line(""), form="jsonl", actor="user:1", now=now
    )
    pieces = b"".join(export.stream_ledger_export(exported, checkpoint=upkeep.load_last_note()))
    assert made.note.split("\n", 1)[0].encode() in pieces.splitlines()[-1]


TABLE = re.findall(
    r"^\| `manage\.py (.+?)` \|", (ROOT / "docs" / "audit.md").read_text("utf-8"), re.MULTILINE
)


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("documented_command", TABLE)
def test_each_command_of_the_documentations_table_runs(
    sign: Callable[..., Any], settings: Settings, tmp_path: Path, documented_command: str
) -> None:
    assert len(TABLE) >= 6
    kept = tmp_path / "FILE"
    kept.write_text(sign().note)
    values = {"FILE": str(kept), "REASON": "The backup of Monday was restored."}
    name, *arguments = (values.get(word, word) for word in documented_command.split())
    if "--open-origin" in arguments:
        # Only valid if the signing key is lost, or if the database is older than the checkpoint.
        settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    said = StringIO()
    call_command(name, *arguments, stdout=said)
    assert said.getvalue()
