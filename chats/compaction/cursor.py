"""How far the history of a branch is summarised: the point from which the next summary reads on."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from chats import history
from chats.compaction.force import summary_of
from chats.models import Branch, Compaction


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the summaries of a branch stand.

    `position`: the messages up to this seq are in the summary in force, except those that it names
    as exceptions; the next one folds only what comes after. 0: none is. `compacted_at`: when a
    summary last took effect here, whatever became of it. `version` grows with each change of what
    stands in place of messages.
    """

    position: int
    compacted_at: datetime | None
    version: int


def cursor_of(branch: Branch) -> Cursor:
    """The cursor of a branch, read from what is in force there."""
    summary = summary_of(branch.active_compaction)
    visible = Q()
    for part in history.segments(branch):
        visible |= Q(branch=part.branch_id, to_seq__lte=part.to)
    took_effect = Compaction.objects.filter(
        visible, kind=Compaction.Kind.SUMMARY, published_at__isnull=False
    )
    return Cursor(
        position=summary.to_seq if summary else 0,
        compacted_at=took_effect.order_by("-published_at")
        .values_list("published_at", flat=True)
        .first(),
        version=branch.context_revision,
    )
