"""What happens in one ``fit`` or ``forward``: the run as a whole, and node by node.

Durations are milliseconds, keys are hexadecimal. ``passes`` are the numbers, from 1, of the passes
that the loops around the node are in, outermost first; empty outside of loops.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from soma.events.base import Event, event

__all__ = [
    "BranchTaken",
    "LoopCompleted",
    "NodeCacheHit",
    "NodeCacheMiss",
    "NodeCompleted",
    "NodeFailed",
    "NodeNotDeterministic",
    "NodeNotKept",
    "NodePlaced",
    "NodeProgress",
    "NodeRecomputed",
    "NodeStarted",
    "RunCompleted",
    "RunFailed",
    "RunStarted",
]

What: TypeAlias = Literal["state", "output"]
"""``"state"`` for a fit of a node, ``"output"`` for a forward."""


@event
class RunStarted(Event):
    """A run begins: the first event of its ``run_id``."""

    run_id: str
    phase: Literal["fit", "forward"]
    plan_summary: dict[str, Any]
    """``total_nodes``, ``cached_nodes`` and ``parallel_branches``, all counts."""
    seed: int | None = None
    refreshed: tuple[str, ...] = ()
    """Nodes that are computed anew although they may be known, in the order of their ids."""


@event
class RunCompleted(Event):
    """A run is done."""

    run_id: str
    duration: float
    """Milliseconds."""


@event
class RunFailed(Event):
    """A run ended with an error."""

    run_id: str
    error: str
    """``"ValueError: what it says"``."""


@event
class BranchTaken(Event):
    """A branch has decided which of its arms runs."""

    run_id: str
    node_id: str
    arm: str
    passes: tuple[int, ...] = ()


@event
class LoopCompleted(Event):
    """A loop made its last pass."""

    run_id: str
    node_id: str
    iterations: int
    """Passes that were made."""
    stopped: bool | None
    """True: its ``until`` ended it. False: ``max_iterations`` did. None: it has no ``until``."""
    passes: tuple[int, ...] = ()


@event
class NodeStarted(Event):
    """A node begins to compute: nothing known answers for it."""

    run_id: str
    node_id: str
    what: What
    kind: Literal["Trainable", "Stateless"]
    effectful: bool = False
    """Whether it does something besides computing its output."""
    passes: tuple[int, ...] = ()


@event
class NodePlaced(Event):
    """What was just started runs in another process."""

    run_id: str
    node_id: str
    what: What
    worker: str
    """The name of the worker."""
    pid: int
    """The id of its process, on the machine where that runs."""
    passes: tuple[int, ...] = ()


@event
class NodeProgress(Event):
    """A node says how far it has come."""

    run_id: str
    node_id: str
    progress: float
    """From 0 to 1."""


@event
class NodeCompleted(Event):
    """A node has computed."""

    run_id: str
    node_id: str
    what: What
    duration: float
    """Milliseconds."""
    output_summary: str
    """One line for people: type and shape."""
    outcome: Literal["computed", "recomputed"] = "computed"
    """``"recomputed"``: it was known, but not kept."""
    bytes: int = 0
    """Size of what came out, as a frame; 0 where nobody measured."""
    passes: tuple[int, ...] = ()


@event
class NodeFailed(Event):
    """A node raised."""

    run_id: str
    node_id: str
    what: What
    error: str
    """``"ValueError: what it says"``."""
    passes: tuple[int, ...] = ()


@event
class NodeCacheHit(Event):
    """What a node would compute was known."""

    run_id: str
    node_id: str
    what: What
    key: str
    tier: Literal["Memory", "Local", "Remote"]
    load_time: float
    """Milliseconds that the lookup took."""
    bytes: int = 0
    """Size of what was found, as a frame; 0 where nobody measured."""
    passes: tuple[int, ...] = ()


@event
class NodeCacheMiss(Event):
    """What a node would compute was looked up and is not known."""

    run_id: str
    node_id: str
    what: What
    key: str
    passes: tuple[int, ...] = ()


@event
class NodeNotKept(Event):
    """What a node computed could not be kept, so it will be computed again."""

    run_id: str
    node_id: str
    message: str


@event
class NodeRecomputed(Event):
    """What a node had computed was known but is gone, so it is computed again."""

    run_id: str
    node_id: str
    message: str


@event
class NodeNotDeterministic(Event):
    """The same computation of a node gave something else than before."""

    run_id: str
    node_id: str
    message: str
