"""Looks up what helps to answer a turn's question, before its first prompt and never for long.

The search runs aside, so that a slow one takes no database thread from other replies. A reply waits
for it no longer than `REFERENCES_SECONDS`; after some misses in a row nobody waits for a while.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import cache

from django.conf import settings
from django.db import transaction

from chats.compaction.people import rights
from chats.memory import references
from chats.memory.references import Found
from chats.models import Chat, Message, Turn, TurnReference
from chats.prompt import composition
from chats.turns.lease import Lease, locked_turn, write
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter

logger = logging.getLogger(__name__)
# So many misses in a row, and for so many seconds nobody looks anything up.
MISSES = 3
REST_SECONDS = 60.0


class Breaker:
    """Counts the searches that came too late, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.misses = 0
        self.until = 0.0

    def is_open(self) -> bool:
        """Tell whether nothing is looked up now."""
        return self.clock() < self.until

    def missed(self) -> None:
        """Count a search that came too late."""
        self.misses += 1
        if self.misses >= MISSES:
            self.misses, self.until = 0, self.clock() + REST_SECONDS

    def came(self) -> None:
        """Note that a search came in time."""
        self.misses = 0


# Why a turn has no references; each has words in `chats.web.reasons`.
NOTES = ("none", "below_floor", "late", "breaker", "failed")
BREAKER = Breaker()


async def look_up(
    turn: Turn,
    *,
    values: PolicyValues,
    counter: TokenCounter,
    aside: Callable[..., Awaitable[Found]],
) -> Found:
    """Return the references of a turn's question, or the reason why there are none.

    The reasons: `late`, `breaker`, `failed`, and those of `memory.references.find`.
    """
    if BREAKER.is_open():
        return Found(note="breaker")
    try:
        found = await asyncio.wait_for(
            aside(search, turn=turn, values=values, counter=counter),
            timeout=settings.REFERENCES_SECONDS,
        )
    except TimeoutError:
        BREAKER.missed()
        return Found(note="late")
    except Exception:
        # A reply without references is better than none.
        logger.exception("references of turn %s", turn.pk)
        BREAKER.missed()
        return Found(note="failed")
    BREAKER.came()
    return found


def search(*, turn: Turn, values: PolicyValues, counter: TokenCounter) -> Found:
    """Look the question of a turn up in its owner's chats."""
    question = turn.trigger
    if question is None:
        return Found(note="none")
    branch = composition.governed(composition.read_branch(turn))
    active = composition.governing(branch.active_compaction, values=values)
    return references.find(
        chat=branch.chat,
        question=references.asked_with(question, branch=branch),
        values=values,
        leave_out=references.in_prompt_anyway(
            branch, covered=active.to_seq if active else 0, window=values.window_size
        ),
        # Several passages are of one chat, and each policy takes a few queries.
        is_closed=cache(is_closed),
        counter=counter,
        at=question.created_at,
    )


def is_closed(chat_id: uuid.UUID) -> bool:
    """Tell whether a chat gives nothing to others: it has no memory, or its policy closes it."""
    chat = Chat.objects.select_related("model").filter(pk=chat_id, without_memory=False).first()
    return chat is None or rights.archive_lock(chat) is not None


@transaction.atomic
def keep(*, lease: Lease, turn: Turn, found: Found) -> dict[str, str]:
    """Write down the references of a turn, for all its prompts; return its tail.

    What was erased since it was found is left out: their chats are locked, so that an erasure
    comes before this and is seen, or after it and finds the row. After a commit of unknown fate
    this is called again. Raises `LeaseLost`.
    """
    kept = Message.objects.filter(pk__in=[row.message_id for row in found.references])
    chats = set(kept.values_list("branch__chat", flat=True))
    # In the order of their ids, so that two turns never wait for each other.
    locked = Chat.objects.select_for_update(no_key=True).filter(pk__in=chats)
    list(locked.order_by("pk").values_list("pk"))
    there = set(kept.filter(erased_at=None, excluded=False).values_list("pk", flat=True))
    tail = {**(locked_turn(lease).tail or {}), "references": found.note}
    TurnReference.objects.filter(turn=turn).delete()
    TurnReference.objects.bulk_create(
        TurnReference(
            turn=turn,
            place=place,
            message_id=row.message_id,
            start=row.start,
            end=row.end,
            score=row.score,
        )
        for place, row in enumerate(found.references, start=1)
        if row.message_id in there
    )
    write(lease, tail=tail)
    return tail
