"""What a strategy is, and the strategies that ship."""

from collections.abc import Mapping
from typing import Protocol

from contextpolicy.engine.strategies.dynamic_summary import DynamicSummary
from contextpolicy.engine.strategies.simple import Simple
from contextpolicy.engine.strategies.sliding_window import SlidingWindow
from contextpolicy.engine.window import Choice, HistoryView, WindowMove


class Strategy(Protocol):
    """Chooses what history stays.

    It sees history and room only, so it can neither change the system text and the tools nor exceed
    the limit unnoticed: its choice is checked, and one that does not fit falls back to
    `sliding_window`. A `WindowMove` asks the caller to store a `window` row and to compose again.
    Pure: the same view gives the same choice.
    """

    @property
    def name(self) -> str:
        """The name a policy uses."""

    def choose(self, view: HistoryView) -> Choice | WindowMove:
        """Decide what of `view.entries` is sent."""


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy for strategy in (Simple(), SlidingWindow(), DynamicSummary())
}
