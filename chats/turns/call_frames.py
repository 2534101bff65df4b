"""Live frames about the tool calls of a step, for front ends that show calls while they run.

Only turns whose tools run here publish them: an API client with its own tools gets its calls from
the gateway.
"""

import json
from collections.abc import Mapping

from chats.providers.collector import PartialToolCall
from chats.turns.attempt_state import AttemptState
from contextpolicy.engine.messages.messages import ToolCallPart

# Longer results are not copied to the live bus. Viewers read them from the database.
LONGEST_LIVE_RESULT = 16_384


class CallPublisher:
    """Publishes the tool calls of a reply while the model writes them."""

    def __init__(self, attempt: AttemptState) -> None:
        self.attempt = attempt
        # The places of calls that have begun.
        self.begun: set[int] = set()

    def say(self, place: int, call: PartialToolCall, piece: str) -> None:
        """Publish a piece of a call. A call begins once its name is known."""
        if self.attempt.turn.client is not None:
            return
        if place not in self.begun:
            if not call.name.length:
                return
            self.begun.add(place)
            piece = str(call.arguments)
            publish_call(self.attempt, place, call_id=call.call_id, name=str(call.name))
        if piece:
            offset = call.arguments.length - len(piece)
            self.attempt.publish("arguments", piece, offset, place=place)


def publish_call(attempt: AttemptState, place: int, *, call_id: str, name: str) -> None:
    """Publish the beginning of a call."""
    attempt.publish("call", json.dumps([call_id, name]), place=place)


def publish_stored_calls(attempt: AttemptState, calls: Mapping[int, ToolCallPart]) -> None:
    """Publish the calls of a stored reply, whose model is not called again."""
    for place, call in calls.items():
        publish_call(attempt, place, call_id=call.call_id, name=call.name)
        if call.arguments:
            attempt.publish("arguments", call.arguments, place=place)


def publish_running_calls(attempt: AttemptState, calls: Mapping[int, ToolCallPart]) -> None:
    """Publish that all calls of a reply are complete, and that none waits for consent."""
    lengths = {place: len(call.arguments) for place, call in calls.items()}
    attempt.publish("calls", json.dumps(list(lengths.items())))


def publish_result(attempt: AttemptState, place: int, content: str) -> None:
    """Publish that a call has ended, with its result unless that is long."""
    text = content if len(content) <= LONGEST_LIVE_RESULT else ""
    attempt.publish("result", text, len(content), place=place)
