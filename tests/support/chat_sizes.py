"""Chats of several sizes, whose pages need the same number of queries."""

from collections.abc import Callable
from datetime import datetime

from chats.models import Chat, Compaction, Message
from tests.support.chat_messages import add_messages

MOST_QUERIES = 17


def leave_chat_short(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Two turns and nothing else."""


def make_chat_long(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Six hundred messages."""
    add_messages(chat, count=600, now=now)


def summarise_long_chat(
    chat: Chat, summary: Callable[..., Compaction], now: datetime
) -> Compaction:
    """Create an active summary that covers most of them."""
    make_chat_long(chat, summary, now)
    return summary(500)


def add_window(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """A window on top of the summary."""
    base = summarise_long_chat(chat, summary, now)
    summary(550, kind="window", text="", reason="tokens", base=base, from_seq=501)


def pin_messages(chat: Chat, summary: Callable[..., Compaction], now: datetime) -> None:
    """Pinned messages under the summary, behind the window and in the history."""
    add_window(chat, summary, now)
    Message.objects.filter(seq__in=[10, 520, 590]).update(pinned_at=now)


# A name of each state, and the function that leads to it.
CHAT_SIZES = {
    "short": leave_chat_short,
    "long": make_chat_long,
    "summed_up": summarise_long_chat,
    "left_out": add_window,
    "pinned": pin_messages,
}
