"""Strategy `sliding_window`: fills the room beside the fixed parts, from the newest backwards."""

from contextpolicy.engine.window import HistoryView, WindowChoice, WindowMove, keep_all, next_move


class SlidingWindow:
    """Lets history grow to the high mark and then moves the window's start to the low mark.

    With both marks equal it fills the room exactly at every turn.
    """

    name = "sliding_window"

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        """Keep all messages of the view, or ask for a move of the window, to be stored first."""
        return next_move(view, high=view.room.high) or keep_all(view)
