"""Selects the parts of a chat's documents that help to answer a question.

A prompt contains only the beginning of a long document, and nothing of a document whose message it
leaves out. Chunks that share significant words with the question are then sent as retrieved
context. The words of each chunk are stored, so the selection takes one query and a few milliseconds
per document.
"""

import math
import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from django.db.models import QuerySet

from chats.memory.search.words import extract_question_stems
from chats.models import Branch, FileChunk, Message, MessageFile
from chats.record.history import select_path_messages
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.engine.messages.tokens import TokenCounter

# The maximum number of chunks of a prompt, and of compared words of a question.
MOST_EXCERPTS = 6
MOST_STEMS = 40
# The maximum number of characters of the searched documents. Each million takes about 25 ms.
MOST_CHARACTERS = 10_000_000
AT_ONCE, CHUNKS_AT_ONCE = 20, 2_000


class ChunkMatch(NamedTuple):
    """A chunk that shares words with a question."""

    pk: int
    file_id: uuid.UUID
    number: int
    score: float


def select_document_messages(branch: Branch, *, before: int) -> QuerySet[Message]:
    """Return the user messages with readable documents on a branch's path before a seq.

    Excluded and erased messages are left out.
    """
    links = MessageFile.objects.filter(message__branch__chat=branch.chat_id, file__characters__gt=0)
    rows = select_path_messages(branch, after=0, before=before)
    return rows.filter(
        role=Message.Role.USER, excluded=False, erased_at=None, pk__in=links.values("message")
    )


def has_hidden_document(branch: Branch, *, before: int, sent: Collection[int]) -> bool:
    """Return True if a message below a seq has a document and is not among the `sent` seqs."""
    rows = select_document_messages(branch, before=before).order_by()
    return any(seq not in sent for seq in rows.values_list("seq", flat=True))


def list_path_documents(branch: Branch, *, before: int) -> list[uuid.UUID]:
    """Return the ids of the documents in a branch's messages before a seq, newest first."""
    rows = select_document_messages(branch, before=before).order_by("-seq")
    found = (
        document.id
        for parts in rows.values_list("parts", flat=True).iterator(chunk_size=AT_ONCE)
        for part in parts
        if (document := parse_document_reference(part.get("reference", ""))) is not None
    )
    return [uuid.UUID(one) for one in dict.fromkeys(found)]


def list_partial_documents(
    branch: Branch, *, before: int, sent: Collection[int]
) -> dict[uuid.UUID, list[str]]:
    """Return the documents that a prompt contains only in part, or not at all.

    `sent`: the seqs of the messages before `before` that the prompt contains in full. Maps the ids
    of the documents to the texts in these messages. The newest documents come first, up to
    `MOST_CHARACTERS`.
    """
    rows = select_document_messages(branch, before=before).order_by("-seq")
    found: dict[uuid.UUID, list[str]] = {}
    whole, room = set(), MOST_CHARACTERS
    # References of imported documents contain only an upper limit of their length.
    links = MessageFile.objects.filter(message__branch__chat=branch.chat_id)
    lengths = dict(links.values_list("file", "file__characters"))
    # A few at a time: the texts of a chat's documents may not fit into memory.
    for seq, parts in rows.values_list("seq", "parts").iterator(chunk_size=AT_ONCE):
        for part in parts:
            document = parse_document_reference(part.get("reference", ""))
            if document is None or not document.characters:
                continue
            file_id, text = uuid.UUID(document.id), part.get("text", "") if seq in sent else ""
            if file_id not in found:
                room -= lengths.get(file_id, document.characters)
            if room < 0:
                return {key: texts for key, texts in found.items() if key not in whole}
            found.setdefault(file_id, []).append(text)
            if len(text) >= document.characters:
                whole.add(file_id)
    return {key: texts for key, texts in found.items() if key not in whole}


def find_file_excerpts(
    branch: Branch,
    *,
    question: str,
    before: int,
    sent: Collection[int],
    room: int,
    counter: TokenCounter,
) -> list[ChunkMatch]:
    """Return at most six chunks for a question in document order, within `room` tokens.

    Chunks that the prompt already contains are left out. `sent`: see `list_partial_documents`.
    """
    documents = list_partial_documents(branch, before=before, sent=sent)
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
    read = rows.order_by().values_list("pk", "file", "number", "words")
    wanted = frozenset(stems)
    held, number_of_chunks = [], 0
    for pk, file_id, number, words in read.iterator(chunk_size=CHUNKS_AT_ONCE):
        number_of_chunks += 1
        if shared := wanted.intersection(words.split()):
            held.append((pk, file_id, number, [stem for stem in stems if stem in shared]))
    common = Counter(stem for *_, shared in held for stem in shared)
    weights = {stem: math.log(1 + number_of_chunks / count) for stem, count in common.items()}
    found = [
        ChunkMatch(pk, file_id, number, sum(weights[stem] for stem in shared))
        for pk, file_id, number, shared in held
    ]
    return sorted(found, key=lambda one: (-one.score, str(one.file_id), one.number))
