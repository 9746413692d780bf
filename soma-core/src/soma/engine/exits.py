"""How a process ends while a node still runs that nobody waits for any more.

A thread inside a long C call (a LAPACK routine, say) cannot be stopped, and an interpreter that
shuts down around it crashes or hangs. So if one is left when the interpreter ends, which happens
only after Ctrl-C, the streams are flushed and the process leaves at once, as one that was
interrupted: with 130.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import Protocol

__all__ = ["enter", "leave"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class _Run(Protocol):
    stopped: bool
    """Whether the run was abandoned."""


_busy: dict[threading.Thread, _Run] = {}


def enter(run: _Run) -> None:
    """Mark the current thread as one in which user code runs, for a run."""
    _busy[threading.current_thread()] = run


def leave() -> None:
    """Take the mark away."""
    _busy.pop(threading.current_thread(), None)


@atexit.register
def _leave() -> None:
    if not any(run.stopped and thread.is_alive() for thread, run in list(_busy.items())):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(_INTERRUPTED)


os.register_at_fork(after_in_child=_busy.clear)
