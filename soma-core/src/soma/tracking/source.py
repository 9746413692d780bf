"""What a record needs to know of the graph that is tracked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from soma.declaration import Declaration
from soma.events import Bus
from soma.events.sinks import DefaultSinks
from soma.plan import Plan

__all__ = ["Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The graph that is tracked, as far as a record needs it."""

    declared: Declaration
    compiled: Callable[[], Plan]
    seed: int | None
    bus: Bus
    sinks: DefaultSinks
