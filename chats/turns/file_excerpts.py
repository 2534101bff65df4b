"""Stores the document excerpts that match a question, before the first model call."""

from collections.abc import Collection

from django.db import transaction

from chats.files import excerpts
from chats.files.excerpts import ChunkMatch
from chats.models import FileChunk, FileExcerpt, Turn
from chats.prompt import prompt_facts
from chats.prompt.model_choice import ChosenModel
from chats.turns.lease import Lease, lock_held_turn, update_held_turn
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import compute_prompt_limit

# The share of the prompt limit for document excerpts, and their maximum number of tokens.
SHARE = 0.15
MOST_TOKENS = 2_000


def find_turn_excerpts(
    *, turn: Turn, choice: ChosenModel, counter: TokenCounter, sent: Collection[int]
) -> list[ChunkMatch]:
    """Return the document chunks that match a turn's question; empty without a question.

    `sent`: the seqs of the messages that the prompt contains in full.
    """
    question = turn.trigger
    if question is None:
        return []
    branch = prompt_facts.read_branch(turn)
    limit = compute_prompt_limit(choice.values, model_window=choice.model.window)
    return excerpts.find_file_excerpts(
        branch,
        question=question.text,
        before=(question.seq or branch.last_seq) + 1,
        sent=sent,
        room=min(int(SHARE * limit), MOST_TOKENS),
        counter=counter,
    )


@transaction.atomic
def store_file_excerpts(*, lease: Lease, turn: Turn, chunks: list[ChunkMatch]) -> dict[str, str]:
    """Store a turn's document excerpts for all of its prompts, and return the turn's tail.

    Chunks that were deleted since the search are left out. Safe to repeat. Raises `LeaseLost`.
    """
    tail = {**(lock_held_turn(lease).tail or {}), "files": create_excerpts(turn, chunks=chunks)}
    update_held_turn(lease, tail=tail)
    return tail


def create_excerpts(turn: Turn, *, chunks: list[ChunkMatch]) -> str:
    """Store document excerpts of a turn, and return the value of its tail for them."""
    ids = [match.pk for match in chunks]
    there = set(FileChunk.objects.filter(pk__in=ids).values_list("pk", flat=True))
    FileExcerpt.objects.filter(turn=turn).delete()
    FileExcerpt.objects.bulk_create(
        FileExcerpt(turn=turn, place=place, chunk_id=match.pk, score=round(match.score, 4))
        for place, match in enumerate(chunks, start=1)
        if match.pk in there
    )
    return "" if there else "none"
