"""Chats with many messages, and compactions of them, written to the database."""

from datetime import datetime
from typing import Any

from chats.models import Branch, Chat, Compaction, Message
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.engine.messages.messages import parse_parts
from contextpolicy.engine.messages.tokens import count_uncut_tokens
from contextpolicy.models import EffectivePolicy

TOOL_PARTS = [
    {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": '{"of": "Eva"}'},
    {"type": "tool_result", "call_id": "1", "name": "look_up", "content": "Eva is 42. " * 40},
    {"type": "text", "text": "Eva is 42."},
]


def fill_with_every_kind(chat: Chat, count: int, *, now: datetime) -> Branch:
    """Add messages: one very long, one with tools, two pinned, one excluded, one incomplete."""
    branch = Branch.objects.get(chat=chat)
    rows = [build_message_row(branch, seq, now=now) for seq in range(1, count + 1)]
    Message.objects.bulk_create(rows)
    Branch.objects.filter(pk=branch.pk).update(last_seq=count)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=count)
    chat.accepted_count = count
    return Branch.objects.get(pk=branch.pk)


def build_message_row(branch: Branch, seq: int, *, now: datetime) -> Message:
    """Return one message with the token count that a worker stores."""
    role = "user" if seq % 2 else "assistant"
    text = f"Message {seq} asks for Eva. " * (40 if seq == 9 else 2)
    parts = TOOL_PARTS if seq == 10 else [{"type": "text", "text": text}]
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


def activate_compaction(branch: Branch, to_seq: int, *, now: datetime, **fields: Any) -> Compaction:
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


def add_messages(chat: Chat, *, count: int, now: datetime) -> None:
    """Create a row of messages whose turns ended long ago."""
    branch = chat.active_branch
    assert branch is not None
    branch.refresh_from_db()
    chat.refresh_from_db()
    first = branch.last_seq + 1
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=chat.accepted_count + seq + 1000,
            role="user" if seq % 2 else "assistant",
            parts=[{"type": "text", "text": f"message {seq}"}],
            token_count=3,
            created_at=now,
        )
        for seq in range(first, first + count)
    )
    branch.last_seq += count
    branch.save()
