"""Lists the document excerpts that a turn sent, with their scores and matching words."""

import uuid
from typing import NamedTuple

from chats.files.excerpts import MOST_STEMS
from chats.memory.search.words import extract_question_stems, find_words
from chats.models import FileExcerpt, Turn


class SentExcerpt(NamedTuple):
    """A document excerpt that was sent with a question: its location, and why it was chosen.

    `page` is 0 if the file type has no pages. `words`: the question's words that the excerpt
    contains; empty after the question was erased. `score` is None for turns of earlier versions.
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
    """Return the document excerpts that a turn sent, in prompt order."""
    sent = FileExcerpt.objects.filter(turn=turn).order_by("place")
    rows = list(sent.select_related("chunk__file"))
    if not rows:
        return []
    words = map_question_words(turn.trigger.text if turn.trigger is not None else "")
    return [
        SentExcerpt(
            file_id=row.chunk.file_id,
            name=row.chunk.file.name,
            page=row.chunk.page,
            part=row.chunk.number,
            start=row.chunk.start,
            end=row.chunk.start + len(row.chunk.text),
            score=row.score,
            words=tuple(
                word for stem, word in words.items() if f" {stem} " in f" {row.chunk.words} "
            ),
        )
        for row in rows
    ]


def map_question_words(question: str) -> dict[str, str]:
    """Map the stem of each word of a question to the word as written."""
    stems = extract_question_stems(question)[:MOST_STEMS]
    written = {
        word.stem: question[word.start : word.end] for word in reversed(find_words(question))
    }
    return {stem: written.get(stem, stem) for stem in stems}
