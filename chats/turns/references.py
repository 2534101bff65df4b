"""Retrieves context for a turn's question before its first prompt, within a time limit.

The search runs in a separate thread, so a slow search does not block other replies. A reply waits
at most `REFERENCES_SECONDS`. A later result is used if it arrives before the request is sent. After
several consecutive embedding calls have failed or timed out, searches use only keywords for a
while.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from django.conf import settings
from django.db import transaction

from chats.compaction import embedding_spaces, question_embedding
from chats.compaction.embedding_spaces import Unreachable
from chats.compaction.question_embedding import QuestionEmbedder, QuestionVector
from chats.files.file_models import may_get_chat
from chats.ground.breakers import LatenessBreaker
from chats.memory.search import excerpts, fulltext, meaning, references
from chats.memory.search.follow_up import build_search_question
from chats.memory.search.meaning import Look
from chats.memory.search.recall import remove_speaker_names
from chats.memory.search.references import ChosenReferences
from chats.models import Branch, Chat, Message, Turn, TurnReference
from chats.prompt import prompt_facts, tail
from chats.prompt.model_choice import is_archive_open
from chats.record import statements
from chats.record.history import select_path_messages
from chats.record.sendable import build_sendable_filter
from chats.turns.lease import Lease, lock_held_turn, update_held_turn
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.team.markers import strip_markers
from speed import prepared

logger = logging.getLogger(__name__)
# Reasons why a turn has no retrieved context; `chats.web.reasons` has a sentence for each.
# `breaker` occurs only in old receipts.
NOTES = ("none", "below_floor", "late", "breaker", "failed")
# Shares of the time limit: for embedding the question, and for comparing vectors.
EMBEDDED_WITHIN, COMPARED_WITHIN = 0.5, 0.75
# In seconds: with less time left, the embedding server is not asked.
SHORTEST_CALL = 0.1
BREAKER = LatenessBreaker()
# The messages among the given ids that can be sent.
SENDABLE = prepared.Select(
    lambda at: Message.objects.filter(
        build_sendable_filter(), pk__in=fulltext.unpack_keys(at("messages"))
    ).values_list("pk")
)
# The context that an earlier attempt of the turn stored, if any.
STORED = prepared.Select(
    lambda at: TurnReference.objects.filter(turn=at("turn")).values_list("pk")[:1]
)


@dataclass(frozen=True, slots=True)
class RunningSearch:
    """The search for a turn's retrieved context, which runs while the turn does other work.

    `due` is the request for the search. `until`: the monotonic time until which the turn waits.
    """

    due: tail.TailRequired
    task: asyncio.Task[ChosenReferences]
    until: float

    async def wait_for_result(self) -> ChosenReferences:
        """Return the result, or the reason `late` after the time limit.

        The search then continues.
        """
        await asyncio.wait({self.task}, timeout=max(self.until - time.monotonic(), 0))
        return self.task.result() if self.task.done() else ChosenReferences(note="late")


def start_search(
    turn: Turn,
    *,
    due: tail.TailRequired,
    counter: TokenCounter,
    aside: Callable[..., Awaitable[Any]],
) -> RunningSearch:
    """Start the search for the retrieved context of a turn's question."""
    until = time.monotonic() + settings.REFERENCES_SECONDS
    work = look_up(
        turn,
        values=due.choice.values,
        counter=counter,
        aside=aside,
        room=due.room,
        sent=due.sent,
        cut=due.cut,
        seq=due.asked,
    )
    return RunningSearch(due, asyncio.ensure_future(work), until)


async def look_up(
    turn: Turn,
    *,
    values: PolicyValues,
    counter: TokenCounter,
    aside: Callable[..., Awaitable[Any]],
    room: int | None = None,
    sent: frozenset[int] = frozenset(),
    cut: frozenset[int] = frozenset(),
    seq: int = 0,
) -> ChosenReferences:
    """Return the retrieved context of a turn's question, or the reason why there is none.

    `room`, `sent`, `cut` and `seq` select excerpts of the chat itself (see
    `prompt.tail.TailRequired`). The reason is `failed` or a reason from
    `memory.search.references.choose_references`. If embeddings could not be used, `by_words`
    contains the reason.
    """
    began = time.monotonic()
    try:
        asked = await embed_turn_question(turn, values=values, aside=aside, began=began, seq=seq)
        found: ChosenReferences = await aside(
            search_for_question,
            turn=turn,
            values=values,
            counter=counter,
            asked=asked,
            began=began,
            room=room,
            sent=sent,
            cut=cut,
            seq=seq,
        )
    except Exception:
        # A reply without retrieved context is better than no reply.
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
    """Return a function that compares a text with others by embedding.

    None if there is no text or no embedding model, if the policy does not allow the model, or if
    the embedding failed or took too long.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(settings.REFERENCES_SECONDS):
            asked = await embed_text(read, values=values, aside=aside, began=began, **given)
    except TimeoutError:
        return None
    except Exception:
        # A keyword search is better than no search.
        logger.exception("the query of a search was not embedded")
        return None
    give_up = time.monotonic() + settings.REFERENCES_SECONDS
    if not asked.space_id:
        return None
    return partial(
        meaning.compare_question_vector, asked.vector, space_id=asked.space_id, give_up=give_up
    )


async def embed_turn_question(
    turn: Turn,
    *,
    values: PolicyValues,
    aside: Callable[..., Awaitable[Any]],
    began: float,
    seq: int = 0,
) -> QuestionVector:
    """Return the embedding of a turn's question, or an empty one as `embed_text` does."""
    return await embed_text(
        load_embedding_text, values=values, aside=aside, began=began, turn=turn, seq=seq
    )


async def embed_text(
    read: Callable[..., str],
    *,
    values: PolicyValues,
    aside: Callable[..., Awaitable[Any]],
    began: float,
    **given: Any,
) -> QuestionVector:
    """Return the embedding of a text; empty if there is no text or no embedding model.

    If the model cannot be used, the embedding is empty and `note` is the reason: `breaker`,
    `provider` (the policy does not allow it), `late`, `down`, or the code of a missing package.
    `read` returns the text; it runs in a database thread with the `given` arguments, and only if
    the model can be called.
    """
    if BREAKER.is_open():
        return QuestionVector(note="breaker")
    try:
        by: QuestionEmbedder | None = await aside(question_embedding.get_question_embedder)
        if by is None:
            return QuestionVector()
        if not question_embedding.is_provider_allowed(
            values.memory_providers, provider=by.provider
        ):
            return QuestionVector(note="provider")
        text: str = await aside(read, **given)
        if not text.strip():
            # A message with only files. Servers reject an empty text.
            return QuestionVector()
    except Unreachable as error:
        is_missing = error.code == embedding_spaces.NOT_INSTALLED
        return QuestionVector(note=error.code if is_missing else "down")
    rest = began + EMBEDDED_WITHIN * settings.REFERENCES_SECONDS - time.monotonic()
    if rest < SHORTEST_CALL:
        # Our own load used up the time, so the server must not be considered unavailable.
        return QuestionVector(note="late")
    asked = await question_embedding.embed_question_text(text, by=by, seconds=rest)
    if asked.space_id:
        BREAKER.came()
    else:
        BREAKER.missed()
    return asked


def load_embedding_text(*, turn: Turn, seq: int = 0) -> str:
    """Return the text to embed for a turn's search; empty if the turn has no question."""
    branch = prompt_facts.read_branch(turn)
    question = load_question_message(turn, branch=branch, seq=seq)
    if question is None:
        return ""
    return remove_speaker_names(branch.chat.owner_id, build_question_text(question, branch=branch))


def load_question_message(turn: Turn, *, branch: Branch, seq: int) -> Message | None:
    """Return the message to answer: the one at `seq`, or the turn's trigger if `seq` is 0.

    None if there is no such message, or if the turn has no trigger.
    """
    if not seq:
        return turn.trigger
    return select_path_messages(branch, after=seq - 1, before=seq + 1).first()


def build_question_text(question: Message, *, branch: Branch) -> str:
    """Return the search text of a question, without team markers."""
    text = strip_markers(question.text) if question.speaker else question.text
    return build_search_question(text, seq=question.seq, branch=branch)


def search_for_question(
    *,
    turn: Turn,
    values: PolicyValues,
    counter: TokenCounter,
    asked: QuestionVector,
    began: float,
    room: int | None = None,
    sent: frozenset[int] = frozenset(),
    cut: frozenset[int] = frozenset(),
    seq: int = 0,
) -> ChosenReferences:
    """Search the owner's chats for a turn's question, or this chat if `room` is given."""
    branch = prompt_facts.read_branch(turn)
    question = load_question_message(turn, branch=branch, seq=seq)
    if question is None:
        return ChosenReferences(note="none")
    look = None
    if asked.space_id:
        give_up = began + COMPARED_WITHIN * settings.REFERENCES_SECONDS
        look = partial(
            meaning.compare_question_vector, asked.vector, space_id=asked.space_id, give_up=give_up
        )
    if room is not None:
        found = excerpts.find_in_chat(
            branch,
            question=build_question_text(question, branch=branch),
            before=question.seq or branch.last_seq + 1,
            values=values,
            room=room,
            sent=sent,
            cut=cut,
            # A chat's own messages may be used in a chat without memory too.
            is_closed=not values.archive,
            counter=counter,
            at=question.created_at,
            look=look,
        )
        return replace(found, by_words=asked.note or found.by_words)
    active = prompt_facts.usable_compaction(
        prompt_facts.with_active_compaction(branch).active_compaction, values=values
    )
    found = references.choose_references(
        chat=branch.chat,
        question=build_question_text(question, branch=branch),
        values=values,
        leave_out=references.list_prompt_messages(
            branch, covered=active.to_seq if active else 0, window=values.window_size
        ),
        # Several excerpts share a chat, and each policy lookup takes a few queries.
        is_closed=cache(partial(is_closed_to_turn, turn=turn, values=values)),
        counter=counter,
        at=question.created_at,
        look=look,
    )
    return replace(found, by_words=asked.note or found.by_words)


def is_closed_to_turn(chat_id: uuid.UUID, *, turn: Turn, values: PolicyValues) -> bool:
    """Return True if a turn's prompts must not contain excerpts of another chat.

    The chat is closed to others, or contains files that the turn's model may not get.
    """
    is_open = turn.model is not None and may_get_chat(
        turn.model.slug, chat_id=chat_id, values=values
    )
    return not is_open or is_closed_to_others(chat_id)


def is_closed_to_others(chat_id: uuid.UUID) -> bool:
    """Return True if the memory setting of the chat or its folder, or its policy, closes it.

    Also True for a deleted chat.
    """
    open_chats = Chat.objects.filter(without_memory=False).exclude(folder__without_memory=True)
    chat = open_chats.select_related("model").filter(pk=chat_id).first()
    return chat is None or not is_archive_open(chat)


@transaction.atomic
def store_retrieved_context(*, lease: Lease, turn: Turn, found: ChosenReferences) -> dict[str, str]:
    """Store the retrieved context of a turn for all its prompts and return the turn's tail.

    Messages erased since the search are left out. Their chats are locked, so a concurrent erasure
    has either committed already and is taken into account, or runs later and removes the text from
    this row. Safe to repeat after a commit with unknown outcome. Raises `LeaseLost`.
    """
    # Ordered by id to avoid deadlocks between turns.
    for chat_id in sorted(found.chat_ids):
        statements.CHAT_LOCK.hold(chat=chat_id)
    ids = fulltext.pack_values([row.message_id.hex for row in found.references])
    there = {key for (key,) in SENDABLE.tuples(messages=ids)}
    made = {**(lock_held_turn(lease).tail or {}), "references": found.note}
    if found.by_words:
        made["vectors"] = found.by_words
    # A deletion with Django first collects the rows, which takes longer than this check.
    if STORED.tuples(turn=turn.pk):
        TurnReference.objects.filter(turn=turn).delete()
    prepared.insert_all(
        [
            TurnReference(
                turn=turn,
                place=place,
                message_id=row.message_id,
                start=row.start,
                end=row.end,
                score=row.score,
                match_seq=row.match_seq,
            )
            for place, row in enumerate(found.references, start=1)
            if row.message_id in there
        ]
    )
    update_held_turn(lease, tail=made)
    return made
