"""The plan of a compaction, or the reason not to compact."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.messages.messages import Message, Summary

Trigger = Literal["prepare", "turns", "manual", "overflow"]
Refusal = Literal[
    "strategy", "below_threshold", "nothing_to_fold", "keep_last", "no_gain", "too_early"
]


class CoverageGap(Exception):
    """The loaded messages do not directly follow the summary; a new summary would lose some."""

    code = "coverage_gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A plan for a new summary that replaces the previous one and `sources`, ascending.

    It will cover `from_seq`..`to_seq` except `exceptions`: pinned, excluded, incomplete and empty
    messages, which are not sources. Tokens are the local tokens of the prompt; `tokens_after`
    assumes a summary of maximum size. `adjusted` lists the rules that were relaxed:
    `keep_last_messages`, `turn_split`, `source_limit`.
    """

    from_seq: int
    to_seq: int
    sources: tuple[Message, ...]
    exceptions: tuple[int, ...]
    previous: Summary | None
    trigger: Trigger
    tokens_before: int
    tokens_after: int
    adjusted: tuple[str, ...] = ()

    @property
    def source_ids(self) -> tuple[str, ...]:
        return tuple(message.id for message in self.sources)

    @property
    def sources_digest(self) -> str:
        """SHA-256, in hex, of the previous summary's id and the source ids, one per line."""
        lines = [self.previous.id if self.previous else "", *self.source_ids]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def summary(self, *, id: str, text: str, tokens: int) -> Summary:  # noqa: A002 - the field's name
        """Build the summary from its `text`, with the coverage of this plan."""
        return Summary(id, text, self.from_seq, self.to_seq, self.exceptions, tokens)


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """The reason not to compact now.

    `tokens` is the prompt size, `mark` the mark that applies (0: none).

    `strategy`: the policy has no summaries. `below_threshold`: no mark was reached. `keep_last`:
    all messages are among the newest ones, which the policy keeps. `nothing_to_fold`: fewer than
    two turns, or no message is a source. `no_gain`: a compaction would free too little.
    `too_early`: a compaction now would not reduce the prompt to the low mark, but one after another
    turn may.
    """

    reason: Refusal
    tokens: int = 0
    mark: int = 0
