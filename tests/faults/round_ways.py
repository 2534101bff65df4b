"""Rounds of a team broken in ways that seem natural, so that `round_kills` is seen to notice."""

from typing import Any

from django.db import transaction

from chats.models import Turn
from chats.turns import lanes, rounds, run, steps
from tests.faults.naive import put


def go_on_later() -> None:
    """Who follows is written in the transaction after the one that ends the reply."""

    def later(*given: Any, **named: Any) -> None:
        def tell() -> None:
            with transaction.atomic():
                told(*given, **named)

        transaction.on_commit(tell)

    told = put(rounds, "turn_ended", later)


def forget_the_next() -> None:
    """The end of a reply is the end."""
    put(rounds, "turn_ended", lambda *_, **__: None)


def forget_what_was_seen() -> None:
    """A later attempt takes up what was written since the first one."""

    def anew(turn: Turn, **named: Any) -> Turn:
        turn.seen_to = None
        return opened(turn, **named)  # type: ignore[no-any-return]  # the function replaced here

    opened = put(steps, "opened", anew)


def stand_anywhere() -> None:
    """A reply that is written beside others takes the next place."""

    async def at_once(_attempt: run.TurnAttempt) -> None:
        """Wait for nobody."""

    run.TurnAttempt.await_place = at_once  # type: ignore[method-assign, assignment]  # on purpose


def look_anew() -> None:
    """Each of the replies that are written beside each other sees what is there by then."""
    put(lanes, "seen_to", lambda _turn: None)


WAYS = {
    "go-on-later": go_on_later,
    "look-anew": look_anew,
    "stand-anywhere": stand_anywhere,
    "forget-the-next": forget_the_next,
    "forget-what-was-seen": forget_what_was_seen,
}
