"""Learns factors that convert a model's local token counts to billed tokens.

A character count is off by a third on code and by more on Chinese, so a model also has a factor for
each script. A factor follows the provider's numbers slowly and within bounds, so that one unusual
reply changes little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextpolicy.engine.text.scripts import find_dominant_script, select_present_scripts

# An exponential moving average with a maximum step and bounds, after gemini-cli.
RATE = 0.2
LARGEST_STEP = 0.15
LOWEST, HIGHEST = 0.5, 2.0
# The first samples may change an estimate by at most this share: they may all be unusual.
FEW_SAMPLES = 5
LARGEST_EARLY_CHANGE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledUsage:
    """The tokens that a provider billed for one call, and the call's model and outcome.

    `uncached`, `cache_read` and `cache_write` are disjoint input tokens, each with its own price;
    `estimate` is the local count of the same prompt.
    """

    model: str
    estimate: int
    uncached: int
    cache_read: int = 0
    cache_write: int = 0
    completed: bool = True

    @property
    def input_tokens(self) -> int:
        """Total input tokens of the prompt: uncached, read from and written to the cache."""
        return self.uncached + self.cache_read + self.cache_write


def explain_calibration_skip(usage: BilledUsage, *, model: str) -> str:
    """Return the reason why a call cannot calibrate `model`; "" if it can.

    Reasons: `other_model`, `not_completed` (stopped or failed calls may bill any number),
    `no_numbers`.
    """
    if usage.model != model:
        return "other_model"
    if not usage.completed:
        return "not_completed"
    return "" if usage.estimate > 0 and usage.input_tokens > 0 else "no_numbers"


def compute_calibration_factor(
    previous: float,
    *,
    estimate: int,
    actual: int,
    samples: int = FEW_SAMPLES,
    base: float = 1.0,
) -> float:
    """Return the next factor of a model: provider's tokens per local token.

    The factor moves a fifth of the way from `previous` towards this call's ratio, by at most 0.15,
    and stays within 0.5 to 2. Numbers below 1 change nothing. While `samples`, the number of
    earlier calls, is below 5, the result is within 15 % of `base`, the factor that an uncalibrated
    prompt would get.
    """
    if estimate < 1 or actual < 1:
        return previous
    step = RATE * (actual / estimate - previous)
    bounded = max(-LARGEST_STEP, min(LARGEST_STEP, step))
    lowest, highest = LOWEST, HIGHEST
    if samples < FEW_SAMPLES:
        lowest = max(lowest, base * (1 - LARGEST_EARLY_CHANGE))
        highest = min(highest, base * (1 + LARGEST_EARLY_CHANGE))
    return max(lowest, min(highest, previous + bounded))


@dataclass(frozen=True, slots=True)
class Factors:
    """The known factors of a model: one for all its calls, and one for each script."""

    overall: float = 1.0
    by_script: Mapping[str, float] = field(default_factory=dict)
    # The number of calls behind the factors. A factor without a count was learned before counts
    # were stored.
    samples: int = 0
    samples_by_script: Mapping[str, int] = field(default_factory=dict)

    def of(self, shares: Mapping[str, float]) -> float:
        """Return the factor for a prompt with these scripts: the largest one.

        A script without a factor uses the overall factor, but at least 1. Small factors of other
        scripts say nothing about this script, and the prompt must not exceed the limit. If no
        script has a factor, the overall factor applies.
        """
        if not self.by_script:
            return self.overall
        known = [self.by_script.get(name, self.unknown) for name in select_present_scripts(shares)]
        return max(known, default=self.unknown)

    @property
    def unknown(self) -> float:
        """The factor for a script that has none yet."""
        return max(self.overall, 1.0)

    @property
    def lowest(self) -> float:
        """The smallest possible factor, with which the most history fits."""
        return min(*self.by_script.values(), self.unknown) if self.by_script else self.overall

    def taught(self, shares: Mapping[str, float], *, estimate: int, actual: int) -> "Factors":
        """Return the factors updated by one call.

        A prompt in mixed scripts updates only the overall factor.
        """
        overall = compute_calibration_factor(
            self.overall, estimate=estimate, actual=actual, samples=self.samples
        )
        samples = self.samples + 1
        script = find_dominant_script(shares)
        if not script:
            return Factors(overall, self.by_script, samples, self.samples_by_script)
        known = self.samples_by_script.get(script, self.samples if script in self.by_script else 0)
        learned = compute_calibration_factor(
            self.by_script.get(script, self.unknown),
            estimate=estimate,
            actual=actual,
            samples=known,
            base=self.unknown if self.samples >= FEW_SAMPLES else 1.0,
        )
        return Factors(
            overall,
            {**self.by_script, script: learned},
            samples,
            {**self.samples_by_script, script: known + 1},
        )
