"""Nodes and edges as they were declared.

    Declaration (grows, one per graph) ──freeze()──► Topology (frozen, what the compiler reads)

An optional edge may be cut and put back: it keeps its place among the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError as _GraphlibCycle
from graphlib import TopologicalSorter
from typing import Any

from soma.dsl import NO_MARKS, Marked, Marks
from soma.errors import CycleError, GraphError, UnknownNode, did_you_mean, shown
from soma.nodes import check_node, label_of

__all__ = ["Declaration", "Declared", "Topology", "draw_path"]

_SHOWN = 20
"""Nodes of a cycle that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One node as it was declared."""

    filter: Any
    target: str | None = None
    cached: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a graph declares."""

    nodes: Mapping[str, Declared]
    """Node id -> what was declared, in the order of declaration."""
    edges: tuple[tuple[str, str], ...]
    """(from, to), each pair once; edges that are cut are not among them."""

    def predecessors(self) -> dict[str, list[str]]:
        """Return node id -> the ids that feed it, in the order of the edges."""
        found: dict[str, list[str]] = {node: [] for node in self.nodes}
        for source, target in self.edges:
            found[target].append(source)
        return found

    def order(self, feeding: Mapping[str, list[str]] | None = None) -> list[str]:
        """Return every id, each after all that feed it.

        Args:
            feeding: what ``predecessors`` returns, where that is at hand.

        Raises:
            GraphError: there are no nodes.
            CycleError: the edges go round; the message draws the path.
        """
        if not self.nodes:
            raise GraphError("The graph is empty. Add a node first: g.node(MyFilter())")
        feeding = self.predecessors() if feeding is None else feeding
        waiting = {id_: len(sources) for id_, sources in feeding.items()}
        after: dict[str, list[str]] = {id_: [] for id_ in feeding}
        for source, target in self.edges:
            after[source].append(target)
        found = [id_ for id_, count in waiting.items() if not count]
        for id_ in found:  # which grows meanwhile
            for one in after[id_]:
                waiting[one] -= 1
                if not waiting[one]:
                    found.append(one)
        if len(found) < len(feeding):
            raise CycleError(
                f"The edges go round in a circle: {draw_path(_find_cycle(feeding))}. Take one away"
            )
        return found


def _find_cycle(feeding: Mapping[str, list[str]]) -> list[str]:
    try:
        TopologicalSorter(feeding).prepare()
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


class Declaration:
    """What has been declared so far. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[str, Declared] = {}
        self.version = 0
        self._edges: dict[tuple[str, str], bool] = {}  # an ordered set; False: it is cut
        self._optional: dict[tuple[str, str], None] = {}
        self._last_number: dict[str, int] = {}  # the last that made an id unique

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """The edges that are not cut, in the order of declaration."""
        return tuple(pair for pair, enabled in self._edges.items() if enabled)

    @property
    def optional(self) -> tuple[tuple[str, str], ...]:
        """The edges that may be cut."""
        return tuple(self._optional)

    def copy(self) -> Declaration:
        """Return a declaration that grows on its own, with the same filters."""
        copied = Declaration()
        copied.nodes = dict(self.nodes)
        copied.version = self.version
        copied._edges = dict(self._edges)
        copied._optional = dict(self._optional)
        copied._last_number = dict(self._last_number)
        return copied

    def freeze(self) -> Topology:
        """Return what is declared now."""
        return Topology(nodes=dict(self.nodes), edges=self.edges)

    def add(
        self,
        filter_: Any,
        id_: Any = None,
        marks: Marks = NO_MARKS,
        *,
        named: bool = False,
    ) -> str:
        """Add a node and return its id; ``named``: by this one and no other.

        Raises:
            GraphError: the id is taken or no text, or the target is no text.
            InvalidFilter: the object cannot be a node.
        """
        if isinstance(filter_, Marked):
            marks, filter_ = filter_.marks.within(marks), filter_.inner
        if not named:
            id_, named = marks.name, marks.name is not None
        check_node(filter_)
        target: Any = marks.target
        if target is not None and not (isinstance(target, str) and target):
            raise GraphError(
                f"A target is the name or a tag of a worker, or 'local', not {shown(target)}"
            )
        if not named:
            id_ = self._free_id(_snake_case(label_of(filter_)))
        elif not isinstance(id_, str) or not id_:
            raise GraphError(f"A node id is a text of at least one character, not {shown(id_)}")
        elif id_ in self.nodes:
            raise GraphError(
                f"There is a node {id_!r} already. Choose another id, or leave it out: "
                "g.node(filter) finds a free one"
            )
        made = str(id_)
        self.nodes[made] = Declared(
            filter=filter_,
            target=marks.target,
            cached=bool(marks.cached),
            frozen=bool(marks.frozen),
        )
        self.version += 1
        return made

    def connect(self, source: str, target: str) -> None:
        """Add an edge; one that is there already stays as it is.

        Raises:
            UnknownNode: there is no node of that id.
        """
        self.require(f"edge({shown(source)}, {shown(target)})", (source, target))
        if (source, target) not in self._edges:
            self._edges[source, target] = True
            self.version += 1

    def make_optional(self, source: str, target: str) -> None:
        """Say that an edge may be cut.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge.
        """
        self._require_edge("optional", source, target)
        self._optional[source, target] = None

    def set_edge(self, source: str, target: str, *, enabled: bool) -> None:
        """Cut an optional edge, or put it back at its place.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge, or it is not optional.
        """
        self._require_edge("set_edge", source, target)
        if (source, target) not in self._optional:
            raise GraphError(
                f"set_edge: the edge {source!r} -> {target!r} is not optional. Say so first: "
                f"g.optional({source!r}, {target!r})"
            )
        if self._edges[source, target] != enabled:
            self._edges[source, target] = enabled
            self.version += 1

    def is_enabled(self, source: str, target: str) -> bool:
        """Say whether an edge is there and not cut."""
        return self._edges.get((source, target), False)

    def require(self, call: str, ids: Iterable[Any]) -> None:
        """Refuse ids that no node has.

        Raises:
            UnknownNode: the message starts with ``call`` and suggests the nearest id.
        """
        for id_ in ids:
            if not isinstance(id_, str):
                raise UnknownNode(
                    f"{call} takes the ids of nodes, not a {type(id_).__name__}: g.node(filter) "
                    "returns the id"
                )
            if id_ not in self.nodes:
                raise UnknownNode(
                    f"{call}: {id_!r} is not in this graph.{did_you_mean(id_, self.nodes)}"
                )

    def _require_edge(self, call: str, source: Any, target: Any) -> None:
        self.require(f"{call}({shown(source)}, {shown(target)})", (source, target))
        if (source, target) not in self._edges:
            raise GraphError(
                f"{call}: there is no edge {source!r} -> {target!r}. Add it first: "
                f"g.edge({source!r}, {target!r})"
            )

    def _free_id(self, wanted: str) -> str:
        id_, number = wanted, self._last_number.get(wanted, 1)
        while id_ in self.nodes:
            number += 1
            id_ = f"{wanted}_{number}"
        self._last_number[wanted] = number
        return id_


def _snake_case(name: str) -> str:
    """Return the name with an underscore where a word begins: HTTPServer -> http_server."""
    plain = name.strip("<>_") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower()
