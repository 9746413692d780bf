"""The pieces of a scene as SVG: boxes, frames, groups, lines."""

from __future__ import annotations

from collections.abc import Iterator

from soma.pictures.marks import branch_icon, line_path, loop_icon, outcome_icon, rect, text, tip
from soma.pictures.measure import (
    ARM_TITLE,
    DID,
    INDENT,
    LINE,
    MARK,
    MARK_LINE,
    PAD,
    SMALL,
    TITLE,
    label_text,
    mark_width,
    took,
)
from soma.pictures.overlay import Did, Overlay, did_text
from soma.pictures.placed import (
    Area,
    Line,
    PlacedBody,
    PlacedFrame,
    PlacedGroup,
    Point,
    Rect,
)
from soma.pictures.scene import Box
from soma.pictures.style import classes
from soma.pictures.texts import clipped, one_line, printable, xml

__all__ = ["draw_area"]

_LONGEST = 1_000
"""Longer ids are cut also where they are not seen at once."""


def draw_area(area: Area, origin: Point, overlay: Overlay | None) -> Iterator[str]:
    """Yield what is seen of an area, the lowest first: lines run over borders and under boxes."""
    for group in area.groups:
        yield rect(group.at.moved(origin), 12, "group")
    for frame in area.frames:
        yield from _frame(frame, origin, overlay)
    for line in area.lines:
        yield _line(line, origin, overlay)
    round_ = any(line.kind == "again" and _is_pale(line, overlay) for line in area.lines)
    for rim in area.rims:
        yield rect(rim.moved(origin), 3, "rim", *(["pale"] if round_ else []))
    for box in area.boxes:
        yield _box(box.box, box.at.moved(origin), overlay)
    for group in area.groups:
        yield _group_title(group, origin)


def _box(box: Box, at: Rect, overlay: Overlay | None) -> str:
    did = took(overlay, box.id)
    x, y = at.x + INDENT, at.y + 12
    room = at.width - INDENT - PAD + 1
    parts = [
        f"<title>{xml(_tooltip(box, did))}</title>",
        rect(at, 8, "box", *([did.outcome] if did else [])),
    ]
    if box.learns:
        bar = Rect(x=at.x + 5.5, y=at.y + 8, width=3.5, height=at.height - 16)
        parts.append(rect(bar, 1.7, "bar"))
    title = clipped(printable(box.id), room, TITLE, bold=True)
    parts.append(text(title, x, y + TITLE - 2, "title"))
    if label := label_text(box):
        y += LINE
        parts.append(text(clipped(label, room, SMALL), x, y + SMALL - 1))
    if box.marks:
        y += LINE
        parts += _pills(box.marks, x, y)
        y += MARK_LINE - LINE
    if did:
        parts += _did(did_text(did), did, x, y + LINE, room)
    pale = f" {classes('pale')}" if overlay and not did else ""
    return f'<g data-node="{xml(_name(box.id))}"{pale}>{"".join(parts)}</g>'


def _name(id_: str) -> str:
    """Return an id as it stands where there is room for a long one."""
    shown = printable(id_)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def _tooltip(box: Box, did: Did | None) -> str:
    said = [_name(box.id), *([label_text(box)] if label_text(box) else [])]
    said += [one_line(mark) for mark in box.marks]
    return "\n".join([*said, *([one_line(did_text(did))] if did else [])])


def _pills(marks: tuple[str, ...], x: float, y: float) -> Iterator[str]:
    for mark in marks:
        width = mark_width(mark)
        yield rect(Rect(x=x, y=y + 0.5, width=width, height=16), 8, "pill")
        shown = clipped(one_line(mark), width - 13, MARK)
        yield text(shown, x + width / 2, y + 12, "mark", "middle")
        x += width + 4


def _did(said: str, did: Did, x: float, y: float, room: float) -> Iterator[str]:
    yield outcome_icon(did.outcome, x + 6.5, y + 6)
    yield text(clipped(one_line(said), room - DID, SMALL), x + DID, y + SMALL - 1, "mark")


def _frame(one: PlacedFrame, origin: Point, overlay: Overlay | None) -> Iterator[str]:
    frame, at = one.frame, one.at.moved(origin)
    did = took(overlay, frame.id)
    x, y, room = at.x + PAD, at.y + 12, at.width - 2 * PAD + 1
    said = [_name(frame.id), one_line(frame.says)]
    if did:
        said.append(one_line(did_text(did, of_frame=True)))
    pale = f" {classes('pale')}" if overlay and not did else ""
    tooltip = xml("\n".join(said))
    yield f'<g data-node="{xml(_name(frame.id))}"{pale}><title>{tooltip}</title>'
    yield rect(at, 12, "frame", *([f"{did.outcome}-frame"] if did else []))
    yield (loop_icon if frame.kind == "loop" else branch_icon)(x + 6, y + 6)
    yield text(clipped(said[0], room - 20, TITLE, bold=True), x + 20, y + TITLE - 2, "title")
    yield text(clipped(said[1], room, SMALL), x, y + LINE + SMALL)
    if did:
        yield from _did(said[2], did, x, y + 2 * LINE + 1, room)
    yield "</g>"
    for body in one.bodies:
        yield from _body(body, (at.x, at.y), overlay, did)


def _body(
    body: PlacedBody, corner: Point, overlay: Overlay | None, did: Did | None
) -> Iterator[str]:
    at, label = body.at.moved(corner), body.body.label
    if label is None:
        yield rect(at, 9, "body")
    else:
        passed_by = overlay is not None and not (did and label in did.arms)
        shown = clipped(printable(label), at.width - 2 * PAD + 1, SMALL, bold=True)
        pale = f" {classes('pale')}" if passed_by else ""
        yield f"<g{pale}><title>{xml(printable(label))}</title>{rect(at, 9, 'body')}"
        yield f"{text(shown, at.x + PAD, at.y + ARM_TITLE, 'arm')}</g>"
    origin = corner[0] + body.origin[0], corner[1] + body.origin[1]
    yield from draw_area(body.area, origin, overlay)


def _group_title(group: PlacedGroup, origin: Point) -> str:
    at = group.at.moved(origin)
    shown = clipped(one_line(group.title), at.width - 2 * PAD, MARK, bold=True)
    return text(shown, at.x + PAD - 2, at.y + 16, "grouptitle")


def _is_pale(line: Line, overlay: Overlay | None) -> bool:
    """Say whether one of its ends was not reached."""
    return overlay is not None and any(id_ not in overlay.nodes for id_ in line.ends)


def _line(line: Line, origin: Point, overlay: Overlay | None) -> str:
    points = [(x + origin[0], y + origin[1]) for x, y in line.points]
    names = ["line", *([line.kind] if line.kind != "data" else [])]
    tips = ["tip", *(["tip-again"] if line.kind == "again" else [])]
    if _is_pale(line, overlay):
        names.append("pale")
        tips.append("pale")
    path = f'<path {classes(*names)} d="{line_path(points)}"/>'
    return f'{path}<path {classes(*tips)} d="{tip(points)}"/>'
