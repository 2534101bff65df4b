"""The archive of a branch: the originals that its summary or window covers, and the search in it.

Words are indexed when a summary or window covers them, in the background and at the latest by the
first search; nothing on the way of a message waits for it.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence

from django.db import transaction
from django.db.models import Q, QuerySet

from chats import history
from chats.memory.ranking import Text, rank
from chats.memory.words import asked, words
from chats.models import Branch, Message, SearchText

BATCH = 500
# What one message adds at most: a tool's output of megabytes is no text anybody searches for.
MOST_CHARACTERS = 20_000
# How many messages one search compares; words that stand in more are left out of it.
MOST_COMPARED = 2_000
MOST_WORDS = 32


def archived(branch: Branch) -> int | None:
    """The seq up to which the compaction in force covers the path; None where there is none."""
    active = branch.active_compaction
    return active.to_seq if active is not None else None


def index(branch: Branch) -> int:
    """Make the archived messages of a branch's path searchable; how many were added.

    Done again, it adds what is new. Each branch on the path counts for itself.
    """
    to = archived(branch)
    if to is None:
        return 0
    return sum(
        index_own(part.branch_id, to=min(part.to, to))
        for part in history.segments(branch)
        if part.after < to
    )


def index_own(branch_id: uuid.UUID, *, to: int) -> int:
    """Make a branch's own messages up to a seq searchable, in batches of one transaction each."""
    if Branch.objects.filter(pk=branch_id, searchable_to__gte=to).exists():
        return 0
    added = 0
    while True:
        with transaction.atomic():
            # The lock keeps an erasure from coming between reading a text and indexing it.
            branch = Branch.objects.select_for_update(no_key=True).get(pk=branch_id)
            rows = Message.objects.filter(
                branch=branch, seq__gt=branch.searchable_to, seq__lte=to
            ).order_by("seq")[:BATCH]
            batch = list(rows)
            if not batch:
                return added
            texts = [
                SearchText(message=row, words=" ".join(words_of(row, chat_id=branch.chat_id)))
                for row in batch
                if row.erased_at is None
            ]
            SearchText.objects.bulk_create(texts, ignore_conflicts=True)
            branch.searchable_to = batch[-1].seq or 0
            branch.save(update_fields=["searchable_to"])
            added += len(texts)


def words_of(row: Message, *, chat_id: uuid.UUID) -> list[str]:
    """A message's words: the chat's own first, then who speaks, what is said, and its day."""
    said = " ".join(texts_of(row.parts))[:MOST_CHARACTERS]
    speaker = str((row.speaker or {}).get("name", ""))
    day = row.created_at.strftime("%-d %B %Y %A")
    return [chat_word(chat_id), *words(f"{speaker}: {said} {day}")]


def forget(message_ids: Collection[uuid.UUID]) -> int:
    """Take the words of erased messages out of the index, in the caller's transaction.

    The caller holds the branch, so that none is being indexed meanwhile.
    """
    return SearchText.objects.filter(message__in=message_ids).delete()[0]


def texts_of(parts: Iterable[dict[str, object]]) -> Iterable[str]:
    """The texts of a message's parts, its tools' output among them; no reasoning, no arguments."""
    for part in parts:
        if part["type"] == "text":
            yield str(part["text"])
        elif part["type"] == "tool_result":
            yield str(part["content"])


def chat_word(chat_id: uuid.UUID) -> str:
    """The word that every text of a chat holds, and no text of another."""
    return f"chat{chat_id.hex}"


def search(branch: Branch, *, question: str, most: int) -> list[Message]:
    """The archived messages of a branch's path that answer a question best, best first.

    Erased and excluded messages are not found. Whoever calls has authorised the branch.
    """
    to = archived(branch)
    if to is None:
        return []
    index(branch)
    telling, found_in, rows = candidates(branch, to, wanted=asked(question)[:MOST_WORDS])
    if not rows:
        return []
    seqs = rank(telling, neighbourhood(branch, to, rows), found_in=found_in, total=to)
    places = {row.seq: row for row in visible(branch, to, seqs[: 4 * most])}
    return [places[seq] for seq in seqs if seq in places][:most]


def candidates(
    branch: Branch, to: int, *, wanted: Sequence[str]
) -> tuple[list[str], dict[str, int], list[int]]:
    """The question's words that are compared, in how many messages each stands, and these seqs.

    The rarest words first: when they lead to more messages than one search compares, the common
    ones only weigh.
    """
    path = on_path(branch, to)
    chat = chat_word(branch.chat_id)
    counts = {word: path.filter(words__has=(chat, [word])).count() for word in wanted}
    counts = {word: count for word, count in counts.items() if count}
    chosen: list[str] = []
    compared = 0
    for word in sorted(counts, key=lambda one: counts[one]):
        compared += counts[word]
        if chosen and compared > MOST_COMPARED:
            break
        chosen.append(word)
    if not chosen:
        return [], {}, []
    rows = path.filter(words__has=(chat, chosen)).order_by("-message__seq")
    seqs = rows.values_list("message__seq", flat=True)[:MOST_COMPARED]
    return list(counts), counts, [seq for seq in seqs if seq]


def on_path(branch: Branch, to: int) -> QuerySet[SearchText]:
    """The searchable texts of the archived part of a path."""
    inside = Q()
    for part in history.segments(branch):
        if part.after < min(part.to, to):
            inside |= Q(
                message__branch_id=part.branch_id,
                message__seq__gt=part.after,
                message__seq__lte=min(part.to, to),
            )
    return SearchText.objects.filter(inside, message__excluded=False, message__erased_at=None)


def neighbourhood(branch: Branch, to: int, seqs: Sequence[int]) -> list[Text]:
    """The candidates and their neighbours, as words."""
    near = {seq + step for seq in seqs for step in (-1, 0, 1)}
    texts: list[Text] = []
    ordered = sorted(near)
    for start in range(0, len(ordered), BATCH):
        part = on_path(branch, to).filter(message__seq__in=ordered[start : start + BATCH])
        for seq, text in part.values_list("message__seq", "words"):
            texts.append(Text(seq=seq or 0, words=text.split()[1:]))
    return texts


def visible(branch: Branch, to: int, seqs: Sequence[int]) -> list[Message]:
    """The messages at some places of the path."""
    rows = history.on_path(branch, after=0, before=to + 1)
    return list(rows.filter(seq__in=seqs, excluded=False, erased_at=None))
