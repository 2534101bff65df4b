"""Lanes: replies of an independent team that are written in parallel.

All lanes of a round see the chat up to the same message. A lane stores its reply only after all
earlier lanes have ended, so replies stay in the order in which the agents were named.
"""

from django.db.models import QuerySet

from chats.models import Round, Turn
from chats.models.turns import UNFINISHED


def select_unfinished_lanes(made: Round) -> QuerySet[Turn]:
    return Turn.objects.filter(round=made, lane__gt=0, status__in=UNFINISHED)


def list_unstarted_lanes(made: Round) -> list[Turn]:
    """Return the lanes of a round in order, or an empty list if any of them has started."""
    lanes = list(Turn.objects.filter(round=made, lane__gt=0).order_by("lane"))
    has_begun = any(lane.status != Turn.Status.QUEUED or lane.attempt for lane in lanes)
    return [] if has_begun else lanes


def lock_unstarted_lanes(made: Round, *, but: Turn | None) -> list[Turn]:
    """Lock and return the lanes of a round that have not started. The lane `but` is left out."""
    queued = select_unfinished_lanes(made).filter(status=Turn.Status.QUEUED, attempt=0)
    queued = queued.exclude(pk=but.pk) if but is not None else queued
    return list(queued.select_for_update(no_key=True).order_by("lane"))


def find_lane_cutoff(turn: Turn) -> int | None:
    """Return the seq of the last message that the lanes may see.

    None before the first lane starts.
    """
    begun = Turn.objects.filter(round=turn.round_id, lane__gt=0, seen_to__isnull=False)
    return begun.values_list("seen_to", flat=True).first()


def list_earlier_lane_statuses(turn: Turn) -> list[str]:
    if not turn.lane:
        return []
    lanes = Turn.objects.filter(
        round=turn.round_id, lane__gt=0, lane__lt=turn.lane, status__in=UNFINISHED
    )
    return list(lanes.values_list("status", flat=True))


def has_failed(turn: Turn) -> bool:
    """Return True if any lane of the turn's round failed. False for a turn without a lane."""
    failed = Turn.objects.filter(round=turn.round_id, lane__gt=0, status=Turn.Status.FAILED)
    return bool(turn.lane) and failed.exists()


def has_replied(turn: Turn) -> bool:
    """Return True if any lane of the turn's round completed. False for a turn without a lane."""
    done = Turn.objects.filter(round=turn.round_id, lane__gt=0, status=Turn.Status.COMPLETED)
    return bool(turn.lane) and done.exists()
