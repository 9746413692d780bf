"""Calls of one session come one after the other, from whatever thread.

A call from within a call of the same session would wait for itself, and a callback that waits may
make everybody wait: both are refused. Who has to wait lets go of its claims first, as the call that
it waits for may wait for one of them. Who waits looks up often, so that an exception which another
thread has asked for (a cancel in this process) gets through, and a session that is closed is seen.
"""

from __future__ import annotations

import os
import threading
import weakref

from soma.engine.claims import leave_claims
from soma.errors import SessionError
from soma.events.bus import in_callback

__all__ = ["OneAtATime"]

_LOOK_S = 0.1


class OneAtATime:
    """Whose turn it is at one session. A base of sessions."""

    name: str

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._owner = 0
        """The thread that is in a call; 0 where none is."""
        _all.add(self)

    def _check(self, method: str) -> None:
        """Refuse a method of a closed session."""

    def _is_within(self) -> bool:
        """Say whether this code runs in a call of this very session."""
        return self._owner == threading.get_ident()

    def _take_turn(self, method: str) -> None:
        """Wait until no other call is under way.

        Raises:
            SessionError: that would wait for itself, or a callback would wait; or it was closed.
        """
        if self._is_within():
            raise SessionError(
                f"Session {self.name!r} is in the middle of a call, and {method} was called from "
                "within that very call: do it when that is done, or open a second session"
            )
        if in_callback():
            if not self._turn.acquire(blocking=False):
                raise SessionError(
                    f"Session {self.name!r} is busy, and a callback cannot wait for its turn, as "
                    "others wait for the callback. Do it after the run"
                )
        elif not self._turn.acquire(blocking=False):
            leave_claims()
            while not self._turn.acquire(timeout=_LOOK_S):
                self._check(method)
        self._owner = threading.get_ident()

    def _release(self) -> None:
        self._owner = 0
        self._turn.release()

    def _after_fork(self) -> None:
        self._turn = threading.Lock()
        self._owner = 0


_all: weakref.WeakSet[OneAtATime] = weakref.WeakSet()


def _after_fork() -> None:
    """Forget whose turn it was: those threads did not come along."""
    for session in list(_all):
        session._after_fork()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
