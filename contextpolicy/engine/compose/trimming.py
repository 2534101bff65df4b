"""Makes a prompt fit its limit if it is too large even without history.

Parts are reduced in this order: older steps of the running turn, the middle of the newest step's
tool results, the summary, the pins from the oldest, the tail. System text, tools, the question and
user messages that arrived within the turn are required: if they do not fit, an exception is raised.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from contextpolicy.engine.history.entries import Entry
from contextpolicy.engine.messages.messages import ToolResultPart
from contextpolicy.engine.messages.segments import Block, sum_block_costs
from contextpolicy.engine.policy.budget import PolicyImpossible, QuestionTooLarge, TurnTooLarge

# Minimum length of a tool result that is cut to make the newest step fit.
SMALLEST_RESULT = 400
SHORTEN = "Shorten or split the message."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The parts of a prompt other than its history.

    `left`: (seq, reason) of each omitted part. `required`: tokens of system text, tools, question,
    prefill and, in a continuation, the truncated reply.
    """

    required: int
    summary: tuple[Block, ...]
    pins: tuple[Block, ...]
    tail: tuple[Block, ...]
    steps: tuple[Entry, ...]
    left: tuple[tuple[int, str], ...] = ()

    @property
    def cost(self) -> int:
        """Number of tokens of the prompt limit that these parts use in total."""
        optional = sum_block_costs((*self.summary, *self.pins, *self.tail))
        return self.required + optional + sum(step.cost for step in self.steps)


def require_prompt_room(
    *, limit: int, system: int, tools: int, question: int, has_files: bool = False
) -> int:
    """Return the number of tokens of the required parts.

    `has_files`: the question has files; the error then suggests removing one. Raises
    PolicyImpossible if system text and tools leave no room for any question, and QuestionTooLarge
    if they leave no room for this one.
    """
    if system + tools >= limit:
        raise PolicyImpossible(
            f"The system text ({system:,} tokens) and the tools ({tools:,}) leave no room in a "
            f"prompt of at most {max(limit, 0):,} tokens. Shorten the system text, offer fewer "
            "tools, or raise the token budget."
        )
    if system + tools + question > limit:
        advice = "Remove a file, or attach a smaller one." if has_files else SHORTEN
        raise QuestionTooLarge(
            f"The message takes {question:,} tokens and {limit - system - tools:,} are left for "
            f"it (limit {limit:,}, system text {system:,}, tools {tools:,}). {advice}"
        )
    return system + tools + question


def require_prompt_bytes(*, max_bytes: int | None, system: int, question: int) -> None:
    """Check that the required parts fit `max_bytes`. `system` includes the tools, in bytes.

    Raises PolicyImpossible or QuestionTooLarge as `require_prompt_room` does.
    """
    if max_bytes is None:
        return
    if system >= max_bytes:
        raise PolicyImpossible(
            f"The system text and the tools take {system:,} bytes and max_bytes is {max_bytes:,}. "
            f"Shorten the system text, offer fewer tools, or allow more bytes."
        )
    if system + question > max_bytes:
        raise QuestionTooLarge(
            f"The message takes {question:,} bytes and {max_bytes - system:,} are left for it "
            f"(max_bytes {max_bytes:,}). Shorten or split the message, or allow more bytes."
        )


def fit_fixed_parts(
    fixed: Fixed, *, limit: int, low: int, shorter: Callable[[Entry, int], Entry]
) -> Fixed:
    """Reduce the fixed parts to `limit`, in the order of this module; unchanged if they fit.

    Older steps are omitted in batches down to `low`. A part omitted from one call of the turn stays
    omitted in its later calls, so that the prompt is append-only between two batches. `shorter`
    returns an entry with its tool results cut to a number of characters. Raises QuestionTooLarge or
    TurnTooLarge if the required parts do not fit.
    """
    if fixed.cost <= limit:
        return fixed
    users = sum(step.cost for step in fixed.steps if not _may_leave(step))
    if fixed.required + users > limit:
        raise QuestionTooLarge(
            f"The messages to be answered take {fixed.required + users:,} tokens with system text "
            f"and tools; the limit is {limit:,}. Shorten or split them, or stop the reply first."
        )
    fixed = _replay_turn(fixed, limit, low, shorter)
    least = _with_results_of(fixed, SMALLEST_RESULT, shorter)
    if least.cost > limit:
        raise TurnTooLarge(
            f"The newest step of the turn needs {least.cost:,} tokens, including the parts "
            f"that it requires; the limit is {limit:,}. Raise the token budget or choose a "
            "model with a larger context window."
        )
    return _with_longest_results(fixed, least, limit, shorter)


def get_pin_seq(block: Block) -> int:
    """Return the seq of a pinned message, whose block may begin with a day line."""
    return block.segments[-1].seq


def select_newest_pins(
    pins: Sequence[Block], *, room: int
) -> tuple[tuple[Block, ...], list[tuple[int, str]]]:
    """Return the newest pins that fit `room`, ascending, and (seq, reason) of the others.

    A pin that is larger than the room does not displace older ones.
    """
    dropped = [(get_pin_seq(block), "budget") for block in pins if block.cost > room]
    ordered = sorted((block for block in pins if block.cost <= room), key=get_pin_seq)
    used, first = sum_block_costs(ordered), 0
    while first < len(ordered) and used > room:
        used -= ordered[first].cost
        first += 1
    dropped += [(get_pin_seq(block), "budget") for block in ordered[:first]]
    return tuple(ordered[first:]), dropped


def _replay_turn(
    fixed: Fixed, limit: int, low: int, shorter: Callable[[Entry, int], Entry]
) -> Fixed:
    """Replay the turn: whenever the limit is exceeded, omit the oldest steps down to `low`.

    If that is not enough, the data (summary, pins, tail) is reduced. The result depends only on the
    steps, so the next call has the same prefix and omits the same data.
    """
    data = replace(fixed, steps=())
    data = _without_data(data, over=data.cost - limit)
    used, start, newest = data.cost, 0, 0
    for place, step in enumerate(fixed.steps):
        used += step.cost
        newest = place if _may_leave(step) else newest
        if used <= limit:
            continue
        while used > low and start < newest:
            oldest = fixed.steps[start]
            used -= oldest.cost if _may_leave(oldest) else 0
            start += 1
        if used > limit:
            longest = fixed.steps[newest]
            saved = longest.cost - shorter(longest, SMALLEST_RESULT).cost
            left = _without_data(data, over=used - saved - limit)
            used -= data.cost - left.cost
            data = left
    gone = [step.message.seq for step in fixed.steps[:start] if _may_leave(step)]
    return replace(
        data,
        steps=tuple(step for step in fixed.steps if step.message.seq not in gone),
        left=(*data.left, *((seq, "turn_split") for seq in gone)),
    )


def _may_leave(step: Entry) -> bool:
    return step.message.role == "assistant"


def _newest(steps: Sequence[Entry]) -> Entry | None:
    return next((step for step in reversed(steps) if _may_leave(step)), None)


def _without_data(data: Fixed, *, over: int) -> Fixed:
    """Remove the summary, then pins from the oldest, then the tail, until `over` tokens are free.

    If that is not enough, everything is removed.
    """
    target = data.cost - over
    if data.cost > target:
        data = replace(data, summary=())
    pins, dropped = select_newest_pins(
        data.pins, room=target - data.cost + sum_block_costs(data.pins)
    )
    data = replace(data, pins=pins, left=(*data.left, *dropped))
    return replace(data, tail=()) if data.cost > target else data


def _with_longest_results(
    fixed: Fixed, least: Fixed, limit: int, shorter: Callable[[Entry, int], Entry]
) -> Fixed:
    """Give the newest step the longest tool results that fit, found by bisection."""
    if fixed.cost <= limit:
        return fixed
    best, fits, fails = least, SMALLEST_RESULT, _longest_result(fixed)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        tried = _with_results_of(fixed, middle, shorter)
        if tried.cost <= limit:
            best, fits = tried, middle
        else:
            fails = middle
    return best


def _longest_result(fixed: Fixed) -> int:
    newest = _newest(fixed.steps)
    parts = newest.message.parts if newest else ()
    return max((len(part.content) for part in parts if isinstance(part, ToolResultPart)), default=0)


def _with_results_of(
    fixed: Fixed, characters: int, shorter: Callable[[Entry, int], Entry]
) -> Fixed:
    newest = _newest(fixed.steps)
    return replace(
        fixed,
        steps=tuple(shorter(step, characters) if step is newest else step for step in fixed.steps),
    )
