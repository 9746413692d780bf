"""One small line chart for each number that was measured.

Of thousands of points the lowest and the highest of each column of pixels are kept, so that a peak
of one point is seen. A value that is no finite number is a gap, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import isfinite, isnan
from typing import NamedTuple

from soma._html import safe
from soma.events.human import one_line, printable, times
from soma.pictures.texts import text_width
from soma.tracking.records import MetricPoint
from soma.tracking.report.scale import Tick, number_text, place_in, ticks
from soma.tracking.report.svg import label, length, line, svg

__all__ = ["MAX_PLOTS", "plots_of"]

MAX_PLOTS = 40
_WIDTH, _HEIGHT = 330.0, 170.0
_TOP, _BOTTOM, _RIGHT = 8.0, 34.0, 12.0
_STEP = "step"
_DOTS = 30
"""So few points are shown each."""
_AGAIN = 8
"""Steps that begin again more often than that, as those of many fits do, are no axis."""
_LONGEST_STEP = 10**12


class _Series(NamedTuple):
    """The values of one name, at one node, in one trial."""

    name: str
    about: str
    points: list[MetricPoint]


class _Point(NamedTuple):
    x: float
    y: float


def plots_of(metrics: Mapping[str, list[MetricPoint]], began: float) -> tuple[list[str], int]:
    """Return figures, and how many are left out.

    Args:
        metrics: name -> points, in order.
        began: the beginning of the run, in s since the epoch.
    """
    series = [one for name, points in metrics.items() for one in _series(name, points)]
    return [_figure(one, began) for one in series[:MAX_PLOTS]], max(len(series) - MAX_PLOTS, 0)


def _series(name: str, points: list[MetricPoint]) -> list[_Series]:
    """Return a series for each node and trial that measured under one name."""
    found: dict[tuple[str | None, str | None], list[MetricPoint]] = {}
    for one in points:
        found.setdefault((one.node_id, one.trial_id), []).append(one)
    return [
        _Series(
            name,
            ", ".join(
                f"{what} {printable(id_)}"
                for what, id_ in (("node", node), ("trial", trial))
                if id_ is not None
            ),
            own,
        )
        for (node, trial), own in found.items()
    ]


def _figure(series: _Series, began: float) -> str:
    along, xs = _along(series.points, began)
    parts, drawn = _parts(series.points, xs)
    about = f" <span>{safe(one_line(series.about))}</span>" if series.about else ""
    caption = f"<figcaption>{safe(one_line(series.name) or printable(''))}{about}</figcaption>"
    if not drawn:
        said = f"{times(len(series.points), 'value')}, of which none is a number to be drawn"
        return f"<figure>{caption}<p>{said}.</p></figure>"
    picture = _chart(parts, along, f"{printable(series.name)}: {times(drawn, 'value')}")
    told = f"<p>{_told(series.points)}</p>{_gaps(series, drawn)}"
    return f"<figure>{caption}{picture}{told}</figure>"


def _along(points: list[MetricPoint], began: float) -> tuple[str, list[float]]:
    """Return what the values stand over, and where each of them does."""
    steps = [one.step for one in points if one.step is not None]
    if len(steps) == len(points):
        again = sum(after < before for before, after in pairwise(steps))
        try:
            if again <= _AGAIN:
                return _STEP, [float(one) for one in steps]
        except OverflowError:  # longer than a float
            pass
    return "seconds since the run began", [one.ts - began for one in points]


def _parts(points: list[MetricPoint], xs: list[float]) -> tuple[list[list[_Point]], int]:
    """Return the lines without a gap, and how many points are in them."""
    parts: list[list[_Point]] = [[]]
    for x, point in zip(xs, points, strict=True):
        part = parts[-1]
        if not (isfinite(point.value) and isfinite(x)):
            parts.append([])
        elif part and x < part[-1].x:
            parts.append([_Point(x, point.value)])
        else:
            part.append(_Point(x, point.value))
    found = [one for one in parts if one]
    return found, sum(map(len, found))


def _chart(parts: list[list[_Point]], along: str, title: str) -> str:
    low, high = _ends([one.y for part in parts for one in part])
    first, last = _ends([one.x for part in parts for one in part])
    rows = ticks(low, high, 5)
    left = max(text_width(one.label, 11) for one in rows) + 12
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x_of(x: float) -> float:
        share = place_in(x, first, last) if first < last else 0.5
        return left + 4 + share * (right - left - 8)

    def y_of(y: float) -> float:
        share = place_in(y, low, high) if low < high else 0.5
        return bottom - 5 - share * (bottom - _TOP - 10)

    drawn: list[str] = []
    for row in rows:
        y = y_of(row.value)
        drawn += [line(left, y, right, y, "g-grid"), label(row.label, left - 6, y + 4, "g-s g-e")]
    drawn.append(line(left, bottom, right, bottom, "g-axis"))
    drawn += _below(ticks(first, last, 5, whole=along == _STEP), x_of, bottom, left)
    drawn.append(label(along, (left + right) / 2, _HEIGHT - 4, "g-s g-m"))
    placed = [[_Point(x_of(one.x), y_of(one.y)) for one in part] for part in parts]
    if len(placed) > _WIDTH:  # so many gaps that there are no lines
        drawn.append(_scattered([one for part in placed for one in part]))
    else:
        dots = sum(map(len, parts)) <= _DOTS
        drawn += [shown for part in placed for shown in _line(part, dots=dots)]
    return svg(drawn, _WIDTH, _HEIGHT, title)


def _ends(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _below(
    found: list[Tick], x_of: Callable[[float], float], y: float, left: float
) -> Iterator[str]:
    """Yield what stands below the axis, as much of it as there is room for."""
    taken = left - 20
    for one in found:
        x, half = x_of(one.value), text_width(one.label, 11) / 2
        yield line(x, y, x, y + 4, "g-axis")
        if x - half > taken:
            taken = x + half + 8
            middle = min(x, _WIDTH - half - 1)
            yield label(one.label, middle, y + 16, "g-s g-m")


def _line(points: list[_Point], *, dots: bool) -> Iterator[str]:
    shown = _thinned(points)
    if len(shown) > 1:
        steps = "L".join(f"{length(x)} {length(y)}" for x, y in shown)
        yield f'<path class="g-line" d="M{steps}"/>'
    if dots or len(shown) == 1:
        yield from (
            f'<circle class="g-dot" cx="{length(x)}" cy="{length(y)}" r="2.4"/>' for x, y in shown
        )


def _scattered(points: list[_Point]) -> str:
    """Return points as lines without length, whose round ends are seen."""
    dots = "".join(f"M{length(x)} {length(y)}h0" for x, y in _thinned(points))
    return f'<path class="g-line" style="stroke-width:3;stroke-linecap:round" d="{dots}"/>'


def _thinned(points: list[_Point]) -> list[_Point]:
    """Return of each column of pixels the first, the lowest, the highest and the last point."""
    if len(points) <= 2 * _WIDTH:
        return points
    columns: dict[int, list[int]] = {}
    for place, point in enumerate(points):
        kept = columns.setdefault(int(point.x), [place] * 4)
        kept[1] = min(kept[1], place, key=lambda one: points[one].y)
        kept[2] = max(kept[2], place, key=lambda one: points[one].y)
        kept[3] = place
    return [points[place] for kept in columns.values() for place in sorted(set(kept))]


def _told(points: list[MetricPoint]) -> str:
    real = [one for one in points if isfinite(one.value)]
    low, high = (best(real, key=lambda one: one.value) for best in (min, max))
    said = [f"min {_value(low)}", f"max {_value(high)}", f"last {number_text(points[-1].value)}"]
    return "".join(f"<span>{safe(one)}</span> " for one in said)


def _value(point: MetricPoint) -> str:
    step = point.step
    if step is None or abs(step) > _LONGEST_STEP:
        return number_text(point.value)
    return f"{number_text(point.value)} (step {step:,})"


def _gaps(series: _Series, drawn: int) -> str:
    left_out = len(series.points) - drawn
    if not left_out:
        return ""
    nan = sum(isnan(one.value) for one in series.points)
    infinite = sum(not isfinite(one.value) for one in series.points) - nan
    said = ", ".join(
        f"{count:,} {what}" for count, what in ((nan, "NaN"), (infinite, "infinite")) if count
    )
    return (
        f'<p class="note">{left_out:,} of {times(len(series.points), "value")} '
        f"{'is' if left_out == 1 else 'are'} not drawn{f' ({said})' if said else ''}.</p>"
    )
