"""The filter for messages that a prompt may quote outside their place in the history."""

from django.db.models import Q

from chats.models import Message

# The finish reasons of messages that can have tool results. A stopped or failed step has those of
# the calls that ended before.
WITH_RESULTS = (
    Message.Finish.TOOL_CALLS,
    Message.Finish.LIMIT,
    Message.Finish.STOPPED,
    Message.Finish.INCOMPLETE,
)


def build_sendable_filter(prefix: str = "") -> Q:
    """Return the filter for messages that excerpts and search results may quote.

    Leaves out withdrawn messages, and replies that an error interrupted unless the user kept them,
    because prompts leave these out as well. `prefix` is the path to the message.
    """
    wanted = Q(**{f"{prefix}excluded": False, f"{prefix}erased_at": None})
    interrupted = Q(**{f"{prefix}finish": Message.Finish.INCOMPLETE, f"{prefix}kept": False})
    return wanted & ~interrupted
