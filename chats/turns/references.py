"""Looks up what helps to answer a turn's question, before its first prompt and never for long.

The search runs aside, so that a slow one takes no database thread from other replies. A reply waits
for it no longer than `REFERENCES_SECONDS`. After several embedding calls in a row that failed or
took too long, questions are looked up by words alone for a while.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.db import transaction

from chats.compaction import embedding
from chats.compaction.embedding import QuestionEmbedder, QuestionVector, Unreachable
from chats.compaction.people import rights
from chats.ground.breakers import LatenessBreaker
from chats.memory import meaning, references
from chats.memory.meaning import Look
from chats.memory.recall import without_speakers
from chats.memory.references import ChosenReferences
from chats.models import Chat, Message, Turn, TurnReference
from chats.prompt import composition
from chats.turns.lease import Lease, locked_turn, write
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter

logger = logging.getLogger(__name__)
# Reasons why a turn has no references; `chats.web.reasons` has a sentence for each. `breaker` is in
# older receipts only.
NOTES = ("none", "below_floor", "late", "breaker", "failed")
# Of the time that a reply waits: until the question is a vector, and until vectors are compared.
EMBEDDED_WITHIN, COMPARED_WITHIN = 0.5, 0.75
BREAKER = LatenessBreaker()


async def look_up(
    turn: Turn,
    *,
    values: PolicyValues,
    counter: TokenCounter,
    aside: Callable[..., Awaitable[Any]],
    room: int | None = None,
    sent: frozenset[int] = frozenset(),
) -> ChosenReferences:
    """Return the references of a turn's question, or the reason why there are none.

    `room` and `sent`: excerpts of the chat itself are wanted, see `prompt.tail.TailDue`. The
    reasons: `late`, `failed`, and those of `memory.references.find`. Where vectors were to help and
    could not, `by_words` says why.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(settings.REFERENCES_SECONDS):
            asked = await ask(turn, values=values, aside=aside, began=began)
            found: ChosenReferences = await aside(
                search,
                turn=turn,
                values=values,
                counter=counter,
                asked=asked,
                began=began,
                room=room,
                sent=sent,
            )
    except TimeoutError:
        return ChosenReferences(note="late")
    except Exception:
        # A reply without references is better than none.
        logger.exception("references of turn %s", turn.pk)
        return ChosenReferences(note="failed")
    return found


async def look_for(
    read: Callable[..., str],
    *,
    values: PolicyValues,
    aside: Callable[..., Awaitable[Any]],
    **given: Any,
) -> Look | None:
    """Return the comparison by meaning for a text; None if it is not configured or not in time."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(settings.REFERENCES_SECONDS):
            asked = await embed_text(read, values=values, aside=aside, began=began, **given)
    except TimeoutError:
        return None
    except Exception:
        # A search by words is better than none.
        logger.exception("the query of a search was not embedded")
        return None
    give_up = time.monotonic() + settings.REFERENCES_SECONDS
    if not asked.space_id:
        return None
    return partial(meaning.look, asked.vector, space_id=asked.space_id, give_up=give_up)


async def ask(
    turn: Turn, *, values: PolicyValues, aside: Callable[..., Awaitable[Any]], began: float
) -> QuestionVector:
    """Return the question of a turn as a vector; it is empty if vectors are not compared."""
    return await embed_text(question_of, values=values, aside=aside, began=began, turn=turn)


async def embed_text(
    read: Callable[..., str],
    *,
    values: PolicyValues,
    aside: Callable[..., Awaitable[Any]],
    began: float,
    **given: Any,
) -> QuestionVector:
    """Return a text as a vector; it is empty if vectors are not compared.

    `read` queries the database with the `given` arguments and returns the text; it is called only
    if an embedding model is configured.
    """
    if BREAKER.is_open():
        return QuestionVector(note="breaker")
    try:
        by: QuestionEmbedder | None = await aside(embedding.asking)
        if by is None:
            return QuestionVector()
        if not embedding.allows(values.memory_providers, provider=by.provider):
            return QuestionVector(note="provider")
        text: str = await aside(read, **given)
    except Unreachable as error:
        is_missing = error.code == embedding.NOT_INSTALLED
        return QuestionVector(note=error.code if is_missing else "down")
    rest = began + EMBEDDED_WITHIN * settings.REFERENCES_SECONDS - time.monotonic()
    asked = await embedding.as_vector(text, by=by, seconds=max(rest, 0.001))
    if asked.space_id:
        BREAKER.came()
    else:
        BREAKER.missed()
    return asked


def question_of(*, turn: Turn) -> str:
    """Return what is compared by meaning for a turn; empty where it has no question."""
    question = turn.trigger
    if question is None:
        return ""
    branch = composition.read_branch(turn)
    return without_speakers(
        branch.chat.owner_id, references.asked_with(question.text, seq=question.seq, branch=branch)
    )


def search(
    *,
    turn: Turn,
    values: PolicyValues,
    counter: TokenCounter,
    asked: QuestionVector,
    began: float,
    room: int | None = None,
    sent: frozenset[int] = frozenset(),
) -> ChosenReferences:
    """Look the question of a turn up in its owner's chats, or in the chat itself."""
    question = turn.trigger
    if question is None:
        return ChosenReferences(note="none")
    branch = composition.governed(composition.read_branch(turn))
    active = composition.governing(branch.active_compaction, values=values)
    look = None
    if asked.space_id:
        give_up = began + COMPARED_WITHIN * settings.REFERENCES_SECONDS
        look = partial(meaning.look, asked.vector, space_id=asked.space_id, give_up=give_up)
    if room is not None:
        found = references.find_in_chat(
            branch,
            question=references.asked_with(question.text, seq=question.seq, branch=branch),
            before=question.seq or branch.last_seq + 1,
            values=values,
            room=room,
            sent=sent,
            is_closed=is_closed,
            counter=counter,
            at=question.created_at,
            look=look,
        )
        return replace(found, by_words=asked.note or found.by_words)
    found = references.find(
        chat=branch.chat,
        question=references.asked_with(question.text, seq=question.seq, branch=branch),
        values=values,
        leave_out=references.in_prompt_anyway(
            branch, covered=active.to_seq if active else 0, window=values.window_size
        ),
        # Several passages are of one chat, and each policy takes a few queries.
        is_closed=cache(is_closed),
        counter=counter,
        at=question.created_at,
        look=look,
    )
    return replace(found, by_words=asked.note or found.by_words)


def is_closed(chat_id: uuid.UUID) -> bool:
    """Tell whether a chat gives nothing to others: it has no memory, or its policy closes it."""
    chat = Chat.objects.select_related("model").filter(pk=chat_id, without_memory=False).first()
    return chat is None or rights.archive_lock(chat) is not None


@transaction.atomic
def keep(*, lease: Lease, turn: Turn, found: ChosenReferences) -> dict[str, str]:
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
    if found.by_words:
        tail["vectors"] = found.by_words
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
