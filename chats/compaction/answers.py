"""What became of the last compaction that a person asked for.

Read from the newest rows of the chat's ledger: a request, what a worker did about it, and the next
message, with which the answer is old news.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from chats.compaction.outcomes import SENTENCES
from chats.models import Branch, Compaction
from contextpolicy.models import AuditEvent

State = Literal["asked", "begun", "waits", "done", "nothing", "failed"]
# What a person did after it, which says more than the answer.
LATER_DEEDS = frozenset({"compaction.undone", "compaction.redone", "compaction.revised"})
READ = (
    "turn.started",
    "compaction.asked",
    "compaction.skipped",
    "compaction.started",
    "compaction.published",
    *sorted(LATER_DEEDS),
)
# Events of these kinds that one look reads: more than the longest ladder of attempts writes.
NEWEST = 20
# After so long without a worker it is time to say so.
LATE = timedelta(seconds=30)
# What a person can do where there was nothing to fold, by the reason.
NEXT_STEPS = {
    "keep_last": "Older messages can be summarised once newer ones have come.",
    "nothing_to_fold": "There has to be more than one finished turn after the last summary.",
    "no_gain": "Ask again when the chat has grown.",
    "waits_for_approval": "Approve or reject that draft first.",
    "in_the_making": "It takes the place of this request.",
    "strategy": "Whoever looks after the policy can choose a strategy with summaries.",
    "no_model": "Ask an administrator to set one up.",
    "model_not_allowed": "Choose another model for this chat.",
    "policy_impossible": "Ask whoever looks after the policies.",
}
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
class Answer:
    """Where a request stands. `row` is the attempt it led to, `reason` the code of why not.

    `asked`: no worker has begun; `is_late`: for longer than it takes. `begun`: a summary is being
    written. `waits`: it is ready, for approval or for its mark. `done`: it took effect. `nothing`:
    there was nothing to fold. `failed`: the last attempt came to nothing, and what is sent did not
    change.
    """

    state: State
    reason: str = ""
    row: Compaction | None = None
    is_late: bool = False

    @property
    def sentence(self) -> str:
        """Why there was nothing to fold."""
        return SENTENCES.get(self.reason, self.reason)

    @property
    def next_step(self) -> str:
        """What can be done about that."""
        return NEXT_STEPS.get(self.reason, "")


def answer_on(branch: Branch, *, now: datetime) -> Answer | None:
    """The answer to the newest request on a branch; None without one, or after a later message."""
    if branch.asked_at is not None:
        return Answer("asked", is_late=now > branch.asked_at + LATE)
    events = AuditEvent.objects.filter(scope=f"chat:{branch.chat_id}", type__in=READ)
    rows = events.order_by("-seq")
    since: list[tuple[str, str, dict[str, Any]]] = []
    for type_, actor, data in rows.values_list("type", "actor", "data")[:NEWEST]:
        if type_ == "turn.started":
            return None
        if type_ == "compaction.asked" and data["branch"] == str(branch.pk):
            return answered(since, actor=actor, branch=branch)
        since.append((type_, actor, data))
    return None


def answered(
    since: Sequence[tuple[str, str, dict[str, Any]]], *, actor: str, branch: Branch
) -> Answer | None:
    """The answer in the events after a request, newest first."""
    for type_, by, data in since:
        if type_ in LATER_DEEDS:
            return None
        if type_ == "compaction.skipped" and by == actor:
            return Answer("nothing", reason=data["reason"])
        # A summary that was ready already meets a plain request, without a start of its own.
        if type_ == "compaction.published" or (type_ == "compaction.started" and by == actor):
            return ended(branch.compactions.filter(pk=data["compaction"]).first())
    return None


def ended(row: Compaction | None) -> Answer | None:
    """What an attempt says of its request; one that took effect and was withdrawn says nothing."""
    if row is None or row.status not in STATES:
        return None
    if row.status == Compaction.Status.OVERTAKEN and row.published_at:
        return None
    return Answer(STATES[row.status], reason=row.reason, row=row)
