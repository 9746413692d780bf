"""Stops a call that runs on another thread of this process, as soon as Python runs there again.

The interpreter is asked to raise ``Cancelled`` on that thread. It is no ``Exception``, so that user
code which catches everything it knows does not catch it. The surprise is at the end of a call: it
may be asked for at the very moment when the call is over, so that a call ends under a lock, and
takes back what was asked for and has not happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TypeVar

__all__ = ["Cancellable", "Cancelled"]

_T = TypeVar("_T")
_AGAIN_S = 0.5


class Cancelled(BaseException):
    """Somebody has called ``cancel``."""


class Cancellable:
    """One call, on the thread that makes this object."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._asked = -inf
        self.over = False
        """Whether it has ended, in whatever way."""

    def cancel(self) -> None:
        """Ask it to stop, from any thread; does nothing once it is over.

        It is asked again only after a while, where user code has caught what was raised: two at
        once could be one too many for what ends a call.
        """
        with self._lock:
            if not self.over and monotonic() - self._asked > _AGAIN_S:
                self._asked = monotonic()
                _raise_in(self._thread, Cancelled)

    def run(self, work: Callable[[], _T]) -> _T:
        """Do what there is to do. Once, on the thread that made this object.

        Raises:
            Cancelled: it was asked to stop.
            Exception: whatever ``work`` raises.
        """
        try:
            return work()
        finally:
            while not self.over:
                try:  # noqa: SIM105  # suppress is Python as well, where it may come
                    self._end()
                except Cancelled:
                    pass  # it came too late: the work is done, or has failed

    def _end(self) -> None:
        with self._lock:
            self.over = True
            if self._asked > 0:
                _raise_in(self._thread, None)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Have an exception raised on a thread; None takes back what was not raised yet."""
    import ctypes  # which only a call that is cancelled needs

    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
