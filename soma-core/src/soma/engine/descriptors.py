"""File descriptors that values may hold: half of what the process is allowed.

The other half stays with the program that we are part of. Who gets none works in plain memory.
"""

from __future__ import annotations

import os
import resource
import threading

__all__ = ["release", "reserve"]

_lock = threading.RLock()  # re-entrant: a map may be freed, and release, while one is reserved
_held = 0


def reserve() -> bool:
    """Take one descriptor, if one may be had."""
    global _held  # noqa: PLW0603  # a count of the process
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft // 2 if soft != resource.RLIM_INFINITY else 1 << 30
    with _lock:
        if _held >= limit:
            return False
        _held += 1
        return True


def release() -> None:
    """Give one back."""
    global _held  # noqa: PLW0603  # as above
    with _lock:
        _held -= 1


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # a thread that did not come along may have held it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
