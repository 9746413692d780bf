"""What a run says to those who listen to its graph; nothing is built where nobody does.

A run is silent after its last event: nodes that an interrupted run has left behind on other threads
say no more. Whoever announces something asks ``listening`` first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

from soma.errors import describe_error
from soma.events import (
    Bus,
    Event,
    NodeNotDeterministic,
    NodeNotKept,
    NodeRecomputed,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from soma.plan import Plan

__all__ = ["Announcer", "new_run_id"]

_NOTICES: dict[str, Any] = {
    one.__name__: one for one in (NodeNotDeterministic, NodeNotKept, NodeRecomputed)
}


def new_run_id() -> str:
    """Return an id that no other run has."""
    return os.urandom(8).hex()


class Announcer:
    """Announces the events of one run."""

    def __init__(self, bus: Bus, run_id: str) -> None:
        self.run_id = run_id
        self._bus = bus
        self._lock = threading.RLock()
        self._ended = self._leaving = False

    @property
    def listening(self) -> bool:
        """Whether anybody hears this run."""
        return self._bus.listening and not self._ended

    def emit(self, event: Event) -> None:
        """Bring an event to those who listen, unless the run has ended."""
        with self._lock:
            if not self._ended and not self._leaving:
                self._bus.emit(event)

    def _end(self, event: Event) -> None:
        with self._lock:
            self._ended = True
            self._bus.emit(event)

    def leave(self) -> None:
        """Say nothing more but how the run ended: nobody waits for those who wait to be heard."""
        self._leaving = True

    def run_started(
        self, phase: Any, plan: Plan, *, seed: int | None, refreshed: Iterable[str]
    ) -> None:
        """The run begins."""
        if self.listening:
            summary = {
                "total_nodes": len(plan.nodes),
                "cached_nodes": sum(node.cached for node in plan.nodes),
                "parallel_branches": plan.parallel_branches,
            }
            self.emit(
                RunStarted(
                    run_id=self.run_id,
                    phase=phase,
                    plan_summary=summary,
                    seed=seed,
                    refreshed=tuple(sorted(refreshed)),
                )
            )

    def run_completed(self, duration_ms: float) -> None:
        """The run is done."""
        if self.listening:
            self._end(RunCompleted(run_id=self.run_id, duration=duration_ms))
        self._ended = True

    def run_failed(self, error: BaseException) -> None:
        """The run ended with an error."""
        if self.listening:
            self._end(RunFailed(run_id=self.run_id, error=describe_error(error)))
        self._ended = True

    def notice(self, kind: str, node: str, message: str) -> None:
        """A user should hear of something although the run goes on."""
        if kind in _NOTICES and self.listening:  # a loop has an event of its own
            self.emit(_NOTICES[kind](run_id=self.run_id, node_id=node, message=message))
