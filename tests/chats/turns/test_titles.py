"""Titles by the light model: timing, request, accepted answers, and erasure."""

import asyncio
import io
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import erasure, lifecycle, marks
from chats.background import due_jobs, titles
from chats.files.reading import read_uploaded_file
from chats.files.uploads import accept_upload
from chats.ground import queue
from chats.models import Chat, Message, ProviderAccount, Receipt, Turn
from chats.providers import registry
from chats.providers.base import ErrorCode, Finished, ProviderError, TextDelta, UsageReport
from chats.record import commitment_check
from chats.turns.derived_titles import derive_title
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.compaction.conftest import set_policy
from tests.chats.files.conftest import own_folder
from tests.chats.files.sample_files import make_png
from tests.support.chat_summaries import SetPolicy
from tests.support.scripted_worker import ScriptedProvider

# Rebuild the prompts of every test from rows at teardown.
pytestmark = pytest.mark.usefixtures("built_again")

__all__ = ["own_folder", "set_policy"]
Work = Callable[..., Any]
Say = Callable[[str], Turn]
Titled = Callable[..., ScriptedProvider]
SAID = "Could you compare the two offers for the office in Oslo before Friday?"
ANSWER = "The offer of Nordbygg is lower; the other one has the better rooms."


@pytest.fixture(autouse=True)
def light(demo_model: ModelSpec, set_policy: SetPolicy) -> ModelSpec:
    """The light model of the policy, on a separate server."""
    ProviderAccount.objects.create(slug="near", name="Near", base_url="http://127.0.0.1:9/v1")
    model = ModelSpec.objects.create(
        slug="light", provider="near", name="light-model", context_window=16_000
    )
    set_policy(summarization_model="light")
    return model


@pytest.fixture
def titled(monkeypatch: pytest.MonkeyPatch) -> Titled:
    """Run the title task: `titled(turn, answer)`. Returns the provider that it called."""

    def writing(turn: Turn, *answer: Any, closing: bool = False) -> ScriptedProvider:
        script: Sequence[Any] = [
            TextDelta(item) if isinstance(item, str) else item for item in answer
        ]
        provider = ScriptedProvider([[*script, UsageReport(80, 6, 0, 0), Finished("stop")]])
        monkeypatch.setattr(registry, "get_provider", lambda *a, **k: provider)
        titles.write_title(
            turn_id=turn.pk,
            counter=ApproximateCounter(),
            clock=lambda: turn.queued_at,
            is_closing=lambda: closing,
        )
        return provider

    return writing


@pytest.fixture
def say(
    alice: User, chat: Chat, work: Work, now: datetime, django_capture_on_commit_callbacks: Any
) -> Say:
    """Run one turn of the chat: `say(text)`. Its on-commit tasks are sent."""

    def saying(text: str) -> Turn:
        with django_capture_on_commit_callbacks(execute=True):
            turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
            work(turn, [TextDelta(ANSWER), Finished("stop")])
        return turn

    return saying


@pytest.fixture
def first_turn(say: Say) -> Turn:
    """The first turn of a chat without a manual title."""
    return say(SAID)


def title(chat: Chat) -> str:
    """Return the current title."""
    chat.refresh_from_db()
    return chat.title


def asked_for(sent: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return the turns with an enqueued title task."""
    return [given["turn_id"] for task, given in sent if task == queue.WRITE_TITLE]


def test_a_first_reply_is_followed_by_a_title_of_what_was_said(
    chat: Chat, first_turn: Turn, titled: Titled, sent: list[tuple[str, dict[str, str]]]
) -> None:
    assert asked_for(sent) == [str(first_turn.pk)]
    (request,) = titled(first_turn, "Offers for the Oslo office").requests
    assert title(chat) == "Offers for the Oslo office"
    assert request.model == "light-model"
    system, question = request.messages
    assert (system.role, question.role) == ("system", "user")
    assert SAID in question.content
    assert ANSWER in question.content


def test_only_the_first_reply_of_a_chat_asks_for_one(
    first_turn: Turn, say: Say, sent: list[tuple[str, dict[str, str]]]
) -> None:
    say("And then?")
    assert asked_for(sent) == [str(first_turn.pk)]


def test_without_a_light_model_the_first_words_stay(
    chat: Chat,
    say: Say,
    set_policy: SetPolicy,
    titled: Titled,
    sent: list[tuple[str, dict[str, str]]],
) -> None:
    set_policy()
    turn = say(SAID)
    assert asked_for(sent) == []
    assert titled(turn, "Offers for Oslo").requests == []
    assert title(chat) == derive_title(SAID)


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ("**“Title: Offers for Oslo”**\n", "Offers for Oslo"),
        ("Offers   for\tOslo.", "Offers for Oslo"),
        ("", ""),
        ("Certainly! Here is one:\n\nOffers for Oslo", ""),
        ("Offers for the office " * 8, ""),
        ("Banana bread recipes", ""),
        ("Offers\x00for Oslo", ""),
        ("Offers\u202efor Oslo", ""),
        ("👩\u200d💻 Offers for Oslo", "👩\u200d💻 Offers for Oslo"),
        ("....", ""),
        ("“Oslo” and “Friday”", "“Oslo” and “Friday”"),
        ("*Oslo* or *Friday*", "*Oslo* or *Friday*"),
        ("Offers in C#", "Offers in C#"),
        ("## Offers for Oslo", "Offers for Oslo"),
        ("The offers' prices", "The offers' prices"),
        ("‘Offers’ for Oslo", "‘Offers’ for Oslo"),
        ("«Offers for Oslo»", "Offers for Oslo"),
        ("「Offers for Oslo」。", "Offers for Oslo"),
        ("__Offers for Oslo__", "Offers for Oslo"),
        ("```Offers for Oslo```", "Offers for Oslo"),
        ("```offers", ""),
        ("~~~ offers", ""),
        ("```\nOffers for Oslo\n```", "Offers for Oslo"),
    ],
)
def test_only_one_short_line_of_the_conversation_is_a_title(answer: str, taken: str) -> None:
    assert titles.parse_title(answer, said=f"{SAID}\n{ANSWER}") == taken


def test_a_title_in_another_script_is_known_by_its_pieces() -> None:
    assert (
        titles.parse_title("奥斯陆办公室报价", said="请比较奥斯陆办公室的两份报价")
        == "奥斯陆办公室报价"
    )


def test_a_title_that_a_person_gave_meanwhile_stays(
    chat: Chat, first_turn: Turn, titled: Titled, now: datetime
) -> None:
    async def rename(_worker: Any) -> None:
        await Chat.objects.filter(pk=chat.pk).aupdate(title="My own")

    titled(first_turn, rename, "Offers for Oslo")
    assert title(chat) == "My own"
    assert Receipt.objects.get(step=0).outcome == "ok"


def test_a_renamed_chat_is_not_asked_about(
    chat: Chat, first_turn: Turn, titled: Titled, now: datetime
) -> None:
    lifecycle.rename_chat(chat=chat, title="My own", actor="user:1", now=now)
    assert titled(first_turn, "Offers for Oslo").requests == []


def test_a_message_that_is_never_sent_is_not_sent_for_a_title(
    chat: Chat, first_turn: Turn, titled: Titled, now: datetime
) -> None:
    first = Message.objects.get(branch__chat=chat, seq=1)
    marks.exclude_message(message=first, actor="user:1", now=now)
    assert titled(first_turn, "Offers for Oslo").requests == []


def test_the_receipt_says_what_was_read_and_the_ledger_commits_to_it(
    chat: Chat, first_turn: Turn, titled: Titled
) -> None:
    titled(first_turn, "Offers for Oslo")
    receipt = Receipt.objects.get(turn=first_turn, step=Receipt.AFTERWARDS)
    assert (receipt.purpose, receipt.outcome, receipt.model_name) == ("title", "ok", "light-model")
    assert [segment[2] for segment in receipt.segments] == [0, 1, 2]
    assert receipt.usage["input"] == 80
    event = AuditEvent.objects.get(type="chat.title_asked")
    assert event.data["calls"] == [[str(receipt.pk), receipt.commitment]]
    assert AuditEvent.objects.get(type="chat.titled").data["receipt"] == str(receipt.pk)
    assert "Oslo" not in str(list(AuditEvent.objects.values_list("data", flat=True)))


def test_a_changed_receipt_of_a_title_is_found(
    chat: Chat, first_turn: Turn, titled: Titled
) -> None:
    titled(first_turn, "Offers for Oslo")
    assert list(commitment_check.verify_chat_page([chat.pk], tally=Counter())) == []
    Receipt.objects.filter(step=Receipt.AFTERWARDS).update(prompt_tokens=1)
    assert len(list(commitment_check.verify_chat_page([chat.pk], tally=Counter()))) == 1


def test_a_long_message_is_read_in_part_and_its_receipt_says_so(say: Say, titled: Titled) -> None:
    turn = say(f"Offers. {SAID * 100}")
    (request,) = titled(turn, "Offers for Oslo").requests
    assert len(request.messages[1].content) < titles.MOST_READ + len(ANSWER) + 100
    receipt = Receipt.objects.get(step=Receipt.AFTERWARDS)
    assert [segment[4] for segment in receipt.segments] == [None, titles.MOST_READ, None]


@pytest.mark.parametrize("code", ["provider_rate_limited", "provider_auth", "context_overflow"])
def test_a_call_that_fails_leaves_the_first_words(
    chat: Chat, first_turn: Turn, titled: Titled, code: ErrorCode
) -> None:
    titled(first_turn, ProviderError(code))
    assert title(chat) == derive_title(SAID)
    receipt = Receipt.objects.get(step=Receipt.AFTERWARDS)
    assert (receipt.outcome, receipt.error_code) == ("failed", code)
    # The call is not repeated.
    assert titled(first_turn, "Offers for Oslo").requests == []


def test_a_call_is_given_up_where_its_process_ends(
    chat: Chat, first_turn: Turn, titled: Titled
) -> None:
    async def forever(_worker: Any) -> None:
        await asyncio.sleep(60)

    titled(first_turn, forever, "Offers for Oslo", closing=True)
    assert title(chat) == derive_title(SAID)
    assert Receipt.objects.get(step=Receipt.AFTERWARDS).outcome == "stopped"


def test_an_instance_without_such_titles_asks_for_none(
    say: Say, settings: Any, sent: list[tuple[str, dict[str, str]]]
) -> None:
    settings.TITLES_BY_MODEL = False
    say(SAID)
    assert asked_for(sent) == []


def test_a_call_whose_worker_ended_is_closed(
    chat: Chat, first_turn: Turn, titled: Titled, settings: Any
) -> None:
    titled(first_turn, "Offers for Oslo")
    open_since = timezone.now() - timedelta(seconds=settings.LEASE_SECONDS - 10)
    rows = Receipt.objects.filter(step=Receipt.AFTERWARDS)
    rows.update(outcome="open", created_at=open_since)
    due_jobs.run_all_due_jobs(now=timezone.now())
    assert rows.get().outcome == "open"
    rows.update(created_at=open_since - timedelta(seconds=20))
    due_jobs.run_all_due_jobs(now=timezone.now())
    assert rows.get().outcome == "lost"


@pytest.mark.parametrize("seq", [1, 2])
def test_an_erased_message_takes_the_title_along_that_was_made_of_it(
    alice: User, chat: Chat, first_turn: Turn, titled: Titled, now: datetime, seq: int
) -> None:
    titled(first_turn, "Offers for Oslo")
    message = Message.objects.get(branch__chat=chat, seq=seq)
    erasure.erase_message(user=alice, message=message, now=now)
    assert title(chat) == ""
    assert not chat.titled_by_model


def test_a_title_that_a_person_gave_later_survives_the_erasure(
    alice: User, chat: Chat, first_turn: Turn, titled: Titled, now: datetime
) -> None:
    titled(first_turn, "Offers for Oslo")
    chat.refresh_from_db()
    lifecycle.rename_chat(chat=chat, title="My own", actor="user:1", now=now)
    message = Message.objects.get(branch__chat=chat, seq=1)
    erasure.erase_message(user=alice, message=message, now=now)
    assert title(chat) == "My own"


def test_what_was_erased_during_the_call_gives_no_title(
    alice: User, chat: Chat, first_turn: Turn, titled: Titled, now: datetime
) -> None:
    async def erase(_worker: Any) -> None:
        message = await Message.objects.select_related("branch").aget(branch__chat=chat, seq=2)
        await sync_to_async(erasure.erase_message)(user=alice, message=message, now=now)

    titled(first_turn, erase, "Offers for Oslo")
    assert "Offers" not in title(chat)


def test_a_first_message_with_only_files_gets_a_title_from_its_reply(
    alice: User, chat: Chat, work: Work, titled: Titled, now: datetime
) -> None:
    row, _ = accept_upload(io.BytesIO(make_png()), name="IMG_0123.png", owner=alice, now=now)
    read_uploaded_file(file_id=row.pk, counter=ApproximateCounter())
    turn = start_turn(user=alice, chat=chat, text="", files=[row.pk], now=now).turn
    work(turn, [TextDelta(ANSWER), Finished("stop")])
    assert title(chat) == "IMG_0123.png"
    provider = titled(turn, "Better rooms of the other offer")
    (call,) = provider.requests
    assert ANSWER in call.messages[-1].content
    assert title(chat) == "Better rooms of the other offer"
    message = Message.objects.get(pk=str(turn.trigger_id))
    erasure.erase_message(user=alice, message=message, now=now)
    assert title(chat) == ""
