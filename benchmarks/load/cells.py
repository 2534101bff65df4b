"""One measurement: a number of people who each take turns at one target."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.load.client import TokenMeter
from benchmarks.load.meter import read_cpu_seconds, read_machine_seconds
from benchmarks.load.targets import Target, write_text

TURN_SECONDS = 60.0
# Background work after an import may take minutes.
MOST_SETTLING = 900.0


@dataclass
class Cell:
    """The result of one measurement. Times are in milliseconds, CPU times in seconds.

    `cpu` is by role, with the tail: the work after the last reply. `other_cpu` is the use of one
    core by other processes during the load, the driver and the fake model server included.
    """

    target: str
    x: float
    repeat: int
    turns: int = 0
    first_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    cpu: dict[str, float] = field(default_factory=dict)
    other_cpu: float = 0.0

    @property
    def p50(self) -> float:
        """The median time to the first token."""
        return statistics.median(self.first_ms) if self.first_ms else float("nan")

    @property
    def p95(self) -> float:
        """The 95th percentile of the time to the first token."""
        if len(self.first_ms) < 2:
            return self.p50
        return statistics.quantiles(self.first_ms, n=20, method="inclusive")[-1]

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds of all roles for 1,000 tokens."""
        return 1000 * sum(self.cpu.values()) / max(self.tokens, 1)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / (self.seconds or 1)

    @property
    def failed(self) -> int:
        """The turns that ended with an error."""
        return sum(self.errors.values())

    def is_faultless(self) -> bool:
        """Return True if every token arrived once and in order."""
        return not (self.lost or self.repeated or self.reordered or self.errors)

    def count(self, meter: TokenMeter, error: str, *, expected: int) -> None:
        """Add one turn."""
        self.turns += 1
        self.tokens += len(meter.seen)
        self.repeated += meter.repeated
        self.reordered += meter.reordered
        if meter.first_ns:
            self.first_ms.append(meter.first_ms)
        if error:
            self.errors[error] += 1
        else:
            self.lost += expected - len(meter.seen)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a cell is measured: turns per person, tokens per reply, and seconds of tail.

    The people begin within `ramp` seconds.
    """

    turns: int
    tokens: int
    tail: float = 8.0
    ramp: float = 1.0


async def measure_cell(cell: Cell, target: Target, people: int, plan: Plan) -> Cell:
    """Let people take turns at a target, wait for the tail, and return the filled cell.

    Before, each person takes one turn, and the target finishes the work that follows. Raises
    RuntimeError if none of these turns succeeds.
    """
    await target.prepare(people)
    try:
        warm_up = Cell(cell.target, cell.x, cell.repeat)
        await _take_all_turns(warm_up, target, people, replace(plan, turns=1))
        if warm_up.failed == people:
            raise RuntimeError(f"{cell.target} does not reply: {dict(warm_up.errors)}")
        await wait_until_idle(target.pids)
        used, machine = read_cpu_seconds(target.pids), read_machine_seconds()
        begun = time.monotonic()
        await _take_all_turns(cell, target, people, plan)
        cell.seconds = time.monotonic() - begun
        own = sum(_subtract(read_cpu_seconds(target.pids), used).values())
        cell.other_cpu = (read_machine_seconds() - machine - own) / cell.seconds
        if target.pids:
            await asyncio.sleep(plan.tail)
            cell.cpu = _subtract(read_cpu_seconds(target.pids), used)
    finally:
        await target.close()
    return cell


async def wait_until_idle(pids: Sequence[int]) -> None:
    """Wait until these processes use less than a tenth of a core for two seconds."""
    give_up = time.monotonic() + MOST_SETTLING
    while pids and time.monotonic() < give_up:
        before = read_cpu_seconds(pids)
        await asyncio.sleep(2.0)
        if sum(_subtract(read_cpu_seconds(pids), before).values()) < 0.2:
            return


async def _take_all_turns(cell: Cell, target: Target, people: int, plan: Plan) -> None:
    """Take the turns of all people."""
    await asyncio.gather(*(_take_turns(cell, target, n, people, plan) for n in range(people)))


async def _take_turns(cell: Cell, target: Target, person: int, people: int, plan: Plan) -> None:
    """Take the turns of one person, one after the other."""
    chance = random.Random(person)  # noqa: S311  # the same in every run
    await asyncio.sleep(plan.ramp * person / people)
    for _ in range(plan.turns):
        meter = TokenMeter()
        try:
            turn = target.take_turn(person, write_text(chance), meter)
            error = await asyncio.wait_for(turn, TURN_SECONDS)
        except (OSError, TimeoutError) as failed:
            error = f"{type(failed).__name__}: {failed}"
        cell.count(meter, error, expected=plan.tokens)


def _subtract(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """The difference of CPU times by role."""
    return {role: max(used - before.get(role, 0.0), 0.0) for role, used in after.items()}


def median_of(cells: Sequence[Cell], name: str) -> float:
    """The median of a figure over repeats."""
    return float(statistics.median(getattr(cell, name) for cell in cells))
