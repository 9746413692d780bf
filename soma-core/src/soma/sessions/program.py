"""What another process needs to run a graph, as ``Graph.program`` returns it and runners open it.

It says what the graph was at that moment: nodes and states that the graph gets afterwards are not
in it. The filters are the graph's own objects until they travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from soma.contracts import ActionStore
from soma.engine import NodeState
from soma.engine import Program as EngineProgram
from soma.topology import Topology

__all__ = ["Program"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A plan with its nodes, states, seed and settings."""

    engine: EngineProgram
    """What the engine of a process runs."""
    topology: Topology
    """Nodes and edges as declared; from it a process builds what its engine runs."""
    store: ActionStore | None
    """Where results are kept; None for nowhere."""
    store_source: tuple[str, dict[str, Any]] | None = None
    """(name of its spec, options), where another process may open the same store itself."""
    node_states: Mapping[str, NodeState]
    """Node id -> what it has learned, as the engine keeps it."""
    seed: int | None

    @property
    def states(self) -> dict[str, Any]:
        """Node id -> state, as objects of the caller's own, for the nodes that have one."""
        return {id_: state.take() for id_, state in self.node_states.items() if state.shown}

    def __repr__(self) -> str:
        fitted = ", fitted" if self.node_states else ""
        return f"<Program: nodes={len(self.engine.ids)}{fitted}>"
