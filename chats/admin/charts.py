"""Draws courses of numbers as SVG that needs no script and no style of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from chats.simulation.forecast import Point

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 200, 52, 24, 12
# Points of a line: more would not be told apart at this width.
MOST_POINTS = 200
TICKS = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """One course: its kind for the style sheet, the path, and where the history was shortened."""

    kind: str
    points: str
    marks: Sequence[tuple[float, float, str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything the template of a chart writes."""

    lines: Sequence[Curve]
    ticks: Sequence[tuple[float, str]]
    last_turn: int
    rows: Sequence[tuple[int, str, str, bool, bool]]
    told: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM


def chart_of(now: Sequence[Point], proposed: Sequence[Point]) -> Chart | None:
    """Draw two courses over the same turns; None where there are fewer than two turns."""
    turns = max(len(now), len(proposed))
    if turns < 2:
        return None
    top = max((point.tokens for point in (*now, *proposed)), default=0) or 1
    shortened = [sum(point.compacted for point in course) for course in (now, proposed)]
    return Chart(
        lines=[line("now", now, turns, top), line("proposed", proposed, turns, top)],
        ticks=[(y_of(top * n / TICKS, top), f"{round(top * n / TICKS):,}") for n in range(5)],
        last_turn=turns,
        rows=rows(now, proposed),
        told=f"≈ tokens of the prompt over {turns:,} turns. Now the history is shortened "
        f"≈ {shortened[0]:,} times, as proposed ≈ {shortened[1]:,} times.",
    )


def x_of(turn: int, turns: int) -> float:
    """Return where a turn stands."""
    return round(LEFT + (turn - 1) / (turns - 1) * (WIDTH - LEFT - 8), 1)


def y_of(tokens: float, top: int) -> float:
    """Return where a number of tokens stands."""
    return round(TOP + (1 - tokens / top) * (HEIGHT - BOTTOM - TOP), 1)


def line(kind: str, course: Sequence[Point], turns: int, top: int) -> Curve:
    """Draw one course, thinned out; every place where the history was shortened stays."""
    step = max(1, len(course) // MOST_POINTS)
    kept = [p for place, p in enumerate(course) if place % step == 0 or p is course[-1]]
    marks = [point for point in course if point.compacted]
    thin = max(1, len(marks) // MOST_POINTS)
    return Curve(
        kind,
        " ".join(f"{x_of(p.turn, turns)},{y_of(p.tokens, top)}" for p in kept),
        [
            (x_of(p.turn, turns), y_of(p.tokens, top), f"turn {p.turn:,}, ≈ {p.tokens:,} tokens")
            for p in marks[::thin]
        ],
    )


def rows(now: Sequence[Point], proposed: Sequence[Point]) -> list[tuple[int, str, str, bool, bool]]:
    """Return the numbers of the chart as a table of at most twenty turns, the newest last."""
    turns = max(len(now), len(proposed))
    step = max(1, -(-turns // 20))
    found = []
    for turn in range(turns, 0, -step):
        a, b = (course[turn - 1] if turn <= len(course) else None for course in (now, proposed))
        found.append(
            (
                turn,
                f"≈ {a.tokens:,}" if a else "–",
                f"≈ {b.tokens:,}" if b else "–",
                bool(a and a.compacted),
                bool(b and b.compacted),
            )
        )
    return found[::-1]


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One piece of a bar: which series it is of, where it stands, and what it says."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    said: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of bars, the pieces of each on top of one another."""

    title: str
    bars: Sequence[ChartBar]
    ticks: Sequence[tuple[float, str]]
    first: str
    last: str
    told: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT


def bars_of(
    title: str,
    labels: Sequence[str],
    series: Sequence[Sequence[int]],
    *,
    names: Sequence[str],
    kinds: Sequence[str] = ("series-0", "series-1"),
) -> Bars:
    """Draw one bar for each label; the first series stands at the bottom."""
    sums = [sum(values) for values in zip(*series, strict=True)]
    # The numbers beside the lines are whole.
    top = -(-max(sums, default=0) // TICKS) * TICKS or TICKS
    step = (WIDTH - LEFT) / max(len(labels), 1)
    drawn = []
    for place, label in enumerate(labels):
        below = 0
        for kind, name, values in zip(kinds, names, series, strict=True):
            if not (value := values[place]):
                continue
            y, base = y_of(below + value, top), y_of(below, top)
            x, below = round(LEFT + place * step, 1), below + value
            said = f"{label}: {value:,} {name}"
            height = max(round(base - y, 1), 0.5)
            drawn.append(ChartBar(kind, x, y, round(step * 0.8, 1), height, said))
    whole = ", ".join(f"{sum(values):,} {name}" for name, values in zip(names, series, strict=True))
    return Bars(
        title=title,
        bars=drawn,
        ticks=[(y_of(top * n / TICKS, top), in_short(round(top * n / TICKS))) for n in range(5)],
        first=labels[0] if labels else "",
        last=labels[-1] if labels else "",
        told=f"{title}. Altogether {whole}.",
    )


def in_short(number: int) -> str:
    """Write a number so that it fits beside a chart: 1,250,000 → 1.25M."""
    for size, mark in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1_000 if mark == 'k' else size):.3g}{mark}"
    return f"{number:,}"
