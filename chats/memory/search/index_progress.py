"""Finds the unindexed messages and summaries of a branch, and creates its `SearchPlace`."""

import uuid
from collections.abc import Collection

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Sum, When
from django.db.models.functions import Greatest

from chats.memory.search.words import VERSION
from chats.models import Branch, Compaction, SearchPlace, SearchText
from chats.models.search import SUMMARY_SEQ
from chats.record import history

# Attempts to create places while chats are erased.
TRIES = 5


def create_places(branch_ids: Collection[uuid.UUID], *, version: int = 0) -> None:
    """Create the `SearchPlace` of each branch that has none. Branches that were erased are skipped.

    The database checks the branches at the commit, so a concurrent erasure makes it fail; the next
    attempt leaves out the erased branch. Call it outside a transaction. Raises `IntegrityError` if
    every attempt fails.
    """
    for attempt in range(1, TRIES + 1):
        try:
            with transaction.atomic():
                living = Branch.objects.filter(pk__in=branch_ids).values_list("pk", flat=True)
                new = [SearchPlace(branch_id=pk, version=version) for pk in living]
                SearchPlace.objects.bulk_create(new, ignore_conflicts=True)
        except IntegrityError:
            if attempt == TRIES:
                raise
        else:
            return


def get_archived_seq(branch: Branch) -> int | None:
    """Return the last seq that the active compaction covers; None if there is none."""
    active = branch.active_compaction
    return active.to_seq if active is not None else None


def get_branch_summary(branch: Branch) -> Compaction | None:
    """Return the active summary of a branch. None if it has none.

    If a window is active, its base summary is returned.
    """
    active = branch.active_compaction
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        active = active.base
    return active if active is not None and active.text else None


def list_unindexed_segments(branch: Branch) -> list[history.PathSegment]:
    """Return the segments of a path that are not fully indexed; none if its archive is closed."""
    parts = [part for part in history.list_path_segments(branch) if part.after < part.to]
    places = SearchPlace.objects.filter(branch__in=[part.branch_id for part in parts])
    known = {place.branch_id: place for place in places}
    return [part for part in parts if is_index_behind(known.get(part.branch_id), to=part.to)]


def count_missing(branch: Branch) -> int:
    """Return the number of unindexed messages of a branch's path; 0 if its archive is closed."""
    missing = 0
    for part in list_unindexed_segments(branch):
        place = SearchPlace.objects.filter(branch=part.branch_id, version=VERSION).first()
        missing += part.to - max(part.after, place.to_seq if place else 0)
    return missing


def is_index_behind(place: SearchPlace | None, *, to: int) -> bool:
    """Return True if the index of a branch does not reach `to`, or is of an older version."""
    if place is None:
        return True
    return not place.closed and (place.to_seq < to or place.version != VERSION)


def is_indexing_due(branch: Branch) -> bool:
    """Return True if messages or the active summary of a branch's path are not indexed."""
    return bool(list_unindexed_segments(branch)) or not is_summary_indexed(branch)


def is_summary_indexed(branch: Branch) -> bool:
    """Return True if the active summary is indexed, or if there is none."""
    place = SearchPlace.objects.filter(branch=branch.pk).first()
    if place is None or place.closed:
        return True
    found = SearchText.objects.filter(pk=place.id_at(SUMMARY_SEQ)).values_list("summary", flat=True)
    summary = get_branch_summary(branch)
    return list(found) == ([summary.pk] if summary else [])


def count_searchable_messages(owner_id: int) -> tuple[int, int]:
    """Count a user's searchable messages.

    Returns the total, and how many of them are not indexed yet.
    """
    rows = Branch.objects.filter(chat__owner=owner_id, chat__temporary=False, chat__deleted_at=None)
    rows = rows.exclude(search_place__closed=True)
    indexed_to = Case(
        When(
            search_place__version=VERSION,
            search_place__to_seq__gt=F("fork_seq"),
            then=F("search_place__to_seq"),
        ),
        default=F("fork_seq"),
    )
    behind = Greatest(F("last_seq") - F("indexed_to"), 0)
    sums = rows.annotate(indexed_to=indexed_to, behind=behind).aggregate(
        every=Sum(F("last_seq") - F("fork_seq"), default=0), missing=Sum("behind", default=0)
    )
    return sums["every"], sums["missing"]
