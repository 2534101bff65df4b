"""Limits of replies: content filters, excessive length, too many tool calls."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.models import Chat, Message, Receipt, Turn
from chats.providers.base import (
    Finished,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent

Work = Callable[..., Any]
FILTERED = ProviderError("content_filtered")


@pytest.fixture
def turn(alice: User, chat: Chat, now: datetime) -> Turn:
    """Alice's question."""
    return start_turn(user=alice, chat=chat, text="Hello", now=now).turn


def reply_of(turn: Turn) -> Message:
    """Return the reply."""
    assert turn.reply is not None
    return turn.reply


def parts(turn: Turn, kind: str) -> list[str]:
    """Return the texts of one kind of part, or the arguments of tool calls."""
    name = "arguments" if kind == "tool_call" else "text"
    return [part[name] for part in reply_of(turn).parts if part["type"] == kind]


def calls(count: int) -> list[ToolCallDelta]:
    """Return this number of tool calls."""
    return [ToolCallDelta(n, f"c{n}", "chat_history_search", "{}") for n in range(count)]


def test_a_reply_cut_by_a_filter_fails_and_keeps_what_came(turn: Turn, work: Work) -> None:
    worker = work(turn, [TextDelta("Half of"), UsageReport(12, 3, 0, 0), FILTERED])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "content_filtered")
    assert "content filter" in turn.error_sentence
    assert (reply_of(turn).text, reply_of(turn).finish) == ("Half of", "incomplete")
    receipt = Receipt.objects.get(turn=turn)
    assert (receipt.outcome, receipt.error_code) == ("failed", "content_filtered")
    assert receipt.usage["output"] == 3
    ended = AuditEvent.objects.get(turn_id=turn.pk, type="turn.failed")
    assert (ended.data["code"], ended.data["finish"]) == ("content_filtered", "incomplete")
    assert len(worker.scripted.requests) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_it_is_sent_on_only_if_a_person_keeps_it(
    kept: bool, alice: User, chat: Chat, turn: Turn, now: datetime, work: Work
) -> None:
    work(turn, [TextDelta("Half of"), FILTERED])
    Message.objects.filter(pk=reply_of(turn).pk).update(kept=kept)
    worker = work(start_turn(user=alice, chat=chat, text="Again", now=now).turn)
    sent = [m.content for m in worker.scripted.requests[0].messages]
    assert sent == ["Hello", *["Half of"] * kept, "Again"]


@pytest.mark.parametrize("said", [[], [TextDelta(" \n")], [ReasoningDelta("Hm.")]])
def test_a_filter_that_let_nothing_through_is_not_asked_again(
    said: list[Any], turn: Turn, work: Work
) -> None:
    worker = work(turn, [*said, FILTERED])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "content_filtered")
    assert turn.reply is None
    assert len(worker.scripted.requests) == 1
    assert Receipt.objects.get(turn=turn).error_code == "content_filtered"


def test_more_tool_calls_than_allowed_end_the_turn_and_none_is_used(turn: Turn, work: Work) -> None:
    worker = work(turn, [TextDelta("Let me look."), *calls(10_000), Finished("tool_calls")])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "too_many_tool_calls")
    assert ProviderError("too_many_tool_calls").sentence in turn.error_sentence
    assert len(parts(turn, "tool_call")) == 64
    assert [part for part in reply_of(turn).parts if part["type"] == "tool_result"] == []
    assert reply_of(turn).finish == "incomplete"
    assert worker.ways.count("use_tool") == 0
    assert len(worker.scripted.requests) == 1


def test_as_many_tool_calls_as_allowed_are_used(turn: Turn, work: Work) -> None:
    worker = work(turn, [*calls(64), Finished("tool_calls")])
    assert turn.status == Turn.Status.COMPLETED
    assert worker.ways.count("use_tool") == 64


def test_the_number_of_tool_calls_is_a_setting(turn: Turn, work: Work, settings: Settings) -> None:
    settings.TOOL_CALLS_PER_STEP = 2
    work(turn, [*calls(3), Finished("tool_calls")])
    assert turn.error_code == "too_many_tool_calls"
    assert len(parts(turn, "tool_call")) == 2


@pytest.mark.parametrize("deltas", [["x" * 900_000], ["x" * 399_999, "yz"], ["é🙂"] * 450_000])
def test_a_reply_is_cut_at_its_longest_length_within_a_delta(
    deltas: list[str], turn: Turn, work: Work
) -> None:
    worker = work(turn, [*map(TextDelta, deltas), TextDelta("never"), Finished("stop")])
    assert (turn.status, reply_of(turn).finish) == (Turn.Status.COMPLETED, "limit")
    assert reply_of(turn).text == "".join(deltas)[:400_000]
    said = "".join(frame.text for frame in worker.frames if frame.kind == "text")
    assert said == reply_of(turn).text


def test_a_reply_of_exactly_the_longest_length_is_whole(turn: Turn, work: Work) -> None:
    work(turn, [TextDelta("x" * 400_000), UsageReport(1, 2, 0, 0), Finished("stop")])
    assert (len(reply_of(turn).text), reply_of(turn).finish) == (400_000, "stop")


def test_reasoning_is_cut_at_the_same_length(turn: Turn, work: Work) -> None:
    worker = work(turn, [ReasoningDelta("hm" * 450_000), TextDelta("never"), Finished("stop")])
    assert (turn.status, reply_of(turn).finish) == (Turn.Status.COMPLETED, "limit")
    assert [len(text) for text in parts(turn, "reasoning")] == [400_000]
    assert parts(turn, "text") == []
    assert len(worker.scripted.requests) == 1


def test_reasoning_and_text_share_the_length(turn: Turn, work: Work) -> None:
    work(turn, [ReasoningDelta("h" * 399_990), TextDelta("x" * 900_000), Finished("stop")])
    assert [len(text) for text in parts(turn, "text")] == [10]


def test_the_arguments_of_a_tool_call_are_cut_at_the_same_length(turn: Turn, work: Work) -> None:
    whole = ToolCallDelta(0, "c0", "f", "")
    worker = work(turn, [whole, ToolCallDelta(0, "c0", "", "x" * 900_000), Finished("tool_calls")])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "tool_call_too_long")
    # The id and the name use three characters.
    assert [len(text) for text in parts(turn, "tool_call")] == [399_997]
    assert reply_of(turn).finish == "incomplete"
    assert worker.ways.count("use_tool") == 0


def test_arguments_in_many_pieces_are_put_together(turn: Turn, work: Work) -> None:
    pieces = [ToolCallDelta(0, "c0", "chat_history_search" * (n == 0), "1") for n in range(20_000)]
    work(turn, [*pieces, Finished("tool_calls")], [TextDelta("Done"), Finished("stop")])
    step = Message.objects.get(branch=turn.branch, seq=2)
    assert step.parts[0]["arguments"] == "1" * 20_000
