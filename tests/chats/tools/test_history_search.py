"""The model's search in what is no longer in its prompt: within one chat, capped, in the ledger."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.memory import archive
from chats.models import Branch, Chat, Compaction, Message, Receipt, Team, Turn
from chats.prompt.tools import history_search
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.turns.start import start
from contextpolicy import ledger
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, EffectivePolicy, ModelSpec
from contextpolicy.publish import assign, create_policy

Work = Callable[..., Any]
NAME = "chat_history_search"


def call(arguments: Any, *, name: str = NAME) -> list[Any]:
    """A step in which the model calls a tool."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [ToolCallDelta(0, "call-1", name, text), Finished("tool_calls")]


@pytest.fixture
def archived(alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec) -> Chat:
    """A chat whose first two turns are covered by a summary, with a model that takes tools."""
    ModelSpec.objects.update(supports_tools=True)
    for text in ("The heron stood at the lake", "We met at four", "And then we left"):
        work(
            start(user=alice, chat=chat, text=text, now=now).turn,
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
    archive.index(Branch.objects.select_related("active_compaction").get(chat=chat))
    return chat


@pytest.fixture
def ask(alice: User, archived: Chat, now: datetime, work: Work) -> Callable[..., Any]:
    """A turn in which the model plays the given scripts."""

    def asking(*scripts: list[Any]) -> tuple[Turn, Any]:
        turn = start(user=alice, chat=archived, text="Where was it?", now=now).turn
        return turn, work(turn, *scripts)

    return asking


def result_of(turn: Turn) -> str:
    """The result that was stored with the turn's first step."""
    step = Message.objects.filter(turn=turn, role="assistant").order_by("seq")[0]
    return str(next(part["content"] for part in step.parts if part["type"] == "tool_result"))


def test_it_is_offered_from_the_first_compaction_on(
    alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    worker = work(start(user=alice, chat=chat, text="Hello", now=now).turn)
    assert worker.scripted.requests[0].tools == ()


@pytest.mark.requirement("S4.5")
def test_a_policy_that_keeps_the_archive_closed_offers_no_search(
    ask: Callable[..., Any], now: datetime
) -> None:
    closed = create_policy(
        slug="closed", name="Closed", values={"archive": False}, actor="system", now=now
    )
    assign(policy=closed, level="instance", actor="system", now=now)
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
    # The summary was put there by hand, so that only the chains are verified.
    assert list(ledger.chains()) == []


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
    content, read = history_search.answer('{"query": "heron"}', branch=branch, counter=counter)
    assert counter.count(content) < 2 * history_search.MOST_TOKENS
    assert "characters cut" in content
    assert read["messages"]


def test_nothing_found_is_said(archived: Chat) -> None:
    branch = Branch.objects.select_related("active_compaction").get(chat=archived)
    content, read = history_search.answer(
        '{"query": "zebra"}', branch=branch, counter=ApproximateCounter()
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
        told, _ = history_search.answer(
            json.dumps(given), branch=branch, counter=ApproximateCounter()
        )
        return told

    assert history_search.spec_for(archived) == history_search.SPEC
    assert "not valid" in answer(asked)
    branch.chat.team = Team.objects.create(owner=alice, created_at=now)
    assert history_search.spec_for(branch.chat) == history_search.SPEC_OF_TEAM
    assert [(row["seq"], row["speaker"]) for row in json.loads(answer(asked))] == [(2, "Planner")]
    assert {row["seq"] for row in json.loads(answer({"query": "see heron"}))} > {2}
