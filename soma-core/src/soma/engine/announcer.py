"""What a run says to those who listen to its graph; nothing is built where nobody does.

A run is silent after its last event: nodes that an interrupted run has left behind on other threads
say no more. Whoever announces something asks ``listening`` first.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from soma.errors import describe_error
from soma.events import (
    BranchTaken,
    Bus,
    Event,
    LoopCompleted,
    NodeCacheHit,
    NodeCacheMiss,
    NodeCompleted,
    NodeFailed,
    NodeNotDeterministic,
    NodeNotKept,
    NodeRecomputed,
    NodeStarted,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from soma.plan import Plan

__all__ = ["Announcer", "new_run_id"]

_NOTICES: dict[str, Any] = {
    one.__name__: one for one in (NodeNotDeterministic, NodeNotKept, NodeRecomputed)
}


_SCALARS = frozenset((type(None), bool, int, float, complex))


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

    def _emit(self, event: Event) -> None:
        with self._lock:
            if not self._ended and not self._leaving:
                self._bus.emit(event)

    def _emit_last(self, event: Event) -> None:
        with self._lock:
            self._ended = True
            self._bus.emit(event)

    def leave(self) -> None:
        """Say nothing more but how the run ended: nobody waits for those who wait to be heard."""
        self._leaving = True

    def run_started(self, phase: Any, plan: Plan) -> None:
        """The run begins."""
        if self.listening:
            summary = {
                "total_nodes": len(plan.nodes),
                "cached_nodes": sum(node.cached for node in plan.nodes),
                "parallel_branches": plan.parallel_branches,
            }
            self._emit(RunStarted(run_id=self.run_id, phase=phase, plan_summary=summary))

    def run_completed(self, duration_ms: float) -> None:
        """The run is done."""
        if self.listening:
            self._emit_last(RunCompleted(run_id=self.run_id, duration=duration_ms))
        self._ended = True

    def run_failed(self, error: BaseException) -> None:
        """The run ended with an error."""
        if self.listening:
            self._emit_last(RunFailed(run_id=self.run_id, error=describe_error(error)))
        self._ended = True

    def node_started(self, node: str, what: Any, passes: tuple[int, ...], kind: Any) -> None:
        """User code is about to be called."""
        self._emit(
            NodeStarted(run_id=self.run_id, node_id=node, what=what, kind=kind, passes=passes)
        )

    def node_completed(
        self,
        node: str,
        what: Any,
        passes: tuple[int, ...],
        made: Any,
        *,
        outcome: Any,
        duration_ms: float,
        nbytes: int,
    ) -> None:
        """A node has computed."""
        self._emit(
            NodeCompleted(
                run_id=self.run_id,
                node_id=node,
                what=what,
                duration=duration_ms,
                output_summary=_summary(made),
                outcome=outcome,
                bytes=nbytes,
                passes=passes,
            )
        )

    def node_failed(
        self, node: str, what: Any, passes: tuple[int, ...], error: BaseException
    ) -> None:
        """User code has raised."""
        self._emit(
            NodeFailed(
                run_id=self.run_id,
                node_id=node,
                what=what,
                error=describe_error(error),
                passes=passes,
            )
        )

    def cache_hit(
        self,
        node: str,
        what: Any,
        passes: tuple[int, ...],
        key: str,
        *,
        tier: Any,
        load_ms: float,
        nbytes: int,
    ) -> None:
        """What a node would compute is known."""
        self._emit(
            NodeCacheHit(
                run_id=self.run_id,
                node_id=node,
                what=what,
                key=key,
                tier=tier,
                load_time=load_ms,
                bytes=nbytes,
                passes=passes,
            )
        )

    def cache_miss(self, node: str, what: Any, passes: tuple[int, ...], key: str) -> None:
        """What a node would compute is not known."""
        self._emit(
            NodeCacheMiss(run_id=self.run_id, node_id=node, what=what, key=key, passes=passes)
        )

    def notice(self, kind: str, node: str, message: str) -> None:
        """A user should hear of something although the run goes on."""
        if kind in _NOTICES and self.listening:  # a loop has an event of its own
            self._emit(_NOTICES[kind](run_id=self.run_id, node_id=node, message=message))

    def branch_taken(self, node: str, arm: str, passes: tuple[int, ...]) -> None:
        """A branch has decided."""
        if self.listening:
            self._emit(BranchTaken(run_id=self.run_id, node_id=node, arm=arm, passes=passes))

    def loop_completed(
        self, node: str, iterations: int, passes: tuple[int, ...], *, stopped: bool
    ) -> None:
        """A loop has made its last pass."""
        if self.listening:
            self._emit(
                LoopCompleted(
                    run_id=self.run_id,
                    node_id=node,
                    iterations=iterations,
                    stopped=stopped,
                    passes=passes,
                )
            )


def _summary(made: Any) -> str:
    """Return type and size in words, and no value: an event may be written down anywhere."""
    name = type(made).__name__
    if type(made) in _SCALARS:
        return name
    try:
        shape = getattr(made, "shape", None)
        if isinstance(shape, tuple):
            dtype = getattr(made, "dtype", "")
            return f"{name} {dtype} {tuple(shape)}" if dtype else f"{name} {tuple(shape)}"
        return f"{name} of {len(made)}" if hasattr(type(made), "__len__") else name
    except Exception:  # noqa: BLE001  # somebody else's class
        return name
