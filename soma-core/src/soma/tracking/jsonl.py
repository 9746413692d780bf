"""The sink that writes events into the folder of a run, one line each, as they happen.

    events.jsonl     every event
    metrics.jsonl    the numbers in them that were measured

The surprise: a write that fails stops nothing and is tried again with the next event, as a full
disk may have room again. ``seq`` counts on meanwhile, so that a reader sees what is missing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from soma.errors import InvalidInput
from soma.events import Event
from soma.masking.mask import Mask
from soma.tracking.files import LineFile, json_text
from soma.tracking.notices import tell_gap

__all__ = ["EVENTS", "METRICS", "JsonlSink"]

EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"
_OURS = ("seq", "ts")
"""Fields that the lines have beside those of the event."""


class JsonlSink:
    """Writes events into a folder. In a fork it is silent: the file is its parent's.

    Args:
        run_dir: the folder of a tracked run.
        mask: what is not to be written.
        before: called with each event before it is written; False: it is not to be.

    Raises:
        InvalidInput: there is no folder, as nobody tracks.
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        run_dir: Path | str | None,
        mask: Mask | None = None,
        before: Callable[[Event], bool] | None = None,
    ) -> None:
        if run_dir is None:
            raise InvalidInput(
                "The sink 'jsonl' writes into the folder of a tracked run, and this is none. "
                "Track one, which opens it: with g.track_run('name'): ..."
            )
        self._folder = Path(run_dir)
        self._mask = mask if mask is not None else Mask()
        self._before = before
        self._events = LineFile(self._folder / EVENTS)
        self._metrics: LineFile | None = None
        self._lock = threading.RLock()  # a signal handler may close it in the middle of a write
        self._process = os.getpid()
        self._seq = 0
        self._told = False
        self._closed = False
        self.lost = 0
        """Events that could not be written."""

    def __call__(self, event: Event) -> None:
        """Write an event, and the metrics in it."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._seq += 1
            try:
                if self._before is None or self._before(event):
                    self._write(event)
                else:
                    self._seq -= 1
            except Exception as error:  # noqa: BLE001  # whatever it is, the run goes on
                self.lost += 1
                self._tell(error)

    def _write(self, event: Event) -> None:
        data = self._mask(event.to_dict())
        for name in _OURS:
            if name in data:  # a field of somebody's own event
                data[f"{name}_"] = data.pop(name)
        now = round(time.time(), 6)
        self._events.write(json_text({"seq": self._seq, "ts": now, **data}))
        for metric in _metrics_in(data, now):
            self._metric(metric)

    def _metric(self, metric: Mapping[str, Any]) -> None:
        if self._metrics is None:
            self._metrics = LineFile(self._folder / METRICS)
        self._metrics.write(json_text(metric))

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            tell_gap(f"an event was not written to {self._folder}", error)

    def close(self) -> None:
        """Write no more, and see to it that what was written stays."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for file in (self._events, self._metrics):
                try:
                    if file is not None:
                        file.close(sync=True)
                except OSError as error:
                    self._tell(error)


def _metrics_in(data: Mapping[str, Any], now: float) -> Iterator[dict[str, Any]]:
    """Yield the lines of metrics.jsonl that an event gives."""
    kind = data["event_type"]
    if kind in ("MetricReported", "TrialMetric"):
        metric = data["metric"]
        yield {
            "ts": metric["timestamp"] if metric["timestamp"] is not None else now,
            "name": metric["name"],
            "value": metric["value"],
            "step": metric["step"],
            "trial_id": data.get("trial_id"),
            "node_id": data.get("node_id"),
        }
    elif kind == "EpochCompleted":
        for name, value in data["metrics"].items():
            yield {
                "ts": now,
                "name": name,
                "value": value,
                "step": data["epoch"],
                "trial_id": None,
                "node_id": None,
            }
