"""Looks: a page that asks a few times after a reply whether a summary took effect meanwhile.

A summary is written in the background after the reply, when nothing streams any more. So the tail
carries the next look with its delay; the delays grow, and the last look asks for no other.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from chats.models import Turn

# Seconds before each look. All of them together outlast the longest summary (SUMMARY_SECONDS).
DELAYS = (0.5, 1, 2, 4, 8, 15, 30, 60, 60)
# So many looks while no summary is being written yet: the worker begins at once or not at all.
HOPEFUL = 5
RECENT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Look:
    """The next look: the how manieth it is, and the seconds until then."""

    number: int
    delay: float


def next_look(*, number: int, turn: Turn | None, is_preparing: bool, now: datetime) -> Look | None:
    """The look that follows `number` earlier ones; None when nothing is to be expected."""
    most = len(DELAYS) if is_preparing else HOPEFUL
    if number >= most or not (is_preparing or may_fold(turn, now=now)):
        return None
    return Look(number=number, delay=DELAYS[number])


def may_fold(turn: Turn | None, *, now: datetime) -> bool:
    """Whether a turn has just ended under a policy that writes summaries."""
    return (
        turn is not None
        and turn.finished_at is not None
        and turn.finished_at > now - RECENT
        and turn.effective_policy is not None
        and turn.effective_policy.values.get("strategy") == "dynamic_summary"
    )
