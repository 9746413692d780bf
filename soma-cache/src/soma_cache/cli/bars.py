"""A bar on a terminal for what takes a while, and nothing at all anywhere else.

It goes to standard error, so that what is printed can be read by a program all the same, and it is
not drawn for what is done in a moment.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import click

__all__ = ["bar"]

_AFTER_S = 0.5


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what is told ``(done, total)`` from time to time; None where nobody looks.

    Args:
        label: what is done.
    """
    if not sys.stderr.isatty():
        yield None
        return
    drawn = _Bar(label)
    try:
        yield drawn
    finally:
        drawn.close()


class _Bar:
    """Draws from the first call on that comes late enough. Several threads may call."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = monotonic()
        self._bar: Any = None
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            if self._bar is None:
                if monotonic() - self._began < _AFTER_S:
                    return
                self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr)
                self._bar.__enter__()
            self._bar.length = max(total, 1)
            self._bar.update(min(done, total) - self._bar.pos)

    def close(self) -> None:
        """Leave the line, if there is one."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
