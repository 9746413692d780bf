"""Whose turn it is: a child serves one call at a time, and who comes later waits.

Who has waited longest is next. Who may have any of several children takes the first that is free,
so that work goes where there is somebody to do it. A thread that holds a child may take it again,
unless it is in the middle of a call to it. A callback waits for nobody, as others wait for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from soma.engine.claims import leave_claims
from soma.errors import SessionCancelled, SessionError
from soma.events.bus import in_callback

__all__ = ["Turns", "take_one_of"]

_WAIT_S = 0.1
"""A signal may be delivered to another thread, and this one then sees it when it wakes up."""


class Turns:
    """Whose turn it is at one child."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calling = False
        """Whether a call is under way."""
        self._owner = 0
        self._depth = 0
        self._waiting: list[object] = []
        """Who waits, in the order in which they came."""
        _all.add(self)

    @property
    def is_held_twice(self) -> bool:
        """Whether the one who holds it has taken it again meanwhile."""
        return self._depth > 1

    def release(self) -> None:
        """Let the next one have it."""
        with _lock.changed:
            self._depth -= 1
            if self._depth <= 0:
                self._owner = self._depth = 0
                _lock.changed.notify_all()

    def hand_over(self, heir: int) -> None:
        """Let another thread hold it instead, or a number that is no thread's: then nobody."""
        with _lock.changed:
            self._owner, self._depth = heir, 1

    def _try(self, me: int, ticket: object) -> bool:
        """Take it if it is free and nobody has waited longer than whoever has the ticket."""
        if self._owner == me:
            if self.calling:
                raise SessionError(
                    f"{self.name} is in the middle of a call, and this is a callback of that very "
                    "call: it cannot be asked for another thing until that is done"
                )
            self._depth += 1
            return True
        if self._owner or (self._waiting and self._waiting[0] is not ticket):
            return False
        self._owner, self._depth = me, 1
        return True

    def _forget(self) -> None:
        self._owner = self._depth = 0
        self._waiting = []
        self.calling = False


class _HasTurns(Protocol):
    @property
    def turns(self) -> Turns:
        """Whose turn it is."""


_T = TypeVar("_T", bound=_HasTurns)


def take_one_of(members: Sequence[_T], stopped: Callable[[], bool] | None = None) -> _T:
    """Wait until one of several is free, the first ones first, and take it.

    Raises:
        SessionCancelled: nobody waits any more.
        SessionError: a callback would have to wait; or the present call is asked for another.
    """
    ticket = object()
    queues = [one.turns._waiting for one in members]  # noqa: SLF001  # the two are one
    with _lock.changed:
        try:
            for queue in queues:
                queue.append(ticket)
            return _wait(members, ticket, stopped)
        finally:
            for queue in queues:
                if ticket in queue:
                    queue.remove(ticket)
            _lock.changed.notify_all()  # whoever came next may be first now


def _wait(members: Sequence[_T], ticket: object, stopped: Callable[[], bool] | None) -> _T:
    me, left = threading.get_ident(), False
    while True:
        if stopped is not None and stopped():
            raise SessionCancelled("Nobody waits for this any more")
        for member in members:
            if member.turns._try(me, ticket):  # noqa: SLF001  # the two are one
                return member
        if in_callback():
            raise SessionError(
                f"{', '.join(one.turns.name for one in members)}: busy, and a callback cannot "
                "wait for its turn, as others wait for the callback. Do it after the run"
            )
        if not left:  # whoever has the turn may wait for what this thread has claimed
            leave_claims()
            left = True
        _lock.changed.wait(_WAIT_S)


class _Lock:
    def __init__(self) -> None:
        self.changed = threading.Condition()


_lock = _Lock()
_all: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    """Forget whose turn it was: those threads did not come along."""
    _lock.changed = threading.Condition()
    for one in _all:
        one._forget()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
