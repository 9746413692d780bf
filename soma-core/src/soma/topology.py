"""Nodes and edges as they were declared: frozen data, in declaration order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError as _GraphlibCycle
from graphlib import TopologicalSorter
from typing import Any

from soma.errors import CycleError, GraphError

__all__ = ["Topology"]

_SHOWN = 20
"""Nodes of a cycle that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a graph declares."""

    nodes: Mapping[str, Any]
    """Node id -> the filter."""
    edges: tuple[tuple[str, str], ...]
    """(from, to), each pair once."""

    def predecessors(self) -> dict[str, list[str]]:
        """Return node id -> the ids that feed it, in the order of the edges."""
        found: dict[str, list[str]] = {node: [] for node in self.nodes}
        for source, target in self.edges:
            found[target].append(source)
        return found

    def leaves(self) -> list[str]:
        """Return the ids that feed nobody, in declaration order."""
        sources = {source for source, _ in self.edges}
        return [node for node in self.nodes if node not in sources]

    def order(self) -> list[str]:
        """Return every id, each after all that feed it.

        Raises:
            GraphError: there are no nodes.
            CycleError: the edges go round; the message draws the path.
        """
        if not self.nodes:
            raise GraphError("The graph is empty. Add a node first: g.node(MyFilter())")
        try:
            return list(TopologicalSorter(self.predecessors()).static_order())
        except _GraphlibCycle as error:
            path = " -> ".join(_elided(error.args[1]))
            raise CycleError(f"The edges go round in a circle: {path}. Take one away") from None


def _elided(path: list[str]) -> list[str]:
    """Return a long path without its middle."""
    if len(path) <= _SHOWN:
        return path
    half = _SHOWN // 2
    return [*path[:half], f"... {len(path) - 2 * half} more ...", *path[-half:]]
