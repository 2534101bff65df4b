"""A gateway client whose requests are killed, and the checks after each request.

Every request has an `Idempotency-Key`. After a kill, the repeated request gets a complete reply,
and the user's message is stored once. Django must be set up first; `crashes` does that.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from chats.gateway.chat_completions import views
from chats.ground import rates
from chats.models import Message, Turn
from chats.people import keys
from chats.providers.base import Finished, TextDelta
from chats.record import history
from chats.streams import connection
from chats.turns.stop import TurnIsOver, stop_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.faults import town
from tests.faults.laws import Violation
from tests.faults.naive import put
from tests.support.gateway_clients import GatewayClient, SilentBus, assistant, user

MOST_TURNS = 25
TRIES = 4


def prepare() -> None:
    """Set up: no vocabulary for token counts, no event bus, no rate limit."""
    put(views, "O200kCounter", ApproximateCounter)
    settings.ALLOWED_HOSTS = ["testserver"]
    connection.STREAMS.hub = SilentBus  # type: ignore[method-assign, assignment]  # no bus here
    rates.GATEWAY.take = lambda *_given, **_named: None  # type: ignore[assignment, method-assign]  # no limit


class ProgramPlace:
    """A client's conversation, which grows by one request at a time."""

    def __init__(self, owner: User, number: int) -> None:
        self.owner, self.name = owner, f"program {number}"
        self.begin()

    def begin(self) -> None:
        """Begin a conversation with a new key."""
        _, secret = keys.create_key(
            owner=self.owner, name=self.name, scopes=("gateway",), now=timezone.now()
        )
        self.program = GatewayClient(secret, [])
        self.messages: list[dict[str, Any]] = []
        self.number = 0

    def next_request(self, dice: random.Random) -> dict[str, Any]:
        """The body of the next request: the conversation and a new question."""
        if self.number >= MOST_TURNS:
            self.begin()
        self.number += 1
        question = f"{self.name}, question {self.number}: {dice.randrange(10**9)}?"
        return {
            "model": town.PLAIN,
            "messages": [*self.messages, user(question)],
            "stream": dice.random() < 0.5,
        }

    @property
    def key(self) -> str:
        """The idempotency key of the current request."""
        return f"{self.name}-{self.number}"

    def ask(self, body: dict[str, Any], *, leaves: bool = False) -> Any:
        """Send the request, let a worker reply to it, and read the response.

        With `leaves` the client closes its connection during the reply.
        """
        response = self.program.open(body, **{"Idempotency-Key": self.key})
        if response.streaming:
            turn = Turn.objects.get(pk=response["X-Context-Report-Id"])
            if leaves:
                self.leave(turn)
            elif not turn.is_over:
                self.program.work(
                    str(turn.pk), TextDelta("Half, "), TextDelta("and whole."), Finished("stop")
                )
        return self.program.close(response)

    def leave(self, turn: Turn) -> None:
        """Run the gateway's handler for a closed connection."""
        try:
            stop_turn(user=self.owner, turn=turn, now=timezone.now())
        except TurnIsOver:
            return

    def action(self, body: dict[str, Any], *, leaves: bool) -> Callable[[], Any]:
        """The request as an operation that can be killed."""
        return lambda: self.ask(body, leaves=leaves)

    def settle(self, body: dict[str, Any], seen: Counter[tuple[str, str]]) -> None:
        """Repeat the request until its reply is complete, and check the stored messages."""
        for number in range(TRIES):
            for turn in Turn.objects.filter(branch__chat__owner=self.owner, status="running"):
                town.declare_dead(turn.branch.chat)
            answer = self.ask(body)
            if answer.status == 200 and answer.text == "Half, and whole.":
                break
            seen["request", "repeated"] += number > 0
        else:
            raise Violation(f"the key {self.key} is burnt: {answer.status} {answer.body[-200:]}")
        turn = answer.turn
        if turn.status != Turn.Status.COMPLETED:
            raise Violation(f"a whole reply of a turn that is {turn.status}")
        self.assert_stored(turn, body)
        self.messages = [*body["messages"], assistant(answer.text)]

    def assert_stored(self, turn: Turn, body: dict[str, Any]) -> None:
        """Check that the reply's branch has each message of the conversation once."""
        branch = turn.branch
        path = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by(
            "seq"
        )
        said = [message.text for message in path if message.role == "user"]
        sent = [message["content"] for message in body["messages"] if message["role"] == "user"]
        if said != sent:
            raise Violation(f"lost or doubled: {len(sent)} were sent, {len(said)} are stored")
        doubled = Message.objects.filter(branch__chat=branch.chat_id, role="user").count()
        if doubled != len(sent):
            raise Violation(f"{doubled} messages for {len(sent)} that were sent")
