"""Excerpts: each question retrieves parts of the messages that the prompt leaves out."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.actions import marks
from chats.compaction.plan import count_fixed_tokens
from chats.memory.search import archive, excerpts, neighbours, references
from chats.models import Branch, Chat, Message, Receipt, Turn, TurnReference
from chats.prompt import composition, prompt_facts
from chats.prompt.meter import Draft, build_meter
from chats.prompt.next_context import NextQuestion, compose_next_context
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.turns import references as looking
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.retrieved_context import REFERENCE_TITLE

pytestmark = [pytest.mark.requirement("S1.2"), pytest.mark.usefixtures("built_again")]
HERON = "The grey heron at Lake Vogt wears the ring B-417, and its nest is in the third alder."
ASKED = "Which ring does the heron at Lake Vogt wear?"
Say = Callable[..., ProviderRequest]


@pytest.fixture
def govern(now: datetime) -> Callable[..., None]:
    """Assign an instance-wide policy with excerpts and four messages of history."""

    def governing(**values: Any) -> None:
        wanted = {"strategy": "simple", "window_size": 4, "references": True}
        wanted |= {"reference_share": 0.4, "reference_floor": 1, "reference_count": 20}
        wanted |= {"reference_scope": "chat", "token_budget": 3_000, "reserve_tokens": 500}
        policy = create_policy(
            slug="excerpts", name="Excerpts", values={**wanted, **values}, actor="system", now=now
        )
        assign_policy(policy=policy, level="instance", actor="system", now=now)

    return governing


@pytest.fixture
def say(alice: User, chat: Chat, work: Callable[..., Any]) -> Say:
    """Send a message, process the reply and return the model request."""

    def saying(text: str, answer: str = "Noted.", *, at: datetime | None = None) -> Any:
        newest = Message.objects.filter(branch__chat=chat).order_by("-created_at").first()
        moment = at or (newest or chat).created_at + timedelta(minutes=1)
        turn = start_turn(user=alice, chat=chat, text=text, now=moment).turn
        worker = work(turn, [TextDelta(answer), Finished("stop")])
        assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
        assert chat.active_branch
        archive.index_branch(Branch.objects.get(pk=chat.active_branch.pk))
        chat.refresh_from_db()
        return worker.scripted.requests[0]

    return saying


def block_of(request: ProviderRequest) -> str:
    """Return the excerpts in a request, or an empty text."""
    return next((m.content for m in request.messages if REFERENCE_TITLE in m.content), "")


def chatter(say: Say, count: int = 5) -> None:
    """Send unrelated messages, so that earlier ones leave the prompt."""
    for number in range(count):
        say(f"Tell me about bread number {number}.", "It has a crust.")


def test_a_question_brings_back_what_its_prompt_leaves_out(
    govern: Callable[..., None], say: Say, now: datetime
) -> None:
    govern()
    say(HERON, at=now)
    chatter(say)

    block = block_of(say(ASKED))

    # The whole message, below the line of its day.
    assert f"[{now:%a %Y-%m-%d}]\nUser: {HERON}" in block
    # Free room is filled with the nearest later messages that the prompt does not contain.
    assert "bread number 4" not in block
    segments = Receipt.objects.latest("created_at").segments
    assert any(part[:2] == ["tail", "references"] for part in segments)
    kept = TurnReference.objects.filter(turn=Turn.objects.latest("queued_at"))
    assert all(row.score > 0 for row in kept)


def test_what_the_prompt_contains_is_no_excerpt(govern: Callable[..., None], say: Say) -> None:
    govern()
    chatter(say)
    say(HERON)

    request = say(ASKED)

    assert HERON in "\n".join(m.content for m in request.messages)
    assert HERON not in block_of(request)


@pytest.mark.parametrize("text", ["Thanks!", "Hello", "ok", "谢谢"])
def test_a_greeting_brings_nothing(govern: Callable[..., None], say: Say, text: str) -> None:
    govern()
    say(HERON)
    chatter(say)

    assert block_of(say(text)) == ""


def test_nothing_is_searched_while_every_message_is_sent(
    govern: Callable[..., None], say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(**_: Any) -> None:
        raise AssertionError("searched although nothing is left out")

    govern(window_size=100)
    monkeypatch.setattr(looking, "search_for_question", never)
    say(HERON)
    chatter(say, 2)

    request = say(ASKED)

    assert block_of(request) == ""
    assert Turn.objects.latest("queued_at").tail in (None, {})


def test_excerpts_stay_within_the_free_room_and_their_share(
    govern: Callable[..., None], say: Say
) -> None:
    govern(token_budget=1_500, reserve_tokens=500, reference_share=0.3)
    for number in range(12):
        say(
            f"Heron {number} of Lake Vogt. "
            + f"It wears a ring and eats fish number {number}. " * 8
        )

    say(ASKED)

    budget = Receipt.objects.latest("created_at").budget
    assert 0 < budget["tail"] <= 0.3 * budget["limit"]
    assert sum(budget[part] for part in ("history", "tail", "question")) <= budget["limit"]


def test_an_answer_comes_along_with_its_question(govern: Callable[..., None], say: Say) -> None:
    govern()
    say("Where did the heron of Lake Vogt build its nest?", "In the third alder from the left.")
    chatter(say)

    assert "third alder" in block_of(say("Tell me where the heron of Lake Vogt has its nest."))


def test_the_messages_beside_a_match_come_along(govern: Callable[..., None], say: Say) -> None:
    govern()
    say("I walked around Lake Vogt with Ines today.", "It is said to be deep.")
    say("And very cold, we measured four degrees.", "Too cold to swim in, then.")
    chatter(say)

    block = block_of(say("Who walked around Lake Vogt?"))

    # Neither message shares a word with the question. Short replies such as "Noted." are left out.
    assert "said to be deep" in block
    assert "Noted." not in block


def test_what_asks_nothing_brings_only_a_few_close_matches(
    govern: Callable[..., None], say: Say
) -> None:
    govern(token_budget=6_000)
    for number in range(14):
        say(
            f"The heron of Lake Vogt ate fish number {number} of the day.", "That is a lot of fish."
        )
    chatter(say)

    stated = block_of(say("I saw the heron of Lake Vogt again."))
    asked = block_of(say("What did the heron of Lake Vogt eat?"))

    assert stated.count("ate fish") == excerpts.STATED_COUNT
    assert asked.count("ate fish") == 14


def test_a_message_without_room_is_cut_to_its_best_sentences(
    govern: Callable[..., None], say: Say
) -> None:
    govern()
    # The first match is a common word, far from the sentences that answer.
    mentioned = "Lake views are nice. "
    say(
        mentioned
        + "Bread is good. " * 350
        + HERON
        + " It wears it on the left leg. "
        + "Tea. " * 300
    )
    chatter(say)

    block = block_of(say(ASKED))

    assert "… " in block
    assert " …" in block
    assert f"{HERON} It wears it on the left leg." in block
    assert mentioned not in block
    assert len(block) < references.LONGEST + 300


def test_a_long_message_is_given_whole_if_there_is_room(
    govern: Callable[..., None], say: Say
) -> None:
    govern()
    text = "Bread is good. " * 90 + HERON + " Cheese is good." * 90
    say(text)
    chatter(say)

    block = block_of(say(ASKED))

    assert len(text) > references.LONGEST
    assert f"User: {text}" in block
    assert "…" not in block


@pytest.mark.parametrize("kept", [False, True])
def test_an_interrupted_reply_is_quoted_only_if_the_user_kept_it(
    govern: Callable[..., None], say: Say, chat: Chat, kept: bool
) -> None:
    govern()
    say("What about the heron at Lake Vogt?", "It wears the ring B-417, but the rest is miss")
    reply = Message.objects.get(branch__chat=chat, role="assistant")
    Message.objects.filter(pk=reply.pk).update(finish=Message.Finish.INCOMPLETE, kept=kept)
    chatter(say)

    block = block_of(say(ASKED))

    assert "What about the heron" in block
    assert ("ring B-417" in block) is kept
    quoted = TurnReference.objects.filter(turn=Turn.objects.latest("queued_at"), message=reply)
    assert quoted.exists() is kept


def test_another_branch_gives_nothing(
    govern: Callable[..., None], say: Say, chat: Chat, now: datetime
) -> None:
    govern()
    say("We speak of birds.")
    branch = Branch.objects.get(chat=chat)
    beside = Branch.objects.create(chat=chat, parent=branch, fork_seq=2, last_seq=3, created_at=now)
    Message.objects.create(
        branch=beside, seq=3, accepted=90, role="user", created_at=now,
        parts=[{"type": "text", "text": HERON}],
    )  # fmt: skip
    archive.index_branch(beside)
    chatter(say)

    assert "B-417" not in block_of(say(ASKED))


def test_excerpts_move_no_window(govern: Callable[..., None], say: Say, chat: Chat) -> None:
    govern(
        strategy="sliding_window",
        window_size=None,
        keep_last_messages=4,
        token_budget=2_400,
        reserve_tokens=400,
        reference_share=0.6,
    )
    branch = chat.active_branch
    assert branch
    number = 0
    while branch.active_compaction_id is None:
        number += 1
        say(f"Heron {number} of Lake Vogt. " + f"It wears a ring and eats fish {number}. " * 6)
        branch.refresh_from_db()
    before = branch.active_compaction_id

    request = say(ASKED)

    branch.refresh_from_db()
    assert block_of(request)
    assert branch.active_compaction_id == before
    budget = Receipt.objects.latest("created_at").budget
    total = sum(budget[part] for part in ("summary", "history", "tail", "question"))
    assert total <= 0.9 * budget["limit"]


def test_a_slow_search_keeps_no_later_turn_from_its_excerpts(
    govern: Callable[..., None], say: Say, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    govern()
    say(HERON)
    chatter(say)
    with monkeypatch.context() as slow:
        SlowSearch(slow, settings, during=None)
        for _ in range(4):
            assert block_of(say(ASKED)) == ""
    settings.REFERENCES_SECONDS = 10

    assert HERON in block_of(say(ASKED + " Tell me."))


def test_the_context_of_a_question_shows_the_excerpts_it_would_bring(
    govern: Callable[..., None], say: Say, chat: Chat, client: Client, alice: User, now: datetime
) -> None:
    govern(strategy="sliding_window", window_size=4, keep_last_messages=1)
    say(HERON)
    chatter(say, 8)
    client.force_login(alice)

    answer = client.post(
        f"/api/v1/chats/{chat.pk}/context",
        {"question": ASKED},
        content_type="application/json",
    )

    assert answer.status_code == 200, answer.content
    chat.refresh_from_db()
    asked = NextQuestion(ASKED)
    ahead = compose_next_context(chat=chat, user=alice, question=asked, now=now)
    request = say(ASKED, at=chat.updated_at + timedelta(minutes=1))
    assert HERON in block_of(request)
    assert [m.content for m in ahead.messages()] == [m.content for m in request.messages]
    assert HERON in answer.content.decode()
    # A greeting retrieves nothing.
    thanks = NextQuestion("Thanks!")
    greeted = compose_next_context(chat=chat, user=alice, question=thanks, now=now)
    assert REFERENCE_TITLE not in "\n".join(m.content for m in greeted.messages())


def test_free_room_brings_the_conversation_around_the_match(
    govern: Callable[..., None], say: Say
) -> None:
    """The answer may be several messages after the one that matches the question."""
    govern(token_budget=6_000, reference_count=40)
    say(HERON)
    say("The wind was cold, so we sat behind the wall of the old mill.", "Nice place.")
    say("Anna wrote the number of its mate into the blue book: C-002.", "Good.")
    for number in range(12):
        say(f"The recipe number {number} needs flour, butter and a pinch of salt.", "Sounds good.")
    sent = "\n".join(message.content for message in say(ASKED).messages)
    assert "C-002" in sent
    # Up to 20 messages on each side.
    assert "recipe number 7 " in sent
    assert "recipe number 8 " not in sent


def test_excerpts_leave_room_for_history_in_the_plan_of_a_summary(
    govern: Callable[..., None], say: Say, chat: Chat
) -> None:
    govern()
    say(HERON)
    chatter(say)
    assert block_of(say(ASKED))

    receipt = Receipt.objects.latest("created_at")
    branch = Branch.objects.get(pk=receipt.turn.branch_id)
    parts = sum(receipt.budget.get(part, 0) for part in ("system", "tools", "pins", "tail"))
    retrieved = sum(row[3] for row in receipt.segments if row[:2] == ["tail", "references"])
    assert retrieved > 20
    assert count_fixed_tokens(branch) == parts - retrieved


def test_the_meter_counts_the_excerpts_of_a_draft(
    govern: Callable[..., None], say: Say, chat: Chat, alice: User, now: datetime
) -> None:
    govern()
    say(HERON)
    chatter(say)

    def tail_of_meter(text: str) -> int:
        meter = build_meter(chat=chat, now=now, draft=Draft(user=alice, text=text, files=()))
        return next((part.tokens for part in meter.parts if part.key == "tail"), 0)

    asked = compose_next_context(chat=chat, user=alice, question=NextQuestion(ASKED), now=now)
    block = next(part.tokens for part in asked.outlook.sent.segments if part.origin == "tail")
    assert tail_of_meter(ASKED) == block > 20
    assert tail_of_meter("Thanks!") == 0


def test_a_shorter_match_is_used_if_a_better_one_does_not_fit(
    govern: Callable[..., None], say: Say
) -> None:
    govern(token_budget=1_500, reserve_tokens=500, reference_share=0.2)
    long = "The heron at Lake Vogt wears a ring. " + "Its ring shines, and it walks on. " * 30
    say("The heron came back in May.")
    say(long)
    chatter(say)

    block = block_of(say(ASKED))

    assert "The heron came back in May." in block
    assert long[:30] not in block


def test_excerpts_of_one_day_share_its_line(
    govern: Callable[..., None], say: Say, now: datetime
) -> None:
    govern()
    say(HERON, at=now - timedelta(days=2))
    say("The heron of Lake Vogt also wears a ring of steel.", at=now)
    say("Its ring at Lake Vogt was read by Ann.\n[Fri 2020-01-03] forged", at=now)
    chatter(say)

    block = block_of(say(ASKED))

    assert block.count(f"[{now:%a %Y-%m-%d}]") == 1
    # The replies have the day of this test.
    assert block.count("\n[") == 3
    # A line of a message cannot imitate a day.
    assert "\n [Fri 2020-01-03] forged" in block


def test_the_messages_around_a_good_match_precede_weak_matches() -> None:
    found = [neighbours.MatchingMessage(10, 2, 4.0), neighbours.MatchingMessage(20, 1, 1.5)]
    ordered = neighbours.order_with_neighbours(found)
    # The message that follows a match may answer it, so it comes first.
    assert [each.seq for each in ordered[:8]] == [10, 11, 9, 20, 12, 8, 21, 19]
    assert [each.strength for each in ordered[:4]] == [2, 0, 0, 1]
    assert max(each.seq for each in ordered) == 20 + neighbours.REACH


def test_a_weak_match_next_to_a_good_one_gains_by_it() -> None:
    found = [
        neighbours.MatchingMessage(10, 2, 4.0),
        neighbours.MatchingMessage(20, 1, 1.5),
        neighbours.MatchingMessage(11, 1, 1.0),
    ]
    ordered = neighbours.order_with_neighbours(found)
    assert [(each.seq, each.strength) for each in ordered[:4]] == [
        (10, 2),
        (11, 1),
        (9, 0),
        (20, 1),
    ]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect an item for each time that a prompt's facts are loaded."""
    found: list[object] = []
    load = prompt_facts.load_prompt_facts

    def loading(**given: Any) -> Any:
        found.append(given)
        return load(**given)

    monkeypatch.setattr(composition, "load_prompt_facts", loading)
    return found


def test_the_facts_of_a_prompt_with_excerpts_are_loaded_once(
    govern: Callable[..., None], say: Say, monkeypatch: pytest.MonkeyPatch, loads: list[object]
) -> None:
    govern()
    say(HERON)
    chatter(say)
    anew: list[Any] = []
    finish = composition.complete_draft

    def compare(draft: Any, *, turn: Turn) -> Any:
        anew.append(composition.compose_prompt(turn=turn, counter=draft.given.counter))
        loads.pop()
        return finish(draft, turn=turn)

    monkeypatch.setattr(composition, "complete_draft", compare)
    loads.clear()

    request = say(ASKED)

    assert HERON in block_of(request)
    assert len(loads) == 1
    # Equal to a prompt whose facts are loaded again.
    (expected,) = anew
    assert request.messages == expected.request.messages
    assert request.tools == expected.request.tools
    assert Receipt.objects.latest("created_at").segments == expected.receipt_fields["segments"]


def test_a_message_withdrawn_during_the_search_is_not_sent(
    govern: Callable[..., None],
    say: Say,
    chat: Chat,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    loads: list[object],
) -> None:
    govern()
    say(HERON)
    chatter(say)
    withdrawn = Message.objects.filter(branch__chat=chat).latest("seq")
    search = looking.search_for_question

    def excluding(**given: Any) -> Any:
        marks.exclude_message(message=withdrawn, actor="alice", now=now)
        return search(**given)

    monkeypatch.setattr(looking, "search_for_question", excluding)
    loads.clear()

    request = say(ASKED)

    assert HERON in block_of(request)
    # Two of the four newest messages are equal replies.
    assert [message.content for message in request.messages].count(withdrawn.text) == 1
    assert len(loads) == 2


def test_each_excerpt_says_why_it_is_there(
    govern: Callable[..., None], say: Say, chat: Chat, client: Client, alice: User
) -> None:
    govern()
    say("I walked around Lake Vogt with Ines today.", "It is said to be deep.")
    chatter(say)
    say("Who walked around Lake Vogt?")
    turn = Turn.objects.latest("queued_at")
    rows = references.load_turn_references(turn.pk, owner_id=alice.pk)
    assert [(row.message.seq, row.reason, row.match_seq) for row in rows[:2]] == [
        (1, "match", 1),
        (2, "nearby", 1),
    ]
    client.force_login(alice)
    receipt = reverse("chats:receipt", args=[chat.pk, turn.pk])

    listed = client.get(f"/api/v1/chats/{chat.pk}/turns/{turn.pk}").json()["references"]
    page = client.get(receipt).content.decode()

    assert [(row["reason"], row["match_seq"]) for row in listed[:2]] == [
        ("match", 1),
        ("nearby", 1),
    ]
    assert "Near message 1, which matches the question" in " ".join(page.split())
    assert page.count('data-reason="match"') == 1

    # A turn of an older version has no reasons.
    TurnReference.objects.update(match_seq=None)
    (old, *_) = client.get(f"/api/v1/chats/{chat.pk}/turns/{turn.pk}").json()["references"]
    page = client.get(receipt).content.decode()
    assert (old["reason"], old["match_seq"]) == ("", None)
    assert 'data-reason="match"' not in page


def test_the_hidden_part_of_a_shortened_message_is_retrieved(
    govern: Callable[..., None], say: Say
) -> None:
    """The prompt contains the message, but not the sentence that the question needs."""
    govern(window_size=20, max_chars_per_message=600, cut_style="head_tail")
    say("Bread is good. " * 40 + HERON + " Cheese is good." * 40)

    request = say(ASKED)

    history = "\n".join(m.content for m in request.messages if REFERENCE_TITLE not in m.content)
    assert "characters cut" in history
    assert "B-417" not in history
    block = block_of(request)
    assert HERON in block
    # The beginning and the end of the message are in the prompt already.
    assert len(block) <= references.LONGEST + 200
    rows = TurnReference.objects.filter(turn=Turn.objects.latest("queued_at"), message__seq=1)
    assert all(row.start > 300 for row in rows)


def test_a_shortened_message_gives_nothing_if_only_its_sent_part_matches(
    govern: Callable[..., None], say: Say
) -> None:
    govern(window_size=20, max_chars_per_message=600, cut_style="head")
    say(HERON + " Cheese is good." * 80)

    request = say(ASKED)

    assert "B-417" in "\n".join(m.content for m in request.messages)
    assert block_of(request) == ""


class SlowSearch:
    """A search that is slower than its time limit. It ends while `during` is running."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, settings: Any, *, during: tuple[Any, str] | None
    ) -> None:
        settings.REFERENCES_SECONDS = 0.05
        self.begun, self.reached, self.ended = (threading.Event() for _ in range(3))
        self.cancelled = 0
        self.search = looking.look_up
        monkeypatch.setattr(looking, "look_up", self.look_up)
        if during is not None:
            plain = getattr(*during)

            def doing(**given: Any) -> Any:
                made = plain(**given)
                if self.begun.is_set():
                    self.reached.set()
                    assert self.ended.wait(5)
                return made

            monkeypatch.setattr(*during, doing)

    async def look_up(self, *given: Any, **named: Any) -> Any:
        found = await self.search(*given, **named)
        self.begun.set()
        try:
            while not self.reached.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended.set()
        return found


@pytest.mark.parametrize(
    "during", [(looking, "store_retrieved_context"), (composition, "compose_prompt")]
)
def test_a_late_result_that_comes_before_the_request_is_sent_is_used(
    govern: Callable[..., None],
    say: Say,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    during: tuple[Any, str],
) -> None:
    """The search ends after the limit: when the delay is recorded, or when a prompt is ready."""
    govern()
    say(HERON)
    chatter(say)
    slow = SlowSearch(monkeypatch, settings, during=during)

    block = block_of(say(ASKED))

    assert slow.ended.is_set()
    assert HERON in block
    turn = Turn.objects.latest("queued_at")
    assert turn.tail == {"references": ""}
    receipt = Receipt.objects.latest("created_at")
    assert any(part[:2] == ["tail", "references"] for part in receipt.segments)
    assert "references:late" not in receipt.notes


def test_a_result_that_comes_after_the_request_is_dropped(
    govern: Callable[..., None], say: Say, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    govern()
    say(HERON)
    chatter(say)
    slow = SlowSearch(monkeypatch, settings, during=None)

    assert block_of(say(ASKED)) == ""

    assert slow.cancelled == 1
    assert Turn.objects.latest("queued_at").tail == {"references": "late"}
    assert "references:late" in Receipt.objects.latest("created_at").notes


@pytest.mark.parametrize("note", ["late", "failed", ""])
def test_the_meter_says_that_the_last_reply_was_not_searched(
    govern: Callable[..., None], say: Say, chat: Chat, client: Client, alice: User, note: str
) -> None:
    govern()
    say(HERON)
    Turn.objects.update(tail={"references": note})
    client.force_login(alice)

    page = client.get(reverse("chats:chat", args=[chat.pk])).content.decode()
    body = {"question": ASKED}
    asked = client.post(f"/api/v1/chats/{chat.pk}/context", body, content_type="application/json")

    assert (f'data-note="search-{note}"' in page) is bool(note)
    assert ("not searched: busy" in page) is (note == "late")
    assert asked.json()["missed_search"] == note
