"""Strategy `simple`: the newest N messages, each cut to its limit of characters."""

from contextpolicy.engine.window import Choice, HistoryView


class Simple:
    """Keeps the newest `window_size` messages; if those exceed the prompt limit, the oldest go too.

    Counts single messages, not turns, and moves by one: the plainest rule there is, at the price of
    the provider's prompt cache.
    """

    name = "simple"

    def choose(self, view: HistoryView) -> Choice:
        """Decide by count first, by tokens second; older messages never come back in a gap."""
        count = len(view.entries)
        size = view.values.window_size
        by_count = 0 if size is None else max(0, count - size)
        start = max(by_count, view.first_fitting(view.room.limit))
        return Choice(
            tuple(range(start, count)),
            tuple((place, "window" if place < by_count else "budget") for place in range(start)),
        )
