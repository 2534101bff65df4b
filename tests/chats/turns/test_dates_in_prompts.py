"""Dates in prompts: in the user's time zone, fixed per branch, and rebuilt later."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import branching, marks
from chats.memory.search import archive
from chats.models import AccountSettings, Branch, Chat, Message, Receipt, Turn
from chats.prompt.model_choice import choose_chat_model
from chats.prompt.next_prompt import compose_next_prompt
from chats.prompt.reconstruction import rebuild_request
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

pytestmark = pytest.mark.usefixtures("built_again")
# Late evening in London, after midnight in Berlin.
LATE = datetime(2026, 3, 3, 23, 30, tzinfo=UTC)
Say = Callable[..., ProviderRequest]


@pytest.fixture
def govern(now: datetime) -> Callable[..., None]:
    """Assign an instance-wide policy with dates."""

    def governing(**values: Any) -> None:
        wanted = {"strategy": "sliding_window", "dates": True, **values}
        policy = create_policy(slug="dated", name="Dated", values=wanted, actor="system", now=now)
        assign_policy(policy=policy, level="instance", actor="system", now=now)

    return governing


@pytest.fixture
def say(alice: User, chat: Chat, work: Callable[..., Any]) -> Say:
    """Send a message at a given time, process the reply and return the model request."""

    def saying(text: str, *, at: datetime) -> Any:
        chat.refresh_from_db()
        turn = start_turn(user=alice, chat=chat, text=text, now=at).turn
        worker = work(turn, [TextDelta("Noted."), Finished("stop")])
        assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
        return worker.scripted.requests[0]

    return saying


def sent(request: ProviderRequest) -> list[str]:
    """Return the texts of a request."""
    return [message.content for message in request.messages]


def live_in(user: User, zone: str) -> None:
    """Store the time zone of a user's browser."""
    AccountSettings.objects.update_or_create(owner=user, defaults={"time_zone": zone})


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/Berlin", "[Wed 2026-03-04]"),
        ("", "[Tue 2026-03-03]"),
        ("Mars/Base", "[Tue 2026-03-03]"),
    ],
)
def test_the_day_is_that_of_the_persons_zone(
    govern: Callable[..., None], say: Say, alice: User, zone: str, day: str
) -> None:
    govern()
    live_in(alice, zone)
    assert sent(say("Hello", at=LATE)) == [f"{day}\nHello"]


@pytest.mark.parametrize("dates", [True, False])
def test_the_date_of_a_question_is_in_the_same_zone(
    dates: bool, govern: Callable[..., None], say: Say, alice: User, chat: Chat
) -> None:
    govern(show_date=True, dates=dates)
    live_in(alice, "Europe/Berlin")
    branch = Branch.objects.select_related("chat__owner").get(chat=chat)
    foreseen = compose_next_prompt(
        branch,
        choice=choose_chat_model(chat=branch.chat),
        now=LATE,
        counter=O200kCounter(),
        question="Hello",
    )

    request = say("Hello", at=LATE)

    assert sent(request)[0].endswith("Date: 2026-03-04")
    assert foreseen.sent.messages == request.messages


def test_a_branch_keeps_the_zone_of_its_first_prompt_with_dates(
    govern: Callable[..., None], say: Say, alice: User, chat: Chat
) -> None:
    govern()
    live_in(alice, "Europe/Berlin")
    first = say("Hello", at=LATE)
    live_in(alice, "America/New_York")

    second = say("I arrived", at=LATE + timedelta(minutes=5))

    assert sent(second)[: len(sent(first))] == sent(first)
    assert sent(second)[-1] == "I arrived"
    branch = Branch.objects.get(chat=chat)
    assert branch.time_zone == "Europe/Berlin"
    question = Message.objects.filter(branch=branch, role="user").latest("seq")
    forked = branching.branch_from_message(
        user=alice, message=question, now=LATE + timedelta(minutes=9)
    )
    assert forked.time_zone == "Europe/Berlin"


def test_a_policy_without_dates_sends_none_and_freezes_nothing(
    govern: Callable[..., None], say: Say, alice: User, chat: Chat
) -> None:
    govern(dates=False)
    live_in(alice, "Europe/Berlin")
    assert sent(say("Hello", at=LATE)) == ["Hello"]
    assert Branch.objects.get(chat=chat).time_zone == ""


@pytest.mark.parametrize(
    "values",
    [{"plain_sections": True}, {"layout": "A"}, {"layout": "B"}, {"layout": "C"}],
)
def test_text_layouts_and_plain_sections_have_no_day_lines(
    govern: Callable[..., None], say: Say, chat: Chat, values: dict[str, Any]
) -> None:
    govern(**values)
    say("Hello", at=LATE)
    texts = sent(say("Bread", at=LATE + timedelta(days=2)))
    assert not [text for text in texts if "2026-03" in text]


def test_plain_sections_have_no_dates_and_freeze_nothing(
    govern: Callable[..., None], say: Say, alice: User, chat: Chat
) -> None:
    govern(plain_sections=True)
    live_in(alice, "Europe/Berlin")
    say("Hello", at=LATE)
    assert Branch.objects.get(chat=chat).time_zone == ""


# The times of messages in UTC, and the day line before each; empty: the same day as the message
# before it.
CHANGES_OF_HOUR = {
    # At 01:00 UTC, Berlin's clocks change from +1 to +2: the day has 23 hours.
    "Europe/Berlin, spring": [
        ("2026-03-28T22:59", "Sat 2026-03-28"),
        ("2026-03-28T23:00", "Sun 2026-03-29"),
        ("2026-03-29T00:59", ""),
        ("2026-03-29T01:00", ""),
        ("2026-03-29T21:59", ""),
        ("2026-03-29T22:00", "Mon 2026-03-30"),
        ("2026-03-29T23:00", ""),
    ],
    # At 01:00 UTC from +2 to +1: 25 hours. The hour from 02:00 occurs twice.
    "Europe/Berlin, autumn": [
        ("2026-10-24T21:59", "Sat 2026-10-24"),
        ("2026-10-24T22:00", "Sun 2026-10-25"),
        ("2026-10-25T00:30", ""),
        ("2026-10-25T01:30", ""),
        ("2026-10-25T22:30", ""),
        ("2026-10-25T23:00", "Mon 2026-10-26"),
    ],
    # At 05:00 UTC from -5 to -4, at midnight: the day begins at 01:00.
    "America/Havana, spring": [
        ("2026-03-08T04:59", "Sat 2026-03-07"),
        ("2026-03-08T05:00", "Sun 2026-03-08"),
        ("2026-03-09T03:59", ""),
        ("2026-03-09T04:00", "Mon 2026-03-09"),
    ],
    # At 05:00 UTC from -4 to -5, back to midnight: the day does not begin again.
    "America/Havana, autumn": [
        ("2026-11-01T03:59", "Sat 2026-10-31"),
        ("2026-11-01T04:30", "Sun 2026-11-01"),
        ("2026-11-01T05:30", ""),
        ("2026-11-02T04:59", ""),
        ("2026-11-02T05:00", "Mon 2026-11-02"),
    ],
    # Half an hour: +10:30 and +11, changed on 4 October 2026 at 15:30 UTC of the day before.
    "Australia/Lord_Howe, spring": [
        ("2026-10-03T13:29", "Sat 2026-10-03"),
        ("2026-10-03T13:30", "Sun 2026-10-04"),
        ("2026-10-03T15:30", ""),
        ("2026-10-04T12:59", ""),
        ("2026-10-04T13:00", "Mon 2026-10-05"),
    ],
    "Asia/Kolkata, all year": [
        ("2026-06-30T18:29", "Tue 2026-06-30"),
        ("2026-06-30T18:30", "Wed 2026-07-01"),
        ("2026-12-31T18:29", "Thu 2026-12-31"),
        ("2026-12-31T18:30", "Fri 2027-01-01"),
    ],
}


@pytest.mark.parametrize("change", CHANGES_OF_HOUR)
def test_day_lines_follow_the_clocks_of_a_zone(
    govern: Callable[..., None], say: Say, alice: User, chat: Chat, change: str
) -> None:
    govern(token_budget=60_000, reserve_tokens=500)
    live_in(alice, change.split(", ")[0])
    for number, (at, _) in enumerate(CHANGES_OF_HOUR[change]):
        moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
        request = say(f"Message {number}", at=moment)
        # The reply comes in the minute of its question, not at the time of the test.
        Message.objects.filter(branch__chat=chat, role="assistant").filter(
            created_at__gt=moment
        ).update(created_at=moment)

    asked = [text for text in sent(request) if text.endswith(tuple("0123456789"))]

    assert asked == [
        f"[{day}]\nMessage {number}" if day else f"Message {number}"
        for number, (_, day) in enumerate(CHANGES_OF_HOUR[change])
    ]
    assert all(rebuild_request(row).fault == "" for row in Receipt.objects.all())


RECALLED = {"strategy": "simple", "window_size": 2, "references": True, "reference_floor": 1}
FACT = "The grey heron at Lake Vogt wears the ring B-417."


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
@pytest.mark.parametrize(
    "values", [{"reference_share": 0.4, "reference_scope": "chat"}, {"reference_scope": "person"}]
)
def test_an_excerpt_keeps_its_day_after_a_change_of_zone(
    govern: Callable[..., None],
    say: Say,
    alice: User,
    chat: Chat,
    layout: str,
    values: dict[str, Any],
) -> None:
    """The fixture `built_again` also rebuilds each prompt after the change."""
    govern(**RECALLED, layout=layout, **values)
    live_in(alice, "Europe/Berlin")
    say(FACT, at=LATE)
    for number in range(3):
        say(f"Tell me about bread number {number}.", at=LATE + timedelta(days=number + 1))
    archive.index_branch(Branch.objects.get(chat=chat))
    first = excerpts_of(say("Which ring does the heron wear?", at=LATE + timedelta(days=5)))
    assert f"[Wed 2026-03-04]\nUser: {FACT}" in first
    live_in(alice, "America/New_York")

    second = excerpts_of(say("Where is the heron of Lake Vogt?", at=LATE + timedelta(days=6)))

    assert f"[Wed 2026-03-04]\nUser: {FACT}" in second
    assert Branch.objects.get(chat=chat).time_zone == "Europe/Berlin"


def excerpts_of(request: ProviderRequest) -> str:
    """Return the excerpts in a request."""
    whole = "\n".join(sent(request))
    return whole[whole.index("Relevant reference (semantic):") :]


def test_a_pinned_message_outside_the_window_has_its_day(
    govern: Callable[..., None], say: Say, alice: User, chat: Chat
) -> None:
    """The fixture `built_again` also rebuilds each of these prompts from its receipt."""
    govern(strategy="simple", window_size=2)
    live_in(alice, "Europe/Berlin")
    say("I move to Oslo tomorrow.", at=LATE)
    marks.pin_message(
        message=Message.objects.get(branch__chat=chat, seq=1), actor="alice", now=LATE
    )
    say("Tell me about bread.", at=LATE + timedelta(days=2))

    texts = sent(say("When do I move?", at=LATE + timedelta(days=3)))

    assert texts[0].startswith("[Wed 2026-03-04]\nPinned message #1 from earlier in this chat")
    segments = Receipt.objects.latest("created_at").segments
    assert [part[:3] for part in segments if part[0] != "tools"][:2] == [
        ["day", "2026-03-04", 0],
        ["pin", str(Message.objects.get(branch__chat=chat, seq=1).pk), 1],
    ]


def test_the_receipt_names_each_day_and_the_outlook_has_it(
    govern: Callable[..., None], say: Say, chat: Chat
) -> None:
    govern()
    say("Hello", at=LATE)
    say("Good morning", at=LATE + timedelta(days=1))

    receipt = Receipt.objects.latest("created_at")
    days = [segment[1] for segment in receipt.segments if segment[0] == "day"]
    assert days == ["2026-03-03", "2026-03-04"]
    branch = Branch.objects.select_related("active_compaction__base", "parent").get(chat=chat)
    branch.chat = Chat.objects.get(pk=chat.pk)
    ahead = compose_next_prompt(
        branch,
        choice=choose_chat_model(chat=branch.chat),
        counter=O200kCounter(),
        now=LATE + timedelta(days=2),
        question="And today?",
    )
    assert ahead.sent.messages[-1].content == "[Thu 2026-03-05]\nAnd today?"


def test_the_browsers_zone_is_stored_with_the_account(
    client: Client, alice: User, chat: Chat
) -> None:
    client.force_login(alice)
    client.cookies["zone"] = "Asia/Tokyo"
    client.get("/settings/")
    assert AccountSettings.objects.get(owner=alice).time_zone == "Asia/Tokyo"
    client.cookies["zone"] = "../../etc/passwd"
    client.get("/settings/")
    assert AccountSettings.objects.get(owner=alice).time_zone == "Asia/Tokyo"
