"""Learns from what providers bill: our count times a factor per model.

A character count is wrong by a third on code and by more on Chinese; the factor of a model follows
the provider's numbers slowly and stays within bounds, so that one odd reply changes little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextpolicy.engine.scripts import present, sole

# An exponential moving average with a largest step and bounds, after gemini-cli.
RATE = 0.2
LARGEST_STEP = 0.15
LOWEST, HIGHEST = 0.5, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledUsage:
    """The tokens that a provider billed for one call, and which call it was.

    `uncached`, `cache_read` and `cache_write` are its input tokens by price; `estimate` is our
    count of the same prompt.
    """

    model: str
    estimate: int
    uncached: int
    cache_read: int = 0
    cache_write: int = 0
    completed: bool = True

    @property
    def input_tokens(self) -> int:
        """The tokens of the prompt: each counted once, whatever it cost."""
        return self.uncached + self.cache_read + self.cache_write


def why_not_counted(usage: BilledUsage, *, model: str) -> str:
    """Say why a call teaches nothing about `model`; "" if it teaches something.

    `other_model`, `not_completed` (stopped or failed calls bill anything), `no_numbers`.
    """
    if usage.model != model:
        return "other_model"
    if not usage.completed:
        return "not_completed"
    return "" if usage.estimate > 0 and usage.input_tokens > 0 else "no_numbers"


def calibrate(previous: float, *, estimate: int, actual: int) -> float:
    """Return the next factor of a model: the provider's tokens per token of ours.

    Moves from `previous` a fifth of the way to this call's ratio, by 0.15 at most, within 0.5 to 2.
    Numbers below 1 change nothing.
    """
    if estimate < 1 or actual < 1:
        return previous
    step = RATE * (actual / estimate - previous)
    bounded = max(-LARGEST_STEP, min(LARGEST_STEP, step))
    return max(LOWEST, min(HIGHEST, previous + bounded))


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors known of a model's count: one over all its calls, and one for each script."""

    overall: float = 1.0
    by_script: Mapping[str, float] = field(default_factory=dict)

    def of(self, shares: Mapping[str, float]) -> float:
        """Return the factor for a prompt written in these scripts: the largest of them.

        A script of which nothing was learned takes the factor over all calls, but none below 1:
        small factors of other scripts say nothing about it, and a limit must hold.
        """
        if not self.by_script:
            return self.overall
        known = [self.by_script.get(name, self.unknown) for name in present(shares)]
        return max(known, default=self.unknown)

    @property
    def unknown(self) -> float:
        """The factor for a script of which nothing was learned."""
        return max(self.overall, 1.0)

    @property
    def lowest(self) -> float:
        """The smallest factor that a prompt may get: with it the most history fits."""
        return min(*self.by_script.values(), self.unknown) if self.by_script else self.overall

    def taught(self, shares: Mapping[str, float], *, estimate: int, actual: int) -> "Factors":
        """Learn from a call with a prompt in these scripts; a mixture teaches no script."""
        overall = calibrate(self.overall, estimate=estimate, actual=actual)
        script = sole(shares)
        if not script:
            return Factors(overall, self.by_script)
        learned = calibrate(
            self.by_script.get(script, self.unknown), estimate=estimate, actual=actual
        )
        return Factors(overall, {**self.by_script, script: learned})
