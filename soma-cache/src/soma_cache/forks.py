"""A fork waits until no thread of this process is inside SQLite.

SQLite keeps in memory which locks its process has. A child gets the memory, and not the locks: what
another thread held just then is held for ever as far as it is concerned. So is a lock of SQLite's
own in memory, for which it would wait without end.

The surprise: a fork does not wait for ever either. Where it has waited long enough, or is called
by the very thread that is inside, the child is told to leave databases on disk alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["holding_off", "may_use_disk"]

_PATIENCE_S = 2.0


class _Own(threading.local):
    """Of each thread."""

    is_inside = False
    held: tuple[threading.Lock, ...] = ()
    """What it has taken before a fork."""


class _Locks:
    """Of this process: a child gets new ones."""

    def __init__(self, *, may_use_disk: bool) -> None:
        self.door = threading.Lock()
        """Who is about to fork closes it, so that none comes in before it."""
        self.inside = threading.Lock()
        self.may_use_disk = may_use_disk


_own = _Own()
_locks = _Locks(may_use_disk=True)


@contextmanager
def holding_off() -> Iterator[None]:
    """Have forks wait meanwhile, and other threads that do the same. For short pieces of work."""
    if _own.is_inside:
        yield
        return
    locks = _locks
    with locks.door:
        pass
    with locks.inside:
        _own.is_inside = True
        try:
            yield
        finally:
            _own.is_inside = False


def may_use_disk() -> bool:
    """Say whether this process was forked while no other thread was inside SQLite."""
    return _locks.may_use_disk


def _before() -> None:
    wanted = () if _own.is_inside else (_locks.door, _locks.inside)
    _own.held = tuple(lock for lock in wanted if lock.acquire(timeout=_PATIENCE_S))


def _after_in_parent() -> None:
    held, _own.held = _own.held, ()
    for lock in held:
        lock.release()


def _after_in_child() -> None:
    global _locks  # noqa: PLW0603  # the old ones may be held by threads that are not here
    was_quiet = _locks.inside in _own.held
    _own.held = ()
    _locks = _Locks(may_use_disk=_locks.may_use_disk and was_quiet)


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
