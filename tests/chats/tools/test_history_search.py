"""The search tool for messages outside the prompt: one chat only, limited, in the ledger."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.compaction.question_embedding import QuestionVector
from chats.memory.search import archive, meaning
from chats.models import (
    AccountSettings,
    Branch,
    Chat,
    Compaction,
    Message,
    Receipt,
    SearchText,
    Team,
    Turn,
)
from chats.prompt.tools import history_search
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.turns import references as looking
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, EffectivePolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

Work = Callable[..., Any]
NAME = "chat_history_search"


def call(arguments: Any, *, name: str = NAME) -> list[Any]:
    """Return a step in which the model calls a tool."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [ToolCallDelta(0, "call-1", name, text), Finished("tool_calls")]


@pytest.fixture
def archived(alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec) -> Chat:
    """A chat whose first two turns are covered by a summary. Its model supports tools."""
    ModelSpec.objects.update(supports_tools=True)
    for text in ("The heron stood at the lake", "We met at four", "And then we left"):
        work(
            start_turn(user=alice, chat=chat, text=text, now=now).turn,
            [TextDelta("I see"), Finished("stop")],
        )
    policy = EffectivePolicy.objects.create(digest="e" * 64, values={}, sources={})
    row = Compaction.objects.create(
        branch=Branch.objects.get(chat=chat),
        kind="summary",
        status="published",
        text="A summary.",
        from_seq=1,
        to_seq=4,
        trigger="tokens",
        effective_policy=policy,
        created_at=now,
    )
    Branch.objects.filter(chat=chat).update(active_compaction=row)
    archive.index_branch(Branch.objects.select_related("active_compaction").get(chat=chat))
    return chat


@pytest.fixture
def ask(alice: User, archived: Chat, now: datetime, work: Work) -> Callable[..., Any]:
    """Run a turn in which the model plays the given scripts."""

    def asking(*scripts: list[Any]) -> tuple[Turn, Any]:
        turn = start_turn(user=alice, chat=archived, text="Where was it?", now=now).turn
        return turn, work(turn, *scripts)

    return asking


def result_of(turn: Turn) -> str:
    """Return the tool result stored with the first step of the turn."""
    step = Message.objects.filter(turn=turn, role="assistant").order_by("seq")[0]
    return str(next(part["content"] for part in step.parts if part["type"] == "tool_result"))


def test_it_is_offered_from_the_first_compaction_on(
    alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    worker = work(start_turn(user=alice, chat=chat, text="Hello", now=now).turn)
    assert worker.scripted.requests[0].tools == ()


@pytest.mark.requirement("S4.5")
def test_a_policy_that_keeps_the_archive_closed_offers_no_search(
    ask: Callable[..., Any], now: datetime
) -> None:
    closed = create_policy(
        slug="closed", name="Closed", values={"archive": False}, actor="system", now=now
    )
    assign_policy(policy=closed, level="instance", actor="system", now=now)
    turn, worker = ask(call({"query": "heron"}))
    assert worker.scripted.requests[0].tools == ()
    assert "not available" in result_of(turn)


@pytest.mark.requirement("S4.7")
def test_the_model_reads_the_originals_it_asked_for(ask: Callable[..., Any]) -> None:
    turn, worker = ask(call({"query": "heron"}), [TextDelta("At the lake."), Finished("stop")])
    assert [spec.name for spec in worker.scripted.requests[0].tools] == [NAME]
    assert turn.status == "completed"
    (first, *_) = json.loads(result_of(turn))
    assert first["content"] == "The heron stood at the lake"
    assert first.keys() == {"id", "seq", "role", "content", "created_at"}
    assert (first["seq"], first["role"]) == (1, "user")
    sent = worker.scripted.requests[1].messages
    assert any("The heron stood" in wire.content for wire in sent if wire.role == "tool")


def test_S08_each_read_is_in_the_ledger_without_its_words(ask: Callable[..., Any]) -> None:
    turn, _ = ask(call({"query": "heron"}))
    event = AuditEvent.objects.get(type="tool.called")
    assert event.turn_id == turn.pk
    assert event.data["tool"] == NAME
    assert event.data["messages"] == [entry["id"] for entry in json.loads(result_of(turn))]
    assert event.data.keys() == {"tool", "messages", "attempt", "step"}
    assert "heron" not in json.dumps(event.data)
    # The summary was inserted directly, so only the hash chains are verified.
    assert list(ledger.find_chain_breaks()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 5_000,
        {},
        {"query": ""},
        {"query": 5},
        {"query": "x" * 501},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 21},
        {"query": "x", "limit": True},
        {"query": "x", "chat": "another"},
        '{"query": "\\ud800"}',
        '{"query": "heron", "\\udfff": 1}',
    ],
    ids=range(15),
)
def test_S08_wrong_arguments_are_said_and_nothing_is_read(
    arguments: Any, ask: Callable[..., Any]
) -> None:
    turn, _ = ask(call(arguments))
    assert turn.status == "completed"
    assert "not valid" in result_of(turn)
    assert not AuditEvent.objects.filter(type="tool.called").exists()


def test_S08_a_question_may_hold_any_character(ask: Callable[..., Any]) -> None:
    turn, _ = ask(call({"query": 'heron\x00 " * NEAR( %s'}))
    assert turn.status == "completed"
    assert json.loads(result_of(turn))[0]["content"] == "The heron stood at the lake"


def test_S08_an_unknown_tool_runs_nothing(ask: Callable[..., Any]) -> None:
    turn, _ = ask(call({"query": "heron"}, name="shell"))
    assert "not available" in result_of(turn)
    assert not AuditEvent.objects.filter(type="tool.called").exists()


def test_S08_a_tool_that_was_not_offered_runs_not(ask: Callable[..., Any], archived: Chat) -> None:
    ModelSpec.objects.update(supports_tools=False)
    turn, worker = ask(call({"query": "heron"}))
    assert worker.scripted.requests[0].tools == ()
    assert "not available" in result_of(turn)


def test_S08_the_answer_has_an_end(archived: Chat, now: datetime) -> None:
    branch = Branch.objects.select_related("active_compaction").get(chat=archived)
    Message.objects.filter(seq__lte=4).update(parts=[{"type": "text", "text": "heron " * 2_000}])
    counter = ApproximateCounter()
    content, read = history_search.run_history_search(
        '{"query": "heron"}', branch=branch, counter=counter, sent={5, 6}
    )
    assert counter.count(content) < 2 * history_search.MOST_TOKENS
    assert "characters cut" in content
    assert read["messages"]


def test_nothing_found_is_said(archived: Chat) -> None:
    branch = Branch.objects.select_related("active_compaction").get(chat=archived)
    content, read = history_search.run_history_search(
        '{"query": "zebra"}', branch=branch, counter=ApproximateCounter(), sent={5, 6}
    )
    assert content == history_search.NOTHING
    assert read["messages"] == []


@pytest.mark.requirement("S4.7")
def test_S08_a_search_may_be_repeated_up_to_the_step_limit(
    ask: Callable[..., Any], settings: Any
) -> None:
    settings.MAX_STEPS = 3
    turn, worker = ask(*[call({"query": "heron"}) for _ in range(5)])
    assert (turn.status, len(worker.scripted.requests)) == ("completed", 3)
    reply = Message.objects.filter(turn=turn, role="assistant").order_by("seq").last()
    assert reply is not None
    assert reply.finish == "limit"


def test_a_server_that_takes_no_tools_is_asked_again_without_and_remembered(
    ask: Callable[..., Any],
) -> None:
    refused = ProviderError("tools_unsupported", status=400)
    turn, worker = ask([refused], [TextDelta("At the lake."), Finished("stop")])
    assert turn.status == "completed"
    assert [len(request.tools) for request in worker.scripted.requests] == [1, 0]
    outcomes = (
        Receipt.objects.filter(turn=turn).order_by("call").values_list("outcome", "error_code")
    )
    assert list(outcomes) == [("failed", "tools_unsupported"), ("ok", "")]
    assert not ModelSpec.objects.get(pk=turn.model_id).supports_tools
    assert AuditEvent.objects.filter(type="model.changed", actor="worker").count() == 1


def test_a_server_that_complains_about_tools_it_was_not_given_fails_the_turn(
    ask: Callable[..., Any],
) -> None:
    ModelSpec.objects.update(supports_tools=False)
    turn, worker = ask([ProviderError("tools_unsupported", status=400)])
    assert (turn.status, turn.error_code) == ("failed", "tools_unsupported")
    assert len(worker.scripted.requests) == 1


@pytest.mark.requirement("S4.7", by="user")
def test_the_page_shows_what_was_looked_up(alice: User, archived: Chat, work: Work) -> None:
    page = Client()
    page.force_login(alice)
    address = f"/chats/{archived.pk}/"

    page.post(f"{address}messages", {"text": "Where was it?"})
    turn = Turn.objects.latest("accepted")
    work(turn, call({"query": "heron"}), [TextDelta("At the lake."), Finished("stop")])

    html = page.get(address).content.decode()
    asked, looked_up = html.index("Where was it?"), html.index(NAME)
    assert asked < looked_up < html.index("At the lake.")
    assert "The heron stood at the lake" in html[looked_up:]


def test_in_a_teams_chat_it_finds_what_one_member_said(
    archived: Chat, alice: User, now: datetime
) -> None:
    branch = Branch.objects.select_related("active_compaction", "chat").get(chat=archived)
    planner = {"roleId": "planner", "roleName": "Planner", "type": "ai"}
    Message.objects.filter(branch=branch, seq=2).update(speaker=planner)
    asked = {"query": "see heron", "speaker": "planner"}

    def answer(given: dict[str, str]) -> str:
        told, _ = history_search.run_history_search(
            json.dumps(given), branch=branch, counter=ApproximateCounter(), sent={5, 6}
        )
        return told

    assert history_search.build_search_spec(archived) == history_search.SPEC
    assert "not valid" in answer(asked)
    branch.chat.team = Team.objects.create(owner=alice, created_at=now)
    assert history_search.build_search_spec(branch.chat) == history_search.SPEC_OF_TEAM
    found = json.loads(answer(asked))
    assert [(row["seq"], row.get("speaker")) for row in found] == [
        (1, None),
        (2, "Planner"),
        (3, None),
    ]
    assert {row["seq"] for row in json.loads(answer({"query": "see heron"}))} > {2}
    # PostgreSQL cannot compare a name with a NUL.
    assert answer({**asked, "speaker": "\0planner"}) == history_search.NOTHING


def window_of(size: int, *, now: datetime, **values: Any) -> None:
    """Assign a policy without compaction that sends only the newest messages."""
    wanted = {"strategy": "simple", "window_size": size, **values}
    policy = create_policy(slug="window", name="Window", values=wanted, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


@pytest.fixture
def talk(alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec) -> Work:
    """Send a message in a chat whose model supports tools. Returns the requests of the turn."""
    ModelSpec.objects.update(supports_tools=True)

    def saying(text: str, *scripts: list[Any]) -> Any:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        worker = work(turn, *scripts)
        assert turn.status == "completed", turn.error_sentence
        archive.index_branch(Branch.objects.get(chat=chat))
        return worker.scripted.requests

    return saying


def names(request: Any) -> list[str]:
    """Return the names of the tools in a request."""
    return [spec.name for spec in request.tools]


@pytest.mark.requirement("S4.7")
@pytest.mark.usefixtures("built_again")
def test_a_window_offers_it_from_the_first_message_on_that_it_leaves_out(
    talk: Work, now: datetime
) -> None:
    window_of(4, now=now)
    offered = [names(talk(f"Message {number}")[0]) for number in range(5)]
    assert offered == [[], [], [], [NAME], [NAME]]
    assert not Compaction.objects.exists()


@pytest.mark.usefixtures("built_again")
def test_it_stays_offered_when_a_later_prompt_leaves_nothing_out(talk: Work, now: datetime) -> None:
    window_of(2, now=now)
    for number in range(3):
        talk(f"Message {number}")
    wide = create_policy(
        slug="wide", name="Wide", values={"strategy": "simple"}, actor="system", now=now
    )
    assign_policy(policy=wide, level="instance", actor="system", now=now)

    (request,) = talk("All of it")

    assert "Message 0" in str(request.messages)
    assert names(request) == [NAME]


def test_a_message_that_a_person_excluded_offers_no_search(
    talk: Work, now: datetime, chat: Chat
) -> None:
    talk("One")
    Message.objects.filter(branch__chat=chat).update(excluded=True)
    assert names(talk("Two")[0]) == []


def test_a_window_with_a_closed_archive_offers_no_search(talk: Work, now: datetime) -> None:
    window_of(2, now=now, archive=False)
    assert [names(talk(f"Message {number}")[0]) for number in range(3)] == [[], [], []]
    assert not Branch.objects.filter(search_offered=True).exists()


@pytest.mark.requirement("S4.7")
@pytest.mark.usefixtures("built_again")
def test_a_match_comes_with_its_neighbours_and_dates_and_nothing_of_the_prompt(
    talk: Work, now: datetime, chat: Chat
) -> None:
    window_of(4, now=now)
    talk("We walked along the shore")
    talk("The heron stood at the lake", [TextDelta("How tall was it?"), Finished("stop")])
    talk("About a metre")
    talk("Bread is good")
    talk("So is a heron made of bread")
    _, second = talk(
        "Where was the heron?",
        call({"query": "heron"}),
        [TextDelta("At the lake."), Finished("stop")],
    )

    found = json.loads(result_of(Turn.objects.latest("accepted")))

    assert [row["content"] for row in found][1:3] == [
        "The heron stood at the lake",
        "How tall was it?",
    ]
    assert [row["seq"] for row in found][:3] == [2, 3, 4]
    # The prompt contains the others.
    assert max(row["seq"] for row in found) <= 6
    assert found[1]["created_at"] == now.isoformat(timespec="seconds")
    assert "made of bread" in str(second.messages)
    event = AuditEvent.objects.get(type="tool.called")
    assert event.data["messages"] == [row["id"] for row in found]


def test_neighbouring_matches_do_not_hide_later_ones(talk: Work, now: datetime, chat: Chat) -> None:
    window_of(2, now=now)
    for text, reply in (
        ("The heron stood at the lake", "A heron is a bird"),
        ("Bread is good", "Yes"),
        ("My sister saw a heron in Wales", "Nice"),
        ("Bread again", "Yes"),
    ):
        talk(text, [TextDelta(reply), Finished("stop")])
    talk("Where was it?", call({"query": "heron"}))

    found = json.loads(result_of(Turn.objects.latest("accepted")))

    assert {1, 2, 5} <= {row["seq"] for row in found}
    assert len({row["seq"] for row in found}) == len(found)


def test_the_time_of_a_match_is_in_the_zone_of_the_prompts_dates(
    alice: User, talk: Work, chat: Chat
) -> None:
    late = datetime(2026, 7, 3, 23, 30, tzinfo=UTC)
    AccountSettings.objects.update_or_create(owner=alice, defaults={"time_zone": "Europe/Berlin"})
    window_of(2, now=late, dates=True)
    for text in ("The heron stood at the lake", "Bread", "More bread"):
        talk(text)
    Message.objects.filter(branch__chat=chat).update(created_at=late)
    talk("Where was the heron?", call({"query": "heron"}))

    (first, *_) = json.loads(result_of(Turn.objects.latest("accepted")))

    assert first["created_at"] == "2026-07-04T01:30:00+02:00"


@pytest.mark.parametrize("state", [{"excluded": True}, {"finish": Message.Finish.INCOMPLETE}])
def test_messages_that_prompts_leave_out_are_no_matches_and_no_neighbours(
    talk: Work, now: datetime, chat: Chat, state: dict[str, Any]
) -> None:
    window_of(4, now=now)
    for text in ("The first heron", "The second heron", "Bread", "More bread"):
        talk(text)
    Message.objects.filter(branch__chat=chat, seq__in=(1, 2)).update(**state)
    talk("Where was the heron?", call({"query": "heron"}))

    found = json.loads(result_of(Turn.objects.latest("accepted")))

    assert 3 in {row["seq"] for row in found}
    assert {1, 2}.isdisjoint(row["seq"] for row in found)


def test_an_embedding_model_finds_what_shares_no_word(
    talk: Work, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def embedded(
        read: Any, *, aside: Any, values: Any, began: float, **given: Any
    ) -> QuestionVector:
        asked.append(await aside(read, **given))
        return QuestionVector(vector=[1.0], space_id=1)

    class Alike:
        floor = 0.5

        def __init__(self) -> None:
            rows = SearchText.objects.filter(message__seq=1)
            self.nearest = {row.pk: 0.9 for row in rows}

        def of(self, ids: Any) -> dict[int, float]:
            return {key: self.nearest.get(key, 0.0) for key in ids}

        scaled = of

    monkeypatch.setattr(looking, "embed_text", embedded)
    monkeypatch.setattr(meaning, "compare_question_vector", lambda *_args, **_given: Alike())
    window_of(2, now=now)
    for text in ("A grey bird fished in the reeds", "Bread", "More bread"):
        talk(text)
    talk("Where was it?", call({"query": "heron waterside"}))

    found = json.loads(result_of(Turn.objects.latest("accepted")))

    assert "heron waterside" in asked
    assert "grey bird" in found[0]["content"]


def test_a_prompt_without_room_for_the_tool_goes_without(talk: Work, now: datetime) -> None:
    window_of(2, now=now, token_budget=1_400, reserve_tokens=400)
    long = "word " * 930
    talk("Message")
    talk("Another")
    assert names(talk(long)[0]) == []
    assert names(talk("A short one")[0]) == [NAME]
