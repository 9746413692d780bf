"""How large everything is, in pixels, before anything has a place.

A box has a line for its id, one for its label, one for marks if there are any, and under an
overlay one more for what was done, also where nothing was: so a picture that is drawn again and
again during a run stands still.
"""

from __future__ import annotations

from math import ceil

from soma.pictures.overlay import Did, Overlay, did_text
from soma.pictures.scene import Body, Box, Frame
from soma.pictures.texts import one_line, printable, text_width

__all__ = [
    "ARM_LABEL",
    "ARM_TITLE",
    "DID",
    "GAP",
    "INDENT",
    "LINE",
    "MARK",
    "MARK_LINE",
    "PAD",
    "SMALL",
    "TITLE",
    "arm_width",
    "box_size",
    "frame_header",
    "label_text",
    "mark_width",
    "took",
]

TITLE, SMALL, MARK = 13.0, 11.0, 10.0
"""Font sizes: ids; labels and what was done; marks."""
LINE = 17.0
"""From one line of a box to the next."""
MARK_LINE = 21.0
INDENT = 15.0
"""Of a text from the left border; where a node learns, its bar is in between."""
PAD = 14.0
"""Between a border and what lies inside."""
GAP = 10.0
"""Between arms."""
ARM_LABEL, ARM_TITLE = 28.0, 18.0
"""Height of what is above an arm; the baseline of its label."""
DID = 18.0
"""Width of the icon before what was done."""

_WIDEST_TITLE, _WIDEST_TEXT, _WIDEST_MARK, _WIDEST_HEADER = 230.0, 200.0, 130.0, 420.0
_NARROWEST = 104.0


def took(overlay: Overlay | None, id_: str) -> Did | None:
    """Return what was done with a node."""
    return overlay.nodes.get(id_) if overlay else None


def label_text(box: Box) -> str:
    """Return the line below the id: a function that has named its node is not named again."""
    label = "" if box.label == box.id else one_line(box.label)
    return " · ".join([*([label] if label else []), *(["learns"] if box.learns else [])])


def mark_width(mark: str) -> float:
    """Return the width of one mark with its border."""
    return min(ceil(text_width(one_line(mark), MARK)), _WIDEST_MARK) + 14


def box_size(box: Box, overlay: Overlay | None) -> tuple[float, float]:
    """Return width and height of a box."""
    lines = [
        min(text_width(printable(box.id), TITLE, bold=True), _WIDEST_TITLE),
        min(text_width(label_text(box), SMALL), _WIDEST_TEXT),
        sum(mark_width(mark) + 4 for mark in box.marks) - 4,
        _did_width(took(overlay, box.id)),
    ]
    width = max(_NARROWEST, ceil(max(lines)) + INDENT + PAD)
    height = 12 + LINE * (1 + bool(label_text(box)) + (overlay is not None)) + 5
    return width, height + MARK_LINE * bool(box.marks)


def frame_header(frame: Frame, overlay: Overlay | None) -> tuple[float, float]:
    """Return width and height of what is said above the bodies of a frame."""
    did = took(overlay, frame.id)
    lines = [
        min(text_width(printable(frame.id), TITLE, bold=True), _WIDEST_TITLE) + 20,
        min(text_width(one_line(frame.says), SMALL), _WIDEST_HEADER),
        _did_width(did, of_frame=True),
    ]
    return ceil(max(lines)) + 2 * PAD, 12 + LINE * (2 + (did is not None)) + 6


def arm_width(body: Body) -> float:
    """Return the width of what is said above a body."""
    if body.label is None:
        return 0.0
    return min(text_width(printable(body.label), SMALL, bold=True), _WIDEST_TEXT)


def _did_width(did: Did | None, *, of_frame: bool = False) -> float:
    if did is None:
        return 0.0
    said = one_line(did_text(did, of_frame=of_frame))
    return min(text_width(said, SMALL), _WIDEST_TEXT) + DID
