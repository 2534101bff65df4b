"""Learns a model's calibration from the usage its provider reports.

There is one conditional update for each reply: a worker whose factor another one has changed
meanwhile gives up that one sample.
"""

from collections.abc import Mapping

from chats.prompt import statements
from contextpolicy.engine.calibration import BilledUsage, Factors, why_not_counted
from contextpolicy.engine.costs import used_of

# In tokens. Below it the frame that a provider puts around every prompt outweighs our count.
SMALLEST_PROMPT = 200


def learn(
    *,
    model_id: int,
    factors: Factors,
    shares: Mapping[str, float],
    estimate: int,
    reported: Mapping[str, int],
    completed: bool,
) -> bool:
    """Move a model's factors towards the provider's count; return whether the call taught anything.

    `factors` are those that were known when the prompt was composed; `shares` of scripts and
    `estimate` (tokens, our count) are the prompt's; `reported` is the usage as receipts keep it.
    Stopped and failed calls and short prompts teach nothing.
    """
    if used_of(reported) is None:
        return False
    usage = usage_of(str(model_id), estimate=estimate, reported=reported, completed=completed)
    if why_not_counted(usage, model=str(model_id)) or estimate < SMALLEST_PROMPT:
        return False
    learned = factors.taught(shares, estimate=estimate, actual=usage.input_tokens)
    new = {
        "calibration": learned.overall,
        "calibration_by_script": dict(learned.by_script),
    }
    return bool(statements.LEARNED_FACTORS.run(new, model=model_id, known=factors.overall))


def usage_of(
    model: str, *, estimate: int, reported: Mapping[str, int], completed: bool
) -> BilledUsage:
    """Translate a receipt's usage for the engine: tokens from the cache are part of the input."""
    whole, cached = reported.get("input", 0), reported.get("cached", 0)
    return BilledUsage(
        model=model,
        estimate=estimate,
        uncached=max(whole - cached, 0),
        cache_read=min(cached, whole),
        completed=completed,
    )
