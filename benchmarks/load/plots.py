"""Line plots as SVG, without other packages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 48
LEGEND_WIDTH = 176
# Distinguishable for colour-blind readers, and dark enough on white.
COLOURS = ("#0b6e99", "#c2410c", "#3f7d20", "#7c3aed", "#a16207", "#be185d", "#475569")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 3", "10 4", "4 4")


def draw_lines(
    series: Mapping[str, Points],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
) -> str:
    """Return an SVG image of named lines. The y axis begins at 0; the x axis may be logarithmic.

    Raises ValueError if there are no points.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        raise ValueError("A plot needs points.")
    axes = Axes(points, log_x=log_x)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
        *draw_grid(axes),
        *draw_labels(x_label, y_label),
    ]
    for number, (name, line) in enumerate(series.items()):
        parts += draw_series(axes, number, name, line)
    return "\n".join([*parts, "</svg>", ""])


class Axes:
    """The scale of both axes, and their ticks."""

    def __init__(self, points: Points, *, log_x: bool) -> None:
        self._log_x = log_x
        xs = [x for x, _ in points]
        self.x_ticks = sorted(set(xs)) if log_x else choose_ticks(min(xs), max(xs))
        self.y_ticks = choose_ticks(0.0, max(y for _, y in points))
        low, high = min(*self.x_ticks, *xs), max(*self.x_ticks, *xs)
        self._low, self._high = self._scaled(low), self._scaled(high)
        self._top = max(self.y_ticks)

    def x(self, value: float) -> float:
        """The horizontal position of a value."""
        width = WIDTH - LEFT - RIGHT - LEGEND_WIDTH
        share = (self._scaled(value) - self._low) / ((self._high - self._low) or 1)
        return round(LEFT + width * share, 1)

    def y(self, value: float) -> float:
        """The vertical position of a value."""
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / (self._top or 1), 1)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self._log_x else value


def choose_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return round numbers that cover a range: multiples of 1, 2 or 5 times a power of ten."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def draw_grid(axes: Axes) -> Iterator[str]:
    """Yield the ticks of both axes with their lines and numbers."""
    right, bottom = WIDTH - RIGHT - LEGEND_WIDTH, HEIGHT - BOTTOM
    for value in axes.y_ticks:
        y = axes.y(value)
        yield f'<path d="M{LEFT} {y}H{right}" stroke="#d4d4d8"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:,.6g}</text>'
    for value in axes.x_ticks:
        x = axes.x(value)
        yield f'<path d="M{x} {bottom}v5" stroke="#52525b"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{value:,.8g}</text>'
    yield f'<path d="M{LEFT} {bottom}H{right}" stroke="#52525b"/>'


def draw_labels(x_label: str, y_label: str) -> Iterator[str]:
    """Yield the names of both axes."""
    middle = LEFT + (WIDTH - LEFT - RIGHT - LEGEND_WIDTH) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>'
    centre = TOP + (HEIGHT - TOP - BOTTOM) / 2
    yield (
        f'<text x="16" y="{centre}" text-anchor="middle" '
        f'transform="rotate(-90 16 {centre})">{escape(y_label)}</text>'
    )


def draw_series(axes: Axes, number: int, name: str, line: Points) -> Iterator[str]:
    """Yield one line with its points, and its entry in the legend."""
    colour = COLOURS[number % len(COLOURS)]
    dashes = f' stroke-dasharray="{DASHES[number % len(DASHES)]}"' if number else ""
    style = f'fill="none" stroke="{colour}" stroke-width="2"{dashes}'
    path = " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in line)
    yield f'<polyline points="{path}" {style}/>'
    if len(line) <= 20:
        for x, y in line:
            yield f'<circle cx="{axes.x(x)}" cy="{axes.y(y)}" r="3" fill="{colour}"/>'
    left, top = WIDTH - RIGHT - LEGEND_WIDTH + 14, TOP + 10 + 20 * number
    yield f'<path d="M{left} {top}h24" {style}/>'
    yield f'<text x="{left + 30}" y="{top + 4}">{escape(name)}</text>'
