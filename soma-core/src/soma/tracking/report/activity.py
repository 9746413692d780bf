"""When each node was at work, read from the events of a run.

    NodeStarted ... NodeCompleted ──► one bar, from the moment of the one, as long as the other says

What began and did not end lasts until its call ended, or as long as anybody heard of the run. An
event whose fields are not what they should be is passed over; the view counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite
from typing import Any, NamedTuple

from soma.tracking.reading import number
from soma.tracking.view import RunView

__all__ = ["Activity", "Bar", "CallBar", "activity_of"]

_TYPES = ("RunStarted", "RunCompleted", "RunFailed")
_NODE_TYPES = ("NodeStarted", "NodeCompleted", "NodeFailed", "NodeCacheHit")


class Bar(NamedTuple):
    """One fit or forward of one node; a hit has no length."""

    node: str
    what: str
    """``"state"`` or ``"output"``."""
    outcome: str
    """``"hit"``, ``"computed"``, ``"recomputed"``, ``"failed"``, ``"open"``: it did not end."""
    start: float
    """Seconds since the epoch, like ``end``."""
    end: float


class CallBar(NamedTuple):
    """One fit or forward of the graph."""

    phase: str
    outcome: str
    """``"completed"``, ``"failed"``, ``"open"``."""
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """All that a run did, in time."""

    calls: list[CallBar] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


class _Call:
    def __init__(self, phase: str, start: float) -> None:
        self.phase, self.start = phase, start
        self.outcome, self.end = "open", start
        self.working: dict[tuple[Any, ...], float] = {}


def activity_of(view: RunView) -> Activity:
    """Return when each node was at work."""
    calls: dict[str, _Call] = {}
    bars: list[Bar] = []
    last = 0.0
    for event in view.events(*_TYPES, *_NODE_TYPES):
        run_id, now = event.get("run_id"), _moment(event.get("ts"))
        if type(run_id) is not str or now is None:
            continue
        last = max(last, now)
        kind = event["event_type"]
        call = calls.get(run_id)
        if call is None:
            call = calls[run_id] = _Call("", now)
        if kind == "RunStarted":
            phase = event.get("phase")
            call.phase = phase if type(phase) is str else ""
        elif kind in _TYPES:
            call.outcome = "completed" if kind == "RunCompleted" else "failed"
            call.end = max(now, call.start)  # clocks are set back
        elif type(event.get("node_id")) is str and type(event.get("what")) is str:
            bars += _entered(call, kind, event, now)
    ended = max(last, _heard_of(view))
    for call in calls.values():
        if call.outcome == "open":
            call.end = max(ended, call.start)
        bars += _left_open(call, call.end)
    return Activity(
        calls=[CallBar(one.phase, one.outcome, one.start, one.end) for one in calls.values()],
        bars=sorted(bars, key=lambda one: one.start),
    )


def _entered(call: _Call, kind: str, event: dict[str, Any], now: float) -> list[Bar]:
    """Enter what is told of a node, and return the bar that it ends."""
    node, what = event["node_id"], event["what"]
    work = (node, what, repr(event.get("passes") or ()))
    if kind == "NodeStarted":
        call.working[work] = now
        return []
    if kind == "NodeCacheHit":
        return [Bar(node, what, "hit", now, now)]
    if kind == "NodeFailed":
        start = call.working.pop(work, now)
        return [Bar(node, what, "failed", start, max(now, start))]
    took, begun = _moment(event.get("duration")), call.working.pop(work, None)
    if took is None:
        return []
    outcome = "recomputed" if event.get("outcome") == "recomputed" else "computed"
    start = now - took / 1e3 if begun is None else begun
    return [Bar(node, what, outcome, start, start + took / 1e3)]


def _left_open(call: _Call, end: float) -> list[Bar]:
    if not call.working:  # as of all calls but a few
        return []
    found = [
        Bar(node, what, "open", start, max(end, start))
        for (node, what, _), start in call.working.items()
    ]
    call.working.clear()
    return found


def _heard_of(view: RunView) -> float:
    """Return until when a run that did not say how its calls ended was there."""
    try:
        return (view.created_at + timedelta(milliseconds=view.duration_ms)).timestamp()
    except OverflowError:
        return 0.0


def _moment(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and isfinite(found) and found >= 0 else None
