"""Counts the turns of the last hour whose search for retrieved context finished too late."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from chats.models import Turn

PERIOD = timedelta(hours=1)
# Only the newest turns of the hour are read.
MOST_TURNS = 500
# The notes in a turn's tail which mean that a search had no result in time.
LATE = frozenset({"late", "failed", "breaker"})
# A warning needs this share of late searches, and at least this number of searches.
WARNING_SHARE, FEWEST = 0.02, 20


@dataclass(frozen=True, slots=True)
class LateSearches:
    """The searches of recent turns, and how many of them were too late or failed."""

    total: int
    late: int

    @property
    def share(self) -> float:
        return self.late / self.total if self.total else 0.0

    @property
    def warning(self) -> str:
        """A warning for operators if too many searches were late, otherwise empty."""
        if self.total < FEWEST or self.share <= WARNING_SHARE:
            return ""
        return (
            f"Retrieved context was missing from {self.late:,} of the last {self.total:,} replies "
            "that needed it, because the search took too long. Add workers, or raise "
            "REFERENCES_SECONDS."
        )


def count_searches(*, now: datetime) -> LateSearches:
    """Count the searches for replies in the last hour, at most for the newest 500 replies."""
    rows = Turn.objects.filter(
        status=Turn.Status.COMPLETED, queued_at__gt=now - PERIOD, tail__isnull=False
    )
    tails = rows.order_by("-queued_at").values_list("tail", flat=True)[:MOST_TURNS]
    notes = [tail["references"] for tail in tails if tail and "references" in tail]
    return LateSearches(len(notes), sum(note in LATE for note in notes))
