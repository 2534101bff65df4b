"""A history provider: prompts contain only messages of the newest message's day."""

from itertools import takewhile

from contextpolicy.engine.messages import Message
from contextpolicy.history_providers import HistoryQuery


class SameDay:
    """Return the messages that were written on the same day (UTC) as the newest one."""

    name = "same_day"

    def get_history(self, query: HistoryQuery) -> list[Message]:
        """Return messages of one day, oldest first."""
        messages = query.newest()
        newest = next(messages, None)
        if newest is None:
            return []
        day = newest.created_at[:10]
        same = takewhile(lambda message: message.created_at[:10] == day, messages)
        return [newest, *same][::-1]
