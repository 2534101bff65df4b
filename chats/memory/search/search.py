"""Searches one branch: its archive for a user, and its unsent messages for the model.

Uses the word matching, candidates and ranking of `finding`. Nothing is indexed here: unindexed
messages are not found, and the result contains their number.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.memory.search import (
    fulltext,
    index_progress,
    index_schedule,
    reading,
    searchable_text,
    speakers,
)
from chats.memory.search.finding import TextOrder, find_texts
from chats.memory.search.fulltext import Within
from chats.memory.search.meaning import Look
from chats.memory.search.question import parse_question
from chats.memory.search.recall import recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Message, SearchPlace
from chats.models.search import SEQ_BITS, SUMMARY_SEQ
from chats.record import history
from chats.record.sendable import build_sendable_filter
from chats.record.zones import convert_to_account_zone

# Maximum characters of a question.
LONGEST = 500
# Maximum excerpts of a chat, across all branches, that are filtered for a prompt's branch.
MOST_FOUND = 200


class QuestionTooLong(Refusal):
    """The query has more than 500 characters. Queries are never truncated."""

    code = "question_too_long"
    status = 422
    sentence = gettext_noop(
        "The search has {length} characters. The limit is {limit}. Use fewer words."
    )
    param = "q"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The messages that match a question, best first, and the number of unindexed messages."""

    rows: Sequence[Message] = ()
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A searchable part of a path: `after` < seq ≤ `to`, in one branch's index."""

    place: SearchPlace
    after: int
    to: int

    @property
    def stretch(self) -> tuple[int, int]:
        return self.place.id_at(self.after + 1), self.place.id_at(self.to)


@dataclass(frozen=True, slots=True)
class SearchablePath:
    """The searchable parts of a path, newest first, and the withdrawn seqs.

    `summaries`: the text id of the branch's summary, whose lines cite messages.
    """

    parts: Sequence[Part]
    withdrawn: frozenset[int]
    summaries: Sequence[int]

    @property
    def length(self) -> int:
        return sum(part.to - part.after for part in self.parts)

    def id_at(self, seq: int) -> int | None:
        """Return the text id of a seq; None if it cannot be found."""
        if seq in self.withdrawn:
            return None
        for part in self.parts:
            if part.after < seq <= part.to:
                return part.place.id_at(seq)
        return None

    def seq_of(self, key: int) -> int | None:
        """Return the seq of a text id; None if it is withdrawn."""
        seq = key & ((1 << SEQ_BITS) - 1)
        return None if seq in self.withdrawn else seq


@dataclass(frozen=True)
class SaidBy:
    """A filter for messages by author, role name, or time of writing."""

    condition: Q

    @cached_property
    def statement(self) -> fulltext.Statement:
        """The same filter as SQL for indexed texts; begins with `AND`."""
        rows = Message.objects.filter(self.condition).order_by().values("pk")
        text, values = rows.query.sql_with_params()
        return f" AND EXISTS ({text} AND chats_message.id = chats_searchtext.message_id)", [*values]


def check_question(question: str) -> None:
    """Raise `QuestionTooLong` for a question over its limit."""
    if len(question) > LONGEST:
        raise QuestionTooLong(limit=LONGEST, length=len(question))


def search_archive(branch: Branch, *, question: str, most: int, speaker: str = "") -> SearchResult:
    """Return the archived messages of a branch's path that match a question, best first.

    With a `speaker` (see `speakers.build_speaker_filter`), only their messages are searched. Erased
    and excluded messages are not found. The caller has authorised access to the branch.
    """
    to = index_progress.get_archived_seq(branch)
    if to is None:
        return SearchResult()
    owner_id = branch.chat.owner_id
    asked = parse_question(question, at=convert_to_account_zone(owner_id, timezone.now()))
    said = (
        SaidBy(speakers.build_speaker_filter(branch, speaker=speaker, to=to)) if speaker else None
    )
    if branch.chat.temporary:
        rows = reading.scan_archived_messages(
            branch, asked, to=to, said=said.condition if said else Q()
        )
        return SearchResult(rows[:most])
    path = build_searchable_path(branch, to)
    missing = to - path.length
    if missing:
        index_schedule.request_indexing(branch)
    within = Within(
        keys=(
            searchable_text.build_owner_key(owner_id),
            searchable_text.build_chat_key(branch.chat_id),
        ),
        stretches=[part.stretch for part in path.parts],
        only=said.statement if said is not None else fulltext.ANY,
    )
    line = TextOrder(path.seq_of, path.id_at, summaries=path.summaries)
    found, _ = find_texts(owner_id, asked, within=within, chat_id=branch.chat_id, line=line)
    ids = [text.id for text in found]
    if said is not None:
        # Neighbours were ranked too, and may have another speaker.
        ids = filter_by_speaker(ids, said=said)
    return SearchResult(load_found_messages(ids[:most]), missing)


def search_unsent(
    branch: Branch,
    *,
    question: str,
    most: int,
    speaker: str = "",
    sent: Collection[int],
    look: Look | None = None,
) -> SearchResult:
    """Return unsent messages of a branch's path that match a question, best first.

    `look` also compares by embedding. `sent`: seqs of the messages in the prompt. With a `speaker`
    (see `speakers.build_speaker_filter`), only their messages are searched. Erased and excluded
    messages are not found. The caller has authorised access to the branch.
    """
    to = find_last_unsent(branch, sent=sent)
    if not to:
        return SearchResult()
    at = timezone.now()
    said = speakers.build_speaker_filter(branch, speaker=speaker, to=to) if speaker else Q()
    if branch.chat.temporary:
        asked = parse_question(question, at=convert_to_account_zone(branch.chat.owner_id, at))
        rows = reading.scan_archived_messages(branch, asked, to=to, said=said)
        return SearchResult(
            [row for row in rows if row.seq not in sent and not row.is_incomplete][:most]
        )
    missing = to - build_searchable_path(branch, to).length
    if missing:
        index_schedule.request_indexing(branch)
    scope = Scope("chat", branch.chat_id)
    found = recall_excerpts(
        branch.chat.owner_id, question, scope=scope, limit=MOST_FOUND, at=at, look=look
    )
    ids = [each.message_id for each in found.excerpts if each.message_id and each.seq not in sent]
    own = history.select_path_messages(branch, after=0, before=to + 1)
    known = {row.pk: row for row in own.filter(said, build_sendable_filter(), pk__in=ids)}
    return SearchResult([known[key] for key in ids if key in known][:most], missing)


def find_last_unsent(branch: Branch, *, sent: Collection[int]) -> int:
    """Return the highest seq that the prompt does not contain. 0 if it contains all."""
    seq = branch.last_seq
    while seq in sent:
        seq -= 1
    return seq


def filter_by_speaker(ids: Sequence[int], *, said: SaidBy) -> list[int]:
    theirs = Message.objects.filter(said.condition, search_text__in=list(ids))
    found = set(theirs.values_list("search_text", flat=True))
    return [key for key in ids if key in found]


def build_searchable_path(branch: Branch, to: int) -> SearchablePath:
    """Return the searchable parts of a branch's path up to a seq."""
    segments = [part for part in history.list_path_segments(branch) if part.after < to]
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
    marked = history.select_path_messages(branch, after=0, before=to + 1)
    withdrawn = marked.filter(Q(excluded=True) | Q(erased_at__isnull=False))
    seqs = frozenset(seq for (seq,) in withdrawn.values_list("seq") if seq)
    return SearchablePath(
        parts, seqs, [place.id_at(SUMMARY_SEQ) for place in rows if place.branch_id == branch.pk]
    )


def load_found_messages(ids: Sequence[int]) -> list[Message]:
    """Return the messages of texts by id, in the given order."""
    rows = Message.objects.filter(search_text__in=list(ids), excluded=False, erased_at=None)
    found = {row.search_text.pk: row for row in rows.select_related("search_text")}
    return [found[key] for key in ids if key in found]
