"""The context meter: size of the next request by part, and the reason for each part."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Compaction, Message
from chats.prompt.meter import (
    AFTER_NEXT_REPLY,
    COMPACTION_PAUSED,
    SUMMARY_READY,
    Meter,
    build_meter,
)
from contextpolicy.engine.messages.tokens import MESSAGE_OVERHEAD
from contextpolicy.models import EffectivePolicy, ModelSpec
from tests.support.clocks import NOON

TOKENS = 14


@pytest.fixture
def fill(chat: Chat, now: datetime) -> Callable[[int], None]:
    """Add this number of messages to the chat, 14 tokens each."""

    def filling(count: int) -> None:
        branch = chat.active_branch
        assert branch is not None
        Message.objects.bulk_create(
            Message(
                branch=branch,
                seq=seq,
                accepted=seq,
                role="user" if seq % 2 else "assistant",
                parts=[{"type": "text", "text": f"Message {seq}."}],
                token_count=TOKENS,
                created_at=now,
            )
            for seq in range(1, count + 1)
        )
        branch.last_seq = count
        branch.save()

    return filling


@pytest.fixture
def fold(chat: Chat, now: datetime) -> Callable[..., Compaction]:
    """Activate a compaction up to a sequence number."""

    def folding(to_seq: int, **fields: Any) -> Compaction:
        effective, _ = EffectivePolicy.objects.get_or_create(
            digest="d" * 64, defaults={"values": {}, "sources": {}}
        )
        branch = chat.active_branch
        assert branch is not None
        values = {"kind": "summary", "status": "published", "text": "## Facts\n- All is well."}
        row = Compaction.objects.create(
            branch=branch,
            to_seq=to_seq,
            trigger="auto",
            effective_policy=effective,
            created_at=now,
            **{"from_seq": 1, **values, **fields},
        )
        if row.status == "published":
            branch.active_compaction = row
            branch.save()
        return row

    return folding


def words(found: Meter) -> dict[str, str]:
    """Return the reason of each part."""
    return {part.key: part.why for part in found.parts}


def sizes(found: Meter) -> dict[str, int]:
    """Return the tokens of each part."""
    return {part.key: part.tokens for part in found.parts}


def test_the_parts_add_up(chat: Chat, fill: Callable[[int], None]) -> None:
    fill(20)
    found = build_meter(chat=chat, now=NOON)

    assert sizes(found)["history"] == 20 * TOKENS
    assert found.used + sizes(found)["free"] == found.prompt_limit
    assert found.prompt_limit + found.reserve == found.token_budget
    assert words(found)["history"] == "20 messages, starting with message 1"


def test_an_empty_chat_sends_nothing_yet(chat: Chat, policy: Callable[..., None]) -> None:
    policy(strategy="dynamic_summary", turn_threshold=None)
    found = build_meter(chat=chat, now=NOON)

    assert found.used == sizes(found)["question"] == MESSAGE_OVERHEAD
    assert words(found)["history"] == "Nothing yet"
    assert words(found)["summary"] == "None yet"
    assert found.next_compaction == ""


def test_a_summary_stands_for_its_messages(
    chat: Chat, fill: Callable[[int], None], fold: Callable[..., Compaction]
) -> None:
    fill(20)
    fold(12)
    found = build_meter(chat=chat, now=NOON)

    assert words(found)["summary"] == "Covers messages 1 to 12"
    assert sizes(found)["history"] == 8 * TOKENS
    assert sizes(found)["summary"] > 0


def test_a_window_alone_leaves_messages_out_and_stands_for_none(
    chat: Chat, fill: Callable[[int], None], fold: Callable[..., Compaction]
) -> None:
    fill(20)
    fold(12, kind="window", text="")
    found = build_meter(chat=chat, now=NOON)

    assert words(found)["summary"] == "Leaves out messages 1 to 12"
    assert [part.label for part in found.parts if part.key == "summary"] == ["Window"]
    assert sizes(found)["summary"] == 0


def test_a_window_over_a_summary_says_both(
    chat: Chat, fill: Callable[[int], None], fold: Callable[..., Compaction]
) -> None:
    fill(20)
    summary = fold(6)
    fold(12, kind="window", text="", base=summary, from_seq=7)
    found = build_meter(chat=chat, now=NOON)

    assert words(found)["summary"] == "Covers messages 1 to 6; messages 7 to 12 left out"
    assert sizes(found)["history"] == 8 * TOKENS


def test_the_newest_messages_alone_are_named_as_such(
    chat: Chat, fill: Callable[[int], None], policy: Callable[..., None]
) -> None:
    fill(20)
    policy(strategy="simple", window_size=5)
    found = build_meter(chat=chat, now=NOON)

    assert sizes(found)["history"] == 5 * TOKENS
    assert words(found)["summary"] == "Leaves out messages 1 to 15"
    assert words(found)["history"] == "5 messages, starting with message 16"
    assert found.next_compaction == ""


def test_a_pinned_message_under_the_summary_counts_as_a_pin(
    chat: Chat, fill: Callable[[int], None], fold: Callable[..., Compaction], now: datetime
) -> None:
    fill(20)
    Message.objects.filter(seq=3).update(pinned_at=now)
    fold(12, exceptions=[3, 4])
    found = build_meter(chat=chat, now=NOON)

    # A pinned message has an extra label in the prompt, which costs tokens.
    assert sizes(found)["pins"] > TOKENS
    assert words(found)["pins"] == "1 message covered by the summary"


def test_what_is_never_sent_does_not_count(chat: Chat, fill: Callable[[int], None]) -> None:
    fill(20)
    Message.objects.filter(seq=3).update(excluded=True)
    Message.objects.filter(seq=4).update(finish="incomplete")

    assert sizes(build_meter(chat=chat, now=NOON))["history"] == 18 * TOKENS


@pytest.mark.parametrize(
    ("rounds", "forecast"),
    [
        (3, "next compaction in about 3 turns"),
        (5, str(AFTER_NEXT_REPLY)),
        (7, str(AFTER_NEXT_REPLY)),
    ],
)
def test_the_forecast_counts_rounds(
    chat: Chat,
    fill: Callable[[int], None],
    policy: Callable[..., None],
    rounds: int,
    forecast: str,
) -> None:
    policy(strategy="dynamic_summary", turn_threshold=5, fold_turns=3)
    fill(2 * rounds)

    assert build_meter(chat=chat, now=NOON).next_compaction == forecast


@pytest.mark.parametrize(
    ("count", "forecast"),
    [
        (594, "next compaction in about 3 turns"),
        (562, "next compaction in about 19 turns"),
        # More distant compactions are not announced.
        (560, ""),
    ],
)
def test_the_forecast_counts_tokens(
    chat: Chat,
    fill: Callable[[int], None],
    policy: Callable[..., None],
    count: int,
    forecast: str,
) -> None:
    policy(strategy="dynamic_summary", turn_threshold=None)
    fill(count)
    found = build_meter(chat=chat, now=NOON)

    assert found.prepare_mark == 8_400
    assert found.next_compaction == forecast


def test_a_paused_or_running_compaction_is_said(
    chat: Chat, fill: Callable[[int], None], fold: Callable[..., Compaction], alice: User
) -> None:
    fill(20)
    row = fold(6, status="prepared")
    assert build_meter(chat=chat, now=NOON).next_compaction == str(SUMMARY_READY)
    row.delete()
    branch = chat.active_branch
    assert branch is not None
    branch.compaction_paused = True
    branch.save()
    assert build_meter(chat=chat, now=NOON).next_compaction == str(COMPACTION_PAUSED)


def test_the_parts_are_estimates_of_the_providers_tokens(
    chat: Chat, fill: Callable[[int], None], demo_model: ModelSpec
) -> None:
    fill(10)
    assert sizes(build_meter(chat=chat, now=NOON))["history"] == 10 * TOKENS

    demo_model.calibration = 1.5
    demo_model.save()
    chat.model = demo_model

    told = build_meter(chat=chat, now=NOON)
    assert sizes(told)["history"] == 15 * TOKENS
    assert told.used == sum(
        sizes(told)[key] for key in ("system", "summary", "history", "question")
    )


def test_a_chats_text_that_is_not_sent_takes_no_room(
    chat: Chat, policy: Callable[..., None]
) -> None:
    chat.system_text = "Be kind."
    chat.save()
    policy(chat_system="ignore")

    assert sizes(build_meter(chat=chat, now=NOON))["system"] == 0


def test_another_policys_summary_takes_no_room_under_simple(
    chat: Chat,
    fill: Callable[[int], None],
    fold: Callable[..., Compaction],
    policy: Callable[..., None],
) -> None:
    fill(10)
    fold(6)
    policy(strategy="simple")

    told = build_meter(chat=chat, now=NOON)
    assert sizes(told)["summary"] == 0
    assert sizes(told)["history"] == 10 * TOKENS
