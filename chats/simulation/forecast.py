"""Estimates the prompts of a chat's turns under a policy, using only the message sizes.

Only the prompt of the next message is exact. Pages mark these numbers with ≈.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.checks import estimate_tokens
from contextpolicy.engine.policy.policy import PolicyValues

# Summaries are usually shorter than their limit.
SHARE_OF_SUMMARY = 0.6
# Approximate tokens per character of a truncated message.
TOKENS_OF_CHARACTER = 1 / 3
STATE_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a stored message in tokens, and whether a user wrote it."""

    asks: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Point:
    """The estimated prompt of one turn, and whether the history was shortened for it.

    `cached`: tokens of the prefix shared with the previous turn. `replaced`: tokens of the history
    that a summary replaced.
    """

    turn: int
    tokens: int
    compacted: bool
    cached: int = 0
    replaced: int = 0


@dataclass(slots=True)
class _Kept:
    """The messages that are sent in full, oldest first, and the size of the rest."""

    values: PolicyValues
    limit: int
    fixed: int
    summary: int = 0
    total: int = 0
    turns: int = 0
    dropped: int = 0
    messages: deque[Size] = field(default_factory=deque)

    @property
    def prompt(self) -> int:
        return self.fixed + self.summary + self.total

    def add(self, size: Size) -> None:
        self.messages.append(size)
        self.total += size.tokens
        self.turns += size.asks

    def drop(self) -> None:
        oldest = self.messages.popleft()
        self.total -= oldest.tokens
        self.dropped += oldest.tokens
        self.turns -= oldest.asks

    def down_to(self, tokens: int, *, keep: int = 1) -> bool:
        """Drop the oldest messages until the prompt fits into `tokens` or `keep` are left.

        Returns True if any was dropped.
        """
        before = len(self.messages)
        while self.prompt > tokens and len(self.messages) > keep:
            self.drop()
        return len(self.messages) < before


def forecast_prompts(
    sizes: Iterable[Size], *, values: PolicyValues, model_window: int | None
) -> Iterator[Point]:
    limit = compute_prompt_limit(values, model_window=model_window)
    yield from _points(_Kept(values, limit, estimate_tokens(values.system_text)), sizes)


def forecast_following_prompts(
    sizes: Iterable[Size],
    *,
    history: Iterable[Size],
    prompt: int,
    summary: int = 0,
    values: PolicyValues,
    model_window: int | None,
) -> Iterator[Point]:
    """Yield the estimated prompt of each turn that follows a given prompt.

    `history`: the messages that the prompt sends, oldest first. `summary`: the tokens of the
    summary that the next one replaces. The rest of the prompt stays the same.
    """
    kept = _Kept(values, compute_prompt_limit(values, model_window=model_window), 0)
    for size in history:
        kept.add(_cut(size, values))
    kept.summary = summary
    kept.fixed = max(prompt - kept.total - summary, 0)
    yield from _points(kept, sizes, before=prompt)


def _points(kept: _Kept, sizes: Iterable[Size], *, before: int = 0) -> Iterator[Point]:
    turn = 0
    for size in sizes:
        kept.add(_cut(size, kept.values))
        if size.asks:
            turn += 1
            dropped, summary = kept.dropped, kept.summary
            compacted = _SHORTEN.get(kept.values.strategy, _slide)(kept)
            kept.down_to(kept.limit)
            gone = kept.dropped - dropped
            prompt = min(kept.prompt, kept.limit)
            # Dropping messages at the front changes everything after the system text.
            cached = kept.fixed if gone or kept.summary != summary else before
            folds = compacted and kept.values.strategy == "dynamic_summary"
            yield Point(turn, prompt, compacted, min(cached, prompt), gone if folds else 0)
            before = prompt


def _cut(size: Size, values: PolicyValues) -> Size:
    if values.max_chars_per_message is None:
        return size
    most = max(1, int(values.max_chars_per_message * TOKENS_OF_CHARACTER))
    return Size(size.asks, min(size.tokens, most))


def _count(kept: _Kept) -> bool:
    """Keep the newest messages of the window. As this happens at every turn, return False."""
    while kept.values.window_size is not None and len(kept.messages) > kept.values.window_size + 1:
        kept.drop()
    return False


def _state(kept: _Kept) -> bool:
    kept.summary = STATE_TOKENS
    while len(kept.messages) > kept.values.keep_last_messages + 1:
        kept.drop()
    return False


def _slide(kept: _Kept) -> bool:
    if kept.prompt < compute_compact_mark(kept.values, prompt_limit=kept.limit):
        return False
    return kept.down_to(compute_low_mark(kept.values, prompt_limit=kept.limit))


def _summarise(kept: _Kept) -> bool:
    values, limit = kept.values, kept.limit
    threshold = values.turn_threshold
    is_full = kept.prompt >= compute_compact_mark(values, prompt_limit=limit)
    if not is_full and (threshold is None or kept.turns - 1 <= threshold):
        return False
    kept.summary = int(values.summary_max_tokens * SHARE_OF_SUMMARY)
    if is_full:
        low = compute_low_mark(values, prompt_limit=limit)
        shortened = kept.down_to(low, keep=max(1, values.keep_last_messages))
        if kept.prompt >= compute_compact_mark(values, prompt_limit=limit):
            # The newest messages are kept only if they fit.
            shortened = kept.down_to(low) or shortened
        return shortened
    left = max(1, kept.turns - values.fold_turns)
    while kept.turns > left or (kept.messages and not kept.messages[0].asks):
        kept.drop()
    return True


_SHORTEN = {
    "simple": _count,
    "entity_state": _state,
    "sliding_window": _slide,
    "dynamic_summary": _summarise,
}
