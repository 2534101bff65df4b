"""An erasure adds an event to the chain of each affected chat, and verification requires it."""

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from chats.actions import erasure, lifecycle, memory
from chats.memory.preferences import memory_settings
from chats.models import Chat, Message, Preference, Receipt, Turn
from chats.record import commitment_check, erasure_marks
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

Ask = Callable[..., Turn]
UPGRADE = import_module("chats.migrations.0046_name_erased_receipts")


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Callable[..., Any]) -> Ask:
    """Send a message in a chat of Alice, one minute after the previous one, and reply to it."""
    times = iter(range(1, 1_000))

    def asking(text: str, where: Chat | None = None) -> Turn:
        at = now + timedelta(minutes=next(times))
        turn = start_turn(user=alice, chat=where or chat, text=text, now=at).turn
        work(turn)
        return turn

    return asking


@pytest.fixture
def elsewhere(alice: User, now: datetime) -> Chat:
    """A second chat of Alice."""
    return lifecycle.create_chat(owner=alice, now=now)


@pytest.fixture
def recent(chat: Chat, now: datetime) -> None:
    """Prompts include the newest messages of the user's other chats."""
    policy = create_policy(
        slug="p", name="P", values={"recent_by_user": 20}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def breaks() -> list[str]:
    """Return the findings of the verification."""
    return [f"{found.scope} {found.reason}" for found in ledger.find_ledger_breaks()]


def events(chat: Chat) -> list[dict[str, Any]]:
    """Return the events about erased receipts in a chat's chain."""
    rows = AuditEvent.objects.filter(scope=f"chat:{chat.pk}", type="receipt.erased")
    return list(rows.order_by("seq").values_list("data", flat=True))


def said_by(turn: Turn) -> Message:
    """Return the message that a turn replies to."""
    return Message.objects.select_related("branch__chat").get(triggered=turn)


def forge(receipt: Receipt, at: datetime) -> None:
    """Mark a receipt as erased without an event."""
    Receipt.objects.filter(pk=receipt.pk).update(
        erased_at=at, salt="", prompt_sha256="", body_sha256=""
    )


def test_a_deleted_preference_is_recorded_in_each_chat_whose_prompt_had_it(
    alice: User, ask: Ask, now: datetime
) -> None:
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    ask("Remember that I like Zanzibar.")
    row = Preference.objects.get()
    new = [lifecycle.create_chat(owner=alice, now=now + timedelta(days=30)) for _ in range(2)]
    turns = [ask("Hello", new[0]), ask("And here?", new[1])]

    memory.delete_saved_preference(owner=alice, preference_id=row.pk, now=now + timedelta(days=31))

    for turn, where in zip(turns, new, strict=True):
        receipt = turn.receipts.get()
        assert receipt.erased_at is not None
        assert events(where) == [
            {"erased": "preference", "source": str(row.pk), "receipts": [str(receipt.pk)]}
        ]
    assert breaks() == []


@pytest.mark.parametrize("whole", [False, True], ids=["message", "chat"])
def test_an_erasure_elsewhere_names_exactly_the_receipts_that_had_the_words(
    whole: bool, alice: User, recent: None, ask: Ask, elsewhere: Chat, chat: Chat, now: datetime
) -> None:
    before = ask("Before anything else.")
    said = ask("The word is Zanzibar.", elsewhere)
    had = ask("What is the word?")
    at = now + timedelta(days=1)
    if whole:
        erasure.erase_chat(user=alice, chat=elsewhere, now=at)
    else:
        erasure.erase_message(user=alice, message=said_by(said), now=at)

    source = elsewhere.pk if whole else said_by(said).pk
    assert before.receipts.get().erased_at is None
    assert events(chat) == [
        {
            "erased": "chat" if whole else "message",
            "source": str(source),
            "receipts": [str(had.receipts.get().pk)],
        }
    ]
    assert breaks() == []


@pytest.mark.tampers
@pytest.mark.parametrize("with_certificate", [True, False])
def test_a_forged_mark_is_found_beside_a_true_one(
    with_certificate: bool, alice: User, ask: Ask, recent: None, elsewhere: Chat, now: datetime
) -> None:
    kept = ask("Something else.", elsewhere)
    said = ask("The word is Zanzibar.", elsewhere if with_certificate else None)
    had = ask("What is the word?", elsewhere)
    erasure.erase_message(user=alice, message=said_by(said), now=now + timedelta(days=1))
    assert had.receipts.get().erased_at is not None
    assert breaks() == []

    forge(kept.receipts.get(), now)
    assert len(breaks()) == 1
    assert commitment_check.UNSAID in breaks()[0]


def test_more_receipts_than_one_event_names_are_all_named(
    monkeypatch: pytest.MonkeyPatch,
    alice: User,
    ask: Ask,
    recent: None,
    elsewhere: Chat,
    chat: Chat,
    now: datetime,
) -> None:
    monkeypatch.setattr(erasure_marks, "MOST", 2)
    said = ask("The word is Zanzibar.", elsewhere)
    own = [said, ask("Again?", elsewhere), ask("And again?", elsewhere)]
    others = [ask(f"What is the word, for the {n}th time?") for n in range(3)]
    erasure.erase_message(user=alice, message=said_by(said), now=now + timedelta(days=1))

    certificate = AuditEvent.objects.get(type="message.erased")
    named = [
        *certificate.data["receipts"],
        *(pk for e in events(elsewhere) for pk in e["receipts"]),
    ]
    assert len(certificate.data["receipts"]) == 2
    assert sorted(named) == sorted(str(turn.receipts.get().pk) for turn in own)
    assert [len(e["receipts"]) for e in events(chat)] == [2, 1]
    assert {pk for e in events(chat) for pk in e["receipts"]} == {
        str(turn.receipts.get().pk) for turn in others
    }
    assert breaks() == []


def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Erase in the format of earlier versions, whose events name no receipt."""
    monkeypatch.setattr(erasure_marks.ErasureMarks, "add", lambda *_a, **_k: None)


def upgrade() -> None:
    """Run the data migration on the current rows, with its historical models."""
    loader = MigrationExecutor(connection).loader
    apps = loader.project_state(("chats", "0046_name_erased_receipts")).apps
    UPGRADE.name_marks(apps, SimpleNamespace(connection=connection))


@pytest.mark.tampers
def test_an_upgrade_names_earlier_marks_lists_them_and_accepts_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
    alice: User,
    ask: Ask,
    recent: None,
    elsewhere: Chat,
    chat: Chat,
    now: datetime,
) -> None:
    said = ask("The word is Zanzibar.", elsewhere)
    had = ask("What is the word?")
    later = ask("Something else.")
    with monkeypatch.context() as patch:
        as_before(patch)
        erasure.erase_message(user=alice, message=said_by(said), now=now + timedelta(days=1))
    assert len(breaks()) == 2

    upgrade()
    assert breaks() == []
    marked = {str(had.receipts.get().pk), str(later.receipts.get().pk)}
    assert {pk for e in events(chat) for pk in e["receipts"]} <= marked
    assert [e["erased"] for e in events(chat)] == ["unnamed"]
    assert [e["erased"] for e in events(elsewhere)] == ["message"]
    out = io.StringIO()
    call_command("ledger_verify", stdout=out)
    listed = [line for line in out.getvalue().splitlines() if "before each chain recorded" in line]
    assert len(listed) == 1
    assert listed[0].startswith(f"chat:{chat.pk}: entry ")

    count = AuditEvent.objects.count()
    upgrade()
    assert AuditEvent.objects.count() == count

    newest = ask("One more.", elsewhere)
    forge(newest.receipts.get(), now)
    assert len(breaks()) == 1


def test_an_upgrade_adds_nothing_where_nothing_was_erased(ask: Ask) -> None:
    ask("Hello")
    count = AuditEvent.objects.count()
    upgrade()
    assert AuditEvent.objects.count() == count
    assert breaks() == []
