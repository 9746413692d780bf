"""Nodes in an order in which each comes after all that it needs, or the circle in the way."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError as _GraphlibCycle
from graphlib import TopologicalSorter

from soma.errors import CycleError

__all__ = ["draw_path", "sort_nodes"]

_SHOWN = 20
"""Nodes of a circle that a message shows."""


def sort_nodes(needs: Mapping[str, list[str]], hint: str = "") -> list[str]:
    """Return every id, each after all that it needs.

    Args:
        needs: node id -> the ids it waits for, all of which are keys as well.
        hint: what the message adds where that cannot be.

    Raises:
        CycleError: they go round; the message draws the path.
    """
    waiting = {id_: len(sources) for id_, sources in needs.items()}
    after: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, sources in needs.items():
        for one in sources:
            after[one].append(id_)
    found = [id_ for id_, count in waiting.items() if not count]
    for id_ in found:  # which grows meanwhile
        for one in after[id_]:
            waiting[one] -= 1
            if not waiting[one]:
                found.append(one)
    if len(found) < len(needs):
        path = draw_path(_find_cycle(needs))
        raise CycleError(f"The edges go round in a circle: {path}. Take one away{hint}")
    return found


def _find_cycle(needs: Mapping[str, list[str]]) -> list[str]:
    try:
        TopologicalSorter(needs).prepare()
    except _GraphlibCycle as error:
        path: list[str] = error.args[1]
        return path
    return []


def draw_path(path: list[str]) -> str:
    """Return ``a -> b -> c``, a long path without its middle."""
    if len(path) > _SHOWN:
        half = _SHOWN // 2
        path = [*path[:half], f"... {len(path) - 2 * half} more ...", *path[-half:]]
    return " -> ".join(path)
