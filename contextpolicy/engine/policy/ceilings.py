"""The ceilings of history: whether a history is near one, or small enough again."""

from dataclasses import dataclass

from contextpolicy.engine.policy.policy import PolicyValues


@dataclass(frozen=True, slots=True)
class History:
    """The size of a history in each unit that has a ceiling."""

    messages: int
    turns: int
    tokens: int


def is_near_ceiling(history: History, *, values: PolicyValues) -> bool:
    """Return True if history has reached the prepare mark of a ceiling."""
    return any(
        size >= values.prepare_at * ceiling for size, ceiling in _measure_sizes(history, values)
    )


def is_low_enough(history: History, *, values: PolicyValues) -> bool:
    """Return True if the remaining history is at or below the low mark of every ceiling."""
    return all(
        size <= int(values.compact_to * ceiling)
        for size, ceiling in _measure_sizes(history, values)
    )


def _measure_sizes(history: History, values: PolicyValues) -> list[tuple[int, int]]:
    pairs = (
        (history.messages, values.window_size),
        (history.turns, values.window_turns),
        (history.tokens, values.window_tokens),
    )
    return [(size, ceiling) for size, ceiling in pairs if ceiling is not None]
