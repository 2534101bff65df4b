"""How the next prompt sends the messages of a compaction."""

from dataclasses import dataclass

from django.utils.translation import gettext, ngettext

from chats.compaction.coverage import is_range_on_path
from chats.models import Branch, Compaction
from chats.prompt.next_prompt import Outlook
from contextpolicy.wording import join_items


@dataclass(frozen=True, slots=True)
class SentNow:
    """Numbers of messages in a range, by how the next prompt sends them.

    `summary` counts the messages sent as the summary of messages `first` to `last`.
    """

    full: int
    cut: int
    summary: int
    none: int
    first: int = 0
    last: int = 0

    @property
    def words(self) -> str:
        """The counts as text, such as “6 messages sent in full, 1 sent cut, 2 not sent”."""
        ways = (
            (
                self.full,
                ngettext("{n:,} message sent in full", "{n:,} messages sent in full", self.full),
                gettext("{n:,} sent in full"),
            ),
            (
                self.cut,
                ngettext(
                    "{n:,} message sent in shortened form",
                    "{n:,} messages sent in shortened form",
                    self.cut,
                ),
                gettext("{n:,} sent in shortened form"),
            ),
            (
                self.summary,
                ngettext(
                    "{n:,} message sent as the summary of messages {first:,} to {last:,}",
                    "{n:,} messages sent as the summary of messages {first:,} to {last:,}",
                    self.summary,
                ),
                gettext("{n:,} sent as the summary of messages {first:,} to {last:,}"),
            ),
            (
                self.none,
                ngettext("{n:,} message not sent", "{n:,} messages not sent", self.none),
                gettext("{n:,} not sent"),
            ),
        )
        # Only the first count names the messages.
        found = [(count, words, more) for count, words, more in ways if count]
        return join_items(
            (more if place else words).format(n=count, first=self.first, last=self.last)
            for place, (count, words, more) in enumerate(found)
        )

    @property
    def is_mixed(self) -> bool:
        """True if the messages are sent in different ways."""
        return sum(1 for count in (self.full, self.cut, self.summary, self.none) if count) > 1


def count_sent_messages(
    row: Compaction, *, outlook: Outlook | None, branch: Branch
) -> SentNow | None:
    """Return the counts for a compaction's range.

    None if the range is not on this branch, or if the next prompt is unknown.
    """
    if outlook is None or not is_range_on_path(row, branch):
        return None
    found, summary = outlook.count(row.from_seq, row.to_seq), outlook.given.summary
    return SentNow(
        full=found["full"],
        cut=found["cut"],
        summary=found["summary"],
        none=found["none"],
        first=summary.from_seq if summary else 0,
        last=summary.to_seq if summary else 0,
    )
