"""A file counts as used now, by the clock of its file system, and nothing else of it changes.

That clock gives files their times: a server's, maybe. One that is told the time of this machine
instead has used and new files by two clocks, and gc compares them. Python has no way to say "now"
for one of the two times alone, so the system is called by hand. Where we do not know how, it is the
time of this machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

__all__ = ["touch"]

_WORDS = {"linux": (-100, (1 << 30) - 1, (1 << 30) - 2), "darwin": (-2, -1, -2)}
"""AT_FDCWD, UTIME_NOW and UTIME_OMIT, as the headers of each system have them."""


def touch(path: str, mtime_ns: int) -> None:
    """Set the time of access of a file, where that is ours to set.

    Args:
        path: the file.
        mtime_ns: when it was changed, which stays as it is.
    """
    call = _utimensat()
    if call is not None:
        call(os.fsencode(path))
        return
    with suppress(OSError):
        os.utime(path, ns=(time.time_ns(), mtime_ns))


@cache
def _utimensat() -> Callable[[bytes], Any] | None:
    """Return what tells the system; None where that is not known how to do."""
    words = _WORDS.get(sys.platform)
    if words is None:
        return None
    import ctypes  # takes a while, and a process that only asks needs none of it

    if ctypes.sizeof(ctypes.c_long) != ctypes.sizeof(ctypes.c_int64):
        return None
    here, now, omit = words
    times = (ctypes.c_long * 4)(0, now, 0, omit)  # seconds and nanoseconds, of access and change
    try:
        call = ctypes.CDLL(None).utimensat
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
    call.restype = ctypes.c_int
    pointer = ctypes.cast(times, ctypes.c_void_p)  # which keeps them alive
    return lambda path: call(here, path, pointer, 0)
