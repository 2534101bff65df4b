"""Embedding indexes and their vectors: choose, build, count and delete.

Only this module writes them. Writing a vector takes the same lock as indexing its text. A
concurrent erasure is therefore either seen by the write, or runs after it and deletes the vector.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from chats.ground import queue
from chats.models import SearchPlace, SearchText, TextVector, VectorSpace
from chats.models.search import SEQ_BITS
from contextpolicy import ledger
from contextpolicy.models import ModelSpec
from speed import prepared
from speed.commits import unflushed_transaction

# Version of the chunking; a new version requires a new index.
DIVIDED = 1
CHUNK_WORDS = 120
CHUNK_CHARACTERS = 800
# If even a text of this length is rejected, it gets no vector.
SHORTEST_HALF = 50
# Interval of passes over all texts, which find those that lost tasks left out. The first pass comes
# soon, for texts that were stored while the model was being chosen.
PASS_EVERY, FIRST_PASS = timedelta(hours=6), timedelta(minutes=10)
# Rows of a deleted index that one step removes.
DELETED_AT_ONCE = 5_000
# States of a text without a vector: no content, or rejected by the model.
EMPTY, REFUSED = "", "refused"
_WORD = re.compile(r"\S+")


class OtherDimensions(Exception):
    """The model returned vectors whose length differs from those in its index."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an index: numbers of all texts, texts with a vector, and rejected texts."""

    texts: int
    done: int
    refused: int

    @property
    def missing(self) -> int:
        """The number of texts without a vector: those not embedded yet, and the rejected ones."""
        return max(self.texts - self.done, 0)


def split_into_chunks(text: str) -> list[str]:
    """Split a text into chunks of limited words and characters."""
    found: list[str] = []
    start = end = words = 0
    for word in _WORD.finditer(text):
        if words and (words == CHUNK_WORDS or word.end() - start > CHUNK_CHARACTERS):
            found.append(text[start:end])
            start, words = word.start(), 0
        start = start if words else word.start()
        end, words = word.end(), words + 1
    if words:
        found.append(text[start:end])
    size = CHUNK_CHARACTERS
    return [part[at : at + size] for part in found for at in range(0, len(part), size)]


def split_in_half(text: str) -> list[str]:
    """Return both halves of a text that is too long for its model.

    Empty if the text is too short to split.
    """
    if len(text) < 2 * SHORTEST_HALF:
        return []
    middle = len(text) // 2
    space = text.rfind(" ", SHORTEST_HALF, middle)
    at = space if space > 0 else middle
    return [half for half in (text[:at].strip(), text[at:].strip()) if half]


def get_embedding_prefixes(name: str) -> tuple[str, str]:
    """Return the prefixes that a model expects before questions and before texts."""
    return ("query: ", "passage: ") if re.search(r"\be5\b", name, re.IGNORECASE) else ("", "")


def build_space_key(model: ModelSpec, *, base_url: str) -> str:
    """Return a key of the settings on which a model's vectors depend."""
    address = hashlib.sha256(base_url.encode()).hexdigest()[:12]
    prefixes = "".join(get_embedding_prefixes(model.name)).replace(" ", "")
    return f"{model.provider}/{address}/{model.name}/{prefixes}/{DIVIDED}"[:400]


SERVING = prepared.Select(
    lambda _at: (
        VectorSpace.objects.filter(state=VectorSpace.State.SERVING)
        .select_related("model")
        .order_by("pk")[:1]
    )
)


def get_serving_space() -> VectorSpace | None:
    """Return the index that is used for questions. None if there is none."""
    return SERVING.first()


def list_active_spaces() -> list[VectorSpace]:
    """Return the active index and the one that is being built."""
    rows = VectorSpace.objects.exclude(state=VectorSpace.State.RETIRED)
    return list(rows.select_related("model").order_by("pk"))


@transaction.atomic
def choose_vector_space(
    model: ModelSpec | None, *, base_url: str, actor: str, now: datetime, anew: bool = False
) -> VectorSpace | None:
    """Choose the embedding model, or disable embedding if `model` is None.

    Reuses an existing index of the same model, unless `anew`. The active index stays in use until
    the new one is complete. Returns the chosen index; None if embedding is disabled.
    """
    spaces = {space.state: space for space in VectorSpace.objects.select_for_update()}
    State = VectorSpace.State  # noqa: N806 - a class
    used, built = spaces.get(State.SERVING), spaces.get(State.BUILDING)
    key = build_space_key(model, base_url=base_url) if model else ""
    if built is not None and (built.key != key or anew):
        retire_space(built, now=now)
        built = None
    if model is None and used is not None:
        retire_space(used, now=now)
    is_used = used is not None and used.key == key and not anew
    space = used if is_used else built
    if model is not None and space is None:
        last = VectorSpace.objects.filter(key=key).aggregate(last=Max("revision"))["last"]
        space = VectorSpace.objects.create(
            model=model, key=key, revision=(last or 0) + 1, created_at=now, due_at=now
        )
    data = {"model": model.slug if model else "", "revision": space.revision if space else 0}
    ledger.record_event("search.model_chosen", actor=actor, now=now, data=data)
    queue.enqueue(queue.EMBED)
    return space


def retire_space(space: VectorSpace, *, now: datetime) -> None:
    """Mark an index as unused. The background worker deletes its vectors in steps."""
    rows = VectorSpace.objects.filter(pk=space.pk)
    rows.update(state=VectorSpace.State.RETIRED, due_at=now, lease_token="", lease_until=None)


@transaction.atomic
def activate_space(space: VectorSpace, *, now: datetime) -> None:
    """Replace the active index with one whose pass has finished, and schedule its next pass.

    Does nothing if the index was retired.
    """
    rows = VectorSpace.objects.select_for_update()
    held = rows.filter(pk=space.pk).exclude(state=VectorSpace.State.RETIRED).first()
    if held is None:
        return
    again = PASS_EVERY
    if held.state == VectorSpace.State.BUILDING:
        again = FIRST_PASS
        for old in rows.filter(state=VectorSpace.State.SERVING):
            retire_space(old, now=now)
    held.state, held.completed_at = VectorSpace.State.SERVING, now
    held.cursor, held.due_at, held.fault = 0, now + again, ""
    held.save(update_fields=["state", "completed_at", "cursor", "due_at", "fault"])


def delete_retired_vectors() -> bool:
    """Delete some vectors of unused indexes, and unused indexes without vectors.

    Returns True if it deleted vectors. More may remain, so call it again.
    """
    for space in VectorSpace.objects.filter(state=VectorSpace.State.RETIRED):
        rows = TextVector.objects.filter(space=space).order_by("pk")
        some = list(rows.values_list("pk", flat=True)[:DELETED_AT_ONCE])
        if some:
            with unflushed_transaction():
                rows.filter(pk__gte=some[0], pk__lte=some[-1]).delete()
            return True
        space.delete()
    return False


def list_unembedded_texts(space: VectorSpace, texts: QuerySet[SearchText]) -> list[SearchText]:
    """Return the texts without an entry in an index, with their messages and chats."""
    keys = list(texts.values_list("pk", flat=True))
    known = TextVector.objects.filter(space=space, text__in=keys).values_list("text", flat=True)
    missing = SearchText.objects.filter(pk__in=set(keys).difference(known)).order_by("pk")
    return list(missing.select_related("message__branch__chat"))


def store_vectors(space: VectorSpace, made: Mapping[int, Sequence[bytes] | None]) -> int:
    """Store the vectors of texts by text id. Return the number of stored texts.

    `made` has one vector per chunk; an empty sequence for a text without content, None for a text
    that the model rejected. Skips texts erased or deleted since. Raises `OtherDimensions`.
    """
    lengths = {len(row) // 2 for rows in made.values() for row in rows or ()}
    with unflushed_transaction():
        check_length(space, lengths)
        # The lock that is also taken when words are removed from the search index.
        places = sorted({key >> SEQ_BITS for key in made})
        list(
            SearchPlace.objects.select_for_update(no_key=True).filter(pk__in=places).order_by("pk")
        )
        texts = SearchText.objects.filter(pk__in=made, message__isnull=False)
        there = texts.values_list("pk", "message", "message__branch__chat__owner")
        rows = []
        for key, message_id, owner_id in there:
            own = {"space": space, "owner_id": owner_id, "message_id": message_id, "text": key}
            found = made[key]
            rows += [
                TextVector(**own, passage=number, vector=vector)
                for number, vector in enumerate(found or ())
            ]
            if not found:
                fault = REFUSED if found is None else EMPTY
                rows.append(TextVector(**own, passage=0, vector=b"", fault=fault))
        TextVector.objects.bulk_create(rows, ignore_conflicts=True)
    return len(there)


def check_length(space: VectorSpace, lengths: Collection[int]) -> None:
    """Raise `OtherDimensions` unless all vectors have the same length as those in the index."""
    for length in lengths:
        VectorSpace.objects.filter(pk=space.pk, dimensions=None).update(dimensions=length)
        if not VectorSpace.objects.filter(pk=space.pk, dimensions=length).exists():
            raise OtherDimensions


def delete_text_vectors(texts: QuerySet[SearchText]) -> int:
    """Delete the vectors of texts that are removed from the index, in the caller's transaction."""
    return TextVector.objects.filter(text__in=texts.values("pk")).delete()[0]


def delete_space_vectors(space: VectorSpace, texts: QuerySet[SearchText]) -> int:
    """Delete the vectors of texts in an index. Their words stay searchable."""
    with unflushed_transaction():
        return TextVector.objects.filter(space=space, text__in=texts.values("pk")).delete()[0]


def delete_vectors_by_id(keys: Collection[int]) -> int:
    """Delete the vectors of texts by id, in the caller's transaction."""
    return TextVector.objects.filter(text__in=keys).delete()[0] if keys else 0


def measure_space_progress(space: VectorSpace) -> Progress:
    texts = SearchText.objects.filter(message__isnull=False).count()
    rows = TextVector.objects.filter(space=space)
    first = rows.filter(passage=0).count()
    refused = rows.filter(~Q(fault="")).count()
    return Progress(texts, first - refused, refused)
