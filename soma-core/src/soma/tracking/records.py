"""What there is to say of a run, as plain frozen records.

``passes`` are everywhere the numbers, from 1, of the passes of the loops around a node, outermost
first; ``call`` is the id of the fit or forward. There may be hundred thousands of some of them,
which is why they are named tuples.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Action",
    "Call",
    "Decision",
    "Failure",
    "MetricPoint",
    "Notice",
    "Reuse",
    "Working",
]


class Call(NamedTuple):
    """One fit or forward of the graph."""

    run_id: str
    """What its events call it."""
    phase: str
    """``"fit"`` or ``"forward"``; empty where its beginning was lost."""
    started: float
    """Seconds since the epoch."""
    outcome: str
    """``"completed"``, ``"failed"``, ``"unfinished"``: it goes on, or nobody said how it ended."""
    duration_ms: float | None
    """None where it did not end."""
    hits: int
    computed: int
    recomputed: int
    error: str | None
    """Type and message of what ended it."""
    seed: int | None
    """The seed that it ran with; None where it had none."""


class Action(NamedTuple):
    """One fit or forward of one node."""

    node: str
    what: str
    """``"state"`` or ``"output"``."""
    outcome: str
    """``"hit"``, ``"computed"``, ``"recomputed"``."""
    duration_ms: float
    bytes: int
    call: str
    worker: str = ""
    """Who has computed it; empty for the process of the run, and for a hit."""


class Reuse(NamedTuple):
    """One time that something of a node was known and not computed."""

    node: str
    what: str
    """``"state"`` or ``"output"``."""
    key: str
    """Under which it was known, hexadecimal."""
    tier: str
    """Where: ``"Memory"``, ``"Local"`` or ``"Remote"``."""
    load_time: float
    """Milliseconds that the lookup took."""
    bytes: int
    passes: tuple[int, ...]
    call: str


class Failure(NamedTuple):
    """A node that raised."""

    node: str
    what: str
    """``"state"`` or ``"output"``."""
    error: str
    """Type and message."""
    passes: tuple[int, ...]
    call: str


class Decision(NamedTuple):
    """What a branch or a loop did."""

    node: str
    outcome: str
    """In words: ``"took arm 'a'"``, ``"3 passes, stopped"``."""
    passes: tuple[int, ...]
    call: str
    arm: str | None = None
    """Of a branch."""
    iterations: int | None = None
    """Of a loop."""
    stopped: bool | None = None
    """Of a loop: whether its ``until`` ended it."""


class Notice(NamedTuple):
    """Something that a user should hear of although the run went on."""

    kind: str
    """``"NodeNotKept"``, ``"NodeRecomputed"`` or ``"NodeNotDeterministic"``."""
    node: str
    message: str
    call: str


class Working(NamedTuple):
    """A node that began to compute and has not said that it is done."""

    node: str
    what: str
    """``"state"`` or ``"output"``."""
    passes: tuple[int, ...]
    call: str
    started: float
    """Seconds since the epoch."""


class MetricPoint(NamedTuple):
    """One measured number."""

    step: int | None
    value: float
    """May be NaN or infinite."""
    ts: float
    """Seconds since the epoch."""
    node_id: str | None = None
    trial_id: str | None = None
