"""Threads that a check starts: each is waited for, but not for ever, and its error is the check's.

Whether somebody *waits* can only be seen by waiting: ``PATIENCE_S`` is how long a check looks. One
who is slow to start is then taken for one who waits, so a check may miss a fault on a busy machine
and never finds one that is not there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

__all__ = ["PATIENCE_S", "TIMEOUT_S", "Background", "in_threads"]

TIMEOUT_S = 60.0
"""How long a thread may take. One that takes longer hangs."""
PATIENCE_S = 0.2
"""How long a check looks whether somebody goes on who should wait."""


class Background:
    """A thread that has been started."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised where the check sees it
            self._failed.append(error)

    def join(self) -> None:
        """Wait for it, and raise what it raised."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"it hangs: not done after {TIMEOUT_S:g} s"
        if self._failed:
            raise self._failed[0]


def in_threads(work: Callable[[int], object], count: int) -> None:
    """Call ``work(number)`` on so many threads at once, and raise what one of them raises."""
    start = threading.Barrier(count, timeout=TIMEOUT_S)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    for one in [Background(partial(begin, number)) for number in range(count)]:
        one.join()
