"""Learns a model's calibration from the usage that its provider reports.

Each reply makes one conditional update. If another worker changed the factor first, the sample is
dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chats.prompt import statements
from contextpolicy.engine.policy.calibration import BilledUsage, Factors, explain_calibration_skip
from contextpolicy.engine.policy.costs import parse_reported_usage

# In tokens. In shorter prompts, the provider's own frame outweighs the local count.
SMALLEST_PROMPT = 200


@dataclass(frozen=True, slots=True)
class PromptEstimate:
    """The estimated size of a prompt.

    `tokens`: its local tokens. `shares`: its shares by script. `factors`: its model's factors at
    composition.
    """

    tokens: int = 0
    factors: Factors = field(default_factory=Factors)
    shares: Mapping[str, float] = field(default_factory=dict)


def update_model_factors(
    *, model_id: int, estimate: PromptEstimate, reported: Mapping[str, int], completed: bool
) -> bool:
    """Adjust a model's factors to the provider's token count. Return True if the call was used.

    `reported` is the usage in the receipt's format. Stopped and failed calls and short prompts are
    not used. Neither is a call if another worker has changed the factors since its prompt was
    composed.
    """
    if parse_reported_usage(reported) is None:
        return False
    usage = build_billed_usage(
        str(model_id), estimate=estimate.tokens, reported=reported, completed=completed
    )
    if explain_calibration_skip(usage, model=str(model_id)) or estimate.tokens < SMALLEST_PROMPT:
        return False
    learned = estimate.factors.taught(
        estimate.shares, estimate=estimate.tokens, actual=usage.input_tokens
    )
    new = {
        "calibration": learned.overall,
        "calibration_by_script": dict(learned.by_script),
        "calibration_samples_by_script": dict(learned.samples_by_script),
    }
    return bool(statements.LEARNED_FACTORS.run(new, model=model_id, known=estimate.factors.overall))


def build_billed_usage(
    model: str, *, estimate: int, reported: Mapping[str, int], completed: bool
) -> BilledUsage:
    """Convert a receipt's usage to the engine's type. Cached tokens are part of the input."""
    whole, cached = reported.get("input", 0), reported.get("cached", 0)
    return BilledUsage(
        model=model,
        estimate=estimate,
        uncached=max(whole - cached, 0),
        cache_read=min(cached, whole),
        completed=completed,
    )
