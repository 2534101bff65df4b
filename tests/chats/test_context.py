"""Composition of prompts: queries, cost, and the fields of the receipt."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.compaction import window
from chats.models import Branch, Chat, Message, Turn
from chats.prompt import built_prompt, composition, model_choice, prompt_facts
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter


def fill(chat: Chat, count: int, now: datetime) -> Branch:
    """Create a branch with `count` messages of earlier turns."""
    branch = chat.active_branch
    assert branch is not None
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role="user" if seq % 2 else "assistant",
            parts=[{"type": "text", "text": f"Message {seq} says that all is well."}],
            token_count=14,
            counter_version="approx-1",
            finish="" if seq % 2 else "stop",
            created_at=now,
        )
        for seq in range(1, count + 1)
    )
    branch.last_seq = count
    branch.save()
    Chat.objects.filter(pk=chat.pk).update(accepted_count=count)
    chat.accepted_count = count
    return branch


def ready_turn(alice: User, chat: Chat, now: datetime) -> Turn:
    """Return a turn whose message already has its sequence number."""
    turn = start_turn(user=alice, chat=chat, text="What now?", now=now).turn
    branch = Branch.objects.get(pk=turn.branch_id)
    assert turn.trigger is not None
    Message.objects.filter(pk=turn.trigger.pk).update(seq=branch.last_seq + 1, turn=turn)
    Branch.objects.filter(pk=branch.pk).update(last_seq=branch.last_seq + 1)
    return Turn.objects.select_related("branch__chat", "model", "trigger").get(pk=turn.pk)


def composed(turn: Turn) -> built_prompt.Prompt:
    """Return the prompt, after any necessary window moves."""
    counter = ApproximateCounter()
    for _ in range(3):
        prompt = composition.compose_prompt(turn=turn, counter=counter)
        if isinstance(prompt, built_prompt.Prompt):
            return prompt
        assert isinstance(prompt, composition.WindowMoveRequired)
        window.move_window(branch_id=turn.branch_id, move=prompt, now=turn.queued_at)
    raise AssertionError("the window moved and moved")


@pytest.mark.parametrize("count", [1500, 6000])
def test_composing_reads_the_window_and_not_the_history(
    count: int, alice: User, chat: Chat, now: datetime
) -> None:
    fill(chat, count, now)
    turn = ready_turn(alice, chat, now)
    composed(turn)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        prompt = composed(turn)
    assert len(queries) <= 14
    sent = [segment for segment in prompt.receipt_fields["segments"] if segment[0] == "history"]
    assert 0 < len(sent) < 900


def test_a_long_history_is_accounted_for_to_the_first_message(
    alice: User, chat: Chat, now: datetime
) -> None:
    fill(chat, 3000, now)
    prompt = composed(ready_turn(alice, chat, now))
    fields = prompt.receipt_fields
    named = [segment[2] for segment in fields["segments"] if segment[2]]
    for first, last, _ in fields["left_out"]:
        named += range(first, last + 1)
    assert sorted(named) == list(range(1, 3002))
    assert fields["prompt_tokens"] <= prompt.prompt_limit


def test_what_others_append_meanwhile_is_not_in_the_prompt(
    alice: User, chat: Chat, now: datetime
) -> None:
    fill(chat, 4, now)
    turn = ready_turn(alice, chat, now)

    def append(seq: int, role: str, own: Turn | None) -> None:
        Message.objects.create(
            branch=turn.branch,
            seq=seq,
            accepted=seq,
            role=role,
            parts=[{"type": "text", "text": f"Message {seq}"}],
            counter_version="approx-1",
            created_at=now,
            turn=own,
        )
        Branch.objects.filter(pk=turn.branch_id).update(last_seq=seq)

    def receipt(branch: Branch) -> Mapping[str, Any]:
        made = composition.compose_prompt(turn=turn, counter=ApproximateCounter(), branch=branch)
        assert isinstance(made, built_prompt.Prompt)
        return made.receipt_fields

    append(6, "assistant", turn)
    branch = prompt_facts.read_branch(turn)
    before = receipt(branch)
    append(7, "user", turn)
    append(8, "user", None)
    assert receipt(branch) == before
    assert receipt(prompt_facts.read_branch(turn))["last_seq"] == 8


def test_a_server_that_wants_alternating_roles_gets_them(
    alice: User, chat: Chat, now: datetime
) -> None:
    branch = fill(chat, 4, now)
    Message.objects.filter(branch=branch, seq=1).update(excluded=True)
    Message.objects.filter(branch=branch, seq=4).update(role="user", finish="")
    turn = ready_turn(alice, chat, now)

    def roles() -> list[str]:
        sent = composed(turn).request.messages
        return [wire.role for wire in sent if wire.role != "system"]

    assert roles() == ["assistant", "user", "user", "user"]
    assert turn.model is not None
    turn.model.strict_roles = True
    assert roles() == ["user", "assistant", "user"]


def test_a_policy_that_cannot_work_is_a_refusal_before_any_write(
    alice: User, chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.model = None
    spec = model_choice.choose_chat_model(chat=chat).model
    spec.context_window = 100
    spec.save()
    with pytest.raises(model_choice.PolicyRefused) as refused:
        start_turn(user=alice, chat=chat, text="Hello", now=now)
    assert refused.value.code == "policy_impossible"
    assert not Message.objects.exists()
