"""The messages of a compaction that the next message sends, counted and in words."""

from dataclasses import dataclass

from chats.compaction.coverage import is_visible
from chats.models import Branch, Compaction
from chats.prompt.outlook import Outlook
from chats.web.words import counted


@dataclass(frozen=True, slots=True)
class SentNow:
    """The counts of messages of a range, by the way in which the next message sends them.

    `summary` are those that a summary stands for, that of the messages `first` to `last`.
    """

    full: int
    cut: int
    summary: int
    none: int
    first: int = 0
    last: int = 0

    @property
    def words(self) -> str:
        """The counts in words: 6 messages sent in full, 1 sent cut, 2 not sent."""
        ways = (
            (self.full, "sent in full"),
            (self.cut, "sent cut"),
            (self.summary, f"sent as the summary of messages {self.first:,} to {self.last:,}"),
            (self.none, "not sent"),
        )
        found = [(count, way) for count, way in ways if count]
        return ", ".join(
            f"{count:,} {way}" if place else f"{counted(count, 'message')} {way}"
            for place, (count, way) in enumerate(found)
        )

    @property
    def is_mixed(self) -> bool:
        """True if not all of them are sent in one way."""
        return sum(1 for count in (self.full, self.cut, self.summary, self.none) if count) > 1


def sent_now(row: Compaction, *, outlook: Outlook | None, branch: Branch) -> SentNow | None:
    """Count what the next message sends of a compaction's range; None where it stands elsewhere."""
    if outlook is None or not is_visible(row, branch):
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
