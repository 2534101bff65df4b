"""Plans what a summary folds, and judges the summary that came back.

A summary covers from the first message to `to_seq` except the messages it never saw. The next one
folds the previous summary and the messages after it, so nothing lies between two summaries: the
range always begins where the last one ended, and a gap in what was loaded is an error, not an
assumption.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from contextpolicy.engine.budget import compact_mark, low_mark, prepare_mark
from contextpolicy.engine.ceilings import History, is_low_enough, is_near_ceiling
from contextpolicy.engine.entries import entry
from contextpolicy.engine.groups import has_content, legal_cuts, settled_turns
from contextpolicy.engine.messages import Message, Summary
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.window import adaptive_low

Trigger = Literal["prepare", "turns", "manual", "overflow"]
Refusal = Literal[
    "strategy", "below_threshold", "nothing_to_fold", "keep_last", "no_gain", "too_early"
]

# Fewer tokens cannot become shorter: the five headings of a summary take half of them.
SMALLEST_SOURCE = 40
# A compaction by the token marks has to free this share of the prompt limit, or it would soon be
# due again.
SMALLEST_GAIN = 0.05


class CoverageGap(Exception):
    """The loaded messages do not follow the summary without a gap: folding them would lose some."""

    code = "coverage_gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A plan for a new summary: it folds the previous one and `sources`, ascending.

    It will cover `from_seq`..`to_seq` except `exceptions`: pinned, excluded, incomplete and empty
    messages, which were no source. Tokens are those of the prompt, in our count; `tokens_after`
    takes the summary at its largest. `adjusted` names what gave way: `keep_last_messages`,
    `turn_split`, `source_limit`.
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
        """The ids of the messages that are folded, in their order."""
        return tuple(message.id for message in self.sources)

    @property
    def sources_digest(self) -> str:
        """SHA-256, in hex, over the previous summary's id and the source ids, one a line."""
        lines = [self.previous.id if self.previous else "", *self.source_ids]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def summary(self, *, id: str, text: str, tokens: int) -> Summary:  # noqa: A002 - the field's name
        """Make the summary from its `text`, with the coverage of this plan."""
        return Summary(id, text, self.from_seq, self.to_seq, self.exceptions, tokens)


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """A reason to fold nothing now; `tokens` is the prompt, `mark` the mark that counts (0: none).

    `strategy`: the policy has no summaries. `below_threshold`: no mark was reached. `keep_last`:
    all messages are among the last that stay. `nothing_to_fold`: less than two turns, or only
    messages that are no source. `no_gain`: folding would free too little. `too_early`: it would not
    bring the prompt to the low mark when it is swapped in; after another turn it may.
    """

    reason: Refusal
    tokens: int = 0
    mark: int = 0


def plan(
    messages: Sequence[Message],
    *,
    previous: Summary | None,
    values: PolicyValues,
    prompt_limit: int,
    fixed_tokens: int,
    trigger: Trigger | Literal["auto"] = "auto",
    source_limit: int | None = None,
    counter: TokenCounter | None = None,
    came_late: bool = False,
) -> CompactionPlan | NotNeeded:
    """Decide whether and what to fold.

    `messages`: all finished turns after `previous`, ascending without a gap, window or not,
    preceded by those of its exceptions that may be folded now. `prompt_limit` and `fixed_tokens`
    (system, tools, pins, tail) are in our count. `auto` tests the turn threshold, then the prepare
    mark. `source_limit`: the most tokens the summariser can read; messages that do not fit wait for
    the next plan. With a `counter`, messages that the policy cuts are counted as sent. `came_late`:
    a window had to move before one of the last summaries was ready, so this one waits less. Raises
    CoverageGap.
    """
    if values.strategy != "dynamic_summary":
        return NotNeeded("strategy")
    # A turn that waits for a tool is not over; it is paid and stays.
    settled, waiting = settled_turns(messages)
    fixed_tokens += sum(message.tokens for message in waiting)
    if not settled:
        return NotNeeded("nothing_to_fold", fixed_tokens + (previous.tokens if previous else 0))
    sums = _Sums(settled, previous, values, prompt_limit, fixed_tokens, counter)
    due = sums.due(trigger)
    if isinstance(due, NotNeeded):
        return due
    end, adjusted = sums.end(due)
    if due == "prepare" and sums.frees_too_little(end):
        return NotNeeded("no_gain", sums.before)
    if due == "prepare" and sums.is_too_early(end, came_late=came_late):
        return NotNeeded("too_early", sums.before, compact_mark(values, prompt_limit=prompt_limit))
    if end and source_limit is not None:
        end, adjusted = sums.within(source_limit, end, adjusted)
    return sums.planned(due, end, adjusted)


def plan_again(messages: Sequence[Message], *, tokens_before: int) -> CompactionPlan | NotNeeded:
    """Plan a summary of the originals that another one stands for, without that one.

    `messages`: all of its range, ascending without a gap; messages that are excluded or pinned by
    now are left out. `tokens_before`: the prompt before the range was folded. Raises CoverageGap.
    """
    sources = tuple(message for message in messages if _is_foldable(message))
    freed = sum(message.tokens for message in sources)
    if freed < SMALLEST_SOURCE:
        return NotNeeded("no_gain" if sources else "nothing_to_fold", tokens_before)
    _check_coverage(messages, messages[0].seq - 1)
    seqs = {message.seq for message in sources}
    return CompactionPlan(
        from_seq=messages[0].seq,
        to_seq=messages[-1].seq,
        sources=sources,
        exceptions=tuple(message.seq for message in messages if message.seq not in seqs),
        previous=None,
        trigger="manual",
        tokens_before=tokens_before,
        tokens_after=max(tokens_before - freed, 0),
    )


class _Sums:
    """The arithmetic of one plan; indexes are into the messages."""

    def __init__(
        self,
        messages: Sequence[Message],
        previous: Summary | None,
        values: PolicyValues,
        prompt_limit: int,
        fixed_tokens: int,
        counter: TokenCounter | None,
    ) -> None:
        self.messages = messages
        self.previous = previous
        self.values = values
        self.limit = prompt_limit
        self.foldable = [_is_foldable(message) for message in messages]
        self.tokens = [_tokens(message, values, counter) for message in messages]
        self.cuts = legal_cuts(messages)
        # Before each index: the tokens and the number of messages that could be folded.
        pairs = list(zip(self.tokens, self.foldable, strict=True))
        self.folding = [0, *accumulate(n if can else 0 for n, can in pairs)]
        self.counted = [0, *accumulate(self.foldable)]
        self.every = [0, *accumulate(self.tokens)]
        self.prior = previous.tokens if previous else 0
        self.before = fixed_tokens + self.prior + sum(self.tokens)

    def due(self, trigger: Trigger | Literal["auto"]) -> Trigger | NotNeeded:
        """Return the trigger that holds; `manual` and `overflow` always do."""
        if trigger in ("manual", "overflow"):
            return trigger
        threshold = self.values.turn_threshold
        if trigger != "prepare" and threshold is not None and len(self.cuts) > threshold:
            return "turns"
        mark = prepare_mark(self.values, prompt_limit=self.limit)
        if trigger != "turns" and (self.before >= mark or self._is_crowded()):
            return "prepare"
        return NotNeeded("below_threshold", self.before, mark)

    def end(self, due: Trigger) -> tuple[int, tuple[str, ...]]:
        """Return the index before which messages are folded, 0 for none, and what gives way."""
        if due == "turns":
            return self._place(self._turns_to_fold()), ()
        kept = self._before_kept()
        if due == "manual":
            return kept, ()
        if due == "overflow" and self.before <= low_mark(self.values, prompt_limit=self.limit):
            # The provider counts more than we do: no mark of ours says how much has to go.
            return kept or self.cuts[-1], () if kept else ("keep_last_messages",)
        low = self._low() - (self._growth() if due == "prepare" else 0)
        wanted = self._down_to(low, self.cuts[1:])
        if wanted:
            return wanted, ("keep_last_messages",) if wanted > kept else ()
        steps = [i for i, message in enumerate(self.messages) if i and message.role == "assistant"]
        return self._down_to(low, steps), ("turn_split",)

    def frees_too_little(self, end: int) -> bool:
        """Tell whether it would be due again at once; never where messages are the measure."""
        gain = self.before - self._after(end)
        return end > 0 and not self._is_crowded() and gain < SMALLEST_GAIN * self.limit

    def is_too_early(self, end: int, *, came_late: bool) -> bool:
        """Tell whether folding now misses the low mark and there is room to wait for another turn.

        A summary that misses it is due again soon, and each one costs the provider's cache. Where
        summaries came late, the turn that takes the prompt beyond the high mark is not reckoned in.
        """
        high = compact_mark(self.values, prompt_limit=self.limit)
        if self._is_crowded() or self.before >= high:
            return False
        growth = high - self.before if came_late else self._growth()
        return self._after(end) + growth > self._low()

    def within(
        self, source_limit: int, end: int, adjusted: tuple[str, ...]
    ) -> tuple[int, tuple[str, ...]]:
        """Fold less if the summariser cannot read so much; coverage is what it really reads."""
        used, readable = self.prior, 0
        for place in range(end):
            used += self.messages[place].tokens if self.foldable[place] else 0
            if used > source_limit:
                break
            readable = place + 1
        if readable == end:
            return end, adjusted
        whole_turns = max(cut for cut in self.cuts if cut <= readable)
        return whole_turns or max(readable, 1), (*adjusted, "source_limit")

    def planned(
        self, due: Trigger, end: int, adjusted: tuple[str, ...]
    ) -> CompactionPlan | NotNeeded:
        """Return the plan that folds up to `end`, or why it is not worth it."""
        folded = self.messages[:end]
        sources = tuple(message for message in folded if _is_foldable(message))
        if not sources:
            few = due == "manual" and len(self.cuts) > 1 and not end
            return NotNeeded("keep_last" if few else "nothing_to_fold", self.before)
        if sum(message.tokens for message in sources) < SMALLEST_SOURCE:
            return NotNeeded("no_gain", self.before)
        frontier = self.previous.to_seq if self.previous else 0
        _check_coverage(folded, frontier)
        earlier = set(self.previous.exceptions if self.previous else ())
        seqs = {message.seq for message in sources}
        passed = {message.seq for message in folded} - seqs
        return CompactionPlan(
            from_seq=self.previous.from_seq if self.previous else folded[0].seq,
            to_seq=max(frontier, folded[-1].seq),
            sources=sources,
            exceptions=tuple(sorted((earlier - seqs) | passed)),
            previous=self.previous,
            trigger=due,
            tokens_before=self.before,
            tokens_after=self._after(end),
            adjusted=adjusted,
        )

    def _is_crowded(self) -> bool:
        return is_near_ceiling(self._history_from(0), values=self.values)

    def _history_from(self, end: int) -> History:
        """Measure what stays when everything before `end` is folded."""
        turns = len(self.cuts) - bisect_left(self.cuts, end)
        return History(self._staying(end), turns, self.every[-1] - self.every[end])

    def _low(self) -> int:
        low = low_mark(self.values, prompt_limit=self.limit)
        every = self.values.compact_every_turns
        if every is None:
            return low
        beside = self.before - self.every[-1]
        high = max(0, compact_mark(self.values, prompt_limit=self.limit) - beside)
        return beside + adaptive_low(high, self.tokens, turns=len(self.cuts), every=every)

    def _growth(self) -> int:
        """Estimate by how much the prompt grows until a summary that is prepared now is swapped in.

        It grows to the high mark and, as nobody writes exactly up to a mark, by another turn of the
        usual size (a low mark that counts turns already includes it). Below the prepare mark a
        ceiling in messages or turns made the summary due: then tokens say nothing.
        """
        if self.before < prepare_mark(self.values, prompt_limit=self.limit):
            return 0
        growth = max(0, compact_mark(self.values, prompt_limit=self.limit) - self.before)
        if self.values.compact_every_turns is not None or len(self.cuts) < 2:
            return growth
        return growth + self.every[-1] // len(self.cuts)

    def _turns_to_fold(self) -> int:
        """Return how many turns to fold: the policy's number, or more if many are waiting.

        As few are left as after any fold: a chat that came with a thousand turns is not folded five
        at a time.
        """
        fold, threshold = self.values.fold_turns, self.values.turn_threshold or 0
        return max(fold, len(self.cuts) - max(1, threshold + 1 - fold))

    def _place(self, turns: int) -> int:
        return self.cuts[turns] if turns < len(self.cuts) else 0

    def _before_kept(self) -> int:
        """Return the last start of a turn with at least `keep_last_messages` from there on."""
        keep = self.values.keep_last_messages
        return next((cut for cut in reversed(self.cuts) if self._staying(cut) >= keep), 0)

    def _staying(self, end: int) -> int:
        return self.counted[-1] - self.counted[end]

    def _down_to(self, low: int, places: Iterable[int]) -> int:
        """Return the first of ascending places that comes down to `low`, else the last, or 0."""
        last = 0
        for last in places:
            is_enough = self.folding[last] >= SMALLEST_SOURCE and self._after(last) <= low
            if is_enough and is_low_enough(self._history_from(last), values=self.values):
                break
        return last

    def _after(self, end: int) -> int:
        """Count the tokens of the prompt once a full summary stands for what is before `end`."""
        folding = self.folding[end]
        summary = min(self.values.summary_max_tokens, self.prior + folding)
        return self.before - self.prior - folding + summary


def _is_foldable(message: Message) -> bool:
    flagged = message.pinned or message.excluded or message.incomplete
    return not flagged and has_content(message)


def _tokens(message: Message, values: PolicyValues, counter: TokenCounter | None) -> int:
    if message.excluded or message.incomplete or not has_content(message):
        return 0
    if counter is None:
        return message.tokens
    return entry(message, values=values, counter=counter).tokens


def _check_coverage(folded: Sequence[Message], frontier: int) -> None:
    following = frontier + 1
    for message in folded:
        if message.seq <= frontier:
            continue
        if message.seq != following:
            raise CoverageGap(
                f"Message {following} is missing between the summary and message {message.seq}. "
                "Load all messages after the summary."
            )
        following += 1
