"""Selects the parts of a chat's long documents that help to answer a question.

A prompt contains only the beginning of a long document. Chunks of the rest that share significant
words with the question are sent as retrieved context. The words of each chunk are stored, so the
selection takes one query and a few milliseconds per document.
"""

import math
import uuid
from collections.abc import Collection, Iterable
from typing import NamedTuple

from chats.memory.search.words import extract_question_stems
from chats.models import Branch, FileChunk, Message, MessageFile
from chats.record.history import select_path_messages
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.engine.messages.tokens import TokenCounter

# The maximum number of chunks of a prompt, and of compared words of a question.
MOST_EXCERPTS = 6
MOST_STEMS = 40


class ChunkMatch(NamedTuple):
    """A chunk that shares words with a question."""

    pk: int
    file_id: uuid.UUID
    number: int
    score: float


def list_cut_documents(branch: Branch, *, before: int) -> dict[uuid.UUID, list[str]]:
    """Return the documents of which messages contain only a part.

    Considers the user messages of the branch's path before a seq that are neither excluded nor
    erased. Maps the ids of the documents to the texts in these messages.
    """
    rows = select_path_messages(branch, after=0, before=before)
    rows = rows.filter(role=Message.Role.USER, excluded=False, erased_at=None)
    with_files = rows.filter(
        pk__in=MessageFile.objects.filter(message__branch__chat=branch.chat_id).values("message")
    )
    found: dict[uuid.UUID, list[str]] = {}
    for parts in with_files.order_by().values_list("parts", flat=True):
        for part in parts:
            document = parse_document_reference(part.get("reference", ""))
            text = part.get("text", "")
            if document is not None and len(text) < document.characters:
                found.setdefault(uuid.UUID(document.id), []).append(text)
    return found


def find_file_excerpts(
    branch: Branch, *, question: str, before: int, room: int, counter: TokenCounter
) -> list[ChunkMatch]:
    """Return at most six chunks for a question in document order, within `room` tokens.

    Chunks that the prompt already contains are left out.
    """
    documents = list_cut_documents(branch, before=before)
    stems = extract_question_stems(question)[:MOST_STEMS]
    if not documents or not stems:
        return []
    matches = rank_chunks(documents, stems=stems)
    rows = FileChunk.objects.in_bulk([match.pk for match in matches[: 3 * MOST_EXCERPTS]])
    chosen: list[ChunkMatch] = []
    for match in matches[: 3 * MOST_EXCERPTS]:
        text = rows[match.pk].text if match.pk in rows else ""
        tokens = counter.count(text)
        is_sent = any(text.strip() in sent for sent in documents[match.file_id])
        if not text or is_sent or tokens > room or len(chosen) == MOST_EXCERPTS:
            continue
        room -= tokens
        chosen.append(match)
    return sorted(chosen, key=lambda one: (str(one.file_id), one.number))


def rank_chunks(file_ids: Iterable[uuid.UUID], *, stems: Collection[str]) -> list[ChunkMatch]:
    """Return the chunks of files that contain some of the stems, best first.

    A stem has more weight if fewer chunks contain it.
    """
    rows = FileChunk.objects.filter(file__in=list(file_ids))
    read = list(rows.order_by().values_list("pk", "file", "number", "words"))
    held = [
        (pk, file_id, number, [stem for stem in stems if f" {stem} " in f" {words} "])
        for pk, file_id, number, words in read
    ]
    common = {stem: sum(stem in shared for *_, shared in held) for stem in stems}
    weights = {stem: math.log(1 + len(held) / count) for stem, count in common.items() if count}
    found = [
        ChunkMatch(pk, file_id, number, sum(weights[stem] for stem in shared))
        for pk, file_id, number, shared in held
        if shared
    ]
    return sorted(found, key=lambda one: (-one.score, str(one.file_id), one.number))
