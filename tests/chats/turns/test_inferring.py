"""Inferred preferences: when the model is called, its input, stored results, and frequency."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import erasure, lifecycle, marks, memory
from chats.background import due_jobs, preference_inference
from chats.ground import queue
from chats.memory.preferences import inference_queue, memory_settings, preferences
from chats.models import (
    Chat,
    Folder,
    ForgottenPreference,
    MemorySettings,
    Message,
    Preference,
    PreferenceReading,
    ProviderAccount,
    Receipt,
    Turn,
)
from chats.prompt import person
from chats.providers import registry
from chats.providers.base import ErrorCode, Finished, ProviderError, TextDelta, UsageReport
from chats.record import commitment_check, usage
from chats.turns.start import start_turn
from chats.turns.step_results import StepResult
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.compaction.conftest import set_policy
from tests.support.chat_summaries import SetPolicy
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.usefixtures("built_again")
__all__ = ["set_policy"]
Say = Callable[..., Turn]
Reads = Callable[..., ScriptedProvider]
Proposes = Callable[..., str]
FLORIST = "I work as a florist. What grows in shade?"


@pytest.fixture(autouse=True)
def light(demo_model: ModelSpec, set_policy: SetPolicy) -> ModelSpec:
    """The light model of the policy, on a separate server."""
    ProviderAccount.objects.create(slug="near", name="Near", base_url="http://127.0.0.1:9/v1")
    model = ModelSpec.objects.create(
        slug="light", provider="near", name="light-model", context_window=32_000
    )
    set_policy(summarization_model="light", token_budget=30_000)
    return model


@pytest.fixture(autouse=True)
def agreed(alice: User, now: datetime) -> User:
    """Alice, who consented to inferred preferences."""
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    memory_settings.set_inferring(owner_id=alice.pk, agrees=True, now=now)
    return alice


@pytest.fixture
def say(alice: User, chat: Chat, work: Any, now: datetime) -> Say:
    """Run one turn: `say(text)`. Accepts another chat of Alice."""

    def saying(text: str, where: Chat | None = None, reply: str = "Noted.") -> Turn:
        turn = start_turn(user=alice, chat=where or chat, text=text, now=now).turn
        work(turn, [TextDelta(reply), Finished("stop")])
        return turn

    return saying


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, chat: Chat, now: datetime) -> Reads:
    """Run the task for an idle chat: `reads(answer)`. Returns the provider that it called."""

    def reading(*answer: Any, where: Chat | None = None, rested: bool = True) -> ScriptedProvider:
        script = [TextDelta(item) if isinstance(item, str) else item for item in answer]
        provider = ScriptedProvider([[*script, UsageReport(90, 9, 0, 0), Finished("stop")]])
        monkeypatch.setattr(registry, "get_provider", lambda *a, **k: provider)
        if rested:
            PreferenceReading.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        preference_inference.read_chat(
            chat_id=(where or chat).pk,
            counter=ApproximateCounter(),
            clock=lambda: now,
            is_closing=lambda: False,
        )
        return provider

    return reading


def proposes(*items: tuple[int, str, str]) -> str:
    """Return an answer of the model."""
    return json.dumps(
        [dict(zip(("message", "slot", "quote"), item, strict=True)) for item in items]
    )


def kept() -> list[tuple[str, str, str]]:
    """Return the stored preferences: slot, text, status."""
    return sorted(Preference.objects.values_list("slot", "text", "status"))


def another(owner: User, now: datetime) -> Chat:
    """Another chat."""
    return lifecycle.create_chat(owner=owner, now=now)


def test_a_chat_that_rests_brings_proposals_in_the_persons_own_words(
    alice: User, chat: Chat, say: Say, reads: Reads
) -> None:
    say(FLORIST, reply="Ferns do.")
    (request,) = reads(proposes((1, "job", "I work as a florist."))).requests

    assert kept() == [("job", "I work as a florist", "proposed")]
    row = Preference.objects.get()
    place = row.evidence.get()
    assert (row.kind, place.message.text[place.start : place.end]) == ("inferred", row.text)
    assert request.model == "light-model"
    assert f"[1] {FLORIST}" in request.messages[1].content
    # The preference is unused until the user accepts it.
    assert person.select_chat_preferences(preference_inference.load_inference_branch(chat)) == []
    preferences.accept_preference(owner_id=alice.pk, preference_id=row.pk, now=timezone.now())
    assert person.select_chat_preferences(preference_inference.load_inference_branch(chat)) == [
        Preference.objects.get()
    ]


def test_it_waits_until_the_chat_has_rested(
    chat: Chat, say: Say, reads: Reads, sent: list[tuple[str, dict[str, str]]], now: datetime
) -> None:
    say(FLORIST)
    row = PreferenceReading.objects.get(chat=chat)
    assert row.due_at is not None
    queued_at: datetime = Turn.objects.values_list("queued_at", flat=True).get()
    assert row.due_at - queued_at >= inference_queue.REST
    PreferenceReading.objects.update(due_at=timezone.now() + inference_queue.REST)
    assert reads(rested=False).requests == []


def test_the_sweep_sends_the_task_once_in_a_while(
    say: Say,
    chat: Chat,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    say(FLORIST)
    PreferenceReading.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=timezone.now())
        due_jobs.run_all_due_jobs(now=timezone.now())

    assert [given for task, given in sent if task == queue.READ_PREFERENCES] == [
        {"chat_id": str(chat.pk)}
    ]


def test_a_compaction_has_the_chat_read_at_once(
    say: Say,
    chat: Chat,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    say(FLORIST)
    PreferenceReading.objects.update(due_at=timezone.now() + inference_queue.REST)
    with django_capture_on_commit_callbacks(execute=True):
        inference_queue.schedule_immediate_reading(chat.pk, now=timezone.now())

    assert queue.READ_PREFERENCES in [task for task, _ in sent]
    assert PreferenceReading.objects.filter(due_at__lte=timezone.now()).exists()


LIGHT = {"summarization_model": "light", "token_budget": 30_000}
FORBIDS: dict[str, Callable[[Chat, datetime], object]] = {
    "consent": lambda chat, now: memory_settings.set_consent(
        owner_id=chat.owner_id, agrees=False, now=now
    ),
    "proposals": lambda chat, now: memory_settings.set_inferring(
        owner_id=chat.owner_id, agrees=False, now=now
    ),
    "pause": lambda chat, now: memory_settings.set_paused(
        owner_id=chat.owner_id, paused=True, now=now
    ),
    "chat": lambda chat, _: memory.set_memory_of_chat(chat=chat, remembers=False),
    "folder": lambda chat, _: Chat.objects.filter(pk=chat.pk).update(
        folder=Folder.objects.create(owner=chat.owner, name="Work", without_memory=True)
    ),
    "temporary": lambda chat, _: Chat.objects.filter(pk=chat.pk).update(temporary=True),
}


@pytest.mark.memory_case(22)
@pytest.mark.parametrize("who", FORBIDS)
def test_nothing_is_read_where_somebody_forbids_it(
    chat: Chat, say: Say, reads: Reads, now: datetime, who: str
) -> None:
    """Also if inference is disabled after the message and before the chat is idle."""
    say(FLORIST)
    FORBIDS[who](chat, now)
    assert_nothing_is_read(chat, say, reads)


@pytest.mark.memory_case(20)
@pytest.mark.parametrize(
    "values",
    [
        {"inferred_preferences": False},
        {"preferences": False},
        {"memory_providers": ["elsewhere"]},
    ],
)
def test_nothing_is_read_where_the_policy_forbids_it(
    chat: Chat, say: Say, reads: Reads, set_policy: SetPolicy, values: dict[str, Any]
) -> None:
    say(FLORIST)
    set_policy(**LIGHT, **values)
    assert_nothing_is_read(chat, say, reads)


def assert_nothing_is_read(chat: Chat, say: Say, reads: Reads) -> None:
    """Check that neither earlier nor new messages are sent to the model."""
    assert reads(proposes((1, "job", "I work as a florist"))).requests == []
    chat.refresh_from_db()
    PreferenceReading.objects.all().delete()
    say(FLORIST)
    assert reads(proposes((1, "job", "I work as a florist"))).requests == []
    assert kept() == []


def test_without_a_light_model_nothing_is_even_due(say: Say, set_policy: SetPolicy) -> None:
    set_policy()
    say(FLORIST)
    assert not PreferenceReading.objects.exists()


def test_what_was_said_before_the_person_agreed_is_never_read(
    alice: User, say: Say, reads: Reads, now: datetime
) -> None:
    memory_settings.set_inferring(owner_id=alice.pk, agrees=False, now=now)
    say("I live in Oslo.")
    memory_settings.set_inferring(owner_id=alice.pk, agrees=True, now=timezone.now())
    Message.objects.filter(role="user").update(created_at=now - timedelta(hours=1))
    say(FLORIST)
    Message.objects.filter(seq=3).update(created_at=timezone.now() + timedelta(minutes=1))
    (request,) = reads("[]").requests
    assert "[1] I work as a florist" in request.messages[1].content


@pytest.mark.memory_case(4)
@pytest.mark.memory_case(29)
@pytest.mark.parametrize(
    ("said", "quote"),
    [
        ("Translate: “I love my cat Zoe.”", "I love my cat Zoe"),
        ("Look:\n> I work as a pilot\nWhat is that?", "I work as a pilot"),
        ("```\nname = I work as a pilot\n```\nWhat is that?", "I work as a pilot"),
        ("I note this", "I not"),
        ("I like tea", "I like green tea"),
        ("I like tea", "I like"),
    ],
)
def test_only_literal_words_of_the_person_are_evidence(
    say: Say, reads: Reads, said: str, quote: str
) -> None:
    say(said, reply="You work as a pilot and I love my cat Zoe.")
    is_there = (said, quote) == ("I like tea", "I like")
    reads(proposes((1, "note", quote)))
    assert len(kept()) == is_there


@pytest.mark.memory_case(4)
def test_replies_are_context_and_no_evidence(say: Say, reads: Reads) -> None:
    say("Hello there", reply="You like tea.\n\n[2] I like tea")
    say("Go on")
    (request,) = reads(
        proposes((2, "note", "I like tea"), (1, "note", "You like tea"), (3, "note", "I like tea"))
    ).requests
    assert "(reply) You like tea." in request.messages[1].content
    assert kept() == []


@pytest.mark.memory_case(29)
def test_others_in_a_chat_and_programs_are_never_read(say: Say, reads: Reads) -> None:
    first, second = say("I work as a pilot"), say("I live in Rome")
    Message.objects.filter(turn=first, role="user").update(
        speaker={"roleId": "x", "roleName": "X", "type": "human"}
    )
    Turn.objects.filter(pk=second.pk).update(client={})
    assert reads(proposes((1, "note", "I work as a pilot"))).requests == []
    assert kept() == []


@pytest.mark.memory_case(8)
@pytest.mark.parametrize(
    "text",
    [
        "I fixed bug 4711 in PR #12",
        "I moved to Oslo in 2024",
        "I am working on the release",
        "I have a meeting tomorrow",
        "I arbeite gerade an Kapitel 3",
        "我今天在修复错误",
        "see https://a.example/x for my setup",
        "I am stuck at version 2.1",
    ],
)
def test_nothing_dated_or_about_a_task_is_kept(say: Say, reads: Reads, text: str) -> None:
    say(text)
    reads(proposes((1, "note", text)))
    assert kept() == []
    told = AuditEvent.objects.get(type="chat.preferences_read").data
    assert told.keys() & {"dated", "task"}


@pytest.mark.parametrize(
    "text",
    [
        "I have diabetes",
        "I am a devout Catholic",
        "I vote for the Greens",
        "I am gay",
        "my password is tulip",
        "ich bin schwanger",
        "je suis diabétique et musulmane",
        "我信佛教",
    ],
)
def test_what_is_too_private_is_thrown_away_unless_it_is_told(
    say: Say, reads: Reads, text: str
) -> None:
    say(text)
    reads(proposes((1, "note", text)))
    assert kept() == []
    assert AuditEvent.objects.get(type="chat.preferences_read").data["private"] == 1


def test_what_is_told_in_so_many_words_is_kept_whatever_it_is(say: Say) -> None:
    say("Remember that I have diabetes.")
    assert kept() == [("note", "I have diabetes", "current")]


def test_a_second_chat_takes_a_proposal_into_use(
    alice: User, chat: Chat, say: Say, reads: Reads, now: datetime
) -> None:
    say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))
    say("As I said, I work as a florist!")
    reads(proposes((1, "job", "I work as a florist")))
    assert kept() == [("job", "I work as a florist", "proposed")]
    other = another(alice, now)
    say("Hello, I work as florist here", other)
    reads(proposes((1, "job", "I work as florist here")), where=other)

    assert kept() == [("job", "I work as a florist", "current")]
    assert Preference.objects.get().evidence.count() == 3
    event = AuditEvent.objects.get(type="preference.confirmed")
    assert event.data["chats"] == 2
    assert "florist" not in json.dumps(event.data)


def test_the_opposite_is_another_one(alice: User, say: Say, reads: Reads, now: datetime) -> None:
    say("I like long replies")
    reads(proposes((1, "format", "I like long replies")))
    other = another(alice, now)
    say("I don't like long replies", other)
    reads(proposes((1, "format", "I don't like long replies")), where=other)
    assert {status for *_, status in kept()} == {"proposed"}
    assert len(kept()) == 2


@pytest.mark.parametrize("kind", ["told", "written"])
def test_nothing_inferred_replaces_what_was_told_or_written(
    alice: User, say: Say, reads: Reads, now: datetime, kind: str
) -> None:
    preferences.write_preference(owner_id=alice.pk, slot="job", text="I am a baker", now=now)
    Preference.objects.update(kind=kind)
    say(FLORIST)
    other = another(alice, now)
    say(FLORIST, other)
    answer = proposes((1, "job", "I work as a florist"))
    reads(answer)
    reads(answer, where=other)
    assert kept() == [
        ("job", "I am a baker", "current"),
        ("job", "I work as a florist", "proposed"),
    ]


def test_an_older_message_proposes_nothing_against_a_newer_one(
    alice: User, say: Say, reads: Reads, now: datetime
) -> None:
    say(FLORIST)
    later = timezone.now() + timedelta(days=1)
    preferences.write_preference(owner_id=alice.pk, slot="job", text="I am a baker", now=later)
    reads(proposes((1, "job", "I work as a florist")))
    assert kept() == [("job", "I am a baker", "current")]


@pytest.mark.memory_case(16)
def test_a_rejected_one_is_not_proposed_again(
    alice: User, say: Say, reads: Reads, now: datetime
) -> None:
    say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))
    memory.delete_saved_preference(owner=alice, preference_id=Preference.objects.get().pk, now=now)
    say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))
    assert kept() == []
    assert ForgottenPreference.objects.count() == 1


@pytest.mark.memory_case(14)
def test_an_erased_message_takes_its_proposal_along(
    alice: User, chat: Chat, say: Say, reads: Reads, now: datetime
) -> None:
    say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))
    message = Message.objects.select_related("branch__chat").get(seq=1)
    erasure.erase_message(user=alice, message=message, now=now)
    assert kept() == []
    receipt = Receipt.objects.get(call__gte=Receipt.INFERRING)
    assert (receipt.prompt_sha256, receipt.erased_at) == ("", now)


@pytest.mark.parametrize("way", ["erased", "excluded", "withdrawn"])
def test_what_was_withdrawn_during_the_call_is_no_evidence(
    alice: User, say: Say, reads: Reads, now: datetime, way: str
) -> None:
    say(FLORIST)

    def withdraw() -> None:
        message = Message.objects.select_related("branch__chat").get(seq=1)
        if way == "erased":
            erasure.erase_message(user=alice, message=message, now=now)
        elif way == "excluded":
            marks.exclude_message(message=message, actor="user:1", now=now)
        else:
            memory_settings.set_inferring(owner_id=alice.pk, agrees=False, now=now)

    async def meanwhile(_worker: Any) -> None:
        await sync_to_async(withdraw)()

    reads(meanwhile, proposes((1, "job", "I work as a florist")))
    assert kept() == []


@pytest.mark.memory_case(5)
def test_what_a_server_refuses_is_not_asked_again(say: Say, reads: Reads) -> None:
    say(FLORIST)
    asked = [reads(ProviderError("provider_rejected")), reads("[]"), reads("[]")]
    assert [len(one.requests) for one in asked] == [1, 0, 0]
    assert Receipt.objects.get(call__gte=Receipt.INFERRING).outcome == "failed"


@pytest.mark.memory_case(5)
def test_a_paste_of_two_million_characters_is_never_sent(
    alice: User, chat: Chat, say: Say, reads: Reads
) -> None:
    say(FLORIST)
    later = say("And this?")
    # The prompt of this turn had the short text.
    Receipt.objects.filter(turn=later).delete()
    row = Message.objects.get(seq=3)
    Message.objects.filter(pk=row.pk).update(
        parts=[{"type": "text", "text": "I like x. " * 200_000}]
    )
    (request,) = reads("[]").requests
    assert len(request.messages[1].content) < 2_000


@pytest.mark.memory_case(5)
def test_one_call_has_sixteen_messages_and_twelve_thousand_tokens(say: Say, reads: Reads) -> None:
    for number in range(18):
        say(f"I say {number}", reply="x " * 2_000)
    first, second, third = reads("[]"), reads("[]"), reads("[]")
    numbers = [one.requests[0].messages[1].content.count("] I say") for one in (first, second)]
    assert sum(numbers) == 18
    assert numbers[0] <= preference_inference.MOST_MESSAGES
    assert third.requests == []
    for receipt in Receipt.objects.filter(call__gte=Receipt.INFERRING):
        assert receipt.prompt_tokens <= preference_inference.MOST_TOKENS
    assert Receipt.objects.filter(call__gte=Receipt.INFERRING).count() == 2


def test_what_fits_into_no_prompt_is_passed_over(say: Say, reads: Reads, light: ModelSpec) -> None:
    say("好" * 900)
    ModelSpec.objects.filter(pk=light.pk).update(context_window=600)
    assert reads("[]").requests == []
    assert PreferenceReading.objects.get().due_at is None


@pytest.mark.memory_case(6)
def test_a_person_has_twenty_calls_a_day(
    alice: User, say: Say, reads: Reads, now: datetime
) -> None:
    say(FLORIST)
    MemorySettings.objects.update(
        inferred_on=now.date(), inferred_calls=preference_inference.CALLS_A_DAY - 1
    )
    assert len(reads("[]").requests) == 1
    say(FLORIST)
    assert reads("[]").requests == []
    due_at = PreferenceReading.objects.get().due_at
    assert due_at is not None
    assert due_at > now
    MemorySettings.objects.update(inferred_on=now.date() - timedelta(days=1))
    assert len(reads("[]").requests) == 1
    assert MemorySettings.objects.get().inferred_calls == 1


@pytest.mark.memory_case(6)
def test_the_call_has_its_own_line_in_ledger_and_usage(
    alice: User, chat: Chat, say: Say, reads: Reads, now: datetime
) -> None:
    turn = say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))

    receipt = Receipt.objects.get(turn=turn, step=0)
    assert (receipt.purpose, receipt.outcome, receipt.usage["input"]) == ("preferences", "ok", 90)
    event = AuditEvent.objects.get(type="chat.preferences_asked")
    assert event.data["calls"] == [[str(receipt.pk), receipt.commitment]]
    assert AuditEvent.objects.get(type="chat.preferences_read").data["proposed"] == 1
    assert "florist" not in str(list(AuditEvent.objects.values_list("data", flat=True)))
    assert list(commitment_check.verify_chat_page([chat.pk], tally=Counter())) == []
    wide = {"since": now - timedelta(days=400), "until": timezone.now() + timedelta(days=400)}
    found = {
        one.group: one.input for one in usage.sum_person_usage(owner=alice, by="purpose", **wide)
    }
    assert found["preferences"] == 90


@pytest.mark.memory_case(26)
def test_no_reply_waits_for_it(say: Say) -> None:
    """A turn only schedules the inference. The turn ends before the model call."""
    turn = say(FLORIST)
    assert turn.status == "completed"
    assert not Receipt.objects.filter(call__gte=Receipt.INFERRING).exists()


@pytest.mark.memory_case(3)
def test_two_tasks_read_a_chat_once(say: Say, reads: Reads, chat: Chat) -> None:
    say(FLORIST)
    answer = proposes((1, "job", "I work as a florist"))
    assert [len(reads(answer).requests), len(reads(answer).requests)] == [1, 0]
    assert len(kept()) == 1


@pytest.mark.memory_case(3)
def test_a_dead_worker_is_followed_once_and_nothing_is_doubled(
    say: Say, chat: Chat, now: datetime, reads: Reads
) -> None:
    say(FLORIST)
    dead = []
    for _ in range(inference_queue.MOST_TRIES):
        PreferenceReading.objects.update(due_at=timezone.now())
        call = preference_inference.prepare_inference_call(
            chat.pk, counter=ApproximateCounter(), now=now
        )
        assert call is not None
        assert (
            preference_inference.prepare_inference_call(
                chat.pk, counter=ApproximateCounter(), now=now
            )
            is None
        )
        dead.append(call)
        PreferenceReading.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    due_jobs.run_all_due_jobs(now=timezone.now())

    lost = Receipt.objects.filter(call__gte=Receipt.INFERRING)
    assert {row.outcome for row in lost} == {"lost"}
    assert reads("[]").requests == []
    # A worker that was only slow writes nothing after the takeover.
    answer = proposes((1, "job", "I work as a florist"))
    for call in dead:
        preference_inference.finish_inference_call(call, text=answer, ending=StepResult(), now=now)
    assert kept() == []
    say("I like tea")
    (request,) = reads(proposes((1, "note", "I like tea"))).requests
    assert "florist" not in request.messages[1].content
    assert len(kept()) == 1


@pytest.mark.parametrize("code", ["provider_rate_limited", "provider_unavailable"])
def test_a_fault_that_may_pass_is_tried_once_more_after_a_rest(
    say: Say, reads: Reads, code: ErrorCode, now: datetime
) -> None:
    say(FLORIST)
    asked = [len(reads(ProviderError(code)).requests)]
    assert PreferenceReading.objects.get().due_at == now + inference_queue.REST
    asked += [len(reads(ProviderError(code)).requests) for _ in range(2)]
    assert asked == [1, 1, 0]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Nothing.",
        "[1, 2]",
        '{"message": 1}',
        '[{"message": "1", "slot": "job"}]',
        "[[",
        "[" * 5_000,
    ],
)
def test_an_answer_of_another_form_keeps_nothing(say: Say, reads: Reads, answer: str) -> None:
    say(FLORIST)
    reads(answer)
    assert kept() == []
    assert PreferenceReading.objects.get().due_at is None


def test_proposals_that_nobody_looks_at_do_not_grow(
    alice: User, say: Say, reads: Reads, now: datetime
) -> None:
    for number in range(30):
        Preference.objects.create(
            owner=alice,
            slot="note",
            text=f"Old {number}",
            kind="inferred",
            status="proposed",
            valid_from=now,
            learned_at=now,
        )
    say(FLORIST)
    reads(proposes((1, "job", "I work as a florist")))
    proposed = Preference.objects.filter(status="proposed")
    assert proposed.count() == 30
    assert proposed.filter(text="I work as a florist").exists()


def test_consent_is_asked_for_apart_and_ends_with_the_other(alice: User, now: datetime) -> None:
    memory_settings.set_consent(owner_id=alice.pk, agrees=False, now=now)
    assert MemorySettings.objects.get().inferring_since is None
    with pytest.raises(memory_settings.NoConsent):
        memory_settings.set_inferring(owner_id=alice.pk, agrees=True, now=now)
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    assert MemorySettings.objects.get().inferring_since is None
