"""Line charts as inline SVG: series by class, so that the page's style colours them.

Every point has a title, which browsers show without a script.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 40
COLORS = 8  # classes s0 to s7 of the style
MARKS = ("circle", "square", "diamond", "triangle")
APART, WIDEST = 5.0, 24.0  # pixels between error bars at one x, and from the first to the last


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        label: in the legend.
        points: (x, y, standard error or None).
        color: number of its colour.
        mark: number of its marker; None draws no markers.
        dashed: whether the line is dashed.
    """

    label: str
    points: Sequence[tuple[float, float, float | None]]
    color: int = 0
    mark: int | None = 0
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: its text.
        log: logarithmic.
        ticks: where; None chooses.
    """

    label: str
    log: bool = False
    ticks: Sequence[float] | None = field(default=None)


def chart(title: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """A figure with a legend; what is not finite (or not positive on a log axis) is left out."""
    shown = [_drawable(one, x, y) for one in series]
    shown = [one for one in shown if one.points]
    if not shown:
        return ""
    xs = [point[0] for one in shown for point in one.points]
    ys = [value for one in shown for point in one.points for value in _ends(point, y)]
    to_x = _scale(xs, x.log, LEFT, WIDTH - RIGHT)
    to_y = _scale(ys, y.log, HEIGHT - BOTTOM, TOP)
    name = html.escape(title, quote=True)
    parts = [
        f"<figure><figcaption>{html.escape(title)}</figcaption>",
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">',
        *_axes(x, y, xs, ys, to_x, to_y),
        *(_line(one, to_x, to_y, x, y, by) for one, by in zip(shown, shifts(shown), strict=True)),
        "</svg>",
        '<ul class="legend">',
        *(f"<li>{_key(one)}{html.escape(one.label)}</li>" for one in shown),
        "</ul></figure>",
    ]
    return "\n".join(parts)


def _drawable(one: Series, x: Axis, y: Axis) -> Series:
    def fits(value: float, axis: Axis) -> bool:
        return math.isfinite(value) and (value > 0 or not axis.log)

    points = [p for p in one.points if fits(p[0], x) and fits(p[1], y)]
    return Series(one.label, points, one.color, one.mark, one.dashed)


def _ends(point: tuple[float, float, float | None], y: Axis) -> tuple[float, float]:
    """Ends of a point's error bar; the point itself where it has none that can be drawn."""
    _, value, se = point
    if not se or not math.isfinite(se) or (y.log and value <= se):
        return value, value
    return value - se, value + se


def shifts(series: Sequence[Series]) -> list[float]:
    """Pixels by which each line stands beside its x, so that no error bar hides another."""
    barred = [i for i, one in enumerate(series) if any(se for _, _, se in one.points)]
    size = min(APART, WIDEST / max(len(barred) - 1, 1))
    middle = (len(barred) - 1) / 2
    return [size * (barred.index(i) - middle) if i in barred else 0.0 for i in range(len(series))]


def _scale(values: Sequence[float], log: bool, low: float, high: float) -> Callable[[float], float]:
    """Data to pixels, with a little room at both ends."""

    def plain(value: float) -> float:
        return math.log(value) if log else value

    first, last = plain(min(values)), plain(max(values))
    if first == last:
        first, last = first - 0.5, last + 0.5
    room = 0.04 * (last - first)
    first, last = first - room, last + room
    return lambda value: low + (plain(value) - first) / (last - first) * (high - low)


def _axes(
    x: Axis,
    y: Axis,
    xs: Sequence[float],
    ys: Sequence[float],
    to_x: Callable[[float], float],
    to_y: Callable[[float], float],
) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = ['<g class="axes">']
    for tick in y.ticks or ticks(min(ys), max(ys), y.log):
        at = to_y(tick)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="end">{tick:.4g}</text>')
    for tick in x.ticks or ticks(min(xs), max(xs), x.log):
        at = to_x(tick)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" class="middle">{tick:,g}</text>')
    middle = (LEFT + right) / 2
    label_x, label_y = html.escape(x.label), html.escape(y.label)
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" class="middle">{label_x}</text>')
    turned = f'transform="rotate(-90 12 {(TOP + bottom) / 2})"'
    parts.append(f'<text x="12" y="{(TOP + bottom) / 2}" class="middle" {turned}>{label_y}</text>')
    return [*parts, "</g>"]


def ticks(low: float, high: float, log: bool) -> list[float]:
    """A handful of round numbers between ``low`` and ``high``."""
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            marks = [s * 10.0**p for p in powers for s in steps if low <= s * 10.0**p <= high]
            if len(marks) >= 3:
                return marks
        return marks or [low]
    if low == high:
        return [low]
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(s * size for s in (1, 2, 2.5, 5, 10) if s * size >= rough)
    first = math.ceil(low / step)
    marks = []
    while first * step <= high * (1 + 1e-12):
        marks.append(round(first * step, 12))
        first += 1
    return marks or [low]


def _line(
    one: Series,
    to_x: Callable[[float], float],
    to_y: Callable[[float], float],
    x: Axis,
    y: Axis,
    shift: float,
) -> str:
    path = " ".join(f"{to_x(p[0]) + shift:.1f},{to_y(p[1]):.1f}" for p in one.points)
    dashed = ' class="dashed"' if one.dashed else ""
    parts = [f'<g class="s{one.color % COLORS}"><polyline points="{path}"{dashed}/>']
    for px, py, se in one.points if one.mark is not None else ():
        at_x, at_y = to_x(px) + shift, to_y(py)
        low, high = (to_y(value) for value in _ends((px, py, se), y))
        if low != high:
            parts.append(f'<line x1="{at_x:.1f}" y1="{low:.1f}" x2="{at_x:.1f}" y2="{high:.1f}"/>')
        error = "" if se is None else f" ± {se:.2g}"
        title = html.escape(f"{one.label}: {x.label} {px:g}, {y.label} {py:.4g}{error}")
        parts.append(f"{_mark(one.mark or 0, at_x, at_y)[:-2]}><title>{title}</title></path>")
    return "".join([*parts, "</g>"])


def _mark(number: int, x: float, y: float) -> str:
    """A marker as a path."""
    shapes = {
        "circle": "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
        "square": "m-3.2,-3.2h6.4v6.4h-6.4z",
        "diamond": "m0,-4.4l4.4,4.4l-4.4,4.4l-4.4,-4.4z",
        "triangle": "m0,-4.4l4.2,7.4h-8.4z",
    }
    shape = shapes[MARKS[number % len(MARKS)]]
    return f'<path d="M{x:.1f},{y:.1f}{shape}"/>'


def _key(one: Series) -> str:
    """The piece of line before a label."""
    dashed = ' class="dashed"' if one.dashed else ""
    mark = "" if one.mark is None else _mark(one.mark, 12, 6)
    return (
        f'<svg class="key" viewBox="0 0 24 12" aria-hidden="true"><g class="s{one.color % COLORS}">'
        f'<polyline points="1,6 23,6"{dashed}/>{mark}</g></svg>'
    )
