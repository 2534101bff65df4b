"""Permanent erasure: all text is removed; ids, positions, hashes and a certificate remain."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import CharField, JSONField, TextField

from chats.actions import erasure, erasure_targets, running_replies
from chats.actions.branching import branch_from_message
from chats.compaction import claims, maintain
from chats.ground.leases import LeaseLost
from chats.memory.search import archive
from chats.memory.search.search import search_archive
from chats.models import Chat, Compaction, Message, PromptText, Receipt, Rendering, SearchText
from chats.record import states
from chats.rendering.store import render_texts
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent
from tests.chats.states import lay
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    Say,
    add_minutes,
    find_active_summary,
    reload_branch,
)

Work = Callable[..., Any]
SECRET = "Zanzibar-7781"


def places_with(word: str) -> list[str]:
    """Return every column of every row, ledger included, that contains the word."""
    found = []
    for model in apps.get_models():
        fields = [f for f in model._meta.fields if isinstance(f, TextField | CharField | JSONField)]
        for row in model._base_manager.all():
            for field in fields:
                value = getattr(row, field.attname)
                text = value if isinstance(value, str) else json.dumps(value)
                if word in text:
                    found.append(f"{model.__name__}.{field.name}")
    return sorted(set(found))


@pytest.fixture
def secret_chat(alice: User, long_chat: Chat, say: Say, fold: Fold, now: datetime) -> Chat:
    """A chat whose third message contains a secret, also present in a summary and in prompts."""
    row = Message.objects.get(branch=reload_branch(long_chat), seq=3)
    row.parts = [{"type": "text", "text": f"The code is {SECRET} and it was sent on 3 May 2026."}]
    row.save()
    summary = fold(long_chat)
    assert SECRET in summary.text
    say(long_chat)
    render_texts(
        [row.text, summary.text, *erasure_targets.iter_summary_texts(summary)],
        seen=reload_branch(long_chat),
    )
    return long_chat


def third(chat: Chat) -> Message:
    """Return the message with the secret."""
    return Message.objects.select_related("branch").get(branch=reload_branch(chat), seq=3)


def test_inv_48_erasure_reaches_every_copy(
    alice: User, secret_chat: Chat, say: Say, now: datetime
) -> None:
    assert set(places_with(SECRET)) >= {
        "Message.parts",
        "Compaction.text",
        "Compaction.sections",
        "PromptText.text",
        "Rendering.html",
    }
    message = third(secret_chat)
    erased = erasure.erase_message(user=alice, message=message, now=add_minutes(now)).message
    assert places_with(SECRET) == []
    assert (erased.pk, erased.seq, erased.parts) == (message.pk, 3, [])
    assert find_active_summary(secret_chat) is None
    assert say(secret_chat).status == "completed"
    assert list(ledger.find_ledger_breaks()) == []


def test_inv_48_the_certificate_names_what_was_reached_by_ids_and_hashes(
    alice: User, secret_chat: Chat, now: datetime
) -> None:
    summary = find_active_summary(secret_chat)
    assert summary is not None
    message = third(secret_chat)
    erasure.erase_message(user=alice, message=message, now=now)
    erasure.erase_message(user=alice, message=message, now=now)
    event = AuditEvent.objects.get(type="message.erased")
    assert event.data["message"] == str(message.pk)
    assert event.data["summaries"] == event.data["withdrawn"] == [str(summary.pk)]
    assert len(event.data["commitment"]) == 64
    assert event.data["copies"]["prompt_texts"] >= 1
    assert event.data["copies"]["renderings"] >= 2
    summary.refresh_from_db()
    assert (summary.status, summary.text, summary.erased_at) == ("overtaken", "", now)
    assert (summary.salt, summary.text_commitment) == ("", "")


def test_inv_46_later_summaries_that_folded_it_are_erased_too(
    alice: User, secret_chat: Chat, say: Say, fold: Fold, now: datetime
) -> None:
    for _ in range(6):
        say(secret_chat, f"More. {SENTENCE}", SENTENCE * 6)
    fold(secret_chat, at=add_minutes(now))
    branch_from_message(user=alice, message=third(secret_chat), now=now)
    erasure.erase_message(user=alice, message=third_of_root(secret_chat), now=add_minutes(now, 2))
    assert not Compaction.objects.filter(kind="summary").exclude(text="").exists()
    assert places_with(SECRET) == []


def third_of_root(chat: Chat) -> Message:
    """Return the message with the secret on the chat's first branch."""
    root = chat.branches.get(parent=None)
    return Message.objects.select_related("branch").get(branch=root, seq=3)


def test_inv_40_a_summary_being_written_of_it_is_overtaken(
    alice: User, long_chat: Chat, now: datetime
) -> None:
    claimed = claims.claim_compaction(chat_id=long_chat.pk, counter=ApproximateCounter(), now=now)
    assert claimed is not None
    erasure.erase_message(user=alice, message=third(long_chat), now=now)
    with pytest.raises(LeaseLost):
        maintain.run_summary_attempt(claimed, counter=ApproximateCounter(), clock=lambda: now)
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.text) == ("overtaken", "")


def test_a_title_made_of_the_message_goes_with_it(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    say(chat, f"The code is {SECRET}", "Noted.")
    message = Message.objects.select_related("branch").get(branch=reload_branch(chat), seq=1)
    erasure.erase_message(user=alice, message=message, now=now)
    chat.refresh_from_db()
    assert chat.title == ""
    assert places_with(SECRET) == []


def test_nothing_is_erased_while_its_reply_is_being_written(
    alice: User, chat: Chat, now: datetime
) -> None:
    accepted = start_turn(user=alice, chat=chat, text="Soon", now=now)
    with pytest.raises(running_replies.StillAnswering):
        erasure.erase_message(user=alice, message=accepted.message, now=now)
    with pytest.raises(running_replies.StillAnswering):
        erasure.erase_chat(user=alice, chat=chat, now=now)


def test_inv_48_a_whole_chat_leaves_nothing_but_its_events(
    alice: User, secret_chat: Chat, say: Say, now: datetime
) -> None:
    Chat.objects.filter(pk=secret_chat.pk).update(system_text=f"Never tell {SECRET}-system.")
    say(secret_chat)
    assert PromptText.objects.filter(text__contains=SECRET).count() >= 2
    erasure.erase_chat(user=alice, chat=secret_chat, now=now)
    assert places_with(SECRET) == []
    assert not Rendering.objects.filter(html__contains="4711").exists()
    assert not PromptText.objects.filter(text__contains="4711").exists()
    event = AuditEvent.objects.get(type="chat.erased")
    assert event.data["copies"]["messages"] > 16
    assert list(ledger.find_ledger_breaks()) == []


def test_inv_48_a_state_loses_what_the_message_may_have_told(
    alice: User, secret_chat: Chat, now: datetime
) -> None:
    lay(secret_chat, {"destination": "Oslo"}, now=now, seq=2)
    lay(secret_chat, {"destination": "Oslo", "key": SECRET}, now=now, seq=3)
    base = lay(secret_chat, {"destination": "Oslo", "key": SECRET, "people": 2}, now=now, seq=5)
    text = f"Conversation state: {SECRET}"
    PromptText.objects.create(digest="f" * 64, origin="tail", text=text)
    receipt = Receipt.objects.filter(turn__branch__chat=secret_chat).latest("created_at")
    receipt.segments = [*receipt.segments, ["tail", "state", None, 3, None, "f" * 64, None]]
    receipt.save()
    erasure.erase_message(user=alice, message=third(secret_chat), now=add_minutes(now))
    assert places_with(SECRET) == []
    newest = states.find_newest_state(reload_branch(secret_chat))
    assert newest is not None
    assert (newest.kind, newest.values) == ("erased", {"destination": "Oslo"})
    # The new version makes a running extraction, which read the message earlier, outdated.
    assert newest.version == base.version + 1


def test_a_state_from_before_the_message_stays_as_it_is(
    alice: User, secret_chat: Chat, now: datetime
) -> None:
    row = lay(secret_chat, {"destination": "Oslo"}, now=now, seq=2)
    erasure.erase_message(user=alice, message=third(secret_chat), now=add_minutes(now))
    assert states.find_newest_state(reload_branch(secret_chat)) == row


def test_inv_48_an_erased_message_is_not_found_any_more(
    alice: User, secret_chat: Chat, now: datetime
) -> None:
    archive.index_branch(reload_branch(secret_chat))
    assert SearchText.objects.filter(message=third(secret_chat)).exists()
    erasure.erase_message(user=alice, message=third(secret_chat), now=add_minutes(now))
    assert not SearchText.objects.filter(message=third(secret_chat)).exists()
    assert search_archive(reload_branch(secret_chat), question="Zanzibar", most=5).rows == ()
