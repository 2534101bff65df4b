"""Finds what a policy meets in the models it allows: windows, longest replies, prices."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from contextpolicy.engine.budget import PolicyImpossible, compact_mark, low_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.policy_checks import SMALLEST_ROOM, estimated_tokens
from contextpolicy.linter.findings import USUAL_TURN, Finding
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import Adjustment, made_to_work

# What a request for a summary has beside the messages and the summary before: its instruction.
INSTRUCTION = 600
# The finding of the price counts so many turns.
TURNS = 100


def models_met(values: PolicyValues) -> list[ModelSpec]:
    """Return the models that could reply under these values, those of one provider together."""
    rows = ModelSpec.objects.filter(enabled=True)
    if values.allowed_models is not None:
        rows = rows.filter(slug__in=values.allowed_models)
    return list(rows)


def model_findings(values: PolicyValues) -> Iterator[Finding]:
    """Yield what is found of each model that these values would meet."""
    models = models_met(values)
    tried = {model.slug: _tried(values, model) for model in models}
    large = [slug for slug, found in tried.items() if not isinstance(found, PolicyImpossible)]
    for model in models:
        yield from _window(values, model, tried[model.slug], large=large)
        yield from _longest_reply(values, model)
    if values.strategy == "simple" and values.window_size is not None:
        yield _slides(values, models)
    if values.strategy == "dynamic_summary" and values.summarization_model:
        summariser = ModelSpec.objects.filter(slug=values.summarization_model).first()
        if summariser is not None:
            yield from _summariser(values, summariser)


def _tried(values: PolicyValues, model: ModelSpec) -> tuple[Adjustment, ...] | PolicyImpossible:
    """Return what is lowered for a model, or why this policy cannot work with it."""
    try:
        return made_to_work(values, model_window=model.window)[1]
    except PolicyImpossible as error:
        return error


def _window(
    values: PolicyValues,
    model: ModelSpec,
    found: tuple[Adjustment, ...] | PolicyImpossible,
    *,
    large: Sequence[str],
) -> Iterator[Finding]:
    window = model.window
    if window is None or window >= values.token_budget:
        return
    if isinstance(found, PolicyImpossible):
        yield Finding(
            "model_too_small",
            "allowed_models",
            f"With {model} ({window:,} tokens) this policy cannot work: {found}",
            "risk",
            {"allowed_models": list(large)} if large else {},
        )
        return
    told = ", ".join(f"{name} {wanted} → {used}" for name, wanted, used in found)
    lowered = f"; lowered there: {told}" if told else ""
    yield Finding(
        "model_window_below_budget",
        "token_budget",
        f"{model} reads {window:,} tokens, less than token_budget ({values.token_budget:,}): with "
        f"it the window counts{lowered}.",
        mend={"token_budget": window},
    )


def _longest_reply(values: PolicyValues, model: ModelSpec) -> Iterator[Finding]:
    longest, reserve = model.max_output, values.reserve_tokens
    if longest is None or longest <= reserve:
        return
    can_have = values.token_budget - longest >= max(SMALLEST_ROOM, values.token_budget // 2)
    yield Finding(
        "reserve_below_output",
        "reserve_tokens",
        f"{model} can write {longest:,} tokens; under reserve_tokens ({reserve:,}) its replies "
        f"end at {reserve:,}.",
        mend={"reserve_tokens": longest} if can_have else {},
    )


def _slides(values: PolicyValues, models: Sequence[ModelSpec]) -> Finding:
    """Tell what a window costs that loses its oldest message at each turn."""
    limit = prompt_limit(values, model_window=None)
    size = values.window_size or 0
    tokens = min(limit, size * USUAL_TURN // 2)
    prices = [model for model in models if model.input_price]
    cost = ""
    if prices:
        model = max(prices, key=lambda priced: priced.input_price or 0)
        spent = (model.input_price or Decimal(0)) * tokens * TURNS / 1_000_000
        cost = f" That is ≈ {spent:.2f} for {TURNS} turns with {model}, at its price for input."
    return Finding(
        "window_slides_each_turn",
        "window_size",
        f"Once {size:,} messages are there, the window moves at each turn: no provider's cache "
        f"can use the history again, ≈ {tokens:,} tokens a turn.{cost}",
        mend={"strategy": "sliding_window"},
    )


def _summariser(values: PolicyValues, model: ModelSpec) -> Iterator[Finding]:
    """Find a summariser that cannot read at once what a compaction folds."""
    window, limit = model.window, prompt_limit(values, model_window=None)
    if window is None or limit < 1:
        return
    high, low = compact_mark(values, prompt_limit=limit), low_mark(values, prompt_limit=limit)
    summary = values.summary_max_tokens
    # The summary before takes the place of as much history.
    chunk = high - low + summary
    instruction = INSTRUCTION + estimated_tokens(values.summary_instruction)
    needed = chunk + summary + instruction
    if needed <= window:
        return
    spare = window - 2 * summary - instruction
    share = round((high - spare) / limit, 2)
    smallest = values.summary_max_tokens + estimated_tokens(values.system_text)
    can_raise = spare > 0 and smallest < share * limit and share < min(values.prepare_at, 1)
    yield Finding(
        "summariser_below_chunk",
        "summarization_model",
        f"{model} reads {window:,} tokens, and a compaction covers up to {chunk:,}: with the "
        f"summary and its instruction {needed:,}. It would take several summaries.",
        "risk",
        {"compact_to": share} if can_raise else {"summarization_model": ""},
    )
