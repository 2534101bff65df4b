"""Learning a model's calibration from the usage its provider reports.

One conditional update for each reply: who computed from a factor that another worker has moved
meanwhile gives up that one sample.
"""

from collections.abc import Mapping

from django.db.models import F

from contextpolicy import prepared
from contextpolicy.engine.calibration import Factors, Usage, why_not_counted
from contextpolicy.models import ModelSpec

# In tokens. Below it the frame that a provider puts around every prompt outweighs our count.
SMALLEST_PROMPT = 200

_LEARNED = prepared.Update(
    lambda at: ModelSpec.objects.filter(pk=at("model"), calibration=at("known")),
    ("calibration", "calibration_by_script"),
    lambda _at: {"calibration_samples": F("calibration_samples") + 1},
)


def learn(
    *,
    model_id: int,
    factors: Factors,
    shares: Mapping[str, float],
    estimate: int,
    reported: Mapping[str, int],
    completed: bool,
) -> bool:
    """Move a model's factors towards what the provider counted; whether the call taught anything.

    `factors` are those that were known when the prompt was composed; `shares` of scripts and
    `estimate` (tokens, our count) are the prompt's; `reported` is the usage as receipts keep it.
    Stopped and failed calls and short prompts teach nothing.
    """
    usage = usage_of(str(model_id), estimate=estimate, reported=reported, completed=completed)
    if why_not_counted(usage, model=str(model_id)) or estimate < SMALLEST_PROMPT:
        return False
    learned = factors.taught(shares, estimate=estimate, actual=usage.input_tokens)
    new = {
        "calibration": learned.overall,
        "calibration_by_script": dict(learned.by_script),
    }
    return bool(_LEARNED.run(new, model=model_id, known=factors.overall))


def usage_of(model: str, *, estimate: int, reported: Mapping[str, int], completed: bool) -> Usage:
    """A receipt's usage as the engine takes it: what came from the cache is part of the input."""
    whole, cached = reported.get("input", 0), reported.get("cached", 0)
    return Usage(
        model=model,
        estimate=estimate,
        uncached=max(whole - cached, 0),
        cache_read=min(cached, whole),
        completed=completed,
    )
