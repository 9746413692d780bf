"""Which tracked run one fit or forward was part of.

A record names the call that has made it; a run is a folder, with any number of calls in its events.
So the events are looked into, of the newest runs that had begun by then, and no further than a
limit: this is an aside of another answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from pathlib import Path

from soma.errors import InvalidInput
from soma.tracking.find import RUNS
from soma.tracking.view import RunView

__all__ = ["run_of"]

_LOOKED_AT = 500
_RUNS = 50
_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


def run_of(root: Path, call: str, made_at: float) -> str | None:
    """Return the id of the run that has a call in its events; None where none is found.

    Args:
        root: the folder that runs are tracked in.
        call: the id of the fit or forward.
        made_at: when it made what is asked about, in seconds since the epoch.
    """
    left = _BYTES
    begun = (one for one in _newest(root) if call and _had_begun(one, made_at))
    for view in islice(begun, _RUNS):
        path = view.path / "events.jsonl"
        with suppress(OSError):
            left -= path.stat().st_size
            if left < 0:
                return None
            if _holds(path, call.encode()):
                return view.id
    return None


def _newest(root: Path) -> Iterator[RunView]:
    """Yield runs, the newest first, as their names have it."""
    names: list[str] = []
    with suppress(OSError, ValueError):  # no such folder, or a name that no system takes
        names = nlargest(_LOOKED_AT, os.listdir(root / RUNS))
    for name in names:
        with suppress(InvalidInput):  # something else
            yield RunView(root / RUNS / name)


def _had_begun(view: RunView, made_at: float) -> bool:
    try:
        return view.created_at.timestamp() <= made_at
    except InvalidInput:  # which is said where it is asked for
        return False


def _holds(path: Path, wanted: bytes) -> bool:
    """Say whether a file has a call in it."""
    before, quoted = b"", b'"%b"' % wanted
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe is not waited for
    with open(fd, "rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            if quoted in before + piece:
                return True
            before = piece[-len(quoted) :]
    return False
