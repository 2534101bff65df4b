"""Estimates how many chats a policy would change, from a random sample of the chats in use.

A chat counts as changed if its next prompt would differ or be refused, not merely because the
policy applies to it. Both prompts are composed with the worker's functions.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from chats.ground import databases
from chats.models import Chat
from chats.simulation.preview import Side, compose_both_sides, find_previewable_chat
from chats.simulation.proposals import PolicyProposal

logger = logging.getLogger(__name__)
# A chat is in use if it changed within this period.
IN_USE = timedelta(days=90)
SAMPLE = 200
# Time limit in seconds. Chats that are not compared by then are skipped, which widens the interval.
PATIENCE = 20.0
WORST = 10
# In a normal distribution, 95 % of values are within this many standard deviations.
CERTAINTY = 1.96


@dataclass(frozen=True, slots=True)
class EvaluatedChat:
    """One evaluated chat: its next prompt under the active and under the proposed policy."""

    chat: Chat
    now: Side
    proposed: Side

    @property
    def changes(self) -> bool:
        """Return True if the next prompt differs, or is refused for another reason."""
        return self.now.outcome != self.proposed.outcome

    @property
    def would_refuse(self) -> bool:
        """Return True if a chat that works now would be refused."""
        return bool(self.proposed.code) and not self.now.code

    @property
    def weight(self) -> tuple[bool, int]:
        """Return the sort key of the largest changes: refusals, then the difference in tokens."""
        return self.would_refuse, abs(self.proposed.tokens - self.now.tokens)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The result of a sample: counts, and the share of all chats in use with its interval.

    `low` and `high` bound the share that changes, with 95 % confidence. They are equal if the
    sample contains every chat in use. `worst`: the chats that change most.
    """

    in_use: int
    judged: int
    changed: int
    would_refuse: int
    low: float
    high: float
    worst: tuple[EvaluatedChat, ...] = ()


def sample_chats(
    *,
    proposal: PolicyProposal,
    now: datetime,
    size: int = SAMPLE,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    guard: AbstractContextManager[Any] | None = None,
) -> Sampled:
    """Compare up to `size` random chats in use within `patience` seconds; nothing is written.

    `guard` is entered for each chat. It holds the process lock for background work.
    """
    ids = select_chats_in_use(now=now, group_id=proposal.group_id)
    total = ids.count()
    until = clock() + patience
    found = compare_chats(
        ids.order_by("?")[:size],
        proposal=proposal,
        now=now,
        clock=clock,
        until=until,
        guard=guard or nullcontext(),
    )
    changed = sum(each.changes for each in found)
    low, high = calculate_confidence_interval(changed, of=len(found), among=total)
    worst = sorted((each for each in found if each.changes), key=lambda each: each.weight)
    return Sampled(
        in_use=total,
        judged=len(found),
        changed=changed,
        would_refuse=sum(each.would_refuse for each in found),
        low=low,
        high=high,
        worst=tuple(reversed(worst[-WORST:])),
    )


def select_chats_in_use(*, now: datetime, group_id: int | None = None) -> QuerySet[Chat, Any]:
    """Return the ids of chats without a team that were used in the last 90 days.

    `group_id`: only chats of the members of this group.
    """
    chats = Chat.objects.filter(
        deleted_at=None, team=None, active_branch__isnull=False, updated_at__gte=now - IN_USE
    )
    if group_id is not None:
        chats = chats.filter(owner__groups=group_id)
    return chats.values_list("pk", flat=True)


def compare_chats(
    ids: Iterable[Any],
    *,
    proposal: PolicyProposal,
    now: datetime,
    clock: Callable[[], float],
    until: float,
    guard: AbstractContextManager[Any],
) -> list[EvaluatedChat]:
    """Compare chats one after the other until the time limit.

    Skips deleted chats, and those that cannot be compared because of an error.
    """
    found = []
    for pk in list(ids):
        if clock() > until:
            break
        try:
            with guard:
                judged = compare_chat(pk, proposal=proposal, now=now)
        except Exception as error:  # noqa: BLE001 - one chat must not prevent the sample
            log_failed_comparison(pk, error)
            continue
        if judged is not None:
            found.append(judged)
    return found


def log_failed_comparison(pk: Any, error: Exception) -> None:
    """Log that a chat could not be compared. Raises a database error that a retry may solve."""
    if databases.is_retryable_error(error):
        raise error
    # Never log its text, because a database includes the row's values.
    logger.error("chat %s was not judged: %s", pk, type(error).__name__)


def compare_chat(pk: Any, *, proposal: PolicyProposal, now: datetime) -> EvaluatedChat | None:
    """Compose the next prompt of a chat under both policies, and discard its text.

    None if a preview does not support the chat, for example because it was deleted.
    """
    chat = find_previewable_chat(pk)
    if chat is None:
        return None
    sides = compose_both_sides(chat, proposal=proposal, now=now)
    return EvaluatedChat(chat, *(replace(side, outlook=None) for side in sides))


def calculate_confidence_interval(changed: int, *, of: int, among: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, for a sample without replacement.

    Wilson's interval (E. B. Wilson, 1927) with a finite population correction.
    """
    if of == 0:
        return 0.0, 1.0 if among else 0.0
    share = changed / of
    if of >= among:
        return share, share
    left = (among - of) / (among - 1)
    spread = CERTAINTY**2 * left / of
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
