"""Ways to force on small values and quick nodes what the engine does with large and slow ones."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest

__all__ = [
    "drop_blobs",
    "drop_records",
    "in_threads",
    "kept_only_at_leaves_and_mapped",
    "patched",
    "picked",
]


@contextmanager
def patched(*changes):
    """Set names, such as ``"soma.engine.run.KEEP_BELOW"``, to other values for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes:
            patch.setattr(name, value)
        yield


def kept_only_at_leaves_and_mapped():
    """Treat small values as the engine treats those above 1 MiB that are quick to compute."""
    return patched(
        ("soma.engine.run.KEEP_BELOW", 0),
        ("soma.engine.run._BYTES_PER_MS", 1e-9),
        ("soma.engine.blobs.MAP_FROM", 1),
        ("soma.engine.values.MAP_FROM", 1),
    )


@contextmanager
def in_threads(slow_s=-1.0, slow_in_window=16):
    """Count every node as slow, and let threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with patched(
            ("soma.engine.schedule.SLOW_S", slow_s),
            ("soma.engine.schedule._SLOW_IN_WINDOW", slow_in_window),
        ):
            yield
    finally:
        sys.setswitchinterval(interval)


def picked(things, mask):
    """Return those whose bit is set in the mask."""
    return [one for place, one in enumerate(sorted(things)) if mask >> place & 1]


def drop_blobs(store, mask):
    """Lose some of the blobs of a store in memory."""
    for digest in picked(store._blobs, mask):
        store._bytes -= store._blobs.pop(digest).nbytes


def drop_records(store, mask):
    """Lose some of its records."""
    for key in picked(store._records, mask):
        del store._records[key]
