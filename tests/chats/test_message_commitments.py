"""Messages that no prompt contained are compared with the ledger's commitments to them."""

import io
import json
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import erasure
from chats.exchange import upload
from chats.models import Chat, Message, Turn
from chats.prompt.stored_messages import MATCHED, NOT_COMPARABLE
from chats.record import message_commitments, messages
from chats.turns import step_results
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent
from tests.chats.api.bringing import work as import_now
from tests.support.stored_messages import change_stored_text, run_ledger_verify, verify_at_night

pytestmark = pytest.mark.tampers
Ask = Callable[..., Turn]


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Callable[..., Any]) -> Ask:
    """Send a message, one minute after the previous one, and reply to it."""
    times = iter(range(1, 1_000))

    def asking(text: str, *, is_answered: bool = True) -> Turn:
        at = now + timedelta(minutes=next(times))
        turn = start_turn(user=alice, chat=chat, text=text, now=at).turn
        if is_answered:
            work(turn)
        return turn

    return asking


@pytest.fixture
def reply(ask: Ask) -> Message:
    """The reply to the only question. No prompt contained it."""
    ask("When does the bridge open?")
    return Message.objects.get(role="assistant")


def rewrite(message: Message, **values: Any) -> None:
    """Change columns of a message directly in the database."""
    Message.objects.filter(pk=message.pk).update(**values)


def reseal(message: Message) -> None:
    """Change the text, and compute salt and commitment again as an attacker may."""
    change_stored_text(message, "ok", "no")
    row = Message.objects.get(pk=message.pk)
    row.salt = ""
    message_commitments.seal_message(row).save()


CHANGES: dict[str, Callable[[Message], Any]] = {
    "text": lambda row: change_stored_text(row, "ok", "no"),
    "role": lambda row: rewrite(row, role="user"),
    "speaker": lambda row: rewrite(row, speaker={"roleId": "a", "roleName": "A", "type": "ai"}),
    "without salt": lambda row: rewrite(row, salt=""),
    "without commitment": lambda row: rewrite(row, salt="", commitment=""),
    "sealed again": reseal,
    "removed": lambda row: Message.objects.filter(pk=row.pk).delete(),
    "emptied": lambda row: rewrite(row, parts=[], salt="", erased_at=row.created_at),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_last_reply_is_found(name: str, reply: Message, now: datetime) -> None:
    assert f"{MATCHED}: 2" in run_ledger_verify()
    CHANGES[name](reply)
    told = run_ledger_verify()
    assert "FAILED" in told
    assert f"message {reply.pk} " in told
    ended = AuditEvent.objects.get(type="turn.completed")
    assert f"row {ended.seq}: " in told
    assert "FAILED" not in run_ledger_verify(without_messages=True)
    found = verify_at_night(now)
    assert found.broken == 1
    assert str(reply.pk) in found.breaks[0][2]


def copy_message(row: Message, **values: Any) -> None:
    """Store a copy of a message directly in the database, at the end of its branch."""
    row.pk, row.accepted = uuid.uuid4(), row.accepted + 1_000
    row.seq = 1_000
    for name, value in values.items():
        setattr(row, name, value)
    row.save(force_insert=True)


def swap_positions(first: Message, second: Message) -> None:
    """Exchange the positions of two messages directly in the database."""
    for row, seq in ((first, 1_000), (second, first.seq), (first, second.seq)):
        Message.objects.filter(pk=row.pk).update(seq=seq)


@pytest.mark.parametrize(
    "values", [{}, {"salt": "", "commitment": ""}, {"role": "user", "turn": None}]
)
def test_a_message_that_was_added_by_sql_is_found(values: dict[str, Any], reply: Message) -> None:
    copy_message(reply, **values)
    told = run_ledger_verify()
    assert "FAILED" in told
    assert f"names message {reply.pk}" in told


def test_a_step_of_an_unfinished_turn_is_not_named_yet(ask: Ask, reply: Message) -> None:
    turn = ask("And the ferry?", is_answered=False)
    copy_message(reply, turn=turn)
    assert "FAILED" not in run_ledger_verify()
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.STOPPED, finished_at=turn.queued_at)
    assert "names message" in run_ledger_verify()


@pytest.mark.parametrize("places", [(1, 3), (2, 4), (1, 2), (3, 6)])
def test_messages_that_changed_places_are_found(places: tuple[int, int], ask: Ask) -> None:
    for text in ("The bridge opens at six.", "And the ferry?", "Thank you."):
        ask(text)
    swap_positions(*(Message.objects.get(seq=place) for place in places))
    told = run_ledger_verify()
    assert "FAILED" in told
    assert "another position" in told


@pytest.mark.parametrize("count", [6, 30])
def test_imported_messages_that_changed_places_are_found(
    count: int, alice: User, now: datetime
) -> None:
    lines = [
        {"role": ("user", "assistant")[place % 2], "content": f"Text {place}"}
        for place in range(count)
    ]
    file = io.BytesIO(json.dumps({"messages": lines}).encode())
    import_now(upload.start_import(file, owner=alice, now=now).pk)
    assert "FAILED" not in run_ledger_verify()
    swap_positions(Message.objects.get(seq=2), Message.objects.get(seq=4))
    assert "another position" in run_ledger_verify()


def test_a_change_of_a_message_that_waits_is_found(ask: Ask) -> None:
    ask("And the ferry?", is_answered=False)
    assert f"{MATCHED}: 1" in run_ledger_verify()
    change_stored_text(Message.objects.get(), "ferry", "train")
    assert "was changed" in run_ledger_verify()


def test_each_message_counts_once(ask: Ask) -> None:
    for text in ("The bridge opens at six.", "And the ferry?", "Thank you."):
        ask(text)
    told = run_ledger_verify()
    assert f"{MATCHED}: 6" in told
    assert NOT_COMPARABLE not in told


def test_an_erased_message_stays_accepted_and_keeps_no_salt(
    reply: Message, alice: User, now: datetime
) -> None:
    row = Message.objects.select_related("branch__chat").get(pk=reply.pk)
    erasure.erase_message(user=alice, message=row, now=now + timedelta(days=1))
    row.refresh_from_db()
    assert (row.salt, row.commitment) == ("", reply.commitment)
    told = run_ledger_verify()
    assert "FAILED" not in told
    assert f"{MATCHED}: 1" in told
    rewrite(row, parts=[{"type": "text", "text": "Never said."}])
    assert "FAILED" in run_ledger_verify()


def test_messages_of_an_older_version_are_counted(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification still accepts them."""
    with monkeypatch.context() as older:
        older.setattr(messages, "seal_message", lambda row: row)
        ask("The bridge opens at six.")
        ask("And the ferry?")
    assert not Message.objects.exclude(commitment="").exists()
    assert not AuditEvent.objects.filter(data__has_key="stored").exists()
    told = run_ledger_verify()
    assert "FAILED" not in told
    # A prompt contained all but the last reply.
    assert f"{MATCHED}: 3" in told
    assert f"{NOT_COMPARABLE}: 1" in told
    ask("Thank you.")
    told = run_ledger_verify()
    assert f"{MATCHED}: 6" in told
    assert NOT_COMPARABLE not in told


def test_the_ledger_has_a_commitment_to_each_step_of_a_turn(
    reply: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that ends without a reply still commits to the steps that it stored."""
    turn = reply.turn
    assert turn is not None
    data = step_results.build_attempt_data(turn)
    assert data["stored"] == [[str(reply.pk), reply.commitment]]
    turn.step = 2
    assert step_results.build_attempt_data(turn, reply=reply)["stored"] == data["stored"]


def test_a_commitment_depends_on_its_salt(reply: Message) -> None:
    again = message_commitments.seal_message(Message(branch=reply.branch, pk=reply.pk))
    again.role, again.parts, again.salt = reply.role, reply.parts, ""
    message_commitments.seal_message(again)
    # The same text with another salt.
    assert again.commitment != reply.commitment


def test_a_commitment_is_the_same_for_each_form_of_a_number(reply: Message) -> None:
    """PostgreSQL returns 1.0 and 1e3 of a part as whole numbers."""
    made = []
    for number in (1000, 1e3, 1000.0):
        reply.parts = [{"type": "tool_call", "extra": {"x": number}}]
        made.append(message_commitments.compute_message_commitment(reply))
    assert len(set(made)) == 1
