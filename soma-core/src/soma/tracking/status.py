"""How a run goes: status.json, replaced while it runs, with a heartbeat from a thread of its own.

A run that is killed leaves ``"running"`` behind, and a process that is no more: alive.py.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from soma.tracking.alive import this_process
from soma.tracking.files import json_text, replace_json, sync_folder
from soma.tracking.names import now_text
from soma.tracking.notices import tell_gap

__all__ = ["HEARTBEAT_S", "STATUS", "Status"]

STATUS = "status.json"
HEARTBEAT_S = 10.0


def first_status() -> dict[str, Any]:
    """Return the status of a run that begins, in this process."""
    now = now_text()
    return {
        "state": "running",
        "updated_at": now,
        "heartbeat_at": now,
        "finished_at": None,
        "error": None,
        "process": this_process(),
        "lost_events": 0,
    }


class Status:
    """The status file of one run."""

    def __init__(self, folder: Path, first: dict[str, Any]) -> None:
        self._folder = folder
        self._data = first
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._told = False
        self._process = os.getpid()

    def start_heart(self) -> None:
        """Say from now on, every ``HEARTBEAT_S``, that the run goes on."""
        try:
            threading.Thread(target=self._beat, name="soma-heartbeat", daemon=True).start()
        except RuntimeError as error:  # there are too many, or the interpreter ends
            tell_gap(f"no heartbeat is written to {self._folder}", error)

    def _beat(self) -> None:
        while not self._finished.wait(HEARTBEAT_S):
            now = now_text()
            self._update({"updated_at": now, "heartbeat_at": now})

    def finish(self, state: str, error: str | None, lost_events: int) -> None:
        """Say how it ended, so that it stays."""
        if os.getpid() != self._process:
            return
        now = now_text()
        self._finished.set()
        self._update(
            {
                "state": state,
                "updated_at": now,
                "heartbeat_at": now,
                "finished_at": now,
                "error": error,
                "lost_events": lost_events,
            },
            last=True,
        )

    def _update(self, changes: dict[str, Any], *, last: bool = False) -> None:
        with self._lock:
            if self._finished.is_set() and not last:
                return
            self._data |= changes
            try:
                self._write(last=last)
            except OSError as error:
                if not self._told:
                    self._told = True
                    tell_gap(f"the status of a run was not written to {self._folder}", error)

    def _write(self, *, last: bool) -> None:
        path = self._folder / STATUS
        try:
            replace_json(path, self._data, sync=last)
        except OSError:
            if not last:
                raise
            # No room for a second file. How it ended is worth the risk of writing over the first.
            with path.open("r+b") as file:
                file.write(f"{json_text(self._data)}\n".encode("ascii"))
                file.truncate()
        if last:
            sync_folder(self._folder)
