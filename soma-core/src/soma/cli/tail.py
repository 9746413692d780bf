"""The events of a run as lines, the way progress shows them, from the file that they are in.

soma: fit scaler: computed in 1.2 ms, 4.1 KiB
soma: metric loss: 0.25 (step 3)
soma: fit done in 1.3 s: 1 hit, 2 computed
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from soma.events.human import clipped, one_line, printable, times
from soma.events.progress import Progress
from soma.tracking.reading import number

__all__ = ["Teller"]

_LINE = 400
_SHOWN_BY_PROGRESS = frozenset(
    ("RunCompleted", "RunFailed", "NodeCompleted", "NodeCacheHit", "NodeFailed", "EpochCompleted")
)
_SILENT = frozenset(
    ("NodeStarted", "NodeCacheMiss", "NodeProgress", "EpochStarted", "StepCompleted")
)
"""Events that say only that something goes on."""
_ENVELOPE = frozenset(("seq", "ts", "event_type"))


class Teller:
    """Turns events into lines; it has to be told all of them, since some lines count others."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Progress, io.StringIO]] = {}

    def line(self, event: Mapping[str, Any]) -> str:
        """Return what is said about an event; empty where that is nothing."""
        try:
            said = self._said(event)
        except (AttributeError, KeyError, TypeError, ValueError):  # it is not what it should be
            said = f"an event that cannot be shown: {event.get('event_type')!r}"
        # Whatever lies in a file, no terminal is told to do anything by it.
        return one_line(said, _LINE)

    def _said(self, event: Mapping[str, Any]) -> str:
        kind = event["event_type"]
        if kind in _SILENT:
            return ""
        if kind == "RunStarted":
            self._open(event["run_id"], event["phase"])
            return ""
        if kind in _SHOWN_BY_PROGRESS:
            return self._progress(event)
        say = _OTHERS.get(kind, _fields)
        return f"soma: {say(event)}"

    def _open(self, run_id: str, phase: str) -> tuple[Progress, io.StringIO]:
        lines = io.StringIO()
        progress = Progress(total_nodes=0, phase=phase, run_id=run_id, stream=lines)
        progress.__enter__()
        self._calls[run_id] = progress, lines
        return progress, lines

    def _progress(self, event: Mapping[str, Any]) -> str:
        run_id = event["run_id"]
        progress, lines = self._calls.get(run_id) or self._open(run_id, "call")
        progress(SimpleNamespace(**{**event, "passes": tuple(event.get("passes") or ())}))
        said = lines.getvalue()
        lines.seek(0)
        lines.truncate()
        if event["event_type"] in ("RunCompleted", "RunFailed"):
            self._calls.pop(run_id, None)
        return said


def _node(event: Mapping[str, Any]) -> str:
    return clipped(printable(event["node_id"]))


def _metric(event: Mapping[str, Any]) -> str:
    metric = event["metric"]
    step = f" (step {metric['step']})" if metric.get("step") is not None else ""
    return f"metric {clipped(printable(metric['name']))}: {number(metric['value']):.6g}{step}"


def _looped(event: Mapping[str, Any]) -> str:
    stopped = ", stopped" if event.get("stopped") else ""
    return f"{_node(event)}: {times(event['iterations'], 'pass')}{stopped}"


def _fields(event: Mapping[str, Any]) -> str:
    """Return an event that nobody knows: its name and what it carries."""
    pairs = [f"{name}={value!r}" for name, value in event.items() if name not in _ENVELOPE]
    return f"{event['event_type']}{': ' if pairs else ''}{', '.join(pairs)}"


def _notice(event: Mapping[str, Any]) -> str:
    return f"{_node(event)}: {event['message']}"


_OTHERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "BranchTaken": lambda event: f"{_node(event)}: took arm {event['arm']!r}",
    "LoopCompleted": _looped,
    "MetricReported": _metric,
    "TrialMetric": _metric,
    "NodePlaced": lambda event: f"{_node(event)}: at {printable(event['worker'])}",
    "NodeNotKept": _notice,
    "NodeRecomputed": _notice,
    "NodeNotDeterministic": _notice,
}
