"""Rounds of a team broken in ways that seem natural, so that `round_kills` is seen to notice."""

from typing import Any

from django.db import transaction

from chats.models import Turn
from chats.turns import rounds, steps
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


WAYS = {
    "go-on-later": go_on_later,
    "forget-the-next": forget_the_next,
    "forget-what-was-seen": forget_what_was_seen,
}
