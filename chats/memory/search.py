"""Searches the archive of a branch, for a person and for the model.

Nothing is indexed here. A message that is not in the index yet is not found, and the result says
how many there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q

from chats.ground.refusals import Refusal
from chats.memory import archive, fulltext, speakers
from chats.memory.ranking import RankedText, best_alone, rank
from chats.memory.words import asked
from chats.models import Branch, Message, SearchCount, SearchPlace
from chats.models.search import SEQ_BITS
from chats.record import history

# The messages that one search compares; words that stand in more are left out of it.
MOST_COMPARED = 600
MOST_WORDS = 32
# The best of them, whose neighbours are read as well.
MOST_WITH_NEIGHBOURS = 200
# The longest question, in characters.
LONGEST = 500


class QuestionTooLong(Refusal):
    """The question is over its limit; questions are never cut."""

    code = "question_too_long"
    status = 422
    sentence = "A search takes {limit} characters; this one has {length}. Use fewer words."
    param = "q"


@dataclass(frozen=True, slots=True)
class SearchResult:
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
        """The part's share of the branch's index."""
        return (self.to - self.after) / max(self.place.to_seq - self.after, 1)


@dataclass(frozen=True, slots=True)
class Path:
    """The searchable parts of a path, newest first, and the seqs that people withdrew."""

    parts: Sequence[Part]
    withdrawn: frozenset[int]

    @property
    def length(self) -> int:
        """The number of messages."""
        return sum(part.to - part.after for part in self.parts)

    def id_at(self, seq: int) -> int | None:
        """Return the id of the text at a seq; None where none can be found."""
        if seq in self.withdrawn:
            return None
        for part in self.parts:
            if part.after < seq <= part.to:
                return part.place.id_at(seq)
        return None


@dataclass(frozen=True)
class Said:
    """The condition that a message is one of a speaker's."""

    condition: Q

    @cached_property
    def statement(self) -> fulltext.Statement:
        """The same of a text in the index, with an `AND` before it."""
        rows = Message.objects.filter(self.condition).order_by().values("pk")
        text, values = rows.query.sql_with_params()
        return f" AND EXISTS ({text} AND chats_message.id = chats_searchtext.message_id)", [*values]


def check_question(question: str) -> None:
    """Raise `QuestionTooLong` for a question over its limit."""
    if len(question) > LONGEST:
        raise QuestionTooLong(limit=LONGEST, length=len(question))


def search(branch: Branch, *, question: str, most: int, speaker: str = "") -> SearchResult:
    """Return the archived messages of a branch's path that answer a question best, best first.

    With a `speaker` (see `speakers.messages_of`) only what that one said. Erased and excluded
    messages are not found. The caller has authorised the branch.
    """
    to = archive.archived(branch)
    if to is None:
        return SearchResult()
    path = path_of(branch, to)
    missing = to - path.length
    if missing:
        archive.catch_up(branch)
    said = Said(speakers.messages_of(branch, speaker=speaker, to=to)) if speaker else None
    counts, texts = candidates(branch, path, wanted=asked(question)[:MOST_WORDS], said=said)
    if not texts:
        return SearchResult(missing=missing)
    best = ranked(path, texts, counts=counts, total=to)
    if said is not None:
        # Their neighbours were ranked with them, and may be another's.
        best = only(path, best, said=said)
    return SearchResult(messages_at(path, best[:most]), missing)


def only(path: Path, seqs: Sequence[int], *, said: Said) -> list[int]:
    """Return those places of a path at which the speaker said something."""
    ids = [key for seq in seqs if (key := path.id_at(seq)) is not None]
    theirs = Message.objects.filter(said.condition, search_text__in=ids)
    found = set(theirs.values_list("seq", flat=True))
    return [seq for seq in seqs if seq in found]


def ranked(
    path: Path, texts: Sequence[RankedText], *, counts: Mapping[str, int], total: int
) -> list[int]:
    """Rank the texts that are compared and their neighbours; return their seqs, best first."""
    telling = list(counts)
    best = best_alone(telling, texts, found_in=counts, total=total, most=MOST_WITH_NEIGHBOURS)
    near = {text.seq + step for text in best for step in (-1, 0, 1)}
    known = [text for text in texts if text.seq in near]
    unknown = near.difference(text.seq for text in known)
    ids = [key for seq in unknown if (key := path.id_at(seq)) is not None]
    beside = as_ranked(fulltext.texts(ids), telling=telling)
    return rank(telling, [*known, *beside], found_in=counts, total=total)


def path_of(branch: Branch, to: int) -> Path:
    """Return what can be searched of a branch's path up to a seq."""
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
    branch: Branch, path: Path, *, wanted: Sequence[str], said: Said | None = None
) -> tuple[dict[str, int], list[RankedText]]:
    """Count the messages that hold each of the question's words, and read the texts to compare.

    The rarest words choose first. Once they lead to more messages than one search compares, the
    more common words only add weight, by the counts that the index keeps. Of one speaker's messages
    every word chooses: nobody counts who said the rare ones.
    """
    counts = kept_counts(path, wanted=wanted)
    chosen: dict[str, int] = {}
    for word in sorted(counts, key=lambda one: counts[one]):
        if chosen and said is None and sum(chosen.values()) + counts[word] > MOST_COMPARED:
            break
        chosen[word] = counts[word]
    texts = newest(branch, path, words=chosen, telling=list(counts), said=said)
    # A full list does not say how many there are, nor does one of a speaker's.
    if len(texts) < MOST_COMPARED and said is None:
        counts |= {word: sum(word in text.counts for text in texts) for word in chosen}
    return {word: count for word, count in counts.items() if count}, texts


def kept_counts(path: Path, *, wanted: Sequence[str]) -> dict[str, int]:
    """Return the question's words that stand somewhere, with about the number of messages.

    Exact where the whole index of each branch counts and nothing was withdrawn; else by the share
    of it that does.
    """
    shares = {part.place.pk: part.share for part in path.parts}
    rows = SearchCount.objects.filter(place__in=list(shares), word__in=wanted)
    sums: dict[str, float] = dict.fromkeys(wanted, 0.0)
    for place, word, number in rows.values_list("place", "word", "messages"):
        sums[word] += shares[place] * number
    return {word: max(round(number), 1) for word, number in sums.items() if number}


def newest(
    branch: Branch,
    path: Path,
    *,
    words: Mapping[str, int],
    telling: Sequence[str],
    said: Said | None = None,
) -> list[RankedText]:
    """Read the newest texts with one of the words, and no more of them than are compared."""
    if not words:
        return []
    rows = fulltext.newest(
        {word: count / path.length for word, count in words.items()},
        chat=archive.chat_word(branch.chat_id),
        stretches=[part.stretch for part in path.parts],
        most=MOST_COMPARED + len(path.withdrawn),
        only=said.statement if said is not None else fulltext.ANY,
    )
    left = [(key, text) for key, text in rows if seq_of(key) not in path.withdrawn]
    return as_ranked(left[:MOST_COMPARED], telling=telling)


def seq_of(key: int) -> int:
    """Return the seq in the id of a text."""
    return key & ((1 << SEQ_BITS) - 1)


def as_ranked(texts: Iterable[fulltext.Text], *, telling: Sequence[str]) -> list[RankedText]:
    """Read texts as they are ranked, without the chat's own word before them."""
    # A list takes long to say what is in it, and a set has no order.
    wanted = dict.fromkeys(telling)
    return [
        RankedText.of(seq_of(key), text.partition(" ")[2], telling=wanted) for key, text in texts
    ]


def messages_at(path: Path, seqs: Sequence[int]) -> list[Message]:
    """Return the messages at some places of a path, in the order of the places.

    By the ids of their texts: with the path's bounds beside the places, SQLite walks all of it.
    """
    ids = [key for seq in seqs if (key := path.id_at(seq)) is not None]
    rows = Message.objects.filter(search_text__in=ids, excluded=False, erased_at=None)
    found = {row.seq: row for row in rows}
    return [found[seq] for seq in seqs if seq in found]
