"""Plausible mistakes in a team's rounds, to check that `round_kills` detects them."""

from typing import Any

from django.db import transaction

from chats.models import Turn
from chats.turns import attempt, lanes, rounds, writes
from tests.faults.naive import put


def go_on_later() -> None:
    """Decide who replies next in the transaction after the one that ends the reply."""

    def later(*given: Any, **named: Any) -> None:
        def tell() -> None:
            with transaction.atomic():
                told(*given, **named)

        transaction.on_commit(tell)

    told = put(rounds, "advance_round", later)


def forget_the_next() -> None:
    """End a reply without starting the next one."""
    put(rounds, "advance_round", lambda *_, **__: None)


def forget_what_was_seen() -> None:
    """Let a later attempt read messages written after the first attempt."""

    def anew(turn: Turn, **named: Any) -> Turn:
        turn.seen_to = None
        return opened(turn, **named)  # type: ignore[no-any-return]  # the function replaced here

    opened = put(writes, "start_step", anew)


def stand_anywhere() -> None:
    """Give a parallel reply the next free position."""

    async def at_once(_attempt: attempt.TurnAttempt) -> None:
        """Do not wait for other lanes."""

    attempt.TurnAttempt.wait_for_lane = at_once  # type: ignore[method-assign, assignment]  # on purpose


def look_anew() -> None:
    """Let each parallel reply see the messages that exist when it begins."""
    put(lanes, "find_lane_cutoff", lambda _turn: None)


WAYS = {
    "go-on-later": go_on_later,
    "look-anew": look_anew,
    "stand-anywhere": stand_anywhere,
    "forget-the-next": forget_the_next,
    "forget-what-was-seen": forget_what_was_seen,
}
