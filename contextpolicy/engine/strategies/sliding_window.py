"""Strategy `sliding_window`: sends the newest messages that fit into the rest of the prompt."""

from contextpolicy.engine.window import (
    HistoryView,
    WindowChoice,
    WindowMove,
    keep_all,
    plan_window_move,
)


class SlidingWindow:
    """Lets history grow to the high mark, then shortens it to the low mark.

    If both marks are equal, history fills the available room exactly at every turn.
    """

    name = "sliding_window"

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        """Keep all messages of the view, or request a window move, which must be stored first."""
        return plan_window_move(view, high=view.room.high) or keep_all(view)
