"""Bulk rows for measurements: messages in one chat, or chats of one person."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from benchmarks.load.words import texts as texts
from benchmarks.load.words import vocabulary as vocabulary
from chats.models import Branch, Chat, Compaction, Message
from contextpolicy.models import EffectivePolicy

ROWS = 1_000


def fill(chat: Chat, said: Sequence[str], *, now: datetime) -> Branch:
    """Add messages to the end of a chat, with old dates."""
    branch = Branch.objects.get(chat=chat, parent=None)
    first = branch.last_seq + 1
    for start in range(0, len(said), ROWS):
        Message.objects.bulk_create(
            Message(
                branch=branch,
                seq=first + start + place,
                accepted=first + start + place,
                role="assistant" if (start + place) % 2 else "user",
                parts=[{"type": "text", "text": text}],
                token_count=len(text) // 4,
                created_at=now - timedelta(minutes=len(said) - start - place),
            )
            for place, text in enumerate(said[start : start + ROWS])
        )
    branch.last_seq += len(said)
    branch.save()
    Chat.objects.filter(pk=chat.pk).update(accepted_count=branch.last_seq)
    return branch


def cover(branch: Branch, *, to_seq: int, now: datetime, **fields: object) -> Branch:
    """A branch with an active summary that covers everything up to a seq."""
    policy, _ = EffectivePolicy.objects.get_or_create(
        digest="0" * 64, defaults={"values": {}, "sources": {}}
    )
    row = Compaction.objects.create(
        branch=branch,
        to_seq=to_seq,
        trigger="tokens",
        effective_policy=policy,
        created_at=now,
        published_at=now,
        **{
            "kind": "summary",
            "status": "published",
            "text": "- A summary.",
            "from_seq": 1,
            "source_count": to_seq,
            **fields,
        },
    )
    Branch.objects.filter(pk=branch.pk).update(active_compaction=row)
    return Branch.objects.select_related("active_compaction", "chat").get(pk=branch.pk)


def chats(owner: User, count: int, *, now: datetime) -> None:
    """Empty chats, each used a minute after the previous one."""
    for start in range(0, count, ROWS):
        places = range(start, min(start + ROWS, count))
        rows = [
            Chat(
                owner=owner,
                title=f"Chat {place}",
                created_at=now,
                updated_at=now - timedelta(minutes=count - place),
            )
            for place in places
        ]
        Chat.objects.bulk_create(rows)
        branches = [Branch(chat=chat, created_at=now) for chat in rows]
        Branch.objects.bulk_create(branches)
        for chat, branch in zip(rows, branches, strict=True):
            chat.active_branch = branch
        Chat.objects.bulk_update(rows, ["active_branch"])
