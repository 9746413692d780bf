"""The entries of a plan: frozen, plain data.

    Execute     one node                       Sequence   one after the other
    Composite   nodes that train as one        Parallel   side by side
    Branch      one of several bodies          Loop       a body, again and again

A body is a Sequence of its own: its entries wait for each other and for nothing outside of it, and
those that wait for nothing get the input of the branch, or what the loop carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from soma._lazy import lazy_property

__all__ = [
    "MAX_NESTED",
    "Arm",
    "Branch",
    "Composite",
    "Diagnostic",
    "Entry",
    "Execute",
    "Loop",
    "Parallel",
    "Sequence",
    "Unit",
    "nodes_of",
    "units_of",
]

MAX_NESTED = 30
"""How deep branches and loops may lie in each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run one node."""

    node: str
    """Its id."""
    label: str
    """Name of its class or function."""
    kind: str
    """``"trainable"`` or ``"stateless"``."""
    waits_for: tuple[str, ...] = ()
    """The nodes that feed it, in the order of ids, as they stand in the dict that it is handed;
    empty: it gets the input of the graph, or of the body that it lies in."""
    target: str | None = None
    """Where it shall run: a worker's name or tag, or ``"local"``."""
    cached: bool = False
    frozen: bool = False

    @property
    def nodes(self) -> tuple[Execute, ...]:
        """This one, as for a block of several."""
        return (self,)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which others wait for it."""
        return (self.node,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The ids that must be done before."""
        return self.waits_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Differentiable nodes that hang together: they train as one block."""

    nodes: tuple[Execute, ...]
    """Each after what it waits for."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which others wait for it."""
        return tuple(one.node for one in self.nodes)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The nodes outside of the block that feed it, each once."""
        own = set(self.ids)
        found = dict.fromkeys(id_ for one in self.nodes for id_ in one.waits_for)
        return tuple(id_ for id_ in found if id_ not in own)

    needs = waits_for


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One body of a branch."""

    label: str
    """What the condition says to take it; True and False are ``"true"`` and ``"false"``."""
    body: Sequence
    terminal: str
    """The node in it whose output is the branch's."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Run the arm that the condition names, on the input of the branch."""

    node: str
    """Its id."""
    condition: str
    """The node whose output names the arm: a text, True, False, or ``{"branch": label}``."""
    arms: tuple[Arm, ...]
    waits_for: tuple[str, ...] = ()
    """As of ``Execute``."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which others wait for it."""
        return (self.node,)

    @lazy_property
    def needs(self) -> tuple[str, ...]:
        """The ids that must be done before: what feeds it, and its condition."""
        return tuple(dict.fromkeys((*self.waits_for, self.condition)))

    @property
    def bodies(self) -> tuple[Sequence, ...]:
        """What lies in it."""
        return tuple(arm.body for arm in self.arms)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Run a body on its own output, until it says stop."""

    node: str
    """Its id."""
    body: Sequence
    terminal: str
    """The node in it whose output the next pass gets, and at last whoever follows the loop."""
    until: str | None
    """The node in it whose output says whether to stop; None: nobody does."""
    max_iterations: int
    waits_for: tuple[str, ...] = ()
    """As of ``Execute``."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids by which others wait for it."""
        return (self.node,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The ids that must be done before."""
        return self.waits_for

    @property
    def bodies(self) -> tuple[Sequence, ...]:
        """What lies in it."""
        return (self.body,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One after the other."""

    steps: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Side by side: none of them waits for another."""

    branches: tuple[Entry, ...]


Unit: TypeAlias = Execute | Composite | Branch | Loop
"""What runs."""
Entry: TypeAlias = Unit | Sequence | Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Something that the compiler noticed."""

    node: str
    level: str
    """``"warning"`` or ``"error"``."""
    message: str


def units_of(body: Sequence) -> Iterator[Unit]:
    """Yield what runs in a body, each after what it waits for; bodies in it are not entered."""
    stack: list[Entry] = [body]
    while stack:
        entry = stack.pop()
        if isinstance(entry, Sequence):
            stack += reversed(entry.steps)
        elif isinstance(entry, Parallel):
            stack += reversed(entry.branches)
        else:
            yield entry


def nodes_of(body: Sequence) -> Iterator[Execute]:
    """Yield every node, those in the bodies of branches and loops at their place."""
    for unit in units_of(body):
        if isinstance(unit, Branch | Loop):
            for inner in unit.bodies:  # which nest at most MAX_NESTED deep
                yield from nodes_of(inner)
        else:
            yield from unit.nodes
