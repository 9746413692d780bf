"""A scene with a place for everything: frozen data, from the layout to whoever draws it.

Lengths are pixels, and y grows downwards. Every area counts from its own upper left corner, which
is what its frame says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from soma.pictures.scene import Body, Box, Frame

__all__ = [
    "Area",
    "Line",
    "LineKind",
    "PlacedBody",
    "PlacedBox",
    "PlacedFrame",
    "PlacedGroup",
    "Point",
    "Rect",
]

Point: TypeAlias = tuple[float, float]
LineKind: TypeAlias = Literal["data", "choice", "again"]
"""``"choice"``: it decides and feeds nothing. ``"again"``: what a loop carries round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rect:
    """Where something is."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, by: Point) -> Rect:
        """Return the same elsewhere."""
        return Rect(x=self.x + by[0], y=self.y + by[1], width=self.width, height=self.height)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBox:
    """A box."""

    box: Box
    at: Rect


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """The border around the boxes of a group, which are among the boxes of the area."""

    title: str
    at: Rect


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBody:
    """A body: its border within the frame, and where in it the area begins."""

    body: Body
    at: Rect
    origin: Point
    area: Area


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFrame:
    """A frame; the places of its bodies count from its upper left corner."""

    frame: Frame
    at: Rect
    bodies: tuple[PlacedBody, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An arrow, from border to border."""

    points: tuple[Point, ...]
    kind: LineKind
    ends: tuple[str, ...]
    """The ids that it names; one that leads to the rim of a loop has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A scene that is laid out."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...] = ()
    groups: tuple[PlacedGroup, ...] = ()
    frames: tuple[PlacedFrame, ...] = ()
    lines: tuple[Line, ...] = ()
    rims: tuple[Rect, ...] = ()
    """Of a loop: the bars at which what is carried comes in and goes out."""
