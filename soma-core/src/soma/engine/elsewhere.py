"""Nodes that run in another process: what the engine asks for, and what it is told.

    run_node ── a miss, and the node is placed ──► Placement.turn ──► Seat.run(Action) ──► Done

Keys, lookups, branches, loops and records stay with the engine of this process; what travels is one
call of user code, with its values as bytes. So a node that is placed has the keys and events that
it has anywhere, and a process that dies takes one call with it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from soma.engine.parcels import Parcel
from soma.identity import Identity

__all__ = ["Action", "Done", "Given", "Placement", "Seat"]

Given: TypeAlias = Parcel | Mapping[str, Parcel]
"""What a node is given: one value, or several by the ids of the nodes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call of user code."""

    node: str
    filter: Any
    """The filter or function itself; it travels when the process does not have it."""
    identity: Identity | None = None
    """What it is here, so that it can be refused where it is something else; None: nobody knows."""
    what: Literal["fit", "forward"]
    x: Given
    y: Parcel | None = None
    """Of a fit: the labels."""
    state: Parcel | None = None
    """Of a forward: what the node has learned. Of a fit: what it goes on from."""
    takes: frozenset[str] = frozenset()
    """What the method names beyond its two values."""
    options: Mapping[str, Any] = field(default_factory=dict)
    rng: str | None = None
    """What the generator is drawn from, in hexadecimal, where the method names ``rng``."""
    is_function: bool = False
    hashed: bool = True
    """Whether the result needs a content hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a call gave."""

    parcel: Parcel | None
    """None where a fit returned None."""
    empty: bool
    """Whether it is ``{}``."""
    summary: str
    """Type and size in words."""
    took_ms: float
    """What the call alone took, in milliseconds."""
    why: str = ""
    """Why it came as a pickle, where it did."""
    inside: bool = False
    """Whether the call has set private attributes of the filter."""
    stays: tuple[str, ...] = ()
    """Attributes that the call has set and that cannot travel back."""


class Seat(Protocol):
    """A process that runs nodes, for as long as it is one's turn."""

    @property
    def name(self) -> str:
        """What its worker is called."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def run(self, action: Action) -> Done:
        """Run one node. What the call changed on the filter is changed on ours as well.

        Raises:
            Exception: whatever the filter raises.
            SessionError: the process ended, or took too long.
            NotSendable: the filter, or something on it, cannot travel.
        """


class Placement(Protocol):
    """Where the nodes of a graph run."""

    @property
    def targets(self) -> Collection[str]:
        """Names and tags that a node may have as its target."""

    @property
    def seats(self) -> int:
        """How many processes there may be."""

    def where(self, place: int) -> str:
        """Return in words in which other process a node runs; empty where it runs here."""

    def turn(self, place: int, stopped: Callable[[], bool]) -> AbstractContextManager[Seat]:
        """Wait for a process that may run a node, and hold it.

        Raises:
            SessionError: it cannot be started, or nobody waits any more (``stopped``).
        """

    def cancel(self) -> None:
        """Stop what is under way; nobody waits for it."""
