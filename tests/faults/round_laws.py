"""Invariants of the turns of a team's rounds, whatever was killed."""

from itertools import combinations
from typing import Any

from chats.models import Branch, Chat, Receipt, Round, Turn
from chats.models.turns import UNFINISHED
from chats.record import history
from tests.faults.laws import Violation

# How often a finished reply checks for its position, and how long it waits for one without a
# worker.
PLACE_EVERY, UNBEGUN_SECONDS = 0.01, 0.4


def assert_one_waits(branch: Branch) -> None:
    """Check that a branch has at most one waiting turn, apart from lanes, and one running round."""
    turns = list(Turn.objects.filter(branch=branch, status__in=UNFINISHED))
    if sum(t.status == "queued" and not t.attempt and not t.lane for t in turns) > 1:
        raise Violation("two turns of a branch wait and neither has begun")
    running = Round.objects.filter(branch=branch, status="running")
    if running.count() > 1:
        raise Violation("two rounds run")
    if running and not any(turn.round_id == running[0].pk for turn in turns):
        raise Violation("a round runs without a turn")


def assert_lanes(made: Round) -> None:
    """Check that lanes get the same context, reply once each, and are in order.

    A lane may follow a later one only if that one waited for it while it had no worker.
    """
    lanes = list(Turn.objects.filter(round=made, lane__gt=0).order_by("lane"))
    seen = {lane.seen_to for lane in lanes if lane.seen_to is not None}
    if len(seen) > 1:
        raise Violation(f"lanes of a round do not see the same: up to {seen}")
    # If no lane had begun, the first turn moved to the round that replaced this one.
    first = 2 if made.status == Round.Status.REPLACED and lanes and lanes[0].lane == 2 else 1
    if [lane.lane for lane in lanes] != list(range(first, first + len(lanes))):
        raise Violation("two turns have one lane, or none has it")
    placed = [(lane, reply_of(lane)) for lane in lanes]
    if any(0 < place <= border for _, place in placed for border in seen):
        raise Violation("a lane was shown the reply of another one")
    for (lane, place), (other, behind) in combinations(placed, 2):
        if 0 < behind < place and not has_waited(other, lane):
            raise Violation("the lanes of a round do not stand in their order")


def assert_questions_seen(chat: Chat) -> None:
    """Check that each agent that began saw the message it replies to, on its own branch."""
    begun = Turn.objects.filter(branch__chat=chat, agent__isnull=False, seen_to__isnull=False)
    for turn in begun.filter(trigger__seq__isnull=False).select_related("branch", "trigger"):
        seen = history.select_path_messages(turn.branch, after=0, before=(turn.seen_to or 0) + 1)
        if turn.trigger not in seen:
            raise Violation("an agent was not shown the message that it replies to")


def reply_of(lane: Turn) -> int:
    """The position of a lane's reply, or 0."""
    places = [row.seq or 0 for row in lane.messages.filter(role="assistant")]
    if len(places) > 1:
        raise Violation("a lane replied twice")
    return sum(places)


def has_waited(later: Turn, earlier: Turn) -> bool:
    """Return True if a lane waited long enough for an earlier one that had no worker."""
    begun, end, beginning = later.first_token_at, later.finished_at, earlier.started_at
    if begun is None or end is None or beginning is None:
        return False
    waited = (end - begun).total_seconds() >= UNBEGUN_SECONDS
    return waited and (end - beginning).total_seconds() <= UNBEGUN_SECONDS


def assert_same_prompts(chat: Chat) -> None:
    """Check that each attempt at a reply sent the same prompt, byte for byte."""
    receipts = Receipt.objects.filter(turn__branch__chat=chat, turn__agent__isnull=False)
    prompts: dict[Any, set[str]] = {}
    for turn, step, digest in receipts.values_list("turn", "step", "prompt_sha256"):
        prompts.setdefault((turn, step), set()).add(digest)
    if any(len(found) > 1 for found in prompts.values()):
        raise Violation("a later attempt sent another prompt than the first one")
