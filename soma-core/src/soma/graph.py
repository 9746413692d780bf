"""The graph that users hold: it declares, and hands each verb to the room that does it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, overload

from soma import engine
from soma.dsl import Chain
from soma.errors import GraphError, UnknownNode, did_you_mean
from soma.filters import check_filter
from soma.topology import Topology

__all__ = ["Graph"]


class Graph:
    """Filters and the edges between them, declared once.

    >>> class Double:
    ...     def forward(self, x, state):
    ...         return 2 * x
    >>> g = Graph()
    >>> g.node(Double())
    'double'
    >>> g.node("again", Double())
    'again'
    >>> g.edge("double", "again")
    >>> g.forward(10)
    40
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Any] = {}
        self._edges: dict[tuple[str, str], None] = {}  # an ordered set
        self._states: dict[str, Any] = {}
        self._last_number: dict[str, int] = {}  # the last that made an id unique

    @overload
    def node(self, filter_: Any, /) -> str: ...
    @overload
    def node(self, id_: str, filter_: Any, /) -> str: ...
    def node(self, *declared: Any) -> str:
        """Add a node and return its id: ``node(filter)`` or ``node(id, filter)``.

        Without an id the class name in snake case is taken, made unique with ``_2``, ``_3``, ...

        Raises:
            GraphError: the id is taken, or is not a text.
            InvalidFilter: the object cannot be a node.
            TypeError: neither one nor two arguments.
        """
        if len(declared) == 1:
            (filter_,) = declared
            check_filter(filter_)
            id_ = self._free_id(_snake_case(type(filter_).__name__))
        elif len(declared) == 2:  # noqa: PLR2004  # the two signatures above
            id_, filter_ = declared
            if not isinstance(id_, str) or not id_:
                raise GraphError(f"A node id is a text of at least one character, not {id_!r}")
            if id_ in self._nodes:
                raise GraphError(
                    f"There is a node {id_!r} already. Choose another id, or leave it out: "
                    "g.node(filter) finds a free one"
                )
            check_filter(filter_)
        else:
            raise TypeError(f"node(filter) or node(id, filter), not {len(declared)} arguments")
        self._nodes[id_] = filter_
        return id_

    def edge(self, source: str, target: str) -> None:
        """Feed the output of ``source`` to ``target``. Declaring an edge again changes nothing.

        Raises:
            UnknownNode: there is no node of that id; the message names the nearest.
        """
        for id_ in (source, target):
            if not isinstance(id_, str):
                raise UnknownNode(
                    f"edge takes the ids of two nodes, not a {type(id_).__name__}: g.node(filter) "
                    "returns the id"
                )
            if id_ not in self._nodes:
                raise UnknownNode(
                    f"edge({source!r}, {target!r}): {id_!r} is not in this graph."
                    f"{did_you_mean(id_, self._nodes)}"
                )
        self._edges[source, target] = None

    connect = edge

    @classmethod
    def somatize(cls, expression: Any) -> Graph:
        """Return the graph of an expression: ``Graph.somatize(Scaler() >> Model())``.

        Each object written becomes one node with an id of its own making.

        Raises:
            InvalidFilter: something in the expression cannot be a node.
        """
        graph = cls()
        parts = expression.parts if isinstance(expression, Chain) else (expression,)
        ids = [graph.node(part) for part in parts]
        for source, target in pairwise(ids):
            graph.edge(source, target)
        return graph

    def fit(self, x: Any, y: Any = None) -> None:
        """Fit every trainable node, from scratch.

        Args:
            x: the input of every node that nothing feeds.
            y: what every trainable node is to learn from beside its input; None where there is
                nothing.

        Raises:
            GraphError: the graph is empty or its edges go round.
            Exception: whatever a filter raises, with a note naming the node; the states of the
                last fit stay as they were.
        """
        self._states = engine.fit(self._topology(), x, y)

    def forward(self, x: Any) -> Any:
        """Return the output of the leaf, or a dict by node id when there are several leaves.

        Args:
            x: the input of every node that nothing feeds.

        Raises:
            NotFittedError: trainable nodes have no state yet; the message names them.
            GraphError: the graph is empty or its edges go round.
            Exception: whatever a filter raises, with a note naming the node.
        """
        return engine.forward(self._topology(), self._states, x)

    def __len__(self) -> int:
        return len(self._nodes)

    def __bool__(self) -> bool:
        return True  # an empty graph is a graph: `graph or default` must not drop it

    def __repr__(self) -> str:
        return f"<Graph: nodes={len(self._nodes)}, edges={len(self._edges)}>"

    def _topology(self) -> Topology:
        return Topology(nodes=dict(self._nodes), edges=tuple(self._edges))

    def _free_id(self, wanted: str) -> str:
        id_, number = wanted, self._last_number.get(wanted, 1)
        while id_ in self._nodes:
            number += 1
            id_ = f"{wanted}_{number}"
        self._last_number[wanted] = number
        return id_


def _snake_case(name: str) -> str:
    """Return the class name with an underscore where a word begins: HTTPServer -> http_server."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
