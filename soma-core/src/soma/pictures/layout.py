"""A place for everything in a scene.

Bodies come first: each is laid out by itself, and its frame is then a box of that size in the scene
around it. A loop is drawn going round: a bar at its top, where what it gets and what it carries
come in, one at its bottom, where it goes on or out, and a line from this one back to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil

from soma.errors import InvalidInput
from soma.pictures.effort import effort_of
from soma.pictures.layered import Cell, Grid, Link, lay_out
from soma.pictures.measure import ARM_LABEL, GAP, PAD, arm_width, box_size, frame_header
from soma.pictures.overlay import Overlay
from soma.pictures.placed import (
    Area,
    Line,
    LineKind,
    PlacedBody,
    PlacedBox,
    PlacedFrame,
    PlacedGroup,
    Rect,
)
from soma.pictures.scene import Body, Box, Frame, Group, Scene, boxes_of, scenes_of, starts_of

__all__ = ["MAX_ARROWS", "MAX_NODES", "place"]

MAX_NODES = 2_000
MAX_ARROWS = 10_000
_AGAIN = 22.0
"""Room at the right of a loop for the line that goes round."""
_RIM_HEIGHT = 6.0
_RIM_STEP, _RIM_LONGEST = 16.0, 320.0
"""A bar is as long as what it joins needs, up to here."""


def place(scene: Scene, overlay: Overlay | None = None) -> Area:
    """Return the scene with a place for everything.

    Raises:
        InvalidInput: it is larger than a picture can be.
    """
    scenes = list(scenes_of(scene))
    frames = sum(isinstance(item, Frame) for one in scenes for item in one.items)
    nodes = frames + sum(1 for one in scenes for _ in boxes_of(one))
    arrows = sum(len(one.arrows) for one in scenes)
    for count, limit, what in ((nodes, MAX_NODES, "nodes"), (arrows, MAX_ARROWS, "arrows")):
        if count > limit:
            raise InvalidInput(
                f"this graph has {count:,} {what}, and a picture is drawn of at most {limit:,}: "
                "g.to_text() and g.to_mermaid() show it as text"
            )
    if effort_of(scenes) > 1:
        raise InvalidInput(
            "this graph is too entangled for a picture: too many arrows cross each other. "
            "g.to_text() and g.to_mermaid() show it as text"
        )
    return _place(scene, overlay)


@dataclass(slots=True)
class _Sheet:
    """What goes to the layout, as it is collected, and what it stands for."""

    cells: list[Cell] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    by_id: dict[str, int] = field(default_factory=dict)
    boxes: dict[int, Box] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    frames: dict[int, tuple[Frame, tuple[PlacedBody, ...]]] = field(default_factory=dict)
    rims: list[int] = field(default_factory=list)
    kinds: list[tuple[LineKind, tuple[str, ...]]] = field(default_factory=list)

    def cell(self, width: float, height: float, parent: int | None = None) -> int:
        self.cells.append(Cell(width, height, parent))
        return len(self.cells) - 1

    def box(self, box: Box, overlay: Overlay | None, parent: int | None = None) -> None:
        place = self.by_id[box.id] = self.cell(*box_size(box, overlay), parent)
        self.boxes[place] = box

    def link(self, source: int, target: int, kind: LineKind, *ends: str) -> None:
        self.links.append(Link(source, target))
        self.kinds.append((kind, ends))


def _place(scene: Scene, overlay: Overlay | None, loop: Body | None = None) -> Area:
    """Lay out one scene; the body of a loop with what makes it go round."""
    if not scene.items:
        return Area(width=0.0, height=0.0)
    sheet = _Sheet()
    for item in scene.items:
        if isinstance(item, Box):
            sheet.box(item, overlay)
        elif isinstance(item, Group):
            place = sheet.cell(1.0, 1.0)  # it becomes as large as its boxes need
            sheet.groups[place] = item
            for box in item.boxes:
                sheet.box(box, overlay, place)
        else:
            width, height, bodies = _frame(item, overlay)
            place = sheet.by_id[item.id] = sheet.cell(width, height)
            sheet.frames[place] = (item, bodies)
    for arrow in scene.arrows:
        ends = arrow.source, arrow.target
        source, target = (sheet.by_id[id_] for id_ in ends)
        sheet.link(source, target, "choice" if arrow.dashed else "data", *ends)
    if loop is None:
        return _area(sheet, lay_out(sheet.cells, sheet.links))
    _add_rims(sheet, loop)
    return _going_round(_area(sheet, lay_out(sheet.cells, sheet.links)), loop)


def _area(sheet: _Sheet, grid: Grid) -> Area:
    """Return what was collected with its places."""
    lines = zip(grid.lines, sheet.kinds, strict=True)
    rects = grid.rects
    return Area(
        width=grid.width,
        height=grid.height,
        boxes=tuple(PlacedBox(box=box, at=rects[n]) for n, box in sheet.boxes.items()),
        groups=tuple(PlacedGroup(title=one.title, at=rects[n]) for n, one in sheet.groups.items()),
        frames=tuple(
            PlacedFrame(frame=frame, at=rects[n], bodies=bodies)
            for n, (frame, bodies) in sheet.frames.items()
        ),
        lines=tuple(Line(points=points, kind=kind, ends=ends) for points, (kind, ends) in lines),
        rims=tuple(rects[n] for n in sheet.rims),
    )


def _add_rims(sheet: _Sheet, loop: Body) -> None:
    """Add the bars at the top and at the bottom of a loop's body, and what leads to them."""
    starts = starts_of(loop.scene)
    ends: list[tuple[str, LineKind]] = [(loop.gives, "data")] if loop.gives is not None else []
    if loop.asks is not None and loop.asks != loop.gives:
        ends.append((loop.asks, "choice"))
    top, bottom = (
        sheet.cell(min(_RIM_STEP * (len(joined) + 1), _RIM_LONGEST), _RIM_HEIGHT)
        for joined in (starts, ends)
    )
    sheet.rims = [top, bottom]
    for id_ in starts:
        sheet.link(top, sheet.by_id[id_], "data", id_)
    for id_, kind in ends:
        sheet.link(sheet.by_id[id_], bottom, kind, id_)


def _going_round(area: Area, loop: Body) -> Area:
    """Return the body of a loop with a line from its lower bar to its upper one.

    Each bar is alone in its layer, since everything else comes after the one and before the other.
    """
    top, bottom = area.rims
    right = area.width + _AGAIN / 2
    high, low = top.y + top.height / 2, bottom.y + bottom.height / 2
    again = Line(
        points=(
            (bottom.x + bottom.width, low),
            (right, low),
            (right, high),
            (top.x + top.width, high),
        ),
        kind="again",
        ends=(loop.gives,) if loop.gives is not None else (),
    )
    return replace(area, width=area.width + _AGAIN, lines=(*area.lines, again))


def _frame(frame: Frame, overlay: Overlay | None) -> tuple[float, float, tuple[PlacedBody, ...]]:
    """Return the size of a frame, and its bodies side by side in it, below what it says."""
    header_width, header_height = frame_header(frame, overlay)
    is_loop = frame.kind == "loop"
    areas = [_place(body.scene, overlay, body if is_loop else None) for body in frame.bodies]
    above = PAD if is_loop else ARM_LABEL
    widths = [
        ceil(max(area.width, arm_width(body))) + 2 * PAD
        for body, area in zip(frame.bodies, areas, strict=True)
    ]
    height = ceil(max((area.height for area in areas), default=0.0)) + above + PAD
    inner = sum(widths) + GAP * (len(widths) - 1)
    width = max(header_width, inner + 2 * GAP)
    x = (width - inner) / 2
    bodies = []
    for body, area, one in zip(frame.bodies, areas, widths, strict=True):
        at = Rect(x=x, y=header_height, width=one, height=height)
        origin = x + (one - area.width) / 2, header_height + above
        bodies.append(PlacedBody(body=body, at=at, origin=origin, area=area))
        x += one + GAP
    return width, header_height + height + GAP, tuple(bodies)
