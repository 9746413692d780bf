"""A scene as one SVG that needs nothing else: no script, no font, no file, no id.

It stands on a white panel of its own, so that it is read on dark pages as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from soma.pictures.drawing import draw_area
from soma.pictures.layout import place
from soma.pictures.marks import number, outcome_icon, rect, text
from soma.pictures.measure import DID, SMALL
from soma.pictures.overlay import OUTCOMES, Overlay
from soma.pictures.placed import Rect
from soma.pictures.scene import Frame, Note, Scene, boxes_of, scenes_of
from soma.pictures.style import SHEET
from soma.pictures.texts import one_line, text_width, wrapped, xml

__all__ = ["svg"]

_MARGIN = 22.0
_LEGEND = 34.0
_LEGEND_GAP = 16.0
_NOTE_GAP, _NOTE_LINE = 16.0, 15.0
_NOTES, _LONGEST_NOTE = 12, 600
"""More notes are counted, and of a longer one the end is cut off."""
_EMPTY = 20.0
"""Height of what is said where there is nothing."""
_NARROWEST, _NARROWEST_WITH_NOTES = 150.0, 440.0


def svg(scene: Scene, overlay: Overlay | None = None) -> str:
    """Return the picture as a text that begins with ``<svg``.

    Raises:
        InvalidInput: the scene is larger than a picture can be.
    """
    area = place(scene, overlay)
    legend = _legend(scene, overlay) if overlay else _Strip(0.0, [])
    at_least = max(legend.width, _NARROWEST_WITH_NOTES if scene.notes else _NARROWEST)
    inner = max(area.width, at_least)
    notes = _note_lines(scene.notes, inner)
    height = area.height or _EMPTY
    y = _MARGIN + height
    parts = [*draw_area(area, ((inner - area.width) / 2 + _MARGIN, _MARGIN), overlay)]
    if not scene.items:
        parts.append(text("empty graph", _MARGIN, _MARGIN + _EMPTY - 5))
    if legend.parts:
        y += _LEGEND
        parts.append(f'<g transform="translate({number(_MARGIN)} {number(y)})">')
        parts += [*legend.parts, "</g>"]
    if notes:
        y += _NOTE_GAP
    for line in notes:
        parts.append(text(line, _MARGIN, y + SMALL))
        y += _NOTE_LINE
    return _document(parts, inner + 2 * _MARGIN, y + _MARGIN, _summary(scene))


def _document(parts: list[str], width: float, height: float, summary: str) -> str:
    wide, high = number(width), number(height)
    paper = rect(Rect(x=0.5, y=0.5, width=width - 1, height=height - 1), 10, "paper")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}"><title>{xml(summary)}</title>'
        f"<style>{SHEET}</style>{paper}{''.join(parts)}</svg>"
    )


def _summary(scene: Scene) -> str:
    """Return what a reader who sees no picture is told."""
    count = sum(1 for one in scenes_of(scene) for _ in boxes_of(one))
    return f"graph of {count:,} node{'s' * (count != 1)}" if count else "empty graph"


class _Strip(NamedTuple):
    """Something in a row."""

    width: float
    parts: list[str]


def _legend(scene: Scene, overlay: Overlay) -> _Strip:
    """Return what the run was, and what the icons say of which there is one."""
    ids = [*_ids(scene)]
    found = {overlay.nodes[id_].outcome for id_ in ids if id_ in overlay.nodes}
    parts: list[str] = []
    x = 0.0
    if title := one_line(overlay.title, 80):
        parts.append(text(title, x, 0, "arm"))
        x += text_width(title, SMALL, bold=True) + _LEGEND_GAP
    for outcome in OUTCOMES:
        if outcome in found:
            parts += [outcome_icon(outcome, x + 6.5, -4), text(outcome, x + DID, 0)]
            x += DID + text_width(outcome, SMALL) + _LEGEND_GAP
    if any(id_ not in overlay.nodes for id_ in ids):
        pale = rect(Rect(x=x, y=-10, width=14, height=11), 3, "box", "pale")
        parts += [pale, text("not reached", x + 20, 0)]
        x += 20 + text_width("not reached", SMALL) + _LEGEND_GAP
    return _Strip(x - _LEGEND_GAP if parts else 0.0, parts)


def _ids(scene: Scene) -> Iterator[str]:
    for one in scenes_of(scene):
        yield from (box.id for box in boxes_of(one))
        yield from (item.id for item in one.items if isinstance(item, Frame))


def _note_lines(notes: tuple[Note, ...], width: float) -> list[str]:
    """Return the lines of the remarks; of very many, and of a very long one, the first."""
    lines: list[str] = []
    for note in notes[:_NOTES]:
        said = wrapped(one_line(f"{note.level}: {note.message}", _LONGEST_NOTE), width, SMALL)
        lines += said
    if len(notes) > _NOTES:
        lines.append(f"and {len(notes) - _NOTES} more")
    return lines
