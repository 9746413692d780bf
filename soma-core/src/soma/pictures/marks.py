"""Small pieces of SVG: texts, rectangles, lines with a tip, icons.

Tips and icons are paths at their place. Markers and symbols would need ids, and an id holds for the
whole page.
"""

from __future__ import annotations

from itertools import pairwise
from math import hypot

from soma.pictures.placed import Point, Rect
from soma.pictures.style import classes
from soma.pictures.texts import xml

__all__ = ["branch_icon", "line_path", "loop_icon", "number", "outcome_icon", "rect", "text", "tip"]

_CORNER = 7.0
_TIP_LENGTH, _TIP_HALF = 8.0, 4.0
_DIAMOND = "l5.5 5.5-5.5 5.5-5.5-5.5z"
_GLYPHS = {
    "hit": "m-2.8 .2 2 2 3.8-4.2",
    "running": "m-1.3-2.5 3.6 2.5-3.6 2.5z",
    "unfinished": "m0-2.6v3m0 1.8v.2",
    "failed": "m-2.3-2.3 4.6 4.6m0-4.6-4.6 4.6",
}


def number(value: float) -> str:
    """Return a length as it is written, to a tenth of a pixel."""
    written = f"{value:.1f}"
    return "0" if written in {"0.0", "-0.0"} else written.removesuffix(".0")


def text(shown: str, x: float, y: float, *names: str) -> str:
    """Return a text that is printable already, its baseline at y."""
    return f'<text {classes("text", *names)} x="{number(x)}" y="{number(y)}">{xml(shown)}</text>'


def rect(at: Rect, radius: float, *names: str) -> str:
    """Return a rectangle with rounded corners."""
    place = f'x="{number(at.x)}" y="{number(at.y)}"'
    size = f'width="{number(at.width)}" height="{number(at.height)}"'
    return f'<rect {classes(*names)} {place} {size} rx="{number(radius)}"/>'


def line_path(points: list[Point]) -> str:
    """Return the path along points, its corners rounded; it stops short of the tip."""
    *rest, (x, y) = points
    before = rest[-1]
    length = hypot(x - before[0], y - before[1]) or 1.0
    short = min(_TIP_LENGTH - 1, length)
    last = x - (x - before[0]) / length * short, y - (y - before[1]) / length * short
    steps = [f"M{_point(points[0])}"]
    for (a, b), (_, c) in pairwise(pairwise([*rest, last])):
        radius = min(_CORNER, _distance(a, b) / 2, _distance(b, c) / 2)
        steps.append(
            f"L{_point(_toward(b, a, radius))}Q{_point(b)} {_point(_toward(b, c, radius))}"
        )
    return "".join([*steps, f"L{_point(last)}"])


def tip(points: list[Point]) -> str:
    """Return the path of the arrow head at the last of the points."""
    before, end = points[-2:]
    back = _toward(end, before, _TIP_LENGTH)
    across = (back[1] - end[1]) / 2, (end[0] - back[0]) / 2
    left = back[0] + across[0], back[1] + across[1]
    right = back[0] - across[0], back[1] - across[1]
    return f"M{_point(end)}L{_point(left)}L{_point(right)}Z"


def outcome_icon(outcome: str, x: float, y: float) -> str:
    """Return the icon of an outcome, with its centre there: another shape for each."""
    inked = classes(f"{outcome}-ink")
    if outcome == "computed":
        return f'<path {inked} d="M{_point((x, y - 5.5))}{_DIAMOND}"/>'
    if outcome == "recomputed":  # two of them
        first = f"M{_point((x - 3.2, y - 5.5))}l1.8 1.8-3.7 3.7 3.7 3.7-1.8 1.8-5.5-5.5z"
        return f'<path {inked} d="{first}M{_point((x + 1.8, y - 5.5))}{_DIAMOND}"/>'
    disc = f'<circle {inked} cx="{number(x)}" cy="{number(y)}" r="5.5"/>'
    return f'{disc}<path {classes("glyph")} d="M{_point((x, y))}{_GLYPHS[outcome]}"/>'


def loop_icon(x: float, y: float) -> str:
    """Return an arrow that goes round."""
    circle, head = "m4-3.4a5.2 5.2 0 1 0 1.2 3.6", "m-.8-6.6v3.2h-3.2"
    return f'<path {classes("icon")} d="M{_point((x, y))}{circle}{head}"/>'


def branch_icon(x: float, y: float) -> str:
    """Return a way that forks."""
    return f'<path {classes("icon")} d="M{_point((x, y))}m0-5.5v3.5l-5 5v2.5m5-7.5 5 5v2.5"/>'


def _point(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def _distance(a: Point, b: Point) -> float:
    return hypot(a[0] - b[0], a[1] - b[1])


def _toward(start: Point, end: Point, by: float) -> Point:
    """Return the point so far from the start in the direction of the end."""
    length = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) / length * by, start[1] + (
        end[1] - start[1]
    ) / length * by
