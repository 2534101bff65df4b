"""Token arithmetic: the prompt limit, the marks on it, and what each part of a prompt takes."""

from dataclasses import dataclass

from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.policy_fields import mark


class BudgetRefusal(Exception):
    """A prompt cannot be built within its limit; `code` is stable, the text says what to do."""

    code = "budget_refused"


class PolicyImpossible(BudgetRefusal):
    """The parts that never leave a prompt do not fit its limit, whatever the chat says."""

    code = "policy_impossible"


class QuestionTooLarge(BudgetRefusal):
    """The message to be answered does not fit beside the system text and the tools."""

    code = "message_too_large"


class TurnTooLarge(BudgetRefusal):
    """The newest step of the running turn does not fit, even with its tool results cut."""

    code = "turn_too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The tokens that a prompt may take and those that it takes.

    `token_budget`, `reserve` and `prompt_limit` are in the provider's tokens. `limit` is the prompt
    limit in our count (`prompt_limit` / `calibration`); the parts below it are in our count too.
    """

    token_budget: int
    reserve: int
    prompt_limit: int
    calibration: float
    limit: int
    system: int = 0
    tools: int = 0
    summary: int = 0
    pins: int = 0
    history: int = 0
    tail: int = 0
    question: int = 0
    steps: int = 0

    @property
    def used(self) -> int:
        """Tokens of the whole prompt, in our count."""
        return (
            self.system
            + self.tools
            + self.summary
            + self.pins
            + self.history
            + self.tail
            + self.question
            + self.steps
        )


def prompt_limit(values: PolicyValues, *, model_window: int | None) -> int:
    """Return the most tokens that a prompt may have.

    That is the budget or the model's window, whichever is smaller, less the reserve. May be zero or
    less for values that cannot work with the model.
    """
    ceiling = values.token_budget
    if model_window is not None:
        ceiling = min(ceiling, model_window)
    return ceiling - values.reserve_tokens


def request_limit(values: PolicyValues, *, model_window: int | None) -> int:
    """Return the most tokens of a request for a summary.

    That is a prompt's limit, with room for the summary itself.
    """
    limit = prompt_limit(values, model_window=model_window)
    return limit - max(0, values.summary_max_tokens - values.reserve_tokens)


def readable_tokens(values: PolicyValues, *, model_window: int | None, calibration: float) -> int:
    """Return the most tokens of a whole request for a summary, in our count; at least 1."""
    limit = request_limit(values, model_window=model_window)
    return in_our_count(max(limit, 1), calibration=calibration)


def prepare_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the tokens from which a summary is prepared in the background."""
    return mark(values.prepare_at, values.prepare_at_tokens, prompt_limit=prompt_limit)


def compact_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the tokens from which history is compacted: the high mark."""
    return mark(values.compact_at, values.compact_at_tokens, prompt_limit=prompt_limit)


def low_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the tokens to which a compaction brings the prompt down."""
    return mark(values.compact_to, values.compact_to_tokens, prompt_limit=prompt_limit)


def in_our_count(tokens: int, *, calibration: float) -> int:
    """Turn a number of the provider's tokens into our count.

    `calibration` is the provider's tokens divided by ours, measured per model. Raises ValueError if
    it is not positive.
    """
    if calibration <= 0:
        raise ValueError("The calibration of a model is a positive factor.")
    return int(tokens / calibration)


@dataclass(frozen=True, slots=True)
class Marks:
    """The prompt limit in the provider's tokens, and the limit and both window marks in ours."""

    prompt_limit: int
    limit: int
    high: int
    low: int


def marks_of(values: PolicyValues, *, model_window: int | None, calibration: float) -> Marks:
    """Return the limit and the marks that hold for a prompt to one model."""
    limit = prompt_limit(values, model_window=model_window)
    high = compact_mark(values, prompt_limit=limit)
    low = low_mark(values, prompt_limit=limit)
    return Marks(limit, *(in_our_count(n, calibration=calibration) for n in (limit, high, low)))
