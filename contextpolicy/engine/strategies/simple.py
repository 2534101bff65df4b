"""Strategy `simple`: the newest N messages, each cut to its character limit."""

from contextpolicy.engine.window import NO_CEILING, HistoryView, WindowChoice


class Simple:
    """Keeps the newest `window_size` messages.

    If they exceed the prompt limit, the oldest are dropped. Ceilings in turns and in tokens
    apply too. The strategy counts single messages, and its window moves by one message at a
    time. This is the simplest rule, but it invalidates the provider's prompt cache.
    """

    name = "simple"

    def choose(self, view: HistoryView) -> WindowChoice:
        """Decide by count first, then by tokens. The choice has no gaps."""
        count = len(view.entries)
        size, turns = view.values.window_size, view.values.window_turns
        by_count = 0 if size is None else max(0, count - size)
        by_turns = 0 if turns is None or turns >= len(view.cuts) else view.cuts[-turns]
        ceiling = view.room.ceiling
        by_tokens = 0 if ceiling == NO_CEILING else view.first_fitting(ceiling)
        window = max(by_count, by_turns, by_tokens)
        start = max(window, view.first_fitting(view.room.limit))
        return WindowChoice(
            tuple(range(start, count)),
            tuple((place, "window" if place < window else "budget") for place in range(start)),
        )
