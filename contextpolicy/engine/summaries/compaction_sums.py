"""The arithmetic of a compaction plan."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal

from contextpolicy.engine.history.entries import build_prompt_entry
from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.turn_groups import find_turn_starts, has_content
from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prepare_mark,
)
from contextpolicy.engine.policy.ceilings import History, is_low_enough, is_near_ceiling
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction_plan import (
    CompactionPlan,
    CoverageGap,
    NotNeeded,
    Trigger,
)
from contextpolicy.engine.window import compute_adaptive_low

# A smaller source cannot become shorter: the five headings of a summary take half of it.
SMALLEST_SOURCE = 40
# A compaction triggered by token marks must free this share of the prompt limit. Otherwise the next
# one would soon be due.
SMALLEST_GAIN = 0.05


class PlanSums:
    """The arithmetic of one plan. All positions are indexes of the messages."""

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
        self.foldable = [is_foldable(message) for message in messages]
        self.tokens = [_count_tokens(message, values, counter) for message in messages]
        self.cuts = find_turn_starts(messages)
        # Before each index: the tokens and the number of messages that could be summarised.
        pairs = list(zip(self.tokens, self.foldable, strict=True))
        self.folding = [0, *accumulate(n if can else 0 for n, can in pairs)]
        self.counted = [0, *accumulate(self.foldable)]
        self.every = [0, *accumulate(self.tokens)]
        self.prior = previous.tokens if previous else 0
        self.before = fixed_tokens + self.prior + sum(self.tokens)

    def due(self, trigger: Trigger | Literal["auto"]) -> Trigger | NotNeeded:
        """Return the trigger that applies. The triggers `manual` and `overflow` always apply."""
        if trigger in ("manual", "overflow"):
            return trigger
        threshold = self.values.turn_threshold
        if trigger != "prepare" and threshold is not None and len(self.cuts) > threshold:
            return "turns"
        mark = compute_prepare_mark(self.values, prompt_limit=self.limit)
        if trigger != "turns" and (self.before >= mark or self._is_crowded()):
            return "prepare"
        return NotNeeded("below_threshold", self.before, mark)

    def end(self, due: Trigger) -> tuple[int, tuple[str, ...]]:
        """Return the index before which messages are summarised (0: none) and the relaxed rules."""
        if due == "turns":
            return self._place(self._turns_to_summarise()), ()
        if due == "manual":
            return self._place_manual_end()
        kept = self._find_kept_start()
        if due == "overflow" and self.before <= compute_low_mark(
            self.values, prompt_limit=self.limit
        ):
            # The provider counts more tokens than we do, so our marks do not show how much must be
            # removed.
            return kept or self.cuts[-1], () if kept else ("keep_last_messages",)
        low = self._low() - (self._growth() if due == "prepare" else 0)
        wanted = self._down_to(low, self.cuts[1:])
        if wanted:
            return wanted, ("keep_last_messages",) if wanted > kept else ()
        steps = [i for i, message in enumerate(self.messages) if i and message.role == "assistant"]
        return self._down_to(low, steps), ("turn_split",)

    def frees_too_little(self, end: int) -> bool:
        """Return True if another compaction would be due immediately after this one.

        Always False if the strategy counts messages.
        """
        gain = self.before - self._after(end)
        return end > 0 and not self._is_crowded() and gain < SMALLEST_GAIN * self.limit

    def is_too_early(self, end: int, *, came_late: bool) -> bool:
        """Return True if a compaction now would miss the low mark and another turn still fits.

        A summary that misses the low mark soon triggers another one, and each summary
        invalidates the provider's cache. If earlier summaries came late, the turn that exceeds
        the high mark is not added to the estimate.
        """
        high = compute_compact_mark(self.values, prompt_limit=self.limit)
        if self._is_crowded() or self.before >= high:
            return False
        growth = high - self.before if came_late else self._growth()
        return self._after(end) + growth > self._low()

    def within(
        self, source_limit: int, end: int, adjusted: tuple[str, ...]
    ) -> tuple[int, tuple[str, ...]]:
        """Limit the sources to those that fit into one request to the summariser."""
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
        """Return the plan that compacts up to `end`, or the reason not to compact."""
        replaced = self.messages[:end]
        sources = tuple(message for message in replaced if is_foldable(message))
        if not sources:
            few = due == "manual" and len(self.cuts) > 1 and not end
            return NotNeeded("keep_last" if few else "nothing_to_fold", self.before)
        if sum(message.tokens for message in sources) < SMALLEST_SOURCE:
            return NotNeeded("no_gain", self.before)
        frontier = self.previous.to_seq if self.previous else 0
        check_coverage(replaced, frontier)
        earlier = set(self.previous.exceptions if self.previous else ())
        seqs = {message.seq for message in sources}
        passed = {message.seq for message in replaced} - seqs
        return CompactionPlan(
            from_seq=self.previous.from_seq if self.previous else replaced[0].seq,
            to_seq=max(frontier, replaced[-1].seq),
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
        """Measure the history that remains if everything before `end` is compacted."""
        turns = len(self.cuts) - bisect_left(self.cuts, end)
        return History(self._count_remaining(end), turns, self.every[-1] - self.every[end])

    def _low(self) -> int:
        low = compute_low_mark(self.values, prompt_limit=self.limit)
        every = self.values.compact_every_turns
        if every is None:
            return low
        beside = self.before - self.every[-1]
        high = max(0, compute_compact_mark(self.values, prompt_limit=self.limit) - beside)
        return beside + compute_adaptive_low(high, self.tokens, turns=len(self.cuts), every=every)

    def _growth(self) -> int:
        """Estimate how much the prompt grows until a summary that is prepared now is swapped in.

        It grows to the high mark and by one more turn of average size, because turns rarely end
        exactly at a mark. A low mark that counts turns already includes that turn. Returns 0
        below the prepare mark: there, a ceiling of the policy triggered the summary, not the size
        of the prompt.
        """
        if self.before < compute_prepare_mark(self.values, prompt_limit=self.limit):
            return 0
        growth = max(0, compute_compact_mark(self.values, prompt_limit=self.limit) - self.before)
        if self.values.compact_every_turns is not None or len(self.cuts) < 2:
            return growth
        return growth + self.every[-1] // len(self.cuts)

    def _turns_to_summarise(self) -> int:
        """Return the number of turns to compact: the policy's number, or more if many are waiting.

        After the compaction, as few turns remain as after any other. An imported chat of a
        thousand turns is therefore not compacted five turns at a time.
        """
        fold, threshold = self.values.fold_turns, self.values.turn_threshold or 0
        return max(fold, len(self.cuts) - max(1, threshold + 1 - fold))

    def _place(self, turns: int) -> int:
        return self.cuts[turns] if turns < len(self.cuts) else 0

    def _place_manual_end(self) -> tuple[int, tuple[str, ...]]:
        """Return the index at which a manual compaction ends, and the relaxed rules.

        In a chat too short for `keep_last_messages` the older half is compacted. Repeating the
        request has no effect until there are more new messages than the summary covers.
        """
        kept, count = self._find_kept_start(), self._count_remaining(0)
        summary, keep = self.previous, self.values.keep_last_messages
        if summary is not None:
            covered = summary.to_seq - summary.from_seq + 1 - len(summary.exceptions)
            if not covered < count < keep:
                return kept, ()
        if self.folding[kept] >= SMALLEST_SOURCE or len(self.cuts) < 2:
            return kept, ()
        halves = (cut for cut in self.cuts[1:] if 2 * self._count_remaining(cut) <= count)
        return next(halves, self.cuts[-1]), ("keep_last_messages",)

    def _find_kept_start(self) -> int:
        """Return the last turn start that has at least `keep_last_messages` after it."""
        keep = self.values.keep_last_messages
        return next((cut for cut in reversed(self.cuts) if self._count_remaining(cut) >= keep), 0)

    def _count_remaining(self, end: int) -> int:
        return self.counted[-1] - self.counted[end]

    def _down_to(self, low: int, places: Iterable[int]) -> int:
        """Return the first of the ascending indexes at which the prompt is small enough for `low`.

        Returns the last index if the prompt is too large at each of them, and 0 if there are
        none.
        """
        last = 0
        for last in places:
            is_enough = self.folding[last] >= SMALLEST_SOURCE and self._after(last) <= low
            if is_enough and is_low_enough(self._history_from(last), values=self.values):
                break
        return last

    def _after(self, end: int) -> int:
        """Estimate the size of the prompt in tokens once the messages before `end` are summarised.

        Assumes a summary of maximum size.
        """
        folding = self.folding[end]
        summary = min(self.values.summary_max_tokens, self.prior + folding)
        return self.before - self.prior - folding + summary


def is_foldable(message: Message) -> bool:
    flagged = message.pinned or message.excluded or message.incomplete
    return not flagged and has_content(message)


def _count_tokens(message: Message, values: PolicyValues, counter: TokenCounter | None) -> int:
    if message.excluded or message.incomplete or not has_content(message):
        return 0
    if counter is None:
        return message.tokens
    return build_prompt_entry(message, values=values, counter=counter).tokens


def check_coverage(replaced: Sequence[Message], frontier: int) -> None:
    """Raise CoverageGap unless the messages follow the summary, which ends at `frontier`."""
    following = frontier + 1
    for message in replaced:
        if message.seq <= frontier:
            continue
        if message.seq != following:
            raise CoverageGap(
                f"Message {following} is missing between the summary and message {message.seq}. "
                "Load all messages after the summary."
            )
        following += 1
