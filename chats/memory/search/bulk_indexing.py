"""Indexes the newest messages of many chats in few statements.

After a turn, a chat has one or two new messages. Indexing one chat alone takes about 40 statements,
most of which only check that nothing else is due. In a batch, each chat takes two. Every other case
(child branches, long backlogs, new summaries, older words, closed chats, errors) is left to
`index_schedule.index_due_branches`.
"""

import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from chats.ground.background_lock import alone
from chats.memory.search import archive, index_progress, searchable_text
from chats.memory.search.words import VERSION
from chats.models import Branch, Message, SearchPlace, SearchText
from chats.models.search import SUMMARY_SEQ
from chats.record.statements import filter_by_pieces
from speed.commits import unflushed_transaction

logger = logging.getLogger(__name__)
# Chats per transaction, which blocks SQLite's only writer for about 10 ms.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class NewMessages:
    """The unindexed messages of a branch in ascending order, and their index rows."""

    place: SearchPlace
    rows: Sequence[Message]
    texts: Sequence[SearchText]

    @property
    def owner_id(self) -> int:
        return self.rows[0].branch.chat.owner_id


def index_newest(chat_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Index the newest messages of these chats. Return the chats that are now complete.

    The caller ensures that no policy excludes them from search. If one chat fails, none of its
    group is indexed, and the caller indexes each of them separately.
    """
    done: set[uuid.UUID] = set()
    for start in range(0, len(chat_ids), AT_ONCE):
        try:
            with alone:
                done |= index_some(chat_ids[start : start + AT_ONCE])
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns one of the chats
            logger.warning("indexed one by one: %s", type(error).__name__)
    return done


def index_some(chat_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Index the newest messages of a few chats. Return the chats that are now complete."""
    opened = Branch.objects.filter(chat__in=chat_ids, chat__active_branch=F("pk"))
    simple = opened.filter(parent=None, chat__temporary=False)
    branches = {
        branch.pk: branch for branch in simple.select_related("chat", "active_compaction__base")
    }
    places = get_or_create_places(list(branches))
    due = [place for place in places if is_simple(place, branches[place.branch_id])]
    due = exclude_new_summaries(due, branches)
    found = read_new_messages(due, branches)
    behind = {new.place.pk for new in found} - store_new_texts(found)
    return {branches[place.branch_id].chat_id for place in due if place.pk not in behind}


def get_or_create_places(branch_ids: Sequence[uuid.UUID]) -> list[SearchPlace]:
    """Return the `SearchPlace` of each branch, created if missing. Erased branches have none."""
    found = list(SearchPlace.objects.filter(branch__in=branch_ids))
    missing = {*branch_ids} - {place.branch_id for place in found}
    if missing:
        index_progress.create_places(missing, version=VERSION)
        found += SearchPlace.objects.filter(branch__in=missing)
    return found


def is_simple(place: SearchPlace, branch: Branch) -> bool:
    """Return True if the index is current and lacks at most one batch of messages."""
    is_current = place.version == VERSION and not place.closed
    return is_current and branch.last_seq - place.to_seq <= archive.BATCH


def exclude_new_summaries(
    places: Sequence[SearchPlace], branches: dict[uuid.UUID, Branch]
) -> list[SearchPlace]:
    """Return the places whose active summary is indexed, or that have none."""
    keys = [place.id_at(SUMMARY_SEQ) for place in places]
    indexed = dict(SearchText.objects.filter(pk__in=keys).values_list("pk", "summary"))
    kept = []
    for place in places:
        summary = index_progress.get_branch_summary(branches[place.branch_id])
        if indexed.get(place.id_at(SUMMARY_SEQ)) == (summary.pk if summary else None):
            kept.append(place)
    return kept


def read_new_messages(
    places: Sequence[SearchPlace], branches: dict[uuid.UUID, Branch]
) -> list[NewMessages]:
    """Read the unindexed messages of some branches and extract their words."""
    parts = [
        (place.branch_id, place.to_seq, branches[place.branch_id].last_seq)
        for place in places
        if place.to_seq < branches[place.branch_id].last_seq
    ]
    if not parts:
        return []
    rows: dict[uuid.UUID, list[Message]] = defaultdict(list)
    for row in filter_by_pieces(parts).order_by("branch", "seq"):
        row.branch = branches[row.branch_id]
        rows[row.branch_id].append(row)
    return [
        NewMessages(
            place=place,
            rows=rows[place.branch_id],
            texts=[searchable_text.build_indexed_text(row) for row in rows[place.branch_id]],
        )
        for place in places
        if rows[place.branch_id]
    ]


def store_new_texts(found: Sequence[NewMessages]) -> set[int]:
    """Store the texts of messages that were not withdrawn. Return the places that advanced.

    Skips places that another worker has changed since they were read.
    """
    if not found:
        return set()
    with unflushed_transaction():
        keys = [new.place.pk for new in found]
        held = SearchPlace.objects.select_for_update(no_key=True).filter(pk__in=keys)
        now = {place.pk: place for place in held.order_by("pk")}
        still = [new for new in found if is_unmoved(new.place, now.get(new.place.pk))]
        if not still:
            return set()
        pks = [row.pk for new in still for row in new.rows]
        living = Message.objects.filter(pk__in=pks, erased_at=None, excluded=False)
        wanted = set(living.values_list("pk", flat=True))
        before = find_talks_before([new.place for new in still])
        texts: list[SearchText] = []
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for new in still:
            talk = before.get(new.place.pk) or archive.find_previous_session(new.place, new.rows[0])
            kept = archive.place_texts(new.place, new.rows, new.texts, talk=talk, wanted=wanted)
            texts += kept
            counts[new.owner_id].update(archive.count_texts_by_word(kept))
        SearchText.objects.bulk_create(texts)
        for owner_id in sorted(counts):
            archive.update_word_counts(owner_id, counts[owner_id])
        for new in still:
            new.place.to_seq = new.rows[-1].seq or 0
        SearchPlace.objects.bulk_create(
            [new.place for new in still],
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["to_seq"],
        )
        return {new.place.pk for new in still}


def is_unmoved(place: SearchPlace, now: SearchPlace | None) -> bool:
    """Return True if a place has not changed since it was read."""
    if now is None:
        return False
    return (now.to_seq, now.version, now.closed) == (place.to_seq, place.version, place.closed)


def find_talks_before(places: Sequence[SearchPlace]) -> dict[int, tuple[int, Any]]:
    """Return the session of each place's last text, and the time of its last message.

    Places whose last message has no text are left out.
    """
    parts = [(place.branch_id, place.to_seq - 1, place.to_seq) for place in places if place.to_seq]
    if not parts:
        return {}
    times = dict(filter_by_pieces(parts).values_list("branch", "created_at"))
    keys = {place.id_at(place.to_seq): place for place in places if place.to_seq}
    sessions = SearchText.objects.filter(pk__in=keys).values_list("pk", "session")
    return {
        keys[pk].pk: (session, times[keys[pk].branch_id])
        for pk, session in sessions
        if keys[pk].branch_id in times
    }
