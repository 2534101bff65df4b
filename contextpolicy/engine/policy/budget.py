"""Token arithmetic: the prompt limit, its marks, and the size of each part of a prompt."""

from dataclasses import dataclass

from contextpolicy.engine.policy.fields.history import compute_mark_tokens
from contextpolicy.engine.policy.policy import PolicyValues


class BudgetRefusal(Exception):
    """A prompt cannot be built within its limit. `code` is stable; the text suggests a fix."""

    code = "budget_refused"


class PolicyImpossible(BudgetRefusal):
    """The policy values cannot work, or the system text and the tools exceed the prompt limit.

    No question can be answered, whatever the chat contains.
    """

    code = "policy_impossible"


class QuestionTooLarge(BudgetRefusal):
    """The message to be answered does not fit together with the system text and the tools."""

    code = "message_too_large"


class TurnTooLarge(BudgetRefusal):
    """The newest step of the running turn does not fit, even with truncated tool results."""

    code = "turn_too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The tokens that a prompt may use, and those that it uses.

    `token_budget`, `reserve` and `prompt_limit` are in the provider's tokens. `limit` is the prompt
    limit in local tokens (`prompt_limit` / `calibration`); the parts listed after it are in local
    tokens too.
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


def compute_prompt_limit(values: PolicyValues, *, model_window: int | None) -> int:
    """Return the maximum number of tokens of a prompt.

    This is the budget or the model's window, whichever is smaller, minus the reserve. It may be
    zero or negative for values that cannot work with the model.
    """
    ceiling = values.token_budget
    if model_window is not None:
        ceiling = min(ceiling, model_window)
    return ceiling - values.reserve_tokens


def compute_request_limit(values: PolicyValues, *, model_window: int | None) -> int:
    """Return the maximum number of input tokens of a summary request.

    This is the prompt limit, less the tokens by which a summary can exceed the reserve.
    """
    limit = compute_prompt_limit(values, model_window=model_window)
    return limit - max(0, values.summary_max_tokens - values.reserve_tokens)


def compute_readable_tokens(
    values: PolicyValues, *, model_window: int | None, calibration: float
) -> int:
    """Return the maximum size of a whole summary request in local tokens.

    A limit below 1 provider token counts as 1.
    """
    limit = compute_request_limit(values, model_window=model_window)
    return convert_provider_tokens(max(limit, 1), calibration=calibration)


def compute_prepare_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the prompt size, in provider tokens, from which a summary is prepared."""
    return compute_mark_tokens(
        values.prepare_at, values.prepare_at_tokens, prompt_limit=prompt_limit
    )


def compute_compact_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the high mark: the prompt size in provider tokens from which history is compacted."""
    return compute_mark_tokens(
        values.compact_at, values.compact_at_tokens, prompt_limit=prompt_limit
    )


def compute_low_mark(values: PolicyValues, *, prompt_limit: int) -> int:
    """Return the low mark: the prompt size, in provider tokens, after a compaction."""
    return compute_mark_tokens(
        values.compact_to, values.compact_to_tokens, prompt_limit=prompt_limit
    )


def convert_provider_tokens(tokens: int, *, calibration: float) -> int:
    """Convert the provider's tokens to local tokens.

    `calibration` is the provider's tokens divided by local tokens, measured per model. Raises
    ValueError if it is not positive.
    """
    if calibration <= 0:
        raise ValueError("The calibration of a model must be positive.")
    return int(tokens / calibration)


@dataclass(frozen=True, slots=True)
class Marks:
    """The prompt limit in provider tokens, and the limit and both marks in local tokens."""

    prompt_limit: int
    limit: int
    high: int
    low: int


def compute_prompt_marks(
    values: PolicyValues, *, model_window: int | None, calibration: float
) -> Marks:
    limit = compute_prompt_limit(values, model_window=model_window)
    high = compute_compact_mark(values, prompt_limit=limit)
    low = compute_low_mark(values, prompt_limit=limit)
    return Marks(
        limit, *(convert_provider_tokens(n, calibration=calibration) for n in (limit, high, low))
    )
