"""Strategy `sliding_window`: what the fixed parts leave over, filled from the newest backwards."""

from contextpolicy.engine.window import Choice, HistoryView, WindowMove, keep_all, next_move


class SlidingWindow:
    """Lets history grow to the high mark and then moves the window's start to the low mark.

    With both marks equal it fills the room exactly at every turn.
    """

    name = "sliding_window"

    def choose(self, view: HistoryView) -> Choice | WindowMove:
        """All messages of the view, or the move that has to be stored first."""
        return next_move(view, high=view.room.high) or keep_all(view)
