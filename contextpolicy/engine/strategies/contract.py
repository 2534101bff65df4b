"""The strategy contract, the built-in strategies, and the validation of their decisions."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from contextpolicy.engine.messages.messages import Message, ToolSpec
from contextpolicy.engine.messages.segments import format_tools_json
from contextpolicy.engine.strategies.dynamic_summary import DynamicSummary
from contextpolicy.engine.strategies.entity_state import EntityState
from contextpolicy.engine.strategies.simple import Simple
from contextpolicy.engine.strategies.sliding_window import SlidingWindow
from contextpolicy.engine.window import HistoryView, WindowChoice, WindowMove, is_valid_choice


class Strategy(Protocol):
    """Selects the history that is sent.

    The choice is validated, and `sliding_window` replaces an invalid choice. A `WindowMove`
    asks the caller to store a `window` row and to compose again. A strategy is pure: the
    same view gives the same choice. Its config is `view.values.strategy_config`.
    """

    @property
    def name(self) -> str:
        """The name by which policies select the strategy."""

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        """Decide which of `view.entries` are sent."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload of a composing strategy: history, and the system text and tools unchanged.

    `history` is a subset of the given messages, in order.
    """

    system_prompt: str
    tools: tuple[ToolSpec, ...]
    history: tuple[Message, ...]


@runtime_checkable
class ComposingStrategy(Protocol):
    """The alternative form of a strategy: it builds a payload instead of choosing indexes.

    The optional method `on_turn_complete` is called in the background after each turn.
    """

    @property
    def name(self) -> str:
        """The name by which policies select the strategy."""

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
        """Return the payload, whose history fits `room` tokens."""


class PayloadRefused(Exception):
    """A composing strategy changed the system text or tools, or returned unknown messages."""

    code = "payload_refused"


class Composing:
    """Adapts a composing strategy to the interface of a strategy that chooses indexes."""

    def __init__(self, inner: ComposingStrategy) -> None:
        self.name = inner.name
        self.inner = inner

    def choose(self, view: HistoryView) -> WindowChoice:
        """Return the indexes of the payload's messages. Raises PayloadRefused."""
        payload = self.inner.compose(
            view.system_prompt,
            tuple(view.messages),
            view.tools,
            view.retrieved,
            room=view.room.limit,
            config=view.values.strategy_config,
        )
        if payload.system_prompt != view.system_prompt or payload.tools != view.tools:
            raise PayloadRefused(
                f"The strategy {self.name} changed the system text or the tools. It must "
                "return them unchanged."
            )
        places = {message.id: place for place, message in enumerate(view.messages)}
        kept = tuple(places.get(message.id, -1) for message in payload.history)
        if -1 in kept:
            raise PayloadRefused(f"The strategy {self.name} sends a message that it was not given.")
        left = tuple((place, "strategy") for place in places.values() if place not in set(kept))
        return WindowChoice(kept, left)


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (Simple(), SlidingWindow(), DynamicSummary(), EntityState())
}


def choose_history_window(
    strategy: Strategy | None, view: HistoryView
) -> tuple[WindowChoice | WindowMove, str]:
    """Return a valid decision, and the reason if it is not the decision of `strategy`, else "".

    `sliding_window` replaces a strategy that is not installed (`missing`), raised an exception
    (`failed:NAME`), changed the tool definitions (`changed_tools`), or returned an invalid choice
    (`unsound`). A strategy gets a copy of the tools, so it cannot change the prompt.
    """
    fallback = STRATEGIES["sliding_window"]
    if strategy is None:
        return fallback.choose(view), "missing"
    # Tool definitions contain objects that a strategy could change in place.
    shown = replace(view, tools=deepcopy(view.tools)) if view.tools else view
    try:
        choice = strategy.choose(shown)
        sound = is_valid_choice(choice, view)
    except Exception as error:  # noqa: BLE001 - a strategy of a package may fail in any way
        return fallback.choose(view), f"failed:{type(error).__name__}"
    if format_tools_json(shown.tools) != format_tools_json(view.tools):
        return fallback.choose(view), "changed_tools"
    return (choice, "") if sound else (fallback.choose(view), "unsound")


def has_turn_hook(strategy: object) -> bool:
    """Return True if a strategy has the optional method `on_turn_complete`."""
    return _turn_hook(strategy) is not None


def call_turn_hook(strategy: object, *, history: Sequence[Message]) -> str:
    """Call a strategy's method `on_turn_complete`, if it has one. Never raises.

    Returns the name of the exception class if the method failed, else "".
    """
    hook = _turn_hook(strategy)
    if hook is None:
        return ""
    try:
        hook(history)
    except Exception as error:  # noqa: BLE001 - a strategy of a package may fail in any way
        return type(error).__name__
    return ""


def _turn_hook(strategy: object) -> Any:
    owner = strategy.inner if isinstance(strategy, Composing) else strategy
    return getattr(owner, "on_turn_complete", None)
