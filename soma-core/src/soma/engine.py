"""The one place where a node runs.

    order ──► for each node: gather inputs ──► fit, if it learns ──► forward, if somebody needs it

A node with several predecessors receives a dict of their outputs by id. What user code raises
keeps its type and gains a note that names node and phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from soma.errors import NotFittedError
from soma.filters import is_trainable
from soma.topology import Topology

__all__ = ["fit", "forward"]


def fit(topology: Topology, x: Any, y: Any = None) -> dict[str, Any]:
    """Fit every trainable node and return node id -> state.

    A node forwards during a fit only if a later node needs its output. The caller's states are
    not touched: a fit that fails half way leaves nothing behind.

    Raises:
        GraphError: the graph is empty or its edges go round.
    """
    states: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    leaves = set(topology.leaves())
    for node, inputs in _walk(topology, topology.order(), x, outputs):
        filter_ = topology.nodes[node]
        if is_trainable(filter_):
            with _Noted(node, filter_, "fit"):
                states[node] = filter_.fit(inputs, y)
        if node not in leaves:
            with _Noted(node, filter_, "forward"):
                outputs[node] = filter_.forward(inputs, states.get(node))
    return states


def forward(topology: Topology, states: Mapping[str, Any], x: Any) -> Any:
    """Return the output of the leaf, or a dict of them by node id when there are several.

    Raises:
        GraphError: the graph is empty or its edges go round.
        NotFittedError: trainable nodes have no state; the message names them.
    """
    order = topology.order()  # first: what cannot run needs no fit
    unfitted = [
        node
        for node, filter_ in topology.nodes.items()
        if is_trainable(filter_) and node not in states
    ]
    if unfitted:
        raise NotFittedError(
            f"forward before fit: {', '.join(map(repr, unfitted))} learned nothing yet. "
            "Call g.fit(x, y) first"
        )
    outputs: dict[str, Any] = {}
    for node, inputs in _walk(topology, order, x, outputs):
        with _Noted(node, topology.nodes[node], "forward"):
            outputs[node] = topology.nodes[node].forward(inputs, states.get(node))
    leaves = topology.leaves()
    return outputs[leaves[0]] if len(leaves) == 1 else {leaf: outputs[leaf] for leaf in leaves}


def _walk(
    topology: Topology, order: list[str], x: Any, outputs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield (id, input) of every node in order; the caller fills ``outputs`` in between."""
    feeding = topology.predecessors()
    for node in order:
        sources = feeding[node]
        if not sources:
            yield node, x
        elif len(sources) == 1:
            yield node, outputs[sources[0]]
        else:
            yield node, {source: outputs[source] for source in sources}


class _Noted:
    """Adds a note to what user code raises.

    A class, since contextlib's generator form assigns to ``__traceback__``, which a frozen
    exception refuses; such an exception takes no note either and stays what it is.
    """

    def __init__(self, node: str, filter_: object, phase: str) -> None:
        self._note = f"in node {node!r} ({type(filter_).__name__}), during {phase}"

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and self._note not in getattr(error, "__notes__", ()):
            with suppress(Exception):
                error.add_note(self._note)
