"""Strategy `dynamic_summary`: old turns are folded into a summary in the background."""

from contextpolicy.engine.window import HistoryView, WindowChoice, WindowMove, keep_all, next_move


class DynamicSummary:
    """Sends everything no summary covers; folding is planned elsewhere (`compaction.plan`).

    Nobody waits for a summary: if the prompt reaches its limit before one is published, the window
    moves now and the summary takes over what it left out.
    """

    name = "dynamic_summary"

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        """Keep all messages of the view, or ask for a move of the window, to be stored first."""
        keep = view.values.keep_last_messages
        return next_move(view, high=view.room.limit, keep_last=keep) or keep_all(view)
