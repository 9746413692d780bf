"""What the events of a run tell together, entered one by one as they stand in the file.

An event whose fields are not what they should be is passed over and counted. Fields that are
not known are nothing to complain of: another Soma may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from soma.events.human import times
from soma.tracking.reading import Lines, number
from soma.tracking.records import (
    Action,
    Call,
    Decision,
    Failure,
    MetricPoint,
    Notice,
    Reuse,
    Working,
)

__all__ = ["Story", "measured", "tell_story"]

_T = TypeVar("_T")


class _Unfit(Exception):
    """A field is not what it should be."""


@dataclass(slots=True)
class _Call:
    """A call as far as it is known."""

    started: float
    phase: str = ""
    seed: int | None = None
    outcome: str = "unfinished"
    duration_ms: float | None = None
    error: str | None = None
    counts: dict[str, int] = field(
        default_factory=lambda: {"hit": 0, "computed": 0, "recomputed": 0}
    )
    working: dict[tuple[str, str, tuple[int, ...]], float] = field(default_factory=dict)
    placed: dict[tuple[str, str, tuple[int, ...]], str] = field(default_factory=dict)
    """What is being computed by a worker -> its name."""


class Story:
    """All that is to be said of one events.jsonl."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.reused: list[Reuse] = []
        self.failures: list[Failure] = []
        self.decisions: list[Decision] = []
        self.notices: list[Notice] = []
        self.events = 0
        """Events that were read."""
        self.damaged = 0
        """Lines that are no events, or not what events are."""
        self.lost = 0
        """Events that are missing, as far as the numbers and the last lines tell."""
        self.failing: dict[str, None] = {}
        """Nodes that raised and have done nothing since."""
        self._calls: dict[str, _Call] = {}

    @property
    def calls(self) -> list[Call]:
        """The fits and forwards, in the order in which they began."""
        return [
            Call(
                run_id=run_id,
                phase=one.phase,
                started=one.started,
                outcome=one.outcome,
                duration_ms=one.duration_ms,
                hits=one.counts["hit"],
                computed=one.counts["computed"],
                recomputed=one.counts["recomputed"],
                error=one.error,
                seed=one.seed,
            )
            for run_id, one in self._calls.items()
        ]

    @property
    def working(self) -> list[Working]:
        """What was begun in calls that did not end, the oldest first."""
        return [
            Working(node, what, passes, run_id, started)
            for run_id, one in self._calls.items()
            for (node, what, passes), started in one.working.items()
        ]

    def enter(self, event: dict[str, Any]) -> None:
        """Enter an event; most of them say something only together with others."""
        try:
            enter = self._ENTERS.get(_text(event, "event_type"))
            if enter is not None:
                enter(self, event)
        except _Unfit:
            self.damaged += 1

    def _call(self, event: dict[str, Any]) -> tuple[str, _Call]:
        run_id = _text(event, "run_id")
        found = self._calls.get(run_id)
        if found is None:
            found = self._calls[run_id] = _Call(_amount(event, "ts"))
        return run_id, found

    def _run_started(self, event: dict[str, Any]) -> None:
        phase, seed = _text(event, "phase"), event.get("seed")
        _run_id, call = self._call(event)
        call.phase, call.seed = phase, seed if type(seed) is int else None

    def _run_completed(self, event: dict[str, Any]) -> None:
        duration = _amount(event, "duration")
        _run_id, call = self._call(event)
        call.outcome, call.duration_ms = "completed", duration
        call.working.clear()

    def _run_failed(self, event: dict[str, Any]) -> None:
        error, ended = _text(event, "error"), _amount(event, "ts")
        _run_id, call = self._call(event)
        call.outcome, call.error = "failed", error
        call.duration_ms = max(ended - call.started, 0.0) * 1e3
        call.working.clear()

    def _node_started(self, event: dict[str, Any]) -> None:
        what, started = _what(event), _amount(event, "ts")
        self._call(event)[1].working[what] = started

    def _node_placed(self, event: dict[str, Any]) -> None:
        what, worker = _what(event), _text(event, "worker")
        self._call(event)[1].placed[what] = worker

    def _node_completed(self, event: dict[str, Any]) -> None:
        what, outcome = _what(event), event.get("outcome", "computed")
        duration, size = _amount(event, "duration"), _count(event, "bytes", 0)
        run_id, call = self._call(event)
        if type(outcome) is not str or outcome not in call.counts:
            raise _Unfit
        call.counts[outcome] += 1
        call.working.pop(what, None)
        self.failing.pop(what[0], None)
        worker = call.placed.pop(what, "")
        self.actions.append(Action(what[0], what[1], outcome, duration, size, run_id, worker))

    def _node_cache_hit(self, event: dict[str, Any]) -> None:
        what, key, tier = _what(event), _text(event, "key"), _text(event, "tier")
        took, size = _amount(event, "load_time"), _count(event, "bytes", 0)
        run_id, call = self._call(event)
        call.counts["hit"] += 1
        node, kind, passes = what
        self.failing.pop(node, None)
        self.actions.append(Action(node, kind, "hit", 0.0, size, run_id))
        self.reused.append(Reuse(node, kind, key, tier, took, size, passes, run_id))

    def _node_failed(self, event: dict[str, Any]) -> None:
        what, error = _what(event), _text(event, "error")
        run_id, call = self._call(event)
        call.working.pop(what, None)
        call.placed.pop(what, None)
        self.failing[what[0]] = None
        self.failures.append(Failure(what[0], what[1], error, what[2], run_id))

    def _branch_taken(self, event: dict[str, Any]) -> None:
        node, arm, passes = _text(event, "node_id"), _text(event, "arm"), _passes(event)
        run_id, _call = self._call(event)
        self.decisions.append(Decision(node, f"took arm {arm!r}", passes, run_id, arm=arm))

    def _loop_completed(self, event: dict[str, Any]) -> None:
        node, made, passes = _text(event, "node_id"), _count(event, "iterations"), _passes(event)
        stopped = event.get("stopped")
        if stopped not in _ENDINGS:
            raise _Unfit
        run_id, _call = self._call(event)
        outcome = f"{times(made, 'pass')}{_ENDINGS[stopped]}"
        self.decisions.append(
            Decision(node, outcome, passes, run_id, iterations=made, stopped=stopped)
        )

    def _notice(self, event: dict[str, Any]) -> None:
        node, message = _text(event, "node_id"), _text(event, "message")
        run_id, _call = self._call(event)
        self.notices.append(Notice(event["event_type"], node, message, run_id))

    _ENTERS: ClassVar[Mapping[str, Callable[[Story, dict[str, Any]], None]]] = {
        "RunStarted": _run_started,
        "RunCompleted": _run_completed,
        "RunFailed": _run_failed,
        "NodeStarted": _node_started,
        "NodePlaced": _node_placed,
        "NodeCompleted": _node_completed,
        "NodeCacheHit": _node_cache_hit,
        "NodeFailed": _node_failed,
        "BranchTaken": _branch_taken,
        "LoopCompleted": _loop_completed,
        "NodeNotKept": _notice,
        "NodeRecomputed": _notice,
        "NodeNotDeterministic": _notice,
    }


def tell_story(data: bytes) -> Story:
    """Return what the lines of an events.jsonl tell."""
    story, lines = Story(), Lines(data)
    highest = numbered = 0
    for event in lines:
        seq = event.get("seq")
        if type(seq) is int and seq > 0:
            numbered += 1
            highest = max(highest, seq)
        story.events += 1
        story.enter(event)
    # A damaged line was an event, whose number is then missing; behind the last number none is.
    story.lost = max(highest - numbered, 0) + lines.cut
    story.damaged += lines.damaged
    return story


def measured(data: bytes) -> tuple[dict[str, list[MetricPoint]], int]:
    """Return the numbers in a metrics.jsonl by name, and how many lines are none."""
    found: dict[str, list[MetricPoint]] = {}
    lines, unfit = Lines(data), 0
    for line in lines:
        try:
            name = _text(line, "name")
            point = MetricPoint(
                _optional(line, "step", int),
                _amount(line, "value"),
                _amount(line, "ts"),
                _optional(line, "node_id", str),
                _optional(line, "trial_id", str),
            )
        except _Unfit:
            unfit += 1
        else:
            found.setdefault(name, []).append(point)
    return found, lines.damaged + unfit


def _optional(record: dict[str, Any], name: str, kind: type[_T]) -> _T | None:
    found = record.get(name)
    if found is None:
        return None
    if type(found) is not kind:
        raise _Unfit
    return found


def _text(event: dict[str, Any], name: str) -> str:
    found = event.get(name)
    if type(found) is not str:
        raise _Unfit
    return found


def _amount(event: dict[str, Any], name: str) -> float:
    found = number(event.get(name))
    if found is None:
        raise _Unfit
    return found


_ENDINGS = {True: ", stopped", False: ", max_iterations reached", None: ""}


def _count(event: dict[str, Any], name: str, default: int | None = None) -> int:
    found = event.get(name, default)
    if type(found) is not int or not 0 <= found < _LARGEST:
        raise _Unfit
    return found


_LARGEST = 1 << 63
"""No count and no size is as large."""


def _passes(event: dict[str, Any]) -> tuple[int, ...]:
    found = event.get("passes")
    if not found:
        return ()
    if type(found) is not list or any(type(one) is not int for one in found):
        raise _Unfit
    return tuple(found)


def _what(event: dict[str, Any]) -> tuple[str, str, tuple[int, ...]]:
    """Return node, what, and passes: which work an event is about."""
    return _text(event, "node_id"), _text(event, "what"), _passes(event)
