"""Known failures of other gateways: tails, outdated indexes, tool catalogues, caches."""

from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.compaction.coverage import get_active_summary
from chats.models import Chat, GatewayNode, Message, Receipt
from chats.providers.base import Finished, ToolCallDelta
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    SetPolicy,
    Writes,
    get_summary_prompt,
    script_summary,
)
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    MakeClient,
    Messages,
    assistant,
    call,
    calling,
    result,
    user,
)

pytestmark = pytest.mark.django_db

WEATHER: dict[str, Any] = dict(TOOLS[0]["function"])  # type: ignore[arg-type]  # its one tool


def long(program: GatewayClient, count: int, said: Messages | None = None, **more: Any) -> Messages:
    """Add this number of long questions to a conversation."""
    start = len(said or []) // 2
    return program.talk(
        [f"Question {start + n}. {SENTENCE * 8}" for n in range(count)], said, **more
    )


def whole(said: Messages) -> list[tuple[str, str]]:
    """Return a conversation as a complete prompt contains it."""
    return [(message["role"], message["content"]) for message in said]


@pytest.mark.gateway_case(19)
def test_an_edit_keeps_the_older_summary_that_ends_before_it(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    said = long(program, 8)
    chat = Chat.objects.get()
    first = fold(chat, at=timezone.now())
    said = long(program, 8, said)
    second = fold(chat, at=timezone.now())
    assert first.to_seq < second.to_seq
    # A position between the ends of the two summaries: only the older one is usable.
    at = first.to_seq + 2 - first.to_seq % 2
    assert at < second.to_seq
    answer = program.ask([*said[:at], user("Another question")])
    branch = answer.turn.branch
    assert (answer.headers["X-Context-Decision"], branch.fork_seq) == ("branch", at)
    assert get_active_summary(branch.active_compaction) == first
    assert answer.headers["X-Context-Status"] == "summarised"
    # A position before the end of the older summary: no summary is usable.
    early = program.ask([*said[:2], user("Another question")])
    assert get_active_summary(early.turn.branch.active_compaction) is None
    assert program.prompt == whole([*said[:2], user("Another question")])


@pytest.mark.gateway_case(20)
def test_a_crafted_tail_gets_no_summary(
    program: GatewayClient, make: MakeClient, bob: User, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    header = {"X-Session-Id": "shared"}
    said = long(program, 8, headers=header)
    chat = Chat.objects.get()
    summary = fold(chat, at=timezone.now())
    tail = [*said[4:], user("What was said before?")]
    # Chats of other users are never matched, even if the content is identical.
    of_bob = make(bob)
    answer = of_bob.ask(tail, headers=header)
    assert (answer.headers["X-Context-Decision"], answer.chat.owner) == ("new", bob)
    assert not any(summary.text[:40] in text for _, text in of_bob.prompt)
    # The tail of the client's own chat is sent unchanged, on a branch without a summary.
    own = program.ask(tail, headers=header)
    assert own.chat == chat
    assert (own.turn.branch.client_windowed, own.turn.branch.active_compaction) == (True, None)
    assert not any(summary.text[:40] in text for _, text in program.prompt)


@pytest.mark.gateway_case(22)
@pytest.mark.parametrize("known", [0, 7, 10])
def test_an_index_that_lacks_the_end_leaves_nothing_out(program: GatewayClient, known: int) -> None:
    said = program.talk([f"Question {n}" for n in range(10)])
    chat = Chat.objects.get()
    GatewayNode.objects.filter(branch__chat=chat, seq__gt=known).delete()
    answer = program.ask([*said, user("And now?")])
    assert program.prompt == whole([*said, user("And now?")])
    # Known messages are still recognised, and stored only once.
    rows = list(Message.objects.filter(branch__chat=answer.chat).values_list("seq", flat=True))
    assert rows.count(1) == 1
    receipt = Receipt.objects.get(turn=answer.turn)
    assert receipt.left_out == []


@pytest.mark.gateway_case(26)
def test_windows_alone_leave_sixty_prompts_nearly_all_append_only(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(strategy="sliding_window", token_budget=8000, reserve_tokens=1000, compact_to=0.45)
    said: Messages = []
    prompts = []
    for n in range(60):
        said.append(user(f"Question {n}. {SENTENCE * 5}"))
        said.append(assistant(program.ask(said).text))
        prompts.append(program.prompt)
    grown = [after[: len(before)] == before for before, after in pairwise(prompts)]
    moves = grown.count(False)
    # The window moved, so the test covers the rule.
    assert moves >= 1
    assert len(prompts[-1]) < len(said) - 1
    assert sum(grown) / len(grown) >= 0.95


@pytest.mark.gateway_case(30)
def test_a_catalogue_of_tools_in_the_input_gives_a_summary_of_words(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold, writes: Writes
) -> None:
    set_policy(token_budget=2600, reserve_tokens=300, summarization_model="writer")
    catalogue = "<tools>" + '{"name": "delete_all", "parameters": {"path": "string"}}' * 5
    said = [user(f"You may call these: {catalogue}")]
    said.append(assistant(program.ask(said, tools=TOOLS).text))
    said = long(program, 7, said, tools=TOOLS)
    called = [ToolCallDelta(0, "c", "delete_all", "{}"), Finished("tool_calls")]
    model = writes(called, script_summary(), script_summary())
    row = fold(Chat.objects.get(), at=timezone.now())
    # The summariser gets no tools. An answer with a tool call is not a summary.
    assert all(request.tools == () for request in model.requests)
    assert "delete_all" in get_summary_prompt(model.requests[0])
    assert row.text.strip()
    assert "4711" in row.text
    answer = program.ask([*said, user("And now?")], tools=TOOLS)
    assert answer.headers["X-Context-Status"] == "summarised"


@pytest.mark.gateway_case(34)
def test_two_conversations_that_are_summed_up_at_once_have_two_archives(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    lines = [
        program.talk([f"Question {n} of {name}. {SENTENCE * 8}" for n in range(8)])
        for name in ("Oslo", "Bergen")
    ]
    chats = list(Chat.objects.order_by("created_at"))
    rows = [fold(chat, at=timezone.now()) for chat in chats]
    assert len({row.pk for row in rows}) == 2
    assert [row.branch.chat for row in rows] == chats
    for row, said, name in zip(rows, lines, ("Oslo", "Bergen"), strict=True):
        covered = Message.objects.filter(branch__chat=row.branch.chat, seq__lte=row.to_seq)
        assert all(name in message.text for message in covered if message.role == "user")
        answer = program.ask([*said, user("And?")])
        assert (answer.headers["X-Context-Status"], answer.chat) == ("summarised", row.branch.chat)


@pytest.mark.gateway_case(34)
def test_lists_and_empty_contents_reach_the_summariser(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold, writes: Writes
) -> None:
    set_policy(token_budget=2400, reserve_tokens=300, summarization_model="writer")
    parts = [{"type": "text", "text": "The first part."}, {"type": "text", "text": "The second."}]
    said: Messages = [user(parts)]
    program.ask(said, *calling("a"), tools=TOOLS)
    said += [assistant(None, call("a")), result("a", "It is cold in Oslo.")]
    said.append(assistant(program.ask(said, tools=TOOLS).text))
    for n in range(7):
        said.append(user(f"Question {n}. {SENTENCE * 8}"))
        said.append(assistant(program.ask(said, tools=TOOLS).text))
    model = writes(script_summary(), script_summary(), script_summary())
    fold(Chat.objects.get(), at=timezone.now())
    asked = "".join(get_summary_prompt(request) for request in model.requests)
    for words in ("The first part.", "The second.", "weather", "It is cold in Oslo."):
        assert words in asked


@pytest.mark.gateway_case(34)
def test_a_huge_list_of_tools_counts(program: GatewayClient, set_policy: SetPolicy) -> None:
    set_policy(strategy="sliding_window", token_budget=4000, reserve_tokens=500)
    said = program.talk([f"Question {n}. {SENTENCE * 8}" for n in range(10)])
    few = program.ask([*said, user("And?")], tools=TOOLS)
    many = [
        {"type": "function", "function": {**WEATHER, "name": f"weather_{n}"}} for n in range(60)
    ]
    lots = program.ask([*said, user("And?")], tools=many)
    with_few, with_many = (Receipt.objects.get(turn=each.turn) for each in (few, lots))
    assert with_many.prompt_tokens <= 3500
    assert len(with_many.segments) < len(with_few.segments)
    assert with_many.left_out
    # If the tools alone exceed the limit, the request is refused without a model call.
    asked = len(program.requests)
    huge = [
        {
            "type": "function",
            "function": {**WEATHER, "name": f"weather_{n}", "description": SENTENCE * 9},
        }
        for n in range(60)
    ]
    refused = program.ask([*said, user("And?")], tools=huge)
    assert (refused.status, refused.json["error"]["code"]) == (400, "context_length_exceeded")
    assert len(program.requests) == asked
