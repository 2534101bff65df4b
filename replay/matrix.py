"""Plays recorded conversations through the pure engine: every strategy, layout and budget.

`replay` plays a recording through the whole product under one policy. A chat in memory
is much faster, so playing all combinations takes only minutes. Every prompt is checked
independently of the engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import INSTANCE_DEFAULTS, PRESETS, PolicyValues
from replay.faults import FAULTS
from replay.in_memory import PlayedTurn, Tally, play_conversation

# By default `entity_state` sends no history at all, which would leave little to check.
STRATEGIES: Mapping[str, PolicyValues] = {
    **INSTANCE_DEFAULTS,
    "dynamic_summary": PRESETS["long_chats"],
    "rounds": PRESETS["rounds"],
    "entity_state": replace(
        INSTANCE_DEFAULTS["entity_state"], keep_last_messages=6, state_schema={"type": "object"}
    ),
}
LAYOUTS: tuple[Layout, ...] = ("multi_turn", "A", "B", "C")
# Token budget, reserve, largest summary.
BUDGETS = ((2_600, 600, 300), (8_000, 2_000, 1_000), (32_000, 8_000, 2_000))
NUMBERS = ("calls", "refused", "largest", "moves", "summaries", "rejected", "breaks")
HEADING = " ".join(
    [f"{'strategy':16} {'layout':10} {'limit':>6}", *(f"{name:>9}" for name in NUMBERS)]
    + [f"{name:>13}" for name in FAULTS]
)


class ByteCounter:
    """A token counter that returns a third of the bytes, rounded up.

    It is about 60 times as fast as a tokenizer. The invariants must hold with any counter.
    """

    version = "bytes-1"

    def count(self, text: str) -> int:
        return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of strategy, layout and token budget."""

    strategy: str
    values: PolicyValues

    @property
    def limit(self) -> int:
        return self.values.token_budget - self.values.reserve_tokens


def generate_policy_combinations() -> Iterator[Combination]:
    """Yield every strategy with every layout and budget."""
    for name, layout, (budget, reserve, summary) in product(STRATEGIES, LAYOUTS, BUDGETS):
        yield Combination(
            name,
            replace(
                STRATEGIES[name],
                layout=layout,
                token_budget=budget,
                reserve_tokens=reserve,
                summary_max_tokens=summary,
            ),
        )


def format_table_row(combination: Combination, tally: Tally) -> str:
    """Return the table row of a combination under `HEADING`."""
    values = combination.values
    numbers = [f"{getattr(tally, name):>9}" for name in NUMBERS]
    faults = [f"{tally.faults[name]:>13}" for name in FAULTS]
    head = f"{combination.strategy:16} {values.layout:10} {combination.limit:>6}"
    return " ".join([head, *numbers, *faults])


def play_combination(
    combination: Combination, chats: Sequence[Sequence[PlayedTurn]], *, counter: TokenCounter
) -> Tally:
    tally = Tally()
    for turns in chats:
        play_conversation(turns, values=combination.values, counter=counter, tally=tally)
    return tally
