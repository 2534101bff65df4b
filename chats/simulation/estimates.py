"""Estimates for one side of a preview: summary length, next compaction, and cost.

Only the prompt of the next message is exact. These numbers assume that future turns resemble the
newest ones, and are shown as estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from chats.models import Compaction
from chats.models.compactions import EXTRACTIVE
from chats.prompt.next_prompt import Outlook
from chats.simulation.forecast import SHARE_OF_SUMMARY, Point, Size, forecast_following_prompts
from contextpolicy.engine.policy.costs import Money, UsedTokens, compute_call_cost
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec

# Number of turns and summaries the estimates use, number of turns in a cost, and how many turns
# ahead the next compaction is searched.
NEWEST = 20
TURNS = 100
FARTHEST = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated numbers; None where no estimate is possible.

    `summary`: tokens of the next summary, from `summaries` earlier ones of the same model,
    or from the policy's limit if `summaries` is 0. `turns`: number of turns until the next
    compaction, by the slow quartile, the median and the fast quartile of the newest `by_turns`
    turns. Each is None if it is more than `FARTHEST`; all are None with a strategy without
    compactions. `cost`: cost of `TURNS` turns with their summaries. `cached`: the share of their
    input that is read from the cache.
    """

    summary: int | None = None
    summaries: int = 0
    turns: tuple[int | None, int | None, int | None] | None = None
    by_turns: int = 0
    cost: Money | None = None
    cached: float = 0.0


def estimate_turns(outlook: Outlook, sizes: Sequence[Size]) -> Estimate:
    """Estimate the turns after a composed prompt. `sizes` are those of the chat's messages."""
    choice, given = outlook.choice, outlook.given
    values, window = choice.values, choice.model.window
    length, measured = estimate_next_summary(values)
    turns = list_newest_turns(sizes)
    if not turns:
        return Estimate(length, measured)
    slow, usual, fast = select_quartile_turns(turns)
    history = [Size(message.role == "user", message.tokens) for message in given.history]
    prompt = outlook.sent.prompt_tokens

    def ahead(turn: tuple[int, int], count: int) -> list[Point]:
        asked, said = turn
        coming = [size for _ in range(count) for size in (Size(True, asked), Size(False, said))]  # noqa: FBT003
        return list(
            forecast_following_prompts(
                coming,
                history=history,
                prompt=prompt,
                summary=given.summary.tokens if given.summary else 0,
                values=values,
                model_window=window,
            )
        )

    to_next = None
    if values.strategy in {"dynamic_summary", "sliding_window"}:
        found = [find_first_compaction(ahead(turn, FARTHEST)) for turn in (slow, usual, fast)]
        to_next = (found[0], found[1], found[2])
    points = ahead(usual, TURNS)
    cost = calculate_turns_cost(points, said=usual[1], length=length or 0, outlook=outlook)
    share = sum(point.cached for point in points) / max(sum(point.tokens for point in points), 1)
    return Estimate(length, measured, to_next, len(turns), cost, share)


def list_newest_turns(sizes: Sequence[Size]) -> list[tuple[int, int]]:
    """Return the newest answered turns, as tokens of the question and of the reply."""
    turns: list[tuple[int, int]] = []
    for size in sizes:
        if size.asks:
            turns.append((size.tokens, 0))
        elif turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + size.tokens)
    return [turn for turn in turns if turn[1]][-NEWEST:]


def select_quartile_turns(turns: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a short, a median and a long turn.

    Their question and reply have the quartiles of all questions and of all replies.
    """
    parts = []
    for part in zip(*turns, strict=True):
        cuts = quantiles(part, n=4, method="inclusive") if len(part) > 1 else [part[0]] * 3
        parts.append([round(cut) for cut in cuts])
    return list(zip(*parts, strict=True))


def find_first_compaction(points: Sequence[Point]) -> int | None:
    """Return the number of the first turn at which the history is shortened, or None."""
    return next((point.turn for point in points if point.compacted), None)


def estimate_next_summary(values: PolicyValues) -> tuple[int | None, int]:
    """Return the estimated token count of a summary, and the number of summaries it is based on.

    Without earlier summaries, the estimate is a share of the policy's limit. None if the strategy
    writes no summaries.
    """
    if values.strategy != "dynamic_summary":
        return None, 0
    writer = find_summary_writer(values)
    rows = Compaction.objects.filter(kind=Compaction.Kind.SUMMARY, summary_tokens__gt=0)
    rows = rows.filter(model_name=writer.name if writer else EXTRACTIVE)
    newest = rows.exclude(trigger="revision").order_by("-created_at")
    found = [tokens or 0 for tokens in newest.values_list("summary_tokens", flat=True)[:NEWEST]]
    if not found:
        return int(values.summary_max_tokens * SHARE_OF_SUMMARY), 0
    return min(round(median(found)), values.summary_max_tokens), len(found)


def find_summary_writer(values: PolicyValues) -> ModelSpec | None:
    """Return the model that writes the summaries; None if no model does."""
    slug = values.summarization_model
    return ModelSpec.objects.filter(slug=slug, enabled=True).first() if slug else None


def calculate_turns_cost(
    points: Sequence[Point], *, said: int, length: int, outlook: Outlook
) -> Money:
    """Return the cost of turns with their summaries. It is unknown if a model has no price."""
    model = outlook.choice.model
    factor = outlook.given.calibration
    sent = sum(point.tokens for point in points)
    cached = sum(point.cached for point in points)
    used = UsedTokens(
        input=round(sent * factor), output=said * len(points), cached=round(cached * factor)
    )
    cost = Money.of(compute_call_cost(used, model.prices), currency=model.currency)
    writer = find_summary_writer(outlook.choice.values)
    replaced = [point.replaced for point in points if point.replaced]
    if writer is not None and replaced:
        wrote = UsedTokens(
            input=sum(replaced) + length * len(replaced), output=length * len(replaced)
        )
        cost += Money.of(compute_call_cost(wrote, writer.prices), currency=writer.currency)
    return cost
