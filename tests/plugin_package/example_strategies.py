"""Two example strategies: one selects messages, the other composes a payload."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from contextpolicy.engine.messages import Message, ToolSpec
from contextpolicy.engine.strategies.contract import Payload
from contextpolicy.engine.window import HistoryView, WindowChoice


class QuestionsOnly:
    """Sends the user's newest messages and no replies."""

    name = "questions_only"
    config_schema: ClassVar[Mapping[str, object]] = {
        "type": "object",
        "title": "Questions only",
        "properties": {
            "count": {
                "type": "integer",
                "title": "Questions",
                "minimum": 1,
                "maximum": 50,
                "default": 3,
            }
        },
        "additionalProperties": False,
    }

    def choose(self, view: HistoryView) -> WindowChoice:
        """Select the newest user messages that fit."""
        wanted = view.values.strategy_config.get("count", 3)
        most = wanted if isinstance(wanted, int) else 3
        room = view.room.limit - sum(tokens for _, tokens in view.pinned)
        kept: list[int] = []
        for place in range(len(view.entries) - 1, -1, -1):
            room -= view.entries[place].cost if view.messages[place].role == "user" else 0
            if room < 0 or len(kept) == most:
                break
            if view.messages[place].role == "user":
                kept.insert(0, place)
        others = [place for place in range(len(view.entries)) if place not in kept]
        return WindowChoice(tuple(kept), tuple((place, "no_question") for place in others))


class NewestPair:
    """Sends the newest two messages as a payload, and counts completed turns."""

    name = "newest_pair"

    def __init__(self) -> None:
        self.turns = 0

    def compose(
        self,
        system_prompt: str,
        history: Sequence[Message],
        tools: Sequence[ToolSpec],
        retrieved: str = "",
        *,
        room: int,
        config: Mapping[str, object],
    ) -> Payload:
        """Compose the unchanged system text and tools, and the newest two messages that fit."""
        kept: list[Message] = []
        for message in reversed(history[-2:]):
            room -= message.tokens
            if room < 0:
                break
            kept.insert(0, message)
        return Payload(system_prompt, tuple(tools), tuple(kept))

    def on_turn_complete(self, new_history: Sequence[Message]) -> None:
        """Called in the background after each turn."""
        self.turns += 1
