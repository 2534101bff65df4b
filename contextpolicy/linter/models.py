"""Checks a policy against the models it allows: windows, longest replies, prices."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from django.utils.translation import gettext

from contextpolicy.engine.policy.budget import (
    PolicyImpossible,
    compute_compact_mark,
    compute_low_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.checks import SMALLEST_ROOM, estimate_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.linter.policy_warning import PolicyWarning
from contextpolicy.linter.size_warnings import USUAL_TURN
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import Adjustment, adjust_policy_values
from contextpolicy.wording import join_items

# Tokens of a summary request beyond the messages and the previous summary: its instruction.
INSTRUCTION = 600
# The number of turns for which the cost warning is calculated.
TURNS = 100


def list_reply_models(values: PolicyValues) -> list[ModelSpec]:
    """Return the models that could reply under these values, grouped by provider."""
    rows = ModelSpec.objects.filter(enabled=True)
    if values.allowed_models is not None:
        rows = rows.filter(slug__in=values.allowed_models)
    return list(rows)


def find_model_warnings(values: PolicyValues) -> Iterator[PolicyWarning]:
    """Yield the warnings about the models that these values allow, and the summarising model."""
    models = list_reply_models(values)
    tried = {model.slug: _find_adjustments(values, model) for model in models}
    large = [slug for slug, found in tried.items() if not isinstance(found, PolicyImpossible)]
    for model in models:
        yield from _window(values, model, tried[model.slug], large=large)
        yield from _longest_reply(values, model)
    yield from _costs_that_do_not_count(values, models)
    if values.strategy == "simple" and values.window_size is not None:
        yield _slides(values, models)
    if values.strategy == "dynamic_summary" and values.summarization_model:
        summariser = ModelSpec.objects.filter(slug=values.summarization_model).first()
        if summariser is not None:
            yield from _summariser(values, summariser)
            yield from _summariser_without_files(values, summariser)


def _costs_that_do_not_count(
    values: PolicyValues, models: Sequence[ModelSpec]
) -> Iterator[PolicyWarning]:
    """Warn about models whose calls a limit on the cost does not count."""
    if values.cost_per_month is None:
        return
    if values.summarization_model:
        summariser = ModelSpec.objects.filter(slug=values.summarization_model)
        models = [*models, *summariser.exclude(pk__in=[model.pk for model in models])]
    free = [model for model in models if model.input_price is None or model.output_price is None]
    if free:
        yield PolicyWarning(
            "cost_without_price",
            "cost_per_month",
            gettext(
                "The limit on the cost does not count calls of {models}, because a price is "
                "missing. Enter the prices, or limit the tokens as well."
            ).format(models=join_items(sorted(str(model) for model in free))),
        )
    currencies = sorted({model.currency for model in models if model not in free})
    if len(currencies) > 1:
        yield PolicyWarning(
            "cost_in_currencies",
            "cost_per_month",
            gettext(
                "The models have prices in several currencies ({currencies}). The limit on the "
                "cost applies to each currency separately."
            ).format(currencies=join_items(name or "–" for name in currencies)),
            "note",
        )


def _summariser_without_files(values: PolicyValues, model: ModelSpec) -> Iterator[PolicyWarning]:
    if values.file_models is None or model.slug in values.file_models:
        return
    yield PolicyWarning(
        "summariser_without_files",
        "file_models",
        gettext(
            "{model} does not get files. Summaries of chats with files are therefore "
            "written without a model, from sentences in the chat."
        ).format(model=model),
        "note",
        {"file_models": [*values.file_models, model.slug]},
    )


def _find_adjustments(
    values: PolicyValues, model: ModelSpec
) -> tuple[Adjustment, ...] | PolicyImpossible:
    """Return the adjustments that a model needs.

    Returns the exception if the policy cannot work with the model.
    """
    try:
        return adjust_policy_values(values, model_window=model.window)[1]
    except PolicyImpossible as error:
        return error


def _window(
    values: PolicyValues,
    model: ModelSpec,
    found: tuple[Adjustment, ...] | PolicyImpossible,
    *,
    large: Sequence[str],
) -> Iterator[PolicyWarning]:
    window = model.window
    if window is None or window >= values.token_budget:
        return
    if isinstance(found, PolicyImpossible):
        yield PolicyWarning(
            "model_too_small",
            "allowed_models",
            gettext("This policy does not work with {model} ({n:,} tokens): {reason}").format(
                model=model, n=window, reason=found
            ),
            "risk",
            {"allowed_models": list(large)} if large else {},
        )
        return
    lowered = join_items(f"{name} {wanted} → {used}" for name, wanted, used in found)
    sentence = gettext(
        "The context window of {model} ({n:,} tokens) is smaller than token_budget ({budget:,}), "
        "so the window applies."
    )
    if lowered:
        sentence = gettext(
            "The context window of {model} ({n:,} tokens) is smaller than token_budget "
            "({budget:,}), so the window applies. It lowers these values: {values}."
        )
    yield PolicyWarning(
        "model_window_below_budget",
        "token_budget",
        sentence.format(model=model, n=window, budget=values.token_budget, values=lowered),
        fix={"token_budget": window},
    )


def _longest_reply(values: PolicyValues, model: ModelSpec) -> Iterator[PolicyWarning]:
    longest, reserve = model.max_output, values.reserve_tokens
    if longest is None or longest <= reserve:
        return
    can_have = values.token_budget - longest >= max(SMALLEST_ROOM, values.token_budget // 2)
    yield PolicyWarning(
        "reserve_below_output",
        "reserve_tokens",
        gettext(
            "{model} can write {n:,} tokens, but reserve_tokens ({reserve:,}) cuts its replies at "
            "{reserve:,}."
        ).format(model=model, n=longest, reserve=reserve),
        fix={"reserve_tokens": longest} if can_have else {},
    )


def _slides(values: PolicyValues, models: Sequence[ModelSpec]) -> PolicyWarning:
    """Warn about the cost of a window that drops its oldest message at every turn."""
    limit = compute_prompt_limit(values, model_window=None)
    size = values.window_size or 0
    tokens = min(limit, size * USUAL_TURN // 2)
    prices = [model for model in models if model.input_price]
    if prices:
        model = max(prices, key=lambda priced: priced.input_price or 0)
        spent = (model.input_price or Decimal(0)) * tokens * TURNS / 1_000_000
        sentence = gettext(
            "With {n:,} messages, the window moves at each turn. No provider can then reuse the "
            "cached history (≈ {tokens:,} tokens per turn). At the input price of {model}, the "
            "cost is ≈ {cost} for {turns} turns."
        ).format(
            n=size,
            tokens=tokens,
            cost=f"{spent:.2f} {model.currency}".strip(),
            turns=TURNS,
            model=model,
        )
    else:
        sentence = gettext(
            "With {n:,} messages, the window moves at each turn. No provider can then reuse "
            "the cached history (≈ {tokens:,} tokens per turn)."
        ).format(n=size, tokens=tokens)
    fix = {"strategy": "sliding_window"}
    return PolicyWarning("window_slides_each_turn", "window_size", sentence, fix=fix)


def _summariser(values: PolicyValues, model: ModelSpec) -> Iterator[PolicyWarning]:
    """Find a summariser that cannot read the messages of one compaction at once."""
    window, limit = model.window, compute_prompt_limit(values, model_window=None)
    if window is None or limit < 1:
        return
    high, low = (
        compute_compact_mark(values, prompt_limit=limit),
        compute_low_mark(values, prompt_limit=limit),
    )
    summary = values.summary_max_tokens
    # The previous summary replaces an equal amount of history.
    chunk = high - low + summary
    instruction = INSTRUCTION + estimate_tokens(values.summary_instruction)
    needed = chunk + summary + instruction
    if needed <= window:
        return
    spare = window - 2 * summary - instruction
    share = round((high - spare) / limit, 2)
    smallest = values.summary_max_tokens + estimate_tokens(values.system_text)
    can_raise = spare > 0 and smallest < share * limit and share < min(values.prepare_at, 1)
    yield PolicyWarning(
        "summariser_below_chunk",
        "summarization_model",
        gettext(
            "The context window of {model} is {n:,} tokens. Compacting up to {chunk:,} "
            "tokens needs {needed:,} tokens, including the summary and its instruction. "
            "Such a compaction takes several calls."
        ).format(model=model, n=window, chunk=chunk, needed=needed),
        "risk",
        {"compact_to": share} if can_raise else {"summarization_model": ""},
    )
