"""Strategy `dynamic_summary`: old turns are compacted into a summary in the background."""

from contextpolicy.engine.window import (
    HistoryView,
    WindowChoice,
    WindowMove,
    keep_all,
    plan_window_move,
)


class DynamicSummary:
    """Sends every message that no summary covers.

    `compaction.plan_compaction` plans the summaries. A reply never waits for a summary. If the
    prompt reaches its limit before a summary is published, the window moves immediately, and the
    summary later covers the omitted messages.
    """

    name = "dynamic_summary"

    def choose(self, view: HistoryView) -> WindowChoice | WindowMove:
        """Keep all messages of the view, or request a window move, which must be stored first."""
        keep = view.values.keep_last_messages
        return plan_window_move(view, high=view.room.limit, keep_last=keep) or keep_all(view)
