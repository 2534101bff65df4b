"""The status of the last compaction that a user requested.

It is stored with the branch until the next message.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.utils.translation import gettext

from chats.compaction.report.skip_reasons import SENTENCES
from chats.models import Branch, Compaction

State = Literal["asked", "begun", "waits", "done", "nothing", "failed"]
# A request that no worker has begun after this time is shown as late.
LATE = timedelta(seconds=30)
STATES: dict[str, State] = {
    Compaction.Status.PREPARING: "begun",
    Compaction.Status.PREPARED: "waits",
    Compaction.Status.PUBLISHED: "done",
    Compaction.Status.REPLACED: "done",
    Compaction.Status.OVERTAKEN: "failed",
    Compaction.Status.REJECTED: "failed",
    Compaction.Status.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The status of a request. `row` is its attempt; without an attempt, `reason` is the code.

    `asked`: no worker has started yet; `is_late`: it is waiting longer than usual. `begun`: a
    summary is being written. `waits`: the summary is ready, and waits for approval or for its
    threshold. `done`: the summary took effect. `nothing`: there was nothing to summarise. `failed`:
    the last attempt failed, and prompts did not change.
    """

    state: State
    reason: str = ""
    row: Compaction | None = None
    is_late: bool = False

    @property
    def sentence(self) -> str:
        """The sentence that explains why there was nothing to summarise."""
        return gettext(SENTENCES[self.reason]) if self.reason in SENTENCES else self.reason


def get_request_status(branch: Branch, *, now: datetime) -> RequestStatus | None:
    """Return the status of the newest request on a branch.

    None if there is no request, or if a message, undo, redo or correction followed it.
    """
    if branch.asked_at is not None:
        return RequestStatus("asked", is_late=now > branch.asked_at + LATE)
    outcome = branch.request_outcome
    if outcome is None or branch.turns.filter(accepted__gt=outcome["after"]).exists():
        return None
    if outcome["reason"]:
        return RequestStatus("nothing", reason=outcome["reason"])
    return describe_ended_request(branch.compactions.filter(pk=outcome["compaction"]).first())


def describe_ended_request(row: Compaction | None) -> RequestStatus | None:
    """Return the status of a request from its attempt, running or ended.

    None if the attempt no longer exists, or its summary took effect and was withdrawn later.
    """
    if row is None or row.status not in STATES:
        return None
    if row.status == Compaction.Status.OVERTAKEN and row.published_at:
        return None
    return RequestStatus(STATES[row.status], reason=row.reason, row=row)
