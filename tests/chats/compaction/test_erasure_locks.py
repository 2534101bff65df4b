"""Erasures lock rows in the order of replies and cancellations, so that neither deadlocks."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from chats.actions import erasure, lifecycle, organising
from chats.actions.deletion import delete_chat, restore_chat
from chats.memory.preferences import memory_settings
from chats.models import (
    Branch,
    Chat,
    Folder,
    IdempotencyRecord,
    Message,
    MessageFile,
    PendingErasure,
    Preference,
    PreferenceEvidence,
    StoredFile,
)
from chats.record import holds, messages
from chats.record.idempotency import KEY_LIFETIME, IdempotentRequest
from chats.record.locking import lock_chat
from contextpolicy import holds as legal_holds
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent
from tests.faults.programs import until
from tests.support.chat_summaries import add_minutes

SAID = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."
Step = Callable[[], Any]


@pytest.fixture
def quoted(transactional_ledger: None, now: datetime) -> Message:
    """A committed message that another one quotes."""
    if connection.vendor == "sqlite":
        pytest.skip("its test database has one connection")
    return store_quoted_message(User.objects.create_user("alice"), now)


def store_quoted_message(alice: User, now: datetime) -> Message:
    """Store a message, quoted by one with a file and a preference that only it states."""
    chat = lifecycle.create_chat(owner=alice, now=now)
    branch = Branch.objects.get(chat=chat)
    counter = ApproximateCounter()
    with transaction.atomic():
        first, second = (
            messages.store_waiting_message(chat=chat, branch=branch, text=text, now=now)
            for text in (SAID, f"You said: {SAID}")
        )
        for seq, row in enumerate((first, second), start=1):
            row.seq = seq
            messages.set_token_count(row, counter=counter)
            row.save()
        Branch.objects.filter(pk=branch.pk).update(last_seq=2)
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    told = Preference.objects.create(
        owner=alice, slot="note", text="Blue", kind="told", valid_from=now, learned_at=now
    )
    PreferenceEvidence.objects.create(preference=told, message=second, start=0, end=4)
    file = StoredFile.objects.create(
        owner=alice, name="a.txt", size=1, sha256="0" * 64, path="none", created_at=now
    )
    MessageFile.objects.create(message=second, file=file)
    return Message.objects.select_related("branch__chat__owner").get(pk=first.pk)


def erase_both(message: Message, now: datetime) -> erasure.Erased:
    owner = message.branch.chat.owner
    return erasure.erase_message(user=owner, message=message, now=now, with_quotes=True)


def test_the_chain_of_the_instance_comes_last(alice: User, now: datetime) -> None:
    quoted = store_quoted_message(alice, now)
    before = AuditEvent.objects.latest("pk").pk
    assert len(erase_both(quoted, add_minutes(now)).proofs) == 2
    written = AuditEvent.objects.filter(pk__gt=before).order_by("pk")
    assert [event.type for event in written] == ["message.erased", "message.erased", "file.deleted"]
    assert list(ledger.find_ledger_breaks()) == []


@pytest.fixture
def beside() -> Iterator[Callable[..., None]]:
    """Run `waiting` in a thread while a transaction has run `inside`; then run `then` in it."""
    failed: list[BaseException] = []

    def run(waiting: Step, *, inside: Step, then: Step) -> None:
        def wait() -> None:
            try:
                waiting()
            except BaseException as error:  # noqa: BLE001  # passed to the test's thread
                failed.append(error)
            finally:
                connections.close_all()

        thread = threading.Thread(target=wait)
        with transaction.atomic():
            inside()
            thread.start()
            until(is_waited_for, what="a transaction that waits for a lock")
            then()
        thread.join(20)

    yield run
    assert failed == []


def is_waited_for() -> bool:
    """Return True if a connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def lock_head(message: Message) -> None:
    ledger.lock_chain_head(f"chat:{message.branch.chat_id}")


def test_a_reply_that_locks_the_memory_first(
    beside: Callable[..., None], quoted: Message, now: datetime
) -> None:
    owner_id = quoted.branch.chat.owner_id
    beside(
        lambda: erase_both(quoted, now),
        inside=lambda: memory_settings.lock_memory_settings(owner_id),
        then=lambda: lock_head(quoted),
    )
    assert not Message.objects.filter(erased_at=None).exists()


def test_a_pending_erasure_that_is_cancelled(
    beside: Callable[..., None], quoted: Message, now: datetime
) -> None:
    second = Message.objects.get(seq=2)
    PendingErasure.objects.create(owner=quoted.branch.chat.owner, message=second, asked_at=now)
    beside(
        lambda: erase_both(quoted, now),
        inside=lambda: holds.lock_pending_erasures(PendingErasure.objects.all()),
        then=lambda: lock_head(quoted),
    )
    assert not Message.objects.filter(erased_at=None).exists()


def test_a_chat_is_restored_while_its_pending_erasure_is_cancelled(
    beside: Callable[..., None], quoted: Message, now: datetime
) -> None:
    chat: Chat = quoted.branch.chat
    actor = f"user:{chat.owner_id}"
    delete_chat(chat=chat, actor=actor, now=now)
    PendingErasure.objects.create(owner=chat.owner, chat=chat, asked_at=now)
    beside(
        lambda: restore_chat(chat=Chat.objects.get(pk=chat.pk), actor=actor, now=now),
        inside=lambda: holds.lock_pending_erasures(PendingErasure.objects.all()),
        then=lambda: lock_head(quoted),
    )
    assert not PendingErasure.objects.exists()
    assert Chat.objects.get(pk=chat.pk).deleted_at is None


def test_a_folder_with_a_held_preference_is_deleted_while_a_reply_ends(
    beside: Callable[..., None], quoted: Message, now: datetime
) -> None:
    chat, owner = quoted.branch.chat, quoted.branch.chat.owner
    folder = Folder.objects.create(owner=owner, name="Home")
    Chat.objects.filter(pk=chat.pk).update(folder=folder)
    Preference.objects.update(folder=folder)
    case: dict[str, Any] = {
        "level": "user",
        "user": owner,
        "case": "7",
        "reason": "Why",
        "actor": "system",
    }
    legal_holds.place_hold(**case, now=now)
    beside(
        lambda: organising.delete_folder(folder=folder, now=now),
        inside=lambda: lock_chat(chat.pk),
        then=lambda: memory_settings.lock_memory_settings(owner.pk),
    )
    assert not Folder.objects.exists()
    assert PendingErasure.objects.get().preference == Preference.objects.get()


def test_an_erasure_never_waits_for_the_expired_key_of_a_request(
    quoted: Message, now: datetime
) -> None:
    """The request may wait for a row that the erasure has locked."""
    kept = IdempotentRequest(user=quoted.branch.chat.owner, route="chats", key="k", body="")
    kept.remember(result={}, now=now - 2 * KEY_LIFETIME)
    done = threading.Event()

    def erase() -> None:
        erase_both(quoted, now)
        connections.close_all()
        done.set()

    thread = threading.Thread(target=erase)
    with transaction.atomic():
        assert kept.find(now=now) is None
        thread.start()
        assert done.wait(10)
    thread.join(20)
    assert not IdempotencyRecord.objects.exists()
