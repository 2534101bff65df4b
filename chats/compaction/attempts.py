"""Attempts at summaries and the requests of users: their options, and the branch of each."""

import uuid
from dataclasses import dataclass

from django.db.models import F, QuerySet

from chats.models import Branch
from contextpolicy.engine.summaries.ladder import Rung


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """A user's request: summarise everything possible, or regenerate `compaction`.

    `model`: slug of another summariser, "" for the extractive one, None for the policy's. `after`:
    `Turn.accepted` of the branch's last turn at the time of the request.
    """

    by: str
    focus: str = ""
    model: str | None = None
    compaction: str = ""
    after: int = 0

    @property
    def is_plain(self) -> bool:
        """Return True if the request sets no model, focus or base: any new summary satisfies it."""
        return not self.focus and self.model is None and not self.compaction


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """One attempt at a summary.

    `number` counts from 1. `rung`: the method; None: chosen during planning. `lost`: facts that the
    previous attempt lost. `unknown`: the URLs that it invented. `source_limit`: the maximum local
    tokens of its sources; None: no further limit. `asked`: a user's request. `branch_id`: the
    branch of the first attempt, which the later ones keep; None: the active branch.
    """

    number: int = 1
    rung: Rung | None = None
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    source_limit: int | None = None
    asked: CompactionRequest | None = None
    branch_id: uuid.UUID | None = None


def find_active_branch(chat_id: uuid.UUID) -> Branch | None:
    """Return the chat's active branch with its active compaction loaded.

    None if the chat does not exist or is deleted.
    """
    return select_branches(chat_id).filter(chat__active_branch=F("pk")).first()


def find_attempt_branch(chat_id: uuid.UUID, attempt: AttemptSpec | None) -> Branch | None:
    """Return the branch of an attempt with its active compaction loaded.

    A user's request keeps its branch, also when the user has chosen another one. Without a
    request, None if the branch is not the active one. None if the chat does not exist or is
    deleted.
    """
    if attempt is None or attempt.branch_id is None:
        return find_active_branch(chat_id)
    branch = select_branches(chat_id).filter(pk=attempt.branch_id).first()
    if branch is None or branch.pk == branch.chat.active_branch_id:
        return branch
    return branch if get_attempt_request(branch, attempt) else None


def select_branches(chat_id: uuid.UUID) -> QuerySet[Branch]:
    """Return the branches of a chat that is not deleted, with the rows that a plan reads."""
    rows = Branch.objects.filter(chat=chat_id, chat__deleted_at=None)
    return rows.select_related("chat__owner", "chat__model", "active_compaction__base")


def get_pending_request(branch: Branch) -> CompactionRequest | None:
    """Return a user's request on this branch that no worker has begun, or None."""
    return CompactionRequest(**branch.asked) if branch.asked else None


def get_attempt_request(branch: Branch, attempt: AttemptSpec) -> CompactionRequest | None:
    """Return the request of an attempt. A first attempt serves the branch's pending request."""
    is_first = attempt.number == 1
    return attempt.asked or (get_pending_request(branch) if is_first else None)
