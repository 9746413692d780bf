"""What a graph declares, as the compiler reads it: frozen, nodes and edges.

A branch or a loop is a node with bodies: it says where each body begins, and what else lies in it
the compiler finds by following the edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Declared", "DeclaredBranch", "DeclaredLoop", "DeclaredNode", "Topology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One node as it was declared."""

    filter: Any
    target: str | None = None
    cached: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBranch:
    """A node that runs one of its arms on its own input."""

    condition: str
    """The node whose output names the arm."""
    arms: Mapping[str, tuple[str, ...]]
    """Label -> nodes that lie in the arm; those that they lead to lie in it as well."""
    target: str | None = None
    """Where the nodes in it shall run that say nothing themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLoop:
    """A node that runs its body again and again."""

    body: tuple[str, ...]
    """Nodes that lie in the body; those that they lead to lie in it as well."""
    until: str | Literal[False] | None = None
    """The node whose output says whether to stop; None: the last of the body; False: none does."""
    max_iterations: int = 100
    target: str | None = None
    """As of a branch."""


DeclaredNode: TypeAlias = Declared | DeclaredBranch | DeclaredLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a graph declares."""

    nodes: Mapping[str, DeclaredNode]
    """Node id -> what was declared, in the order of declaration."""
    edges: tuple[tuple[str, str], ...]
    """(from, to), each pair once; edges that are cut are not among them."""

    def predecessors(self) -> dict[str, list[str]]:
        """Return node id -> the ids that feed it, in the order of the edges."""
        found: dict[str, list[str]] = {node: [] for node in self.nodes}
        for source, target in self.edges:
            found[target].append(source)
        return found

    @property
    def filters(self) -> dict[str, Declared]:
        """Node id -> what was declared, without branches and loops."""
        return {id_: one for id_, one in self.nodes.items() if isinstance(one, Declared)}
