"""The search in the archive of a branch: what a person finds, and what the model finds.

Nothing is indexed here. What is not in the index yet is not found, and the answer says how many
messages that are.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from chats import history
from chats.memory import archive, fulltext
from chats.memory.ranking import Text, best_alone, rank
from chats.memory.words import asked
from chats.models import Branch, Message, SearchCount, SearchPlace
from chats.models.search import SEQ_BITS

# How many messages one search compares; words that stand in more are left out of it.
MOST_COMPARED = 1_000
MOST_WORDS = 32
# Of how many of them the neighbours are read as well.
MOST_WITH_NEIGHBOURS = 250


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that answer a question, best first, and how many could not be searched yet."""

    rows: Sequence[Message] = ()
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A searchable part of a path: `after` < seq ≤ `to`, all of them in one branch's index."""

    place: SearchPlace
    after: int
    to: int

    @property
    def stretch(self) -> tuple[int, int]:
        """The ids of its texts."""
        return self.place.id_at(self.after + 1), self.place.id_at(self.to)

    @property
    def share(self) -> float:
        """How much of the branch's index it is."""
        return (self.to - self.after) / max(self.place.to_seq - self.after, 1)


@dataclass(frozen=True, slots=True)
class Path:
    """What can be searched of a path, newest part first, and the seqs that people withdrew."""

    parts: Sequence[Part]
    withdrawn: frozenset[int]

    @property
    def length(self) -> int:
        """How many messages."""
        return sum(part.to - part.after for part in self.parts)

    def id_at(self, seq: int) -> int | None:
        """The id of the text at a seq; None where none can be found."""
        if seq in self.withdrawn:
            return None
        ids = (part.place.id_at(seq) for part in self.parts if part.after < seq <= part.to)
        return next(ids, None)


def search(branch: Branch, *, question: str, most: int) -> Found:
    """The archived messages of a branch's path that answer a question best, best first.

    Erased and excluded messages are not found. Whoever calls has authorised the branch.
    """
    to = archive.archived(branch)
    if to is None:
        return Found()
    path = path_of(branch, to)
    missing = to - path.length
    if missing:
        archive.catch_up(branch)
    counts, seqs = candidates(branch, path, wanted=asked(question)[:MOST_WORDS])
    if not seqs:
        return Found(missing=missing)
    return Found(messages_at(path, ranked(path, seqs, counts=counts, total=to)[:most]), missing)


def ranked(path: Path, seqs: Sequence[int], *, counts: Mapping[str, int], total: int) -> list[int]:
    """The seqs that are compared and their neighbours, best first."""
    telling = list(counts)
    texts = texts_at(path, seqs, telling=telling)
    best = best_alone(telling, texts, found_in=counts, total=total, most=MOST_WITH_NEIGHBOURS)
    near = {text.seq + step for text in best for step in (-1, 0, 1)}
    known = [text for text in texts if text.seq in near]
    unknown = near.difference(text.seq for text in known)
    beside = texts_at(path, unknown, telling=telling)
    return rank(telling, [*known, *beside], found_in=counts, total=total)


def path_of(branch: Branch, to: int) -> Path:
    """What can be searched of a branch's path up to a seq."""
    segments = [part for part in history.segments(branch) if part.after < to]
    rows = SearchPlace.objects.filter(branch__in=[part.branch_id for part in segments])
    places = {row.branch_id: row for row in rows}
    parts = [
        Part(place, part.after, min(part.to, to, place.to_seq))
        for part in segments
        if (place := places.get(part.branch_id)) is not None and part.after < place.to_seq
    ]
    marked = history.on_path(branch, after=0, before=to + 1)
    withdrawn = marked.filter(Q(excluded=True) | Q(erased_at__isnull=False))
    return Path(parts, frozenset(seq for (seq,) in withdrawn.values_list("seq") if seq))


def candidates(
    branch: Branch, path: Path, *, wanted: Sequence[str]
) -> tuple[dict[str, int], list[int]]:
    """In how many messages each of the question's words stands, and the seqs that are compared.

    The rarest words first: when they lead to more messages than one search compares, the common
    ones only weigh, and by the counts that the index keeps.
    """
    counts = kept_counts(path, wanted=wanted)
    chosen: list[str] = []
    compared = 0
    for word in sorted(counts, key=lambda one: counts[one]):
        compared += counts[word]
        if chosen and compared > MOST_COMPARED:
            break
        chosen.append(word)
    seqs = seqs_of(branch, path, words={word: counts[word] for word in chosen})
    for word in chosen:
        # A list that is full says nothing of how many there are.
        if len(seqs[word]) < MOST_COMPARED:
            counts[word] = len(seqs[word])
    found = {seq for word in chosen for seq in seqs[word]}
    left = {word: count for word, count in counts.items() if count}
    return left, sorted(found, reverse=True)[:MOST_COMPARED]


def kept_counts(path: Path, *, wanted: Sequence[str]) -> dict[str, int]:
    """The question's words that stand somewhere, with about the number of messages.

    Exact where the whole index of each branch counts and nothing was withdrawn; else by the share
    of it that does.
    """
    shares = {part.place.pk: part.share for part in path.parts}
    rows = SearchCount.objects.filter(place__in=list(shares), word__in=wanted)
    sums: dict[str, float] = dict.fromkeys(wanted, 0.0)
    for place, word, number in rows.values_list("place", "word", "messages"):
        sums[word] += shares[place] * number
    return {word: max(round(number), 1) for word, number in sums.items() if number}


def seqs_of(branch: Branch, path: Path, *, words: Mapping[str, int]) -> dict[str, list[int]]:
    """The seqs at which each word stands, newest first, and no more than are compared."""
    if not words:
        return {}
    ids = fulltext.newest(
        {word: count / path.length for word, count in words.items()},
        chat=archive.chat_word(branch.chat_id),
        stretches=[part.stretch for part in path.parts],
        most=MOST_COMPARED + len(path.withdrawn),
    )
    found = {word: sorted(map(seq_of, keys), reverse=True) for word, keys in ids.items()}
    return {
        word: [seq for seq in seqs if seq not in path.withdrawn][:MOST_COMPARED]
        for word, seqs in found.items()
    }


def seq_of(key: int) -> int:
    """The seq in the id of a text."""
    return key & ((1 << SEQ_BITS) - 1)


def texts_at(path: Path, seqs: Iterable[int], *, telling: Collection[str]) -> list[Text]:
    """The texts at some places of a path, as they are ranked."""
    ids = [key for seq in seqs if (key := path.id_at(seq)) is not None]
    return [
        Text.of(seq_of(key), text.partition(" ")[2], telling=telling)
        for key, text in fulltext.texts(ids)
    ]


def messages_at(path: Path, seqs: Sequence[int]) -> list[Message]:
    """The messages at some places of a path, in the order of the places.

    By the ids of their texts: with the path's bounds beside the places, SQLite walks all of it.
    """
    ids = [key for seq in seqs if (key := path.id_at(seq)) is not None]
    rows = Message.objects.filter(search_text__in=ids, excluded=False, erased_at=None)
    found = {row.seq: row for row in rows}
    return [found[seq] for seq in seqs if seq in found]
