"""The outlook predicts the receipt of the next message, under every strategy."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.models import Branch, Chat, Compaction, Message, Receipt, Turn
from chats.prompt import model_choice
from chats.prompt.next_prompt import Outlook, compose_next_prompt
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.messages import parse_parts
from contextpolicy.engine.messages.tokens import count_uncut_tokens
from contextpolicy.models import EffectivePolicy, ModelSpec
from contextpolicy.publish import assign_policy, create_policy
from tests.chats.states import SCHEMA, lay

QUESTION = "And what about the invoice of 12 May, who pays it in the end?"
STRATEGIES: dict[str, dict[str, Any]] = {
    "simple": {"window_size": 6, "max_chars_per_message": 200},
    "sliding_window": {"max_chars_per_message": 300},
    "dynamic_summary": {"turn_threshold": 40, "tool_output_limit": 100},
    "entity_state": {"state_schema": SCHEMA, "keep_last_messages": 4},
}
FAILED_READING = [TextDelta("No."), Finished("stop")]
REPLY = [TextDelta("Nobody yet."), Finished("stop")]
TOOLS = [
    {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": '{"of": "Eva"}'},
    {"type": "tool_result", "call_id": "1", "name": "look_up", "content": "Eva is 42. " * 40},
    {"type": "text", "text": "Eva is 42."},
]


def fill(chat: Chat, count: int, *, now: datetime) -> Branch:
    """Add messages: one very long, one with tools, two pinned, one excluded, one incomplete."""
    branch = Branch.objects.get(chat=chat)
    rows = [row_of(branch, seq, now=now) for seq in range(1, count + 1)]
    Message.objects.bulk_create(rows)
    Branch.objects.filter(pk=branch.pk).update(last_seq=count)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=count)
    chat.accepted_count = count
    return Branch.objects.get(pk=branch.pk)


def row_of(branch: Branch, seq: int, *, now: datetime) -> Message:
    """Return one message with the token count that a worker stores."""
    role = "user" if seq % 2 else "assistant"
    text = f"Message {seq} tells of Eva. " * (40 if seq == 9 else 2)
    parts = TOOLS if seq == 10 else [{"type": "text", "text": text}]
    return Message(
        branch=branch,
        seq=seq,
        accepted=seq,
        role=role,
        parts=parts,
        token_count=count_uncut_tokens(
            parse_parts(parts), "user" if seq % 2 else "assistant", O200kCounter()
        ),
        finish="" if seq % 2 else "incomplete" if seq == 12 else "stop",
        excluded=seq == 11,
        pinned_at=now if seq in {3, 13} else None,
        created_at=now,
    )


def fold(branch: Branch, to_seq: int, *, now: datetime, **fields: Any) -> Compaction:
    """Activate a compaction up to a sequence number."""
    effective, _ = EffectivePolicy.objects.get_or_create(
        digest="d" * 64, defaults={"values": {}, "sources": {}}
    )
    values = {"kind": "summary", "text": "## Facts\n- Eva waits for ticket 48213 [#1]."}
    row = Compaction.objects.create(
        branch=branch,
        to_seq=to_seq,
        status="published",
        trigger="auto",
        effective_policy=effective,
        created_at=now,
        published_at=now,
        **{"from_seq": 1, **values, **fields},
    )
    Branch.objects.filter(pk=branch.pk).update(active_compaction=row)
    return row


@pytest.fixture
def policy(db: None, now: datetime) -> Callable[..., None]:
    """Assign a policy to the whole instance."""

    def setting(**values: Any) -> None:
        made = create_policy(slug="p", name="P", values=values, actor="system", now=now)
        assign_policy(policy=made, level="instance", actor="system", now=now)

    return setting


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


def told(outlook: Outlook) -> dict[str, Any]:
    """Return the outlook in the form of a receipt. The new message has no id yet."""
    sent = outlook.sent
    return {
        "segments": [
            ["" if s.origin == "question" else s.message_id, *s[:1], *s[2:3], *s[4:]]
            for s in sent.segments
        ],
        "left_out": [[out.from_seq, out.to_seq, out.reason] for out in sent.left_out],
        "budget": asdict(sent.budget),
        "prompt_tokens": sent.prompt_tokens,
        "last_seq": outlook.given.last_seq,
    }


def booked(receipt: Receipt) -> dict[str, Any]:
    """Return the same fields of a receipt."""
    return {
        "segments": [
            ["" if origin == "question" else label, origin, seq, tokens, cut_to, digest, results]
            for origin, label, seq, tokens, cut_to, digest, results in receipt.segments
        ],
        "left_out": receipt.left_out,
        "budget": receipt.budget,
        "prompt_tokens": receipt.prompt_tokens,
        "last_seq": receipt.last_seq,
    }


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
    branch = fill(chat, 20, now=now)
    fold(branch, 6, now=now, exceptions=[3, 5])
    lay(chat, {"destination": "Oslo"}, now=now, seq=20)
    chat.refresh_from_db()
    scripts = [FAILED_READING, REPLY] if strategy == "entity_state" else [REPLY]

    # Two rounds: the second one uses the token counts of the first receipt.
    for _ in range(2):
        outlook = look_at(chat, now=now)
        turn = start_turn(user=alice, chat=chat, text=QUESTION, now=now).turn
        work(turn, *scripts)
        receipt = Receipt.objects.get(turn=turn, call=1)
        assert told(outlook) == booked(receipt)
        assert sum(outlook.tokens.values()) == round(receipt.prompt_tokens * 1.17)
        assert outlook.tokens.keys() >= {"system", "question", "tools"}


def test_a_window_that_will_move_is_told_as_moved(
    chat: Chat, alice: User, now: datetime, policy: Callable[..., None], work: Callable[..., Any]
) -> None:
    policy(strategy="sliding_window", token_budget=4_000, reserve_tokens=2_900)
    fill(chat, 80, now=now)
    chat.refresh_from_db()
    outlook = look_at(chat, now=now)
    turn = start_turn(user=alice, chat=chat, text=QUESTION, now=now).turn
    work(turn, REPLY)

    assert Compaction.objects.get(kind="window").to_seq == outlook.given.window_to > 0
    assert told(outlook) == booked(Receipt.objects.get(turn=turn))


@pytest.mark.parametrize("count", [60, 6_000])
def test_it_reads_the_window_and_not_the_history(
    chat: Chat, now: datetime, count: int, policy: Callable[..., None]
) -> None:
    policy(strategy="dynamic_summary")
    fill(chat, count, now=now)
    with CaptureQueriesContext(connection) as queries:
        outlook = look_at(chat, now=now)
    assert len(queries) <= 19
    assert 0 < len(outlook.segments) < 900


def test_each_message_has_one_fate(chat: Chat, now: datetime, policy: Callable[..., None]) -> None:
    policy(strategy="dynamic_summary", max_chars_per_message=100)
    branch = fill(chat, 20, now=now)
    base = fold(branch, 6, now=now, exceptions=[3, 5])
    # With this size, no policy leaves room to widen the window.
    full = {"tokens_before": 10**6, "tokens_after": 10**6}
    fold(branch, 8, now=now, kind="window", text="", base=base, from_seq=7, **full)
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
