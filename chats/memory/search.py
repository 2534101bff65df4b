"""Searches one branch: its archive for a person, and what its prompt leaves out for the model.

The words, the candidates and the ranking are those of every search (`finding`). Nothing is indexed
here. A message that is not in the index yet is not found, and the result says how many there are.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q
from django.utils import timezone

from chats.ground.refusals import Refusal
from chats.memory import archive, fulltext, reading, speakers
from chats.memory.finding import TextOrder, find
from chats.memory.fulltext import Within
from chats.memory.meaning import Look
from chats.memory.question import asked_in
from chats.memory.recall import Scope, recall
from chats.models import Branch, Message, SearchPlace
from chats.models.search import SEQ_BITS, SUMMARY_SEQ
from chats.record import history

# The longest question, in characters.
LONGEST = 500
# Passages of a chat, on all its branches, among which those of a prompt's branch are looked for.
MOST_FOUND = 200


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


@dataclass(frozen=True, slots=True)
class SearchablePath:
    """The searchable parts of a path, newest first, and the seqs that people withdrew.

    `summaries`: the id of the text of the branch's summary, whose lines lead to messages.
    """

    parts: Sequence[Part]
    withdrawn: frozenset[int]
    summaries: Sequence[int]

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

    def seq_of(self, key: int) -> int | None:
        """Return the seq in the id of a text; None of one that was withdrawn."""
        seq = key & ((1 << SEQ_BITS) - 1)
        return None if seq in self.withdrawn else seq


@dataclass(frozen=True)
class SaidBy:
    """The condition that a message is one of a speaker's, or of a time."""

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
    asked = asked_in(question, at=timezone.now())
    said = SaidBy(speakers.messages_of(branch, speaker=speaker, to=to)) if speaker else None
    if branch.chat.temporary:
        rows = reading.look_through(branch, asked, to=to, said=said.condition if said else Q())
        return SearchResult(rows[:most])
    path = path_of(branch, to)
    missing = to - path.length
    if missing:
        archive.catch_up(branch)
    owner_id = branch.chat.owner_id
    within = Within(
        keys=(archive.owner_key(owner_id), archive.chat_key(branch.chat_id)),
        stretches=[part.stretch for part in path.parts],
        only=said.statement if said is not None else fulltext.ANY,
    )
    line = TextOrder(path.seq_of, path.id_at, summaries=path.summaries)
    found, _ = find(owner_id, asked, within=within, line=line)
    ids = [text.id for text in found]
    if said is not None:
        # Their neighbours were ranked with them, and may be another's.
        ids = only(ids, said=said)
    return SearchResult(messages_at(ids[:most]), missing)


def search_unsent(
    branch: Branch,
    *,
    question: str,
    most: int,
    speaker: str = "",
    sent: Collection[int],
    look: Look | None = None,
) -> SearchResult:
    """Return the messages of a branch's path that a prompt leaves out and that answer a question.

    They are ranked as in every search of a person's chats; `look` compares by meaning too. `sent`
    has the seqs of the messages in the prompt. With a `speaker` (see `speakers.messages_of`) only
    their messages are found. Erased and excluded messages are not. The caller has authorised the
    branch.
    """
    to = last_unsent(branch, sent=sent)
    if not to:
        return SearchResult()
    at = timezone.now()
    said = speakers.messages_of(branch, speaker=speaker, to=to) if speaker else Q()
    if branch.chat.temporary:
        rows = reading.look_through(branch, asked_in(question, at=at), to=to, said=said)
        return SearchResult([row for row in rows if row.seq not in sent][:most])
    missing = to - path_of(branch, to).length
    if missing:
        archive.catch_up(branch)
    scope = Scope("chat", branch.chat_id)
    found = recall(branch.chat.owner_id, question, scope=scope, limit=MOST_FOUND, at=at, look=look)
    ids = [each.message_id for each in found.passages if each.message_id and each.seq not in sent]
    own = history.on_path(branch, after=0, before=to + 1)
    known = {row.pk: row for row in own.filter(said, pk__in=ids, excluded=False, erased_at=None)}
    return SearchResult([known[key] for key in ids if key in known][:most], missing)


def last_unsent(branch: Branch, *, sent: Collection[int]) -> int:
    """Return the highest seq of a branch that a prompt does not contain; 0 if it contains all."""
    seq = branch.last_seq
    while seq in sent:
        seq -= 1
    return seq


def only(ids: Sequence[int], *, said: SaidBy) -> list[int]:
    """Return those texts that the speaker said."""
    theirs = Message.objects.filter(said.condition, search_text__in=list(ids))
    found = set(theirs.values_list("search_text", flat=True))
    return [key for key in ids if key in found]


def path_of(branch: Branch, to: int) -> SearchablePath:
    """Return what can be searched of a branch's path up to a seq."""
    segments = [part for part in history.segments(branch) if part.after < to]
    ids = {branch.pk, *(part.branch_id for part in segments)}
    rows = SearchPlace.objects.filter(branch__in=ids)
    places = {row.branch_id: row for row in rows}
    parts = [
        Part(place, part.after, min(part.to, to, place.to_seq))
        for part in segments
        if (place := places.get(part.branch_id)) is not None
        and part.after < place.to_seq
        and not place.closed
    ]
    marked = history.on_path(branch, after=0, before=to + 1)
    withdrawn = marked.filter(Q(excluded=True) | Q(erased_at__isnull=False))
    seqs = frozenset(seq for (seq,) in withdrawn.values_list("seq") if seq)
    return SearchablePath(
        parts, seqs, [place.id_at(SUMMARY_SEQ) for place in rows if place.branch_id == branch.pk]
    )


def messages_at(ids: Sequence[int]) -> list[Message]:
    """Return the messages of some texts, in their order."""
    rows = Message.objects.filter(search_text__in=list(ids), excluded=False, erased_at=None)
    found = {row.search_text.pk: row for row in rows.select_related("search_text")}
    return [found[key] for key in ids if key in found]
