"""Streamed replies under load: time to the first token, CPU time, and lost or reordered tokens.

`python -m benchmarks.streams [--targets direct,sqlite] [--axis streams] [--values 1,20,100]` starts
a fake model server, and each target in turn: `direct` (the fake server itself), `floor` (a minimal
stack of the same components), `sqlite` and `postgres` (the product), `apart` (message and reply in
two requests), `gateway`, and the peers `chainlit` and `litellm`. The values are the numbers of
simultaneous streams, of messages in each chat, or of the person's other chats. It prints a table,
writes plots with `--plots FOLDER`, and fails if a token is lost, repeated or reordered.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from benchmarks.load.cells import Cell, Plan, measure_cell, median_of
from benchmarks.load.model import ModelServer, Pace, model_server
from benchmarks.load.plots import draw_lines
from benchmarks.load.servers import SERVER, STARTS, Stored

AXES = {
    "streams": "streams at the same time",
    "messages": "messages in each chat",
    "chats": "other chats of the person",
}
DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Sweep:
    """One axis with its values. `people` take turns at the same time unless the axis is streams."""

    axis: str
    values: Sequence[int]
    people: int
    pace: Pace
    tail: float

    def stored(self, value: int) -> Stored:
        """The rows of an instance at a value."""
        if self.axis == "messages":
            return Stored(messages=value, people=self.people)
        return Stored(chats=value if self.axis == "chats" else 0)

    def plan(self, value: int) -> tuple[int, Plan]:
        """The people at a value, and their turns: about 200 in total, from 2 to 10 each."""
        people = value if self.axis == "streams" else self.people
        return people, Plan(max(2, min(10, 200 // people)), self.pace.tokens, self.tail)


def parse_numbers(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [int(each) for each in text.split(",")]


def choose_targets(names: str) -> list[str]:
    """Return the targets that can be measured here: PostgreSQL needs a server."""
    chosen = names.split(",")
    if "postgres" in chosen and not os.environ.get(SERVER):
        sys.stderr.write("PostgreSQL is left out: it needs scripts/with_postgres.sh.\n")
        chosen.remove("postgres")
    return chosen


def measure_target(name: str, model: ModelServer, sweep: Sweep, *, repeat: int) -> Iterator[Cell]:
    """Measure a target at each value. Values with the same stored rows share one instance."""
    for stored in dict.fromkeys(sweep.stored(value) for value in sweep.values):
        with STARTS[name](model, stored) as target:
            for value in sweep.values:
                if sweep.stored(value) == stored:
                    people, plan = sweep.plan(value)
                    cell = Cell(target.name, value, repeat)
                    yield uvloop.run(measure_cell(cell, target, people, plan))


def measure_sweep(sweep: Sweep, targets: Sequence[str], *, repeats: int) -> list[Cell]:
    """Measure every target in turn, several times."""
    cells = []
    with model_server(sweep.pace) as model:
        for repeat in range(repeats):
            for name in targets:
                for cell in measure_target(name, model, sweep, repeat=repeat):
                    sys.stderr.write(f"{describe_cell(cell)}\n")
                    cells.append(cell)
    return cells


def describe_cell(cell: Cell) -> str:
    """Return a line about one measurement."""
    cpu = " ".join(f"{role} {used:.2f}" for role, used in cell.cpu.items())
    errors = " ".join(f"{number} × {error}" for error, number in cell.errors.most_common(3))
    return (
        f"{cell.target} {cell.x:g}: {cell.turns} turns, first token {cell.p50:.0f} /"
        f" {cell.p95:.0f} ms, lost {cell.lost}, repeated {cell.repeated}, reordered"
        f" {cell.reordered}, CPU s: {cpu or '-'}, others {cell.other_cpu:.2f} {errors}".rstrip()
    )


def group(cells: Sequence[Cell]) -> dict[str, dict[float, list[Cell]]]:
    """Return the measurements by target and `x`."""
    found: dict[str, dict[float, list[Cell]]] = {}
    for cell in cells:
        found.setdefault(cell.target, {}).setdefault(cell.x, []).append(cell)
    return found


def compute_added(cells: Sequence[Cell], name: str) -> dict[str, list[tuple[float, float]]]:
    """Return each target's time to the first token above that of the direct target.

    Each value is the median of the differences within one repeat.
    """
    direct = {(cell.x, cell.repeat): getattr(cell, name) for cell in cells if cell.target == DIRECT}
    found = {}
    for target, by_value in group(cells).items():
        if target != DIRECT:
            found[target] = [
                (x, sorted(differences)[len(differences) // 2])
                for x, own in by_value.items()
                if (
                    differences := [
                        getattr(cell, name) - direct.get((x, cell.repeat), 0.0) for cell in own
                    ]
                )
                and not math.isnan(sum(differences))
            ]
    return found


def iter_table(cells: Sequence[Cell], axis: str) -> Iterator[str]:
    """Yield the lines of the table of medians."""
    yield (
        f"| {axis} | target | added to the first token, p50 / p95 | tokens/s ÷ direct |"
        " CPU-s per 1,000 tokens | by process | lost, repeated, reordered, failed |"
    )
    yield "|---|---|---|---|---|---|---|"
    added, slow = compute_added(cells, "p50"), compute_added(cells, "p95")
    by_target = group(cells)
    for x in sorted({cell.x for cell in cells}):
        whole = by_target.get(DIRECT, {}).get(x)
        for target, by_value in by_target.items():
            own = by_value.get(x)
            if target == DIRECT or not own:
                continue
            share = median_of(own, "rate") / median_of(whole, "rate") if whole else float("nan")
            first = f"{dict(added[target])[x]:.1f} / {dict(slow[target])[x]:.1f} ms"
            faults = ", ".join(
                str(sum(getattr(cell, name) for cell in own))
                for name in ("lost", "repeated", "reordered", "failed")
            )
            yield (
                f"| {x:g} | {target} | {first} | {share:.2f} |"
                f" {median_of(own, 'cpu_per_1000'):.3f} | {describe_roles(own)} | {faults} |"
            )


def describe_roles(cells: Sequence[Cell]) -> str:
    """Return the CPU seconds per 1,000 tokens of each role."""
    tokens = sum(cell.tokens for cell in cells) or 1
    roles = dict.fromkeys(role for cell in cells for role in cell.cpu)
    used = {role: 1000 * sum(c.cpu.get(role, 0.0) for c in cells) / tokens for role in roles}
    return ", ".join(f"{role} {each:.3f}" for role, each in used.items() if each >= 0.0005)


def draw_plots(cells: Sequence[Cell], axis: str, folder: Path) -> None:
    """Write both plots of an axis: time to the first token, and CPU time."""
    folder.mkdir(parents=True, exist_ok=True)
    added = compute_added(cells, "p50")
    used = {
        target: [(x, median_of(own, "cpu_per_1000")) for x, own in by_value.items()]
        for target, by_value in group(cells).items()
        if target != DIRECT
    }
    for name, lines, title, label in (
        ("first-token", added, "Time added to the first token (median)", "ms"),
        ("cpu", used, "CPU time for 1,000 tokens, all processes", "seconds"),
    ):
        drawn = draw_lines(lines, title=title, x_label=AXES[axis], y_label=label, log_x=True)
        (folder / f"{name}-{axis}.svg").write_text(drawn, encoding="utf-8")


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default="direct,floor,sqlite,postgres,gateway")
    parser.add_argument("--axis", choices=list(AXES), default="streams")
    parser.add_argument("--values", type=parse_numbers, default=[1, 20, 100])
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--tail", type=float, default=8.0)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--out", type=Path, help="a JSON file of all measurements")
    asked = parser.parse_args()
    sweep = Sweep(asked.axis, asked.values, asked.people, Pace(asked.tokens), asked.tail)
    cells = measure_sweep(sweep, choose_targets(asked.targets), repeats=asked.repeat)
    sys.stdout.write("\n".join(iter_table(cells, asked.axis)) + "\n")
    if asked.out:
        asked.out.write_text(json.dumps([asdict(cell) for cell in cells]), encoding="utf-8")
    if asked.plots:
        draw_plots(cells, asked.axis, asked.plots)
    sys.exit(0 if all(cell.is_faultless() for cell in cells) else 1)


if __name__ == "__main__":
    main()
