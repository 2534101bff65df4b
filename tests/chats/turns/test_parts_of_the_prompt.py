"""Optional parts of system text and tail, enabled by a policy and listed in the receipt."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import erasure, lifecycle, organising
from chats.actions import memory as memory_acts
from chats.memory.preferences import memory_settings, preferences
from chats.models import Branch, Chat, Folder, Message, PromptText, Turn
from chats.turns.start import start_turn
from contextpolicy.engine.compose.system_text import format_runtime_note
from contextpolicy.models import Skill
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.skills import save_skill

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
Work = Callable[..., Any]
Ask = Callable[..., Turn]


@pytest.fixture
def ask(alice: User, chat: Chat, work: Work, now: datetime) -> Ask:
    """Send a message in a chat of Alice and let the model reply."""
    times = iter(range(1, 1_000))

    def asking(text: str, where: Chat | None = None) -> Turn:
        at = now + timedelta(minutes=next(times))
        turn = start_turn(user=alice, chat=where or chat, text=text, now=at).turn
        work(turn)
        return turn

    return asking


def govern(now: datetime, **values: Any) -> None:
    """Assign a policy to the whole instance."""
    policy = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def parts(turn: Turn, origin: str) -> dict[str, str]:
    """Return the parts of the turn's prompt by name, with their texts."""
    receipt = turn.receipts.get()
    return {
        part[1]: PromptText.objects.get(pk=part[5]).text
        for part in receipt.segments
        if part[0] == origin
    }


def test_a_policy_switches_each_part_of_the_system_text_on(ask: Ask, now: datetime) -> None:
    for slug, enabled in (("mail", True), ("old", False), ("sums", True)):
        skill = Skill(
            slug=slug,
            name=slug.title(),
            text=f"About {slug}.",
            enabled=enabled,
            mode=Skill.Mode.ALWAYS,
        )
        save_skill(skill=skill, actor="system", now=now)
    assert parts(ask("Hello"), "system") == {}
    govern(
        now,
        system_text="Be kind.",
        runtime_note=True,
        budget_note=True,
        skills=["sums", "old", "mail"],
        reserve_tokens=1_000,
    )

    turn = ask("Hello again")

    receipt = turn.receipts.get()
    named = [part[1] for part in receipt.segments if part[0] == "system"]
    assert named == ["runtime", "policy", "skills", "skills", "budget"]
    found = parts(turn, "system")
    assert found["runtime"] == format_runtime_note("demo")
    assert found["skills"] == "Skill: Mail\nAbout mail."
    assert "1,000 tokens" in found["budget"]
    # Without a clock, the text is the same tomorrow.
    assert str(now.year) not in "".join(found.values())


@pytest.mark.memory_case(18)
def test_recent_messages_of_other_chats_go_along_where_the_policy_says_so(
    ask: Ask, alice: User, charlie: User, chat: Chat, now: datetime
) -> None:
    other, hidden, excluded = (lifecycle.create_chat(owner=alice, now=now) for _ in range(3))
    temporary = lifecycle.create_chat(owner=alice, now=now, temporary=True)
    ask("My cat is Momo.", other)
    ask("Secret of a temporary chat", temporary)
    memory_acts.set_memory_of_chat(chat=hidden, remembers=False)
    ask("Secret of a chat without memory", hidden)
    turn = ask("Secret that is excluded", excluded)
    Message.objects.filter(triggered=turn).update(excluded=True)
    foreign = lifecycle.create_chat(owner=charlie, now=now)
    start_turn(
        user=charlie, chat=foreign, text="Secret of Charlie's", now=now + timedelta(minutes=40)
    )
    assert parts(ask("Who is Momo?"), "tail") == {}
    govern(now, recent_by_user=20)

    found = parts(ask("And who is Momo?"), "tail")["recent"]

    assert found == "Other chats (recent):\nUser: My cat is Momo."
    assert "Secret" not in found
    # Messages of the same chat are part of its history.
    assert "Who is Momo?" not in found
    assert "recent" not in parts(ask("And here?", temporary), "tail")


@pytest.mark.memory_case(21)
def test_a_folders_chat_sees_the_chats_of_its_folder_alone(
    ask: Ask, alice: User, chat: Chat, now: datetime
) -> None:
    folder = Folder.objects.create(owner=alice, name="Work")
    inside, outside = (lifecycle.create_chat(owner=alice, now=now) for _ in range(2))
    for one in (chat, inside):
        organising.organise_chat(chat=one, user=alice, folder=folder.pk)
    ask("Said inside", inside)
    ask("Said outside", outside)
    govern(now, recent_by_user=20)

    found = parts(ask("What was said?"), "tail")["recent"]

    assert "Said inside" in found
    assert "Said outside" not in found


def test_recent_messages_leave_out_closed_chats_and_interrupted_replies(
    ask: Ask, alice: User, chat: Chat, now: datetime
) -> None:
    open_chat, *others = (lifecycle.create_chat(owner=alice, now=now) for _ in range(8))
    turn = ask("Said in an open chat", open_chat)
    Message.objects.create(
        branch=Branch.objects.get(chat=open_chat),
        seq=9,
        role="assistant",
        parts=[{"type": "text", "text": "Cut off in"}],
        accepted=9,
        finish=Message.Finish.INCOMPLETE,
        turn=turn,
        created_at=now,
    )
    Branch.objects.filter(chat=open_chat).update(last_seq=9)
    policy = create_policy(
        slug="closed", name="Closed", values={"archive": False}, actor="system", now=now
    )
    for closed in others:
        ask("Said in a closed chat", closed)
        assign_policy(policy=policy, level="chat", chat_id=closed.pk, actor="system", now=now)
    govern(now, recent_by_user=20)

    found = parts(ask("And now?"), "tail")["recent"]

    assert found == "Other chats (recent):\nUser: Said in an open chat"


@pytest.mark.memory_case(14)
def test_an_erased_message_leaves_the_prompts_of_other_chats(
    ask: Ask, alice: User, chat: Chat, now: datetime
) -> None:
    other = lifecycle.create_chat(owner=alice, now=now)
    said = ask("The word is Zanzibar.", other)
    govern(now, recent_by_user=20)
    turn = ask("What is the word?")
    assert "Zanzibar" in parts(turn, "tail")["recent"]
    message = Message.objects.select_related("branch__chat").get(triggered=said)

    erasure.erase_message(user=alice, message=message, now=now + timedelta(days=1))

    assert not PromptText.objects.filter(text__contains="Zanzibar").exists()
    assert turn.receipts.get().erased_at is not None


def test_a_pause_of_the_memory_holds_for_recent_messages_too(
    ask: Ask, alice: User, chat: Chat, now: datetime
) -> None:
    ask("My cat is Momo.", lifecycle.create_chat(owner=alice, now=now))
    govern(now, recent_by_user=20)
    memory_settings.set_paused(owner_id=alice.pk, paused=True, now=now)

    assert parts(ask("Who is Momo?"), "tail") == {}


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
def test_every_layout_sends_what_is_known_of_the_person(
    ask: Ask, alice: User, now: datetime, layout: str
) -> None:
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    preferences.write_preference(owner_id=alice.pk, slot="note", text="I like tea", now=now)
    memory_settings.write_instructions(owner_id=alice.pk, text="Be brief.", now=now)
    govern(now, layout=layout)

    found = parts(ask("Hello"), "tail")

    assert found["preferences"].endswith("- note: I like tea")
    assert found["profile"].endswith("Be brief.")
