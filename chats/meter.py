"""The context meter: what the next message would send, told before it is sent.

Sums of stored token counts, so it needs no tokenizer and costs a few queries. The worker counts
again when it composes; until then every number here is ours times the model's calibration (≈).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from django.db.models import Count, Min, Q, QuerySet, Sum

from chats import answering, context, history, states
from chats.models import Branch, Chat, Compaction, Message
from contextpolicy.engine.budget import compact_mark, prepare_mark, prompt_limit
from contextpolicy.engine.messages import Summary
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import state_text
from contextpolicy.engine.systemtext import governed
from contextpolicy.engine.tokens import ApproximateCounter


@dataclass(frozen=True, slots=True)
class MeterPart:
    """One line of the meter: what it is, how many tokens, and why so many."""

    key: str
    label: str
    tokens: int
    why: str


@dataclass(frozen=True, slots=True)
class Meter:
    """What the next message would send, in estimates (≈) of the provider's tokens."""

    used: int
    prompt_limit: int
    token_budget: int
    reserve: int
    parts: tuple[MeterPart, ...]
    approximate: bool
    policy_label: str
    next_compaction: str
    prepare_mark: int
    limit: int
    system_hidden: bool
    kept: states.Kept | None
    writes_summaries: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The messages that would be sent: how many, their tokens, the first seq (0: none)."""

    count: int = 0
    tokens: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the prompt is made of, and up to which seq a window leaves messages out (0: none)."""

    system: int
    pins: Span
    summary: Summary | None
    history: Span
    rounds: int
    left_out_to: int
    # What stands in for the dialogue before, where the policy keeps a state.
    kept: states.Kept | None
    state: int

    @property
    def tokens(self) -> Mapping[str, int]:
        """The tokens of each part."""
        return {
            "system": self.system,
            "pins": self.pins.tokens,
            "summary": self.summary.tokens if self.summary else 0,
            "state": self.state,
            "history": self.history.tokens,
        }


def meter(*, chat: Chat) -> Meter:
    """The meter of a chat.

    Raises the refusals of `answering.choose` and the engine's `BudgetRefusal`.
    """
    choice = answering.choose(chat=chat)
    values = choice.values
    limit = prompt_limit(values, model_window=choice.model.window)
    branch = Branch.objects.select_related("active_compaction__base", "parent", "chat").get(
        pk=cast(uuid.UUID, chat.active_branch_id)
    )
    sizes = sizes_of(
        branch, values=values, factor=context.calibration_of(branch, model=choice.model)
    )
    used = sum(sizes.tokens.values())
    mark = prepare_mark(values, prompt_limit=limit)
    return Meter(
        used=used,
        prompt_limit=limit,
        token_budget=limit + values.reserve_tokens,
        reserve=values.reserve_tokens,
        parts=parts_of(sizes, values=values, limit=limit),
        approximate=True,
        policy_label=choice.effective.label,
        next_compaction=forecast(branch, sizes=sizes, values=values, limit=limit),
        prepare_mark=mark,
        limit=values.input_length_limit,
        system_hidden=values.hide_system_text,
        kept=sizes.kept,
        writes_summaries=values.strategy == "dynamic_summary",
    )


def sizes_of(branch: Branch, *, values: PolicyValues, factor: float) -> Sizes:
    """The parts of the next prompt, from counts that are stored or estimated, times `factor`."""
    estimate = ApproximateCounter()
    active = context.governing(branch.active_compaction, values=values)
    summary, window_to = context.in_force(active, counter=estimate)
    folded_to = summary.to_seq if summary else 0
    if values.strategy == "simple" and values.window_size:
        window_to = max(window_to, branch.last_seq - values.window_size)
    kept = states.kept_on(branch, values=values)
    if kept is not None:
        window_to = max(window_to, branch.last_seq - values.keep_last_messages)
    after = max(folded_to, window_to)
    rows = history.on_path(branch, after=after, before=branch.last_seq + 1)
    unfolded = history.on_path(branch, after=folded_to, before=branch.last_seq + 1)
    own = governed(
        (("policy", values.system_text), ("chat", branch.chat.system_text)), values=values
    )
    if summary is not None:
        summary = replace(summary, tokens=round(summary.tokens * factor))
    return Sizes(
        system=round(sum(estimate.count(text) for _, text in own) * factor),
        pins=times(pins_under(branch, hidden_to=after), factor),
        summary=summary,
        history=times(span_of(rows), factor),
        rounds=unfolded.filter(role=Message.Role.USER).count() if values.turn_threshold else 0,
        left_out_to=window_to if window_to > folded_to else 0,
        kept=kept,
        state=estimate.count(state_text(kept.values)) if kept else 0,
    )


def pins_under(branch: Branch, *, hidden_to: int) -> Span:
    """The pinned messages under the summary or behind the window: they are sent all the same."""
    if not hidden_to:
        return Span()
    rows = history.on_path(branch, after=0, before=hidden_to + 1)
    return span_of(rows.filter(pinned_at__isnull=False))


def span_of(rows: QuerySet[Message]) -> Span:
    """The sum over those of the messages that may be sent at all."""
    cut_by_fault = Q(finish=Message.Finish.INCOMPLETE, kept=False)
    found = rows.filter(~cut_by_fault, excluded=False).aggregate(
        count=Count("pk"), tokens=Sum("token_count"), first=Min("seq")
    )
    return Span(count=found["count"], tokens=found["tokens"] or 0, first=found["first"] or 0)


def times(span: Span, factor: float) -> Span:
    """The span in the provider's tokens."""
    return replace(span, tokens=round(span.tokens * factor))


def parts_of(sizes: Sizes, *, values: PolicyValues, limit: int) -> tuple[MeterPart, ...]:
    """The lines of the breakdown, each with its reason."""
    tokens = sizes.tokens
    free = max(limit - sum(tokens.values()), 0)
    own = "Instructions of the policy and the chat" if tokens["system"] else "None"
    pins = f"{messages(sizes.pins.count)} under the summary" if sizes.pins.count else "None"
    reserve = "Kept free so the reply is not cut off"
    return (
        MeterPart("system", "System", tokens["system"], own),
        MeterPart("pins", "Pins", tokens["pins"], pins),
        *([layer_part(sizes, values=values)] if sizes.summary or not sizes.kept else []),
        *([state_part(sizes)] if sizes.kept else []),
        MeterPart("history", "History", tokens["history"], history_words(sizes)),
        MeterPart("free", "Free", free, free_words(values, limit=limit)),
        MeterPart("reserve", "Reply reserve", values.reserve_tokens, reserve),
    )


def layer_part(sizes: Sizes, *, values: PolicyValues) -> MeterPart:
    """What lies before the history: a summary, a window, one on top of the other, or nothing."""
    summary, window_to = sizes.summary, sizes.left_out_to
    if summary is not None:
        why = f"Stands for {span_words(summary.from_seq, summary.to_seq)}"
        if window_to:
            why += f"; {span_words(summary.to_seq + 1, window_to)} left out"
        return MeterPart("summary", "Summary", summary.tokens, why)
    if window_to:
        return MeterPart("summary", "Window", 0, f"Leaves out {span_words(1, window_to)}")
    why = "None yet" if values.strategy == "dynamic_summary" else "This policy writes none"
    return MeterPart("summary", "Summary", 0, why)


def state_part(sizes: Sizes) -> MeterPart:
    """The state, and which dialogue it stands for."""
    dialogue = span_words(1, sizes.left_out_to) if sizes.left_out_to else "none yet"
    return MeterPart("state", "State", sizes.state, f"In place of dialogue: {dialogue}")


def history_words(sizes: Sizes) -> str:
    """Which messages are sent as they are."""
    span = sizes.history
    if not span.count:
        return "None: the state stands for it" if sizes.kept else "Nothing yet"
    return f"{messages(span.count)}, from message {span.first:,} on"


def free_words(values: PolicyValues, *, limit: int) -> str:
    """What happens when the free room is used up."""
    if values.strategy == "entity_state":
        return f"Of {limit:,}; the state does not grow with the chat"
    if values.strategy == "simple":
        return f"Of {limit:,}; only the newest messages are sent"
    if values.strategy == "dynamic_summary":
        mark, what = prepare_mark(values, prompt_limit=limit), "Compaction starts"
    else:
        mark, what = compact_mark(values, prompt_limit=limit), "The window moves"
    share = round(100 * mark / limit) if limit else 0
    return f"{what} at {mark:,} ({share} % of {limit:,})"


def span_words(first: int, last: int) -> str:
    """A range of messages in words."""
    return f"message {first:,}" if first == last else f"messages {first:,} to {last:,}"


def messages(count: int) -> str:
    """1 message, 2 messages."""
    return f"{count:,} message" if count == 1 else f"{count:,} messages"


def forecast(branch: Branch, *, sizes: Sizes, values: PolicyValues, limit: int) -> str:
    """When older messages leave the prompt next, in words; empty when nobody can tell."""
    used = sum(sizes.tokens.values())
    if values.strategy == "sliding_window":
        due = used >= compact_mark(values, prompt_limit=limit)
        return "the window moves with the next message" if due else ""
    if values.strategy != "dynamic_summary":
        return ""
    if branch.compaction_paused:
        return "automatic compaction paused"
    making = branch.compactions.filter(
        status__in=[Compaction.Status.PREPARING, Compaction.Status.PREPARED]
    )
    status = making.values_list("status", flat=True).first()
    if status is not None:
        running = status == Compaction.Status.PREPARING
        return "compaction running" if running else "a summary is ready"
    return turns_words(turns_left(sizes, values=values, limit=limit))


def turns_left(sizes: Sizes, *, values: PolicyValues, limit: int) -> int | None:
    """About how many replies it takes to the next compaction, at least 1; None: no telling."""
    found = []
    if values.turn_threshold:
        found.append(values.turn_threshold + 1 - sizes.rounds)
    mark = prepare_mark(values, prompt_limit=limit)
    used = sum(sizes.tokens.values())
    # A round is a question and its reply: two messages of the size seen so far.
    each = 2 * sizes.history.tokens // sizes.history.count if sizes.history.count else 0
    if used >= mark:
        found.append(1)
    elif each:
        found.append(-(-(mark - used) // each))
    return max(min(found), 1) if found else None


def turns_words(left: int | None) -> str:
    """The forecast in words."""
    if left is None:
        return ""
    if left == 1:
        return "compaction after the next reply"
    return f"next compaction in about {left:,} turns"
