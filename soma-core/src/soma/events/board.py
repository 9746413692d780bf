"""What is known of a run that is under way, as its events tell it.

Events come from any thread, and somebody draws on another: a short lock around a few assignments,
and copies of only those rows that there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import RLock
from time import monotonic
from typing import Any, ClassVar

from soma.events.human import times

__all__ = ["Board", "Row", "Snapshot"]


@dataclass(slots=True)
class Row:
    """One node."""

    node: str
    place: int
    """The how-manieth node of which something was heard."""
    running: dict[tuple[str, Any], float] = field(default_factory=dict)
    """(what, passes) -> when it started, in s of the clock."""
    progress: float = 0.0
    """How far it says that it is, 0 to 1."""
    hits: int = 0
    computed: int = 0
    recomputed: int = 0
    duration_ms: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    """``"state"`` or ``"output"`` -> bytes of the last one."""
    passes: Any = ()
    note: str = ""
    """What a branch chose, how often a loop ran."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A moment of a run, in copies."""

    rows: list[Row]
    """Failed, running and newest ones, in order of their places."""
    nodes: int
    """How many rows there are, shown or not."""
    hits: int
    computed: int
    recomputed: int
    epoch: str
    elapsed_ms: float
    ended: str
    """``"done"``, ``"failed"``, ``"stopped"``; empty while it runs."""
    error: str


class Board:
    """The state of one run: the one of that id, or else the first that is heard of."""

    def __init__(self, run_id: str = "", clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.lock = RLock()
        self.hits = self.computed = self.recomputed = 0
        self.elapsed_ms = 0.0
        self.epoch = self.ended = self.error = ""
        self._run_id = run_id
        self._started = clock()
        self._rows: dict[str, Row] = {}
        """The one that was heard of last is the last one."""
        self._busy: dict[str, None] = {}
        """Those that run or have failed."""

    def take(self, event: Any) -> bool:
        """Enter an event; False if it says nothing about this run."""
        enter = self._ENTERS.get(event.event_type)
        if enter is None:
            return False
        with self.lock:
            if not self._run_id:
                self._run_id = event.run_id
            elif event.run_id != self._run_id:
                return False
            enter(self, event)
        return True

    def stop(self, error: str) -> bool:
        """End a run that has not said how it ended; False if it has."""
        with self.lock:
            if self.ended:
                return False
            self.ended, self.error = "stopped", error
            self.elapsed_ms = (self.clock() - self._started) * 1000
        return True

    def snapshot(self, room: int) -> Snapshot:
        """Return what to draw where there is room for so many rows."""
        with self.lock:
            nodes = list(islice(self._busy, room))
            shown = {node: self._rows[node] for node in nodes}
            for row in islice(reversed(self._rows.values()), room):
                if len(shown) >= room:
                    break
                shown[row.node] = row
            now = (self.clock() - self._started) * 1000
            return Snapshot(
                rows=sorted(map(_copy, shown.values()), key=lambda row: row.place),
                nodes=len(self._rows),
                hits=self.hits,
                computed=self.computed,
                recomputed=self.recomputed,
                epoch=self.epoch,
                elapsed_ms=self.elapsed_ms if self.ended else now,
                ended=self.ended,
                error=self.error,
            )

    def _row(self, event: Any) -> Row:
        """Return the row of a node, the last one from now on."""
        node = event.node_id
        row = self._rows.pop(node, None) or Row(node, len(self._rows))
        self._rows[node] = row
        return row

    def _run_started(self, _event: Any) -> None:
        self._started = self.clock()

    def _run_completed(self, event: Any) -> None:
        self.ended, self.elapsed_ms = "done", event.duration

    def _run_failed(self, event: Any) -> None:
        self.ended, self.error = "failed", str(event.error)
        self.elapsed_ms = (self.clock() - self._started) * 1000

    def _node_started(self, event: Any) -> None:
        row = self._row(event)
        row.running[event.what, event.passes] = self.clock()
        row.progress, row.passes = 0.0, event.passes
        self._busy[event.node_id] = None

    def _node_ended(self, event: Any) -> Row:
        row = self._row(event)
        row.running.pop((event.what, event.passes), None)
        row.passes = event.passes
        if not row.running and row.error is None:
            self._busy.pop(event.node_id, None)
        return row

    def _node_completed(self, event: Any) -> None:
        row = self._node_ended(event)
        if event.outcome == "recomputed":
            row.recomputed += 1
            self.recomputed += 1
        else:
            row.computed += 1
            self.computed += 1
        row.duration_ms += event.duration
        row.sizes[event.what] = event.bytes

    def _node_cache_hit(self, event: Any) -> None:
        row = self._node_ended(event)
        row.hits += 1
        self.hits += 1
        row.sizes[event.what] = event.bytes

    def _node_failed(self, event: Any) -> None:
        row = self._node_ended(event)
        row.error = str(event.error)
        self._busy[event.node_id] = None

    def _node_progress(self, event: Any) -> None:
        self._row(event).progress = event.progress

    def _branch_taken(self, event: Any) -> None:
        self._row(event).note = f"took {event.arm}"

    def _loop_completed(self, event: Any) -> None:
        stopped = ", stopped" if event.stopped else ""
        self._row(event).note = f"{times(event.iterations, 'pass')}{stopped}"

    def _epoch_completed(self, event: Any) -> None:
        self.epoch = _epoch_text(event)

    _ENTERS: ClassVar[Mapping[str, Callable[[Board, Any], None]]] = {
        "RunStarted": _run_started,
        "RunCompleted": _run_completed,
        "RunFailed": _run_failed,
        "NodeStarted": _node_started,
        "NodeCompleted": _node_completed,
        "NodeCacheHit": _node_cache_hit,
        "NodeFailed": _node_failed,
        "NodeProgress": _node_progress,
        "BranchTaken": _branch_taken,
        "LoopCompleted": _loop_completed,
        "EpochCompleted": _epoch_completed,
    }


def _copy(row: Row) -> Row:
    return replace(row, running=dict(row.running), sizes=dict(row.sizes))


def _epoch_text(event: Any) -> str:
    """Return what an epoch brought."""
    metrics: Mapping[str, Any] = event.metrics or {}
    values = [f"{name} {_amount(value)}" for name, value in metrics.items()]
    return ", ".join([f"epoch {event.epoch}", *values])


def _amount(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
