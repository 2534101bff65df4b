"""The cursor of a branch: where its summarised part ends and the next summary begins."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from chats.compaction.coverage import get_active_summary
from chats.models import Branch, Compaction
from chats.record import history


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position up to which a branch is summarised.

    `position`: the active summary covers messages up to this seq, except those it lists as
    exceptions. The next summary covers only later ones. 0: no summary. `compacted_at`: when a
    summary last took effect here, even if it was undone since. `version` increases with each change
    of the active compaction.
    """

    position: int
    compacted_at: datetime | None
    version: int


def get_summary_cursor(branch: Branch) -> Cursor:
    summary = get_active_summary(branch.active_compaction)
    visible = Q()
    for part in history.list_path_segments(branch):
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
