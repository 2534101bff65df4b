"""Line and bar charts as SVG, without scripts or inline styles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext, ngettext

from chats.simulation.forecast import Point
from contextpolicy.wording import join_items

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 200, 52, 24, 12
# A line is thinned out to between this number of points and twice as many. More would be
# indistinguishable at this width.
MOST_POINTS = 200
TICKS = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of the chart: CSS kind, path, and markers where the history was shortened."""

    kind: str
    points: str
    marks: Sequence[tuple[float, float, str]]


@dataclass(frozen=True, slots=True)
class Chart:
    lines: Sequence[Curve]
    ticks: Sequence[tuple[float, str]]
    last_turn: int
    rows: Sequence[tuple[int, str, str, bool, bool]]
    description: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM


def build_token_chart(now: Sequence[Point], proposed: Sequence[Point]) -> Chart | None:
    """Return a chart with two token curves over the same turns. None for fewer than two turns."""
    turns = max(len(now), len(proposed))
    if turns < 2:
        return None
    top = max((point.tokens for point in (*now, *proposed)), default=0) or 1
    shortened = [sum(point.compacted for point in course) for course in (now, proposed)]
    return Chart(
        lines=[build_curve("now", now, turns, top), build_curve("proposed", proposed, turns, top)],
        ticks=[
            (scale_tokens(top * n / TICKS, top), f"{round(top * n / TICKS):,}") for n in range(5)
        ],
        last_turn=turns,
        rows=build_chart_rows(now, proposed),
        description=gettext(
            "Prompt size (≈ tokens) over {turns:,} turns. The history is shortened ≈ {now:,} "
            "times under the active policy and ≈ {proposed:,} times under the draft."
        ).format(turns=turns, now=shortened[0], proposed=shortened[1]),
    )


def scale_turn(turn: int, turns: int) -> float:
    return round(LEFT + (turn - 1) / (turns - 1) * (WIDTH - LEFT - 8), 1)


def scale_tokens(tokens: float, top: int) -> float:
    """Return the y coordinate of a number of tokens."""
    return round(TOP + (1 - tokens / top) * (HEIGHT - BOTTOM - TOP), 1)


def build_curve(kind: str, course: Sequence[Point], turns: int, top: int) -> Curve:
    """Return one line, thinned out.

    The places where the history was shortened are thinned out the same way.
    """
    step = max(1, len(course) // MOST_POINTS)
    kept = [p for place, p in enumerate(course) if place % step == 0 or p is course[-1]]
    marks = [point for point in course if point.compacted]
    thin = max(1, len(marks) // MOST_POINTS)
    return Curve(
        kind,
        " ".join(f"{scale_turn(p.turn, turns)},{scale_tokens(p.tokens, top)}" for p in kept),
        [
            (scale_turn(p.turn, turns), scale_tokens(p.tokens, top), format_mark_label(p))
            for p in marks[::thin]
        ],
    )


def format_mark_label(point: Point) -> str:
    """Return the label of a place where the history was shortened."""
    text = ngettext(
        "turn {turn:,}, ≈ {tokens:,} token", "turn {turn:,}, ≈ {tokens:,} tokens", point.tokens
    )
    return text.format(turn=point.turn, tokens=point.tokens)


def build_chart_rows(
    now: Sequence[Point], proposed: Sequence[Point]
) -> list[tuple[int, str, str, bool, bool]]:
    """Return the chart as a table of at most 20 turns, newest last."""
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
    """A segment of a bar: series, position, size and tooltip."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    said: str


@dataclass(frozen=True, slots=True)
class Bars:
    title: str
    bars: Sequence[ChartBar]
    ticks: Sequence[tuple[float, str]]
    first: str
    last: str
    description: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT


def build_bar_chart(
    title: str,
    labels: Sequence[str],
    series: Sequence[Sequence[int]],
    *,
    names: Sequence[Callable[[int], str]],
    kinds: Sequence[str] = ("series-0", "series-1"),
) -> Bars:
    """Return one bar per label. The first series is at the bottom.

    For each series, `names` has a function that formats a number with the name of the series.
    """
    sums = [sum(values) for values in zip(*series, strict=True)]
    # A multiple of the tick count, so that all axis labels are whole numbers.
    top = -(-max(sums, default=0) // TICKS) * TICKS or TICKS
    step = (WIDTH - LEFT) / max(len(labels), 1)
    drawn = []
    for place, label in enumerate(labels):
        below = 0
        for kind, name, values in zip(kinds, names, series, strict=True):
            if not (value := values[place]):
                continue
            y, base = scale_tokens(below + value, top), scale_tokens(below, top)
            x, below = round(LEFT + place * step, 1), below + value
            text = gettext("{day}: {count}").format(day=label, count=name(value))
            height = max(round(base - y, 1), 0.5)
            drawn.append(ChartBar(kind, x, y, round(step * 0.8, 1), height, text))
    whole = join_items(name(sum(values)) for name, values in zip(names, series, strict=True))
    return Bars(
        title=title,
        bars=drawn,
        ticks=[
            (scale_tokens(top * n / TICKS, top), abbreviate_axis_number(round(top * n / TICKS)))
            for n in range(5)
        ],
        first=labels[0] if labels else "",
        last=labels[-1] if labels else "",
        description=gettext("{title}. Total: {numbers}.").format(title=title, numbers=whole),
    )


def abbreviate_axis_number(number: int) -> str:
    """Abbreviate a number for a chart axis: 1,250,000 → 1.25M."""
    for size, mark in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1_000 if mark == 'k' else size):.3g}{mark}"
    return f"{number:,}"
