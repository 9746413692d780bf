"""Layers from top to bottom, by graphlay: sizes and arrows in, places and lines out.

graphlay is fast and cannot be stopped: it holds the interpreter until it is done. So what would
take it more than some seconds is not given to it (effort.py), and what makes small pictures
handsome is left out where it would take long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from soma._hints import install_line
from soma.errors import InvalidInput, MissingPackage, describe_error
from soma.pictures.placed import Point, Rect

__all__ = ["Cell", "Grid", "Link", "lay_out"]

_FEW_BENDS, _FEW_NODES, _FEW_LINKS = 250, 120, 200
"""So small a scene is laid out with care, in some hundredths of a second."""

_SPACING = {
    "layer_gap": 40.0,
    "node_gap": 28.0,
    "dummy_gap": 18.0,
    "port_gap": 16.0,
    "stub": 12.0,
    "isolated_gap": 28.0,
    "isolated_max_columns": 10,
    "compound_padding": 10.0,
    "compound_header": 14.0,  # the title of a group
}
_CROWDED, _MOST_SHARED = 8, 600
"""From so many arrows out of a node or into one, they share a line up to it: fewer are told apart
more easily where each has its own. It takes long where there are more links than that."""
_BASE: dict[str, Any] = {"direction": "topbottom", "spacing": _SPACING}
_COMPACT: dict[str, Any] = {"compaction": {"mode": "priority"}}
"""Without it lines are straighter; but a large scene, or a chain with short cuts, drifts apart."""
_CAREFUL = _BASE | {
    "tuning": {"order": {"kick_rounds": 300}},
    "limits": {"max_nodes": _FEW_NODES, "max_edges": _FEW_LINKS, "max_dummies": _FEW_BENDS},
}
_QUICK = (
    _BASE
    | _COMPACT
    | {
        "coords": {"placement": "brandes_koepf"},
        "tuning": {
            # Three searches for what is a little better, which grow with the square of a layer.
            "routing": {"port_relax_rounds": 0, "overlap_repair_rounds": 0},
            "order": {"kick_rounds": 0, "seeds": 1, "sifting_rounds": 1},
        },
    }
)


class Cell(NamedTuple):
    """Something with a size; one that others name as their parent gets its size from them."""

    width: float
    height: float
    parent: int | None = None


class Link(NamedTuple):
    """An arrow between two cells, by their places in the list."""

    source: int
    target: int


class Grid(NamedTuple):
    """Where everything is; the upper left corner of it all is at 0, 0."""

    width: float
    height: float
    rects: list[Rect]
    lines: list[tuple[Point, ...]]


def lay_out(cells: list[Cell], links: list[Link]) -> Grid:
    """Return a place for each cell and a line for each link.

    Raises:
        MissingPackage: graphlay is not installed.
        InvalidInput: it could not do it.
    """
    try:
        from graphlay import layout  # which only those who draw need
    except ImportError as error:
        raise MissingPackage(f"Pictures need graphlay: {install_line('graphlay')}") from error

    nodes = [
        {"size": {"width": cell.width, "height": cell.height}}
        | ({} if cell.parent is None else {"parent": cell.parent})
        for cell in cells
    ]
    graph = {"nodes": nodes, "edges": [link._asdict() for link in links]}
    shared = _shared(links)
    # Lines that are shared are few: what is kept free for them need not be wide.
    lanes = {} if shared == "none" else {"lane_gap": 4.0}
    routing = {"routing": {"port_sides": "facing_only", "merge_edges": shared} | lanes}
    careful = _CAREFUL | routing
    try:
        found = [_grid(layout(graph, options=careful | more).raw) for more in ({}, _COMPACT)]
        return min(found, key=lambda grid: grid.width)
    except Exception:  # noqa: BLE001, S110  # it is more than a few of something
        pass
    try:
        return _grid(layout(graph, options=_QUICK | routing).raw)
    except Exception as error:  # a fault of its own
        raise InvalidInput(
            f"this graph could not be laid out: {describe_error(error)}. "
            "g.to_text() and g.to_mermaid() show it as text"
        ) from error


def _shared(links: list[Link]) -> str:
    """Return which arrows share a line: those out of a node, those into one, or none."""
    if len(links) > _MOST_SHARED:
        return "none"
    out, into = (Counter(link[end] for link in links) for end in (0, 1))
    forks, joins = (max(counts.values(), default=0) >= _CROWDED for counts in (out, into))
    return "both" if forks and joins else "forks" if forks else "joins" if joins else "none"


def _grid(found: Mapping[str, Any]) -> Grid:
    """Return what was found, moved so that it begins at 0, 0."""
    corners = [_corner(node) for node in found["nodes"]]
    drawn = [[(p["x"], p["y"]) for p in edge["points"]] for edge in found["edges"]]
    sizes = [(node["size"]["width"], node["size"]["height"]) for node in found["nodes"]]
    ends = [(x + w, y + h) for (x, y), (w, h) in zip(corners, sizes, strict=True)]
    bends = [point for line in drawn for point in line]
    left, top = (min(one[axis] for one in [*corners, *bends]) for axis in (0, 1))
    right, bottom = (max(one[axis] for one in [*ends, *bends]) for axis in (0, 1))
    return Grid(
        width=right - left,
        height=bottom - top,
        rects=[
            Rect(x=x - left, y=y - top, width=w, height=h)
            for (x, y), (w, h) in zip(corners, sizes, strict=True)
        ],
        lines=[tuple((x - left, y - top) for x, y in line) for line in drawn],
    )


def _corner(node: Mapping[str, Any]) -> Point:
    center, size = node["center"], node["size"]
    return center["x"] - size["width"] / 2, center["y"] - size["height"] / 2
