"""Lists the parts of documents that a turn sent, with their score and matching words."""

import uuid
from typing import NamedTuple

from chats.files.excerpts import MOST_STEMS
from chats.memory.search.words import extract_question_stems
from chats.models import FileExcerpt, Turn


class SentExcerpt(NamedTuple):
    """A part of a document that was sent with a question: its place in the text, and why.

    `page` is 0 if the kind of file has none. `words`: the stems that it shares with the question;
    empty after the question was erased. `score` is None for turns of earlier versions.
    """

    file_id: uuid.UUID
    name: str
    page: int
    part: int
    start: int
    end: int
    score: float | None
    words: tuple[str, ...]


def list_sent_excerpts(turn: Turn) -> list[SentExcerpt]:
    """Return the parts of documents that a turn sent, in prompt order."""
    sent = FileExcerpt.objects.filter(turn=turn).order_by("place")
    rows = list(sent.select_related("chunk__file"))
    if not rows:
        return []
    question = turn.trigger.text if turn.trigger is not None else ""
    stems = extract_question_stems(question)[:MOST_STEMS]
    return [
        SentExcerpt(
            file_id=row.chunk.file_id,
            name=row.chunk.file.name,
            page=row.chunk.page,
            part=row.chunk.number,
            start=row.chunk.start,
            end=row.chunk.start + len(row.chunk.text),
            score=row.score,
            words=tuple(stem for stem in stems if f" {stem} " in f" {row.chunk.words} "),
        )
        for row in rows
    ]
