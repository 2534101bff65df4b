"""Fixtures: chats with messages but without turns, and summaries that cover them."""

from datetime import datetime

import pytest

from chats.models import Branch, Chat, Compaction, Message
from contextpolicy.models import EffectivePolicy
from tests.support.messages_without_turns import Cover, Say, reload_first_branch


@pytest.fixture
def say(chat: Chat, now: datetime) -> Say:
    """Store a message at the end of a branch, without a turn."""

    def saying(text: str, *, branch: Branch | None = None, **fields: object) -> Message:
        where = Branch.objects.get(pk=(branch or reload_first_branch(chat)).pk)
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
        where = branch or reload_first_branch(chat)
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
