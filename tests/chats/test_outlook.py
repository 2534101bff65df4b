"""The outlook predicts the receipt of the next message, under every strategy."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.models import Branch, Chat, Compaction, Receipt, Turn
from chats.prompt import model_choice
from chats.prompt.next_prompt import Outlook, compose_next_prompt
from chats.prompt.tokenizer import O200kCounter
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec
from tests.chats.states import SCHEMA, lay
from tests.support.chat_messages import activate_compaction, fill_with_every_kind
from tests.support.context_preview import (
    FAILED_READING,
    QUESTION,
    REPLY,
    describe_outlook,
    describe_receipt,
)

STRATEGIES: dict[str, dict[str, Any]] = {
    "simple": {"window_size": 6, "max_chars_per_message": 200},
    "sliding_window": {"max_chars_per_message": 300},
    "dynamic_summary": {"turn_threshold": 40, "tool_output_limit": 100},
    "entity_state": {"state_schema": SCHEMA, "keep_last_messages": 4},
}


def look_at(chat: Chat, *, now: datetime, question: str = QUESTION) -> Outlook:
    """Return the current outlook of the chat's branch."""
    chat = Chat.objects.select_related("model").get(pk=chat.pk)
    rows = Branch.objects.select_related("active_compaction__base", "parent")
    branch = rows.get(chat=chat)
    branch.chat = chat
    choice = model_choice.choose_chat_model(chat=chat)
    return compose_next_prompt(
        branch, choice=choice, counter=O200kCounter(), now=now, question=question
    )


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("strict", [False, True], ids=["any roles", "strict roles"])
def test_the_outlook_is_the_receipt_of_the_next_message(
    chat: Chat,
    alice: User,
    now: datetime,
    policy: Callable[..., None],
    work: Callable[..., Any],
    demo_model: ModelSpec,
    strategy: str,
    layout: str,
    strict: bool,
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(
        calibration=1.17, strict_roles=strict, supports_tools=True
    )
    policy(
        strategy=strategy,
        layout=layout,
        system_text="Answer briefly.",
        show_date=True,
        **STRATEGIES[strategy],
    )
    Chat.objects.filter(pk=chat.pk).update(system_text="Eva is my sister.")
    branch = fill_with_every_kind(chat, 20, now=now)
    activate_compaction(branch, 6, now=now, exceptions=[3, 5])
    lay(chat, {"destination": "Oslo"}, now=now, seq=20)
    chat.refresh_from_db()
    scripts = [FAILED_READING, REPLY] if strategy == "entity_state" else [REPLY]

    # Two rounds: the second one uses the token counts of the first receipt.
    for _ in range(2):
        outlook = look_at(chat, now=now)
        turn = start_turn(user=alice, chat=chat, text=QUESTION, now=now).turn
        work(turn, *scripts)
        receipt = Receipt.objects.get(turn=turn, call=1)
        assert describe_outlook(outlook) == describe_receipt(receipt)
        assert sum(outlook.tokens.values()) == round(receipt.prompt_tokens * 1.17)
        assert outlook.tokens.keys() >= {"system", "question", "tools"}


def test_a_window_that_will_move_is_told_as_moved(
    chat: Chat, alice: User, now: datetime, policy: Callable[..., None], work: Callable[..., Any]
) -> None:
    policy(strategy="sliding_window", token_budget=4_000, reserve_tokens=2_900)
    fill_with_every_kind(chat, 80, now=now)
    chat.refresh_from_db()
    outlook = look_at(chat, now=now)
    turn = start_turn(user=alice, chat=chat, text=QUESTION, now=now).turn
    work(turn, REPLY)

    assert Compaction.objects.get(kind="window").to_seq == outlook.given.window_to > 0
    assert describe_outlook(outlook) == describe_receipt(Receipt.objects.get(turn=turn))


@pytest.mark.parametrize("count", [60, 6_000])
def test_it_reads_the_window_and_not_the_history(
    chat: Chat, now: datetime, count: int, policy: Callable[..., None]
) -> None:
    policy(strategy="dynamic_summary")
    fill_with_every_kind(chat, count, now=now)
    with CaptureQueriesContext(connection) as queries:
        outlook = look_at(chat, now=now)
    assert len(queries) <= 20
    assert 0 < len(outlook.segments) < 900


def test_each_message_has_one_fate(chat: Chat, now: datetime, policy: Callable[..., None]) -> None:
    policy(strategy="dynamic_summary", max_chars_per_message=100)
    branch = fill_with_every_kind(chat, 20, now=now)
    base = activate_compaction(branch, 6, now=now, exceptions=[3, 5])
    # With this size, no policy leaves room to widen the window.
    full = {"tokens_before": 10**6, "tokens_after": 10**6}
    activate_compaction(branch, 8, now=now, kind="window", text="", base=base, from_seq=7, **full)
    outlook = look_at(chat, now=now)

    fates = {seq: (outlook.fate(seq).sent, outlook.fate(seq).reason) for seq in range(1, 21)}
    assert fates[1] == ("summary", "")
    assert fates[3] == ("full", "")
    # A message exempt from the summary, but outside the window, is not sent.
    assert fates[5] == ("none", "window")
    assert fates[7] == ("none", "window")
    assert fates[9] == ("cut", "")
    assert fates[11] == ("none", "excluded")
    assert fates[12] == ("none", "incomplete")
    for first, last in ((1, 20), (4, 9), (12, 12)):
        wanted = [fates[seq][0] for seq in range(first, last + 1)]
        counted = outlook.count(first, last)
        assert {way: wanted.count(way) for way in set(wanted)} == dict(counted)
    assert outlook.fate(21).sent == "full"
    assert Turn.objects.count() == 0
