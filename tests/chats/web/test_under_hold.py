"""A legal hold postpones erasures; they run after the hold ends."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client, TestCase
from django.utils import timezone

from chats.actions import deletion, erasure, lifecycle, memory, organising, pending_erasures
from chats.actions.expiry import select_expired_chats
from chats.background import due_jobs
from chats.ground import queue
from chats.memory.preferences import memory_settings, preferences
from chats.models import Chat, Folder, Message, PendingErasure, Preference, Turn
from chats.record import holds as record_holds
from chats.record.holds import UnderHold
from chats.record.locking import lock_chat_for_erasure
from contextpolicy import holds
from contextpolicy.models import AuditEvent, LegalHold
from tests.support.chat_pages import get_chat_url

Talk = Callable[..., Turn]
Sent = list[tuple[str, dict[str, str]]]

WHY: Mapping[str, Any] = {"case": "2026-17", "reason": "Dispute", "actor": "user:1"}


def hold(level: str = "chat", *, now: datetime | None = None, **target: Any) -> LegalHold:
    """An active hold."""
    return holds.place_hold(level=level, now=now or timezone.now(), **WHY, **target)


def ended(row: LegalHold) -> None:
    """The hold was released eight days ago."""
    long_ago = timezone.now() - timedelta(days=8)
    holds.release_hold(hold=row, reason="Settled", actor="user:1", now=long_ago)


def fulfilled(sent: Sent) -> list[str]:
    """Run the pending erasures that the sweep enqueues."""
    sent.clear()
    with TestCase.captureOnCommitCallbacks(execute=True):
        due_jobs.enqueue_erasures(now=timezone.now())
    asked = [ids["erasure_id"] for task, ids in sent if task == queue.RUN_PENDING_ERASURE]
    for erasure_id in asked:
        assert pending_erasures.run_pending_erasure(
            erasure_id=PendingErasure(pk=erasure_id).pk, now=timezone.now()
        )
    return asked


@pytest.mark.policy_case(27)
def test_a_held_chat_is_hidden_and_erased_after_the_hold(
    fresh: Client, chat: Chat, talk: Talk, sent: Sent
) -> None:
    talk("The door code is 7781.")
    row = hold(chat_id=chat.pk)
    page = fresh.get(get_chat_url(chat, "erase")).content.decode()
    assert 'id="held"' in page
    assert 'data-act="erase-after-hold"' in page

    refused = fresh.post(get_chat_url(chat, "erase"))

    assert refused.status_code == 409
    assert 'data-reason="under_legal_hold"' in refused.content.decode()
    assert fresh.get(get_chat_url(chat)).status_code == 404
    assert Message.objects.filter(branch__chat=chat, erased_at=None).count() == 2
    assert PendingErasure.objects.get().chat == chat
    for place in (get_chat_url(chat, "deleted"), "/chats/archive"):
        assert 'data-note="erased-after-hold"' in fresh.get(place).content.decode()

    # After 100 days the hold is still active: neither a request nor the sweep erases anything.
    later = timezone.now() + timedelta(days=100)
    assert not select_expired_chats(now=later).exists()
    assert not erasure.erase_expired(chat_id=chat.pk, now=later)
    assert not record_holds.list_due_erasures(now=later).exists()
    assert not pending_erasures.run_pending_erasure(
        erasure_id=PendingErasure.objects.get().pk, now=later
    )

    holds.release_hold(hold=row, reason="Settled", actor="user:1", now=timezone.now())
    assert not record_holds.list_due_erasures(now=timezone.now() + timedelta(days=6)).exists()
    LegalHold.objects.update(ends_at=timezone.now())
    assert fulfilled(sent)
    assert not Chat.objects.exists()
    event = AuditEvent.objects.get(type="chat.erased")
    assert event.actor == f"user:{chat.owner_id}"
    assert fresh.get(get_chat_url(chat, "erased")).status_code == 200


def test_a_held_message_stays_until_the_hold_has_ended(
    fresh: Client, chat: Chat, talk: Talk, sent: Sent
) -> None:
    talk("The door code is 7781.")
    said = Message.objects.get(role="user")
    row = hold("user", user=chat.owner)
    where = get_chat_url(chat, f"messages/{said.pk}/erase")
    refused = fresh.post(where)
    assert refused.status_code == 409
    assert str(record_holds.MESSAGE_STAYS) in refused.content.decode()
    assert "Cancel erasure" in refused.content.decode()
    # A repeated request keeps the same pending erasure.
    assert fresh.post(where).status_code == 409
    assert PendingErasure.objects.get().message == said
    assert "The door code is 7781." in fresh.get(get_chat_url(chat)).content.decode()
    assert "Pending erasures" in fresh.get("/chats/archive").content.decode()

    ended(row)
    assert len(fulfilled(sent)) == 1
    said.refresh_from_db()
    assert said.erased_at is not None
    assert said.parts == []
    assert not PendingErasure.objects.exists()
    assert AuditEvent.objects.get(type="message.erased").data["wished_at"]


def test_messages_that_quote_it_are_wished_too(
    fresh: Client, chat: Chat, talk: Talk, sent: Sent
) -> None:
    secret = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."
    talk(secret, f"Noted: {secret}")
    said, quote = Message.objects.order_by("seq")
    hold(chat_id=chat.pk)
    where = get_chat_url(chat, f"messages/{said.pk}/erase")
    assert fresh.post(where, {"also": str(quote.pk)}).status_code == 409
    assert {pending.message for pending in PendingErasure.objects.all()} == {said, quote}


def test_the_certificate_of_a_held_message_names_its_quotes(
    fresh: Client, chat: Chat, talk: Talk, sent: Sent
) -> None:
    secret = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."
    talk(secret, f"Noted: {secret}")
    said, quote = Message.objects.order_by("seq")
    row = hold(chat_id=chat.pk)
    fresh.post(get_chat_url(chat, f"messages/{said.pk}/erase"))
    ended(row)
    fulfilled(sent)
    said.refresh_from_db()
    assert AuditEvent.objects.get(type="message.erased").data["quoted_by"] == [str(quote.pk)]
    assert [found.message for found in erasure.list_quotes(said)] == [quote]


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let another action run while a pending erasure waits for its chat."""

    def overtaking(act: Callable[[], Any]) -> None:
        def lock(chat_id: Any) -> Chat:
            act()
            return lock_chat_for_erasure(chat_id)

        monkeypatch.setattr(erasure, "lock_chat_for_erasure", lock)

    return overtaking


@pytest.mark.parametrize("kind", ["message", "chat", "restored chat"])
def test_what_is_cancelled_while_it_waits_for_the_chat_is_not_erased(
    chat: Chat, talk: Talk, overtake: Callable[..., None], now: datetime, kind: str
) -> None:
    talk("The door code is 7781.")
    said = Message.objects.get(role="user")
    row = hold(chat_id=chat.pk)
    if kind == "message":
        erase: Callable[..., Any] = partial(erasure.erase_message, message=said)
    else:
        erase = partial(erasure.erase_chat, chat=chat)
    with pytest.raises(UnderHold):
        erase(user=chat.owner, now=now)
    pending = PendingErasure.objects.get()
    ended(row)
    chat.refresh_from_db()

    def cancel() -> None:
        if kind == "restored chat":
            deletion.restore_chat(chat=chat, actor=f"user:{chat.owner_id}", now=timezone.now())
        else:
            assert pending_erasures.cancel_pending_erasure(
                owner_id=chat.owner_id, erasure_id=pending.pk, now=timezone.now()
            )

    overtake(cancel)
    assert not pending_erasures.run_pending_erasure(erasure_id=pending.pk, now=timezone.now())
    said.refresh_from_db()
    assert said.erased_at is None
    kinds = AuditEvent.objects.filter(type__in=["message.erased", "chat.erased"])
    assert not kinds.exists()


def test_a_message_that_was_erased_meanwhile_is_certified_once(
    chat: Chat, talk: Talk, now: datetime
) -> None:
    talk("The door code is 7781.")
    said = Message.objects.get(role="user")
    said.metadata = {"source": {"id": "imported-1"}}
    said.save(update_fields=["metadata"])
    row = hold(chat_id=chat.pk)
    with pytest.raises(UnderHold):
        erasure.erase_message(user=chat.owner, message=said, now=now)
    pending = PendingErasure.objects.get()
    ended(row)
    erasure.erase_message(user=chat.owner, message=said, now=timezone.now())
    assert not pending_erasures.run_pending_erasure(erasure_id=pending.pk, now=timezone.now())
    assert not PendingErasure.objects.exists()
    # A version that left the row of an erased message did not lose its mark either.
    said.refresh_from_db()
    marked = dict(said.metadata)
    left = PendingErasure.objects.create(message=said, owner_id=chat.owner_id, asked_at=now)
    assert pending_erasures.run_pending_erasure(erasure_id=left.pk, now=timezone.now())
    said.refresh_from_db()
    assert said.metadata == marked
    assert marked.keys() == {"erasedId"}
    assert AuditEvent.objects.filter(type="message.erased").count() == 1


@pytest.mark.parametrize("level", ["instance", "group", "user", "chat"])
def test_each_level_holds_what_it_names_and_no_more(
    level: str, alice: User, chat: Chat, charlie: User, now: datetime
) -> None:
    team = Group.objects.create(name="Sales")
    alice.groups.add(team)
    target: Any = {"group": {"group": team}, "user": {"user": alice}, "chat": {"chat_id": chat.pk}}
    hold(level, **target.get(level, {}))
    with pytest.raises(UnderHold):
        erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
    theirs = lifecycle.create_chat(owner=charlie, now=now)
    if level == "instance":
        with pytest.raises(UnderHold):
            erasure.erase_chat(user=charlie, chat=theirs, now=timezone.now())
    else:
        erasure.erase_chat(user=charlie, chat=theirs, now=timezone.now())
        assert not Chat.objects.filter(pk=theirs.pk).exists()
    # Another chat of hers is free only where the one chat is held.
    other = lifecycle.create_chat(owner=alice, now=now)
    if level == "chat":
        erasure.erase_chat(user=alice, chat=other, now=timezone.now())
    else:
        with pytest.raises(UnderHold):
            erasure.erase_chat(user=alice, chat=other, now=timezone.now())


def test_who_leaves_a_held_group_stays_held_and_who_joins_is(
    alice: User, chat: Chat, charlie: User, now: datetime
) -> None:
    team = Group.objects.create(name="Sales")
    alice.groups.add(team)
    hold("group", group=team)
    alice.groups.remove(team)
    charlie.groups.add(team)
    found = holds.load_held_targets(now=timezone.now())
    assert found.covers(owner_id=alice.pk)
    assert found.covers(owner_id=charlie.pk)
    charlie.groups.remove(team)
    assert not holds.load_held_targets(now=timezone.now()).covers(owner_id=charlie.pk)


@pytest.mark.policy_case(27)
def test_of_several_holds_each_has_to_end(alice: User, chat: Chat) -> None:
    first, second = hold(chat_id=chat.pk), hold("user", user=alice)
    ended(first)
    with pytest.raises(UnderHold):
        erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
    assert not record_holds.list_due_erasures(now=timezone.now()).exists()
    ended(second)
    assert record_holds.list_due_erasures(now=timezone.now()).exists()


def test_a_release_can_be_answered_by_another_hold(alice: User, chat: Chat) -> None:
    row = hold(chat_id=chat.pk)
    holds.release_hold(hold=row, reason="By mistake", actor="user:1", now=timezone.now())
    with pytest.raises(UnderHold):
        erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
    hold(chat_id=chat.pk)
    later = timezone.now() + timedelta(days=30)
    assert not record_holds.list_due_erasures(now=later).exists()
    with pytest.raises(holds.HoldReleased):
        holds.release_hold(hold=row, reason="Again", actor="user:1", now=later)


def test_hiding_goes_on_and_the_sweep_leaves_what_is_held(
    page: Client, alice: User, chat: Chat, now: datetime
) -> None:
    temporary = lifecycle.create_chat(owner=alice, now=now, temporary=True)
    provisional = lifecycle.create_chat(owner=alice, now=now)
    Chat.objects.filter(pk=provisional.pk).update(archived=True, erase_at=now)
    later = timezone.now() + timedelta(days=60)
    row = hold("user", user=alice)
    page.post(get_chat_url(chat, "delete"))
    deletion.sign_out(user=alice, now=timezone.now())
    assert Chat.objects.filter(deleted_at__isnull=False).count() == 2
    assert not select_expired_chats(now=later).exists()
    for each in (chat, temporary, provisional):
        assert not erasure.erase_expired(chat_id=each.pk, now=later)
    ended(row)
    assert set(select_expired_chats(now=later)) == {chat, temporary, provisional}
    for each in (chat, temporary, provisional):
        assert erasure.erase_expired(chat_id=each.pk, now=later)


def test_who_brings_a_chat_back_no_longer_wants_it_erased(fresh: Client, chat: Chat) -> None:
    hold(chat_id=chat.pk)
    fresh.post(get_chat_url(chat, "erase"))
    fresh.post(get_chat_url(chat, "restore"))
    assert fresh.get(get_chat_url(chat)).status_code == 200
    assert not PendingErasure.objects.exists()
    told = AuditEvent.objects.filter(type__startswith="erasure.").order_by("pk")
    assert [event.type for event in told] == ["erasure.asked", "erasure.withdrawn"]


def test_a_wish_is_withdrawn_by_its_owner_alone(
    fresh: Client, charlies_page: Client, chat: Chat, talk: Talk
) -> None:
    talk("Hello")
    said = Message.objects.get(role="user")
    hold(chat_id=chat.pk)
    fresh.post(get_chat_url(chat, f"messages/{said.pk}/erase"))
    pending = PendingErasure.objects.get()
    assert charlies_page.post(f"/chats/wishes/{pending.pk}/withdraw").status_code == 404
    assert PendingErasure.objects.exists()
    assert (
        fresh.post(f"/chats/wishes/{pending.pk}/withdraw").headers["Location"] == "/chats/archive"
    )
    assert not PendingErasure.objects.exists()


def written(alice: User, now: datetime, *, folder: Folder | None = None) -> Preference:
    """A preference of Alice's own."""
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    text = f"I like it short, {folder}."
    return preferences.write_preference(
        owner_id=alice.pk, slot="tone", text=text, now=now, folder=folder
    )


def test_a_held_preference_is_out_of_use_until_it_is_erased(
    page: Client, alice: User, chat: Chat, now: datetime, sent: Sent
) -> None:
    row = written(alice, now)
    held = hold("user", user=alice)
    refused = page.post(f"/settings/memory/preferences/{row.pk}", {"act": "delete"})
    assert refused.status_code == 409
    assert str(record_holds.PREFERENCE_UNUSED) in refused.content.decode()
    row.refresh_from_db()
    assert row.status == Preference.Status.SUPERSEDED
    assert row.text
    ended(held)
    assert len(fulfilled(sent)) == 1
    assert not Preference.objects.exists()
    assert not PendingErasure.objects.exists()


def test_held_preferences_outlive_their_folder(
    page: Client, alice: User, chat: Chat, now: datetime
) -> None:
    folder = organising.create_folder(owner=alice, name="Work")
    row = written(alice, now, folder=folder)
    hold("user", user=alice)
    page.post(f"/folders/{folder.pk}/delete")
    assert not Folder.objects.exists()
    row.refresh_from_db()
    assert row.folder is None
    assert row.status == Preference.Status.SUPERSEDED
    assert PendingErasure.objects.get().preference == row


def test_a_preference_of_a_held_chat_stays_with_its_evidence(
    alice: User, chat: Chat, now: datetime, talk: Talk
) -> None:
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    talk("My name is Alice Berg.")
    row = Preference.objects.get()
    hold(chat_id=chat.pk)
    with pytest.raises(UnderHold):
        memory.delete_saved_preference(owner=alice, preference_id=row.pk, now=now)
    assert Preference.objects.filter(pk=row.pk).exists()


def test_nothing_held_goes_by_a_way_beside_the_product(alice: User, chat: Chat) -> None:
    row = hold(chat_id=chat.pk)
    for delete in (chat.delete, alice.delete, Chat.objects.all().delete):
        with pytest.raises(UnderHold), transaction.atomic():
            delete()
    assert Chat.objects.exists()
    ended(row)
    alice.delete()
    assert not Chat.objects.exists()


@pytest.mark.policy_case(27)
def test_a_hold_waits_for_a_deletion_that_has_asked(
    transactional_ledger: None, alice: User, chat: Chat
) -> None:
    asked, placed = threading.Event(), threading.Event()

    def place() -> None:
        asked.wait(10)
        hold(chat_id=chat.pk)
        placed.set()
        connection.close()

    other = threading.Thread(target=place)
    other.start()
    with transaction.atomic():
        record_holds.check_legal_hold(owner_id=alice.pk, chats=[chat.pk], now=timezone.now())
        asked.set()
        assert not placed.wait(0.5)
    other.join(10)
    assert placed.is_set()
    with pytest.raises(UnderHold):
        erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
