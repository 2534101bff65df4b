"""State extraction: once per turn before its first prompt, or reuse of the previous state."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions.erasure import erase_message
from chats.models import (
    Branch,
    Chat,
    ChatState,
    Message,
    PromptText,
    ProviderAccount,
    Receipt,
    Turn,
)
from chats.prompt.reconstruction import rebuild_request
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta, UsageReport
from chats.providers.demo import DemoProvider
from chats.record import history, states
from chats.turns.attempt_state import SHUTDOWN, STOP
from chats.turns.follow_up_turns import continue_reply, retry_turn
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import WireMessage, extract_message_text
from contextpolicy.engine.messages.segments import compute_text_ref, format_prompt_json
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.strategies.entity_state import build_state_request
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

# Rebuild the prompts of every test from rows at teardown.
pytestmark = pytest.mark.usefixtures("built_again")

Work = Callable[..., Any]
SCHEMA = {
    "type": "object",
    "properties": {"destination": {"type": "string"}, "date": {"type": "string"}},
    "additionalProperties": False,
}
REPLY = [TextDelta("Fine."), Finished("stop")]


@pytest.fixture
def policy(db: None, now: datetime) -> Callable[..., None]:
    """Assign a policy that extracts a state."""

    def setting(**values: Any) -> None:
        made = create_policy(
            slug="booking",
            name="Booking",
            values={"strategy": "entity_state", "state_schema": SCHEMA, **values},
            actor="system",
            now=now,
        )
        assign_policy(policy=made, level="instance", actor="system", now=now)

    return setting


def ask(alice: User, chat: Chat, now: datetime, text: str = "To Oslo") -> Turn:
    return start_turn(user=alice, chat=chat, text=text, now=now).turn


def found(**values: Any) -> list[Any]:
    """Return a model's answer with the new state."""
    return [TextDelta(json.dumps(values)), UsageReport(40, 9, 0, 0), Finished("stop")]


def sent(worker: Any, call: int) -> list[tuple[str, str | None]]:
    return [(m.role, m.content) for m in worker.scripted.requests[call].messages]


def of_chat(chat: Chat) -> list[tuple[int, str, dict[str, Any], int]]:
    rows = ChatState.objects.filter(branch__chat=chat).order_by("version")
    return [(row.version, row.kind, row.values, row.to_seq) for row in rows]


def notes(turn: Turn) -> list[str]:
    return list(Receipt.objects.get(turn=turn, step=1, call=1).notes)


def events(chat: Chat) -> list[tuple[str, dict[str, Any]]]:
    rows = AuditEvent.objects.filter(chat_id=chat.pk, type__startswith="state.").order_by("id")
    return [(row.type, row.data) for row in rows]


@pytest.mark.requirement("S2.5")
def test_the_state_is_extracted_before_the_reply_and_sent_instead_of_dialogue(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy(system_text="Book trips.")
    work(ask(alice, chat, now), found(destination="Oslo"), REPLY)
    turn = ask(alice, chat, now, "On May 3.")
    worker = work(turn, found(destination="Oslo", date="May 3"), REPLY)

    first, second = worker.scripted.requests
    assert '{"destination": "Oslo"}' in first.messages[1].content
    assert "On May 3." in first.messages[1].content
    assert "To Oslo" not in first.messages[1].content
    assert first.tools == ()
    assert sent(worker, 1) == [
        ("system", "Book trips."),
        ("user", 'Conversation state:\n{"date": "May 3", "destination": "Oslo"}'),
        ("user", "On May 3."),
    ]
    assert second.messages[-1] == WireMessage("user", "On May 3.")
    assert of_chat(chat) == [
        (1, "extracted", {"destination": "Oslo"}, 1),
        (2, "extracted", {"destination": "Oslo", "date": "May 3"}, 3),
    ]
    newest = ChatState.objects.get(version=2)
    assert newest.turn == turn
    assert {name: origin["seq"] for name, origin in newest.origins.items()} == {
        "destination": 1,
        "date": 3,
    }


@pytest.mark.requirement("S2.5")
def test_the_extraction_has_a_receipt_and_usage_of_its_own(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    work(ask(alice, chat, now), found(destination="Oslo"), REPLY)
    turn = ask(alice, chat, now, "Secret word: pineapple")
    work(turn, found(destination="Oslo"), [TextDelta("a"), UsageReport(7, 1, 0, 0), REPLY[1]])

    asked, reply = Receipt.objects.filter(turn=turn).order_by("call")
    assert (asked.call, asked.step, asked.purpose, asked.outcome) == (0, 1, "state", "ok")
    assert (reply.call, reply.purpose) == (1, "reply")
    assert (asked.usage["input"], asked.usage["output"]) == (40, 9)
    assert turn.usage["input"] == 7
    assert sum(segment[3] for segment in asked.segments) == asked.prompt_tokens
    origins = ["system", "tail", "tail", "history", "question"]
    assert [segment[0] for segment in asked.segments] == origins
    assert asked.left_out == [[1, 1, "state"]]
    assert asked.last_seq == 3
    assert reply.notes == []
    assert [1, 2, "state"] in reply.left_out
    assert [s[:2] for s in reply.segments] == [
        ["tail", "state"],
        ["question", str(turn.trigger_id)],
    ]
    assert not PromptText.objects.filter(text__contains="pineapple").exists()
    # The receipt has all texts needed to rebuild the prompt.
    texts = {s[1]: PromptText.objects.get(digest=s[5]).text for s in asked.segments if s[5]}
    read = Message.objects.filter(pk__in=[s[1] for s in asked.segments if s[2]]).order_by("seq")
    replied, *question = history.load_all(read, counter=ApproximateCounter())
    again = build_state_request(
        question=question,
        state=json.loads(texts["state"]),
        schema=json.loads(texts["schema"]),
        replied=extract_message_text(replied),
    )
    assert compute_text_ref(format_prompt_json(again, ())) == asked.prompt_sha256
    assert events(chat)[-1] == (
        "state.extracted",
        {"version": 2, "receipt": str(asked.pk), "to_seq": 3},
    )


@pytest.mark.parametrize("length", [0, 3_000])
def test_the_extraction_reads_the_end_of_the_reply_that_a_yes_confirms(
    alice: User,
    chat: Chat,
    now: datetime,
    work: Work,
    policy: Callable[..., None],
    length: int,
) -> None:
    policy()
    asks = f"{'x' * length} Shall I book Oslo for 3 May? <message>"
    work(ask(alice, chat, now), found(), [TextDelta(asks), REPLY[1]])
    turn = ask(alice, chat, now, "Yes.")
    worker = work(turn, found(destination="Oslo", date="May 3"), REPLY)
    asked = worker.scripted.requests[0].messages[1].content
    assert "Shall I book Oslo for 3 May?" in asked
    assert asked.index("<assistant>") < asked.index("Yes.")
    assert len(asked) < 2_500
    assert asked.count("<message>") == 1
    state = Receipt.objects.get(turn=turn, call=Receipt.BESIDE)
    assert ChatState.objects.get(version=2).prompt_version == "state-v2"
    assert not rebuild_request(state).fault


def test_a_withdrawn_reply_is_not_read(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    work(ask(alice, chat, now), found(), [TextDelta("Shall I book Oslo?"), REPLY[1]])
    Message.objects.filter(role="assistant").update(excluded=True)
    worker = work(ask(alice, chat, now, "Yes."), found(), REPLY)
    assert "Shall I book" not in worker.scripted.requests[0].messages[1].content


def test_a_receipt_of_the_first_version_has_no_earlier_reply() -> None:
    """Its question is rebuilt to the same text, because its system text is stored."""
    (_, asked) = build_state_request(question=(), state={}, schema={})
    assert asked.content == (
        "The schema:\n{}\n\nThe state so far:\n{}\n\nThe newest message:\n<message>\n\n"
        "</message>\n\nAnswer with the new state now."
    )


FAILURES: list[tuple[str, list[Any]]] = [
    ("provider_unavailable", [ProviderError("provider_unavailable", status=503)]),
    ("provider_rate_limited", [ProviderError("provider_rate_limited", retry_after=90.0)]),
    ("context_overflow", [ProviderError("context_overflow")]),
    ("provider_protocol", [TextDelta('{"dest'), ProviderError("provider_protocol")]),
    ("state_not_json", [TextDelta("I cannot help with that."), Finished("refusal")]),
    ("state_not_json", [Finished("stop")]),
    ("state_not_json", [TextDelta("Sure!"), Finished("stop")]),
    ("state_not_an_object", [TextDelta("[]"), Finished("stop")]),
    ("state_invalid", found(destination=5)),
    ("state_invalid", found(mood="x")),
    ("state_invalid", found(destination="\0")),
    ("state_too_large", found(destination="x" * 20_000)),
    ("state_not_finished", [TextDelta("{}"), Finished("length")]),
    ("state_not_finished", [TextDelta("{}"), Finished("none")]),
]


@pytest.mark.requirement("S2.5")
@pytest.mark.parametrize(("code", "script"), FAILURES, ids=range(len(FAILURES)))
def test_whatever_fails_the_old_state_stays_and_the_reply_comes(
    alice: User,
    chat: Chat,
    now: datetime,
    work: Work,
    policy: Callable[..., None],
    code: str,
    script: list[Any],
) -> None:
    policy()
    work(ask(alice, chat, now), found(destination="Oslo"), REPLY)
    turn = ask(alice, chat, now, "On May 3.")
    worker = work(turn, script, REPLY)

    assert turn.status == Turn.Status.COMPLETED
    assert len(worker.scripted.requests) == 2
    assert sent(worker, 1)[0] == ("user", 'Conversation state:\n{"destination": "Oslo"}')
    assert [row[0] for row in of_chat(chat)] == [1]
    assert notes(turn) == [f"state:{code}"]
    asked = Receipt.objects.get(turn=turn, call=0)
    assert (asked.outcome, asked.error_code) == ("failed", code)
    assert events(chat)[-1][0] == "state.kept"
    assert events(chat)[-1][1]["code"] == code


@pytest.mark.requirement("S2.5")
def test_what_was_not_taken_over_is_read_with_the_next_message(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    work(ask(alice, chat, now), [ProviderError("provider_timeout")], REPLY)
    worker = work(ask(alice, chat, now, "On May 3."), found(destination="Oslo", date="3"), REPLY)
    assert "To Oslo\n\nOn May 3." in worker.scripted.requests[0].messages[1].content
    assert of_chat(chat) == [(1, "extracted", {"destination": "Oslo", "date": "3"}, 3)]


def test_of_many_missed_messages_the_newest_that_fit_are_read(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy(token_budget=1_400, reserve_tokens=400)
    for number in range(3):
        text = f"Number {number}. " + "A long story. " * 100
        work(ask(alice, chat, now, text), [ProviderError("provider_timeout")], REPLY)
    turn = ask(alice, chat, now, "To Oslo")
    worker = work(turn, found(destination="Oslo"), REPLY)
    asked = worker.scripted.requests[0].messages[1].content
    assert ("Number 0" in asked, "Number 2" in asked, "To Oslo" in asked) == (False, True, True)
    receipt = Receipt.objects.get(turn=turn, call=0)
    assert receipt.prompt_tokens <= receipt.budget["limit"]
    named = [segment[2] for segment in receipt.segments if segment[2]]
    for first, last, _ in receipt.left_out:
        named += range(first, last + 1)
    assert sorted(named) == list(range(1, 8))


@pytest.mark.requirement("S2.5")
def test_an_extraction_that_takes_too_long_is_given_up(
    alice: User,
    chat: Chat,
    now: datetime,
    work: Work,
    policy: Callable[..., None],
    settings: Any,
) -> None:
    policy()
    settings.STATE_SECONDS = 0.05

    async def hangs(worker: Any) -> None:
        await asyncio.sleep(60)

    turn = ask(alice, chat, now)
    worker = work(turn, [TextDelta('{"dest'), hangs], REPLY)
    assert turn.status == Turn.Status.COMPLETED
    assert worker.scripted.cancelled == 1
    assert notes(turn) == ["state:provider_timeout"]
    assert of_chat(chat) == []


def test_a_stop_during_the_extraction_stops_the_turn(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    turn = ask(alice, chat, now)

    async def stops(worker: Any) -> None:
        worker.runs[turn.pk].interrupt(STOP)
        await asyncio.sleep(60)

    worker = work(turn, [stops], REPLY)
    assert turn.status == Turn.Status.STOPPED
    assert turn.reply is None
    assert len(worker.scripted.requests) == 1
    assert worker.scripted.cancelled == 1
    assert of_chat(chat) == []
    assert Receipt.objects.get(turn=turn, call=0).outcome == "stopped"


def test_a_lost_lease_during_the_extraction_writes_nothing(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    turn = ask(alice, chat, now)

    async def loses(worker: Any) -> None:
        await worker.db(Turn.objects.filter(pk=turn.pk).update, lease_token="another")

    worker = work(turn, [*found(destination="Oslo")[:2], loses, Finished("stop")], REPLY)
    assert len(worker.scripted.requests) == 1
    assert of_chat(chat) == []
    assert turn.tail is None
    assert Receipt.objects.get(turn=turn).outcome == "open"
    assert events(chat) == []


def test_erasing_a_message_leaves_the_state_that_was_sent_before_it(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    first = ask(alice, chat, now)
    work(first, found(destination="Oslo"), REPLY)
    second = ask(alice, chat, now, "To Rome, and then nothing more")
    work(second, found(destination="Oslo"), REPLY)
    third = ask(alice, chat, now, "No, to Rome after all")
    work(third, found(destination="Rome"), REPLY)
    before, same, new = (Receipt.objects.get(turn=turn, call=1) for turn in (first, second, third))
    digests = [next(s[5] for s in r.segments if s[1] == "state") for r in (before, same, new)]
    assert digests[0] == digests[1] != digests[2]
    message = Message.objects.select_related("branch").get(pk=str(second.trigger_id))
    erase_message(user=alice, message=message, now=now)
    kept = set(PromptText.objects.filter(digest__in=digests).values_list("digest", flat=True))
    assert kept == {digests[0]}
    erased_at = [Receipt.objects.get(pk=row.pk).erased_at for row in (before, same, new)]
    assert erased_at == [None, now, now]
    assert list(ledger.find_ledger_breaks()) == []


def test_a_worker_that_ends_hands_the_turn_back_and_the_next_one_asks_again(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    turn = ask(alice, chat, now)

    async def ends(worker: Any) -> None:
        worker.runs[turn.pk].interrupt(SHUTDOWN)
        await asyncio.sleep(60)

    work(turn, [ends])
    assert (turn.status, turn.tail) == (Turn.Status.QUEUED, None)
    work(turn, found(destination="Oslo"), REPLY)
    assert turn.status == Turn.Status.COMPLETED
    calls = Receipt.objects.filter(turn=turn).order_by("attempt", "call")
    assert [(r.attempt, r.call, r.outcome) for r in calls] == [
        (1, 0, "lost"),
        (2, 0, "ok"),
        (2, 1, "ok"),
    ]


def test_the_state_is_extracted_once_for_all_steps_of_a_turn(
    alice: User,
    chat: Chat,
    now: datetime,
    work: Work,
    policy: Callable[..., None],
) -> None:
    policy()
    turn = ask(alice, chat, now)
    base: list[ChatState | None] = []

    def correct() -> None:
        branch = Branch.objects.get(pk=turn.branch_id)
        base.append(states.find_newest_state(branch))
        states.append_state_version(
            branch_id=turn.branch_id,
            base=base[0],
            kind="corrected",
            values={"destination": "Rome"},
            to_seq=1,
            now=now,
        )

    async def corrects(worker: Any) -> None:
        await worker.db(correct)

    tool = [ToolCallDelta(0, "c1", "nothing", "{}"), corrects, Finished("tool_calls")]
    worker = work(turn, found(destination="Oslo"), tool, REPLY)
    assert turn.status == Turn.Status.COMPLETED
    assert len(worker.scripted.requests) == 3
    states_sent = [sent(worker, call)[0] for call in (1, 2)]
    assert states_sent == [("user", 'Conversation state:\n{"destination": "Oslo"}')] * 2

    # The correction applies from the next turn on, and the next extraction starts from it.
    worker = work(ask(alice, chat, now, "Go on"), found(destination="Rome"), REPLY)
    assert '{"destination": "Rome"}' in worker.scripted.requests[0].messages[1].content


def test_a_correction_during_the_extraction_counts(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    turn = ask(alice, chat, now)

    def correct() -> None:
        states.append_state_version(
            branch_id=turn.branch_id,
            base=None,
            kind="corrected",
            values={"destination": "Rome"},
            to_seq=0,
            now=now,
        )

    async def corrects(worker: Any) -> None:
        await worker.db(correct)

    worker = work(turn, [corrects, *found(destination="Oslo")], REPLY)
    assert notes(turn) == ["state:state_changed"]
    assert [row[2] for row in of_chat(chat)] == [{"destination": "Rome"}]
    # The next extraction reads the message again.
    worker = work(ask(alice, chat, now, "On May 3."), found(destination="Rome"), REPLY)
    assert "To Oslo\n\nOn May 3." in worker.scripted.requests[0].messages[1].content


def test_a_retry_and_a_continuation_ask_for_no_state(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    turn = ask(alice, chat, now)
    work(turn, found(destination="Oslo"), [ProviderError("provider_rejected", status=404)])
    assert turn.status == Turn.Status.FAILED
    again = retry_turn(user=alice, turn=turn, now=now)
    worker = work(again, [TextDelta("Half"), Finished("length")])
    assert sent(worker, 0)[0] == ("user", 'Conversation state:\n{"destination": "Oslo"}')
    worker = work(continue_reply(user=alice, turn=again, now=now), REPLY)
    assert len(worker.scripted.requests) == 1
    assert sent(worker, 0)[1] == ("user", 'Conversation state:\n{"destination": "Oslo"}')
    assert len(of_chat(chat)) == 1


def test_messages_that_arrive_during_the_reply_are_read_by_the_next_turn(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()

    async def arrives(worker: Any) -> None:
        await worker.db(ask, alice=alice, chat=chat, now=now, text="On May 3.")

    worker = work(
        ask(alice, chat, now), found(destination="Oslo"), [TextDelta("a"), arrives, REPLY[1]], REPLY
    )
    assert len(worker.scripted.requests) == 3
    worker = work(ask(alice, chat, now, "Two people"), found(), REPLY)
    assert "On May 3.\n\nTwo people" in worker.scripted.requests[0].messages[1].content


def test_a_light_model_reads_the_state_where_the_policy_names_one(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    ProviderAccount.objects.create(slug="other", name="Other", kind="demo")
    light = ModelSpec.objects.create(slug="light", provider="other", name="light-1")
    policy(summarization_model="light")
    worker = work(ask(alice, chat, now), found(destination="Oslo"), REPLY)
    assert [request.model for request in worker.scripted.requests] == ["light-1", "demo"]
    assert ChatState.objects.get().model_name == "light-1"

    # A refused key pauses its own provider, not the provider of the chat.
    turn = ask(alice, chat, now, "Hm")
    work(turn, [ProviderError("provider_auth", status=401)], REPLY)
    assert turn.status == Turn.Status.COMPLETED
    assert ProviderAccount.objects.get(slug="other").paused_until is not None
    assert ProviderAccount.objects.get(slug="demo").paused_until is None
    turn = ask(alice, chat, now, "And now?")
    worker = work(turn, REPLY)
    assert [request.model for request in worker.scripted.requests] == ["demo"]
    assert notes(turn) == ["state:model_unavailable"]
    light.delete()
    turn = ask(alice, chat, now, "And then?")
    work(turn, REPLY)
    assert notes(turn) == ["state:model_unavailable"]


def test_a_branch_begins_with_the_state_at_its_fork(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    work(ask(alice, chat, now), found(destination="Oslo"), REPLY)
    work(ask(alice, chat, now, "No, Rome"), found(destination="Rome"), REPLY)
    parent = Branch.objects.get()
    # The worker uses the real time.
    later = timezone.now() + timedelta(hours=1)
    child = Branch.objects.create(
        chat=chat, parent=parent, fork_seq=2, last_seq=2, created_at=later
    )
    seen = states.find_newest_state(child)
    assert seen is not None
    assert seen.values == {"destination": "Oslo"}
    # Later changes on the parent do not affect the child, even with equal sequence numbers.
    twin = Branch.objects.create(chat=chat, parent=parent, fork_seq=4, last_seq=4, created_at=later)
    states.append_state_version(
        branch_id=parent.pk,
        base=states.find_newest_state(parent),
        kind="corrected",
        values={},
        to_seq=4,
        now=later + timedelta(hours=1),
    )
    of_twin = states.find_newest_state(twin)
    assert of_twin is not None
    assert of_twin.values == {"destination": "Rome"}
    grandchild = Branch.objects.create(
        chat=chat, parent=child, fork_seq=1, last_seq=1, created_at=later
    )
    assert states.find_newest_state(grandchild) == seen

    Chat.objects.filter(pk=chat.pk).update(active_branch=child)
    chat.refresh_from_db()
    worker = work(ask(alice, chat, now, "In May"), found(destination="Oslo", date="May"), REPLY)
    assert '{"destination": "Oslo"}' in worker.scripted.requests[0].messages[1].content
    mine = states.find_newest_state(Branch.objects.get(pk=child.pk))
    assert mine is not None
    assert (mine.branch_id, mine.version, mine.to_seq) == (child.pk, 2, 3)


def test_the_demo_model_takes_over_what_is_named(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    policy()
    demo = DemoProvider(token_delay=0)

    async def answer(worker: Any) -> None:
        request = worker.scripted.requests[-1]
        worker.events = [event async for event in demo.stream(request)]

    turn = ask(alice, chat, now, "Destination: Oslo, and the date is 2026-05-03.")
    worker = work(turn, [answer, Finished("stop")], REPLY)
    said = "".join(e.text for e in worker.events if isinstance(e, TextDelta))
    assert json.loads(said) == {"destination": "Oslo", "date": "2026-05-03"}


def test_other_strategies_ask_for_no_state(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    worker = work(turn, REPLY)
    assert len(worker.scripted.requests) == 1
    assert turn.tail is None
    assert not ChatState.objects.exists()


def test_asking_again_after_a_lost_answer_of_the_database_changes_nothing(
    alice: User, chat: Chat, now: datetime, work: Work, policy: Callable[..., None]
) -> None:
    """A commit with an unknown result is repeated: one receipt, one version, the same tail."""
    policy()
    turn = ask(alice, chat, now)

    class Doubting(InlineWorker):
        """A worker that runs every database function of the extraction twice."""

        async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
            """Return the result and check that both are equal."""
            result = await super().db(function, **arguments)
            if function.__module__ == "chats.turns.state_extraction":
                assert await super().db(function, **arguments) == result
            return result

    worker = Doubting(ScriptedProvider([found(destination="Oslo"), REPLY]))
    async_to_sync(worker.turn)(turn.pk)
    turn.refresh_from_db()
    assert turn.status == Turn.Status.COMPLETED
    assert [row[0] for row in of_chat(chat)] == [1]
    assert Receipt.objects.filter(turn=turn, call=0).count() == 1
