"""Fixtures: chats with messages but without turns, and summaries that cover them."""

from collections.abc import Callable
from datetime import datetime

import pytest

from chats.models import Branch, Chat, Compaction, Message
from contextpolicy.models import EffectivePolicy

Say = Callable[..., Message]
Cover = Callable[..., Compaction]


def branch_of(chat: Chat) -> Branch:
    """Reload the chat's first branch."""
    found = Branch.objects.select_related("active_compaction").get(chat=chat, parent=None)
    found.chat = chat
    return found


@pytest.fixture
def say(chat: Chat, now: datetime) -> Say:
    """Store a message at the end of a branch, without a turn."""

    def saying(text: str, *, branch: Branch | None = None, **fields: object) -> Message:
        where = Branch.objects.get(pk=(branch or branch_of(chat)).pk)
        where.last_seq += 1
        where.save()
        given = {"parts": [{"type": "text", "text": text}], "role": "user", **fields}
        return Message.objects.create(
            branch=where, seq=where.last_seq, accepted=where.last_seq, created_at=now, **given
        )

    return saying


@pytest.fixture
def cover(chat: Chat, now: datetime) -> Cover:
    """Activate a summary that covers all messages up to a sequence number."""
    policy = EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={})

    def covering(to_seq: int, *, branch: Branch | None = None) -> Compaction:
        where = branch or branch_of(chat)
        row = Compaction.objects.create(
            branch=where,
            kind="summary",
            status="published",
            text="A summary.",
            from_seq=1,
            to_seq=to_seq,
            trigger="tokens",
            effective_policy=policy,
            created_at=now,
        )
        Branch.objects.filter(pk=where.pk).update(active_compaction=row)
        return row

    return covering
