"""How long a remote tier is waited for, and when it is left alone.

    ask(work, limit_s) ──► a thread of its own ──► the answer, or None where it takes longer

Nothing stops a thread that waits for a server which is gone. So each question has a thread of its
own, which is left behind where it takes too long, and which the end of the process does not wait
for. Three failures in a row, or one answer that does not come, and nothing is asked for a while.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from soma._notices import tell_once
from soma.errors import describe_error

__all__ = ["BYTES_PER_S", "Patience"]

BYTES_PER_S = 20_000_000
"""What moves bytes gets a second more for so many."""
_MOST_FAILURES = 3
_MOST_LEFT = 8
"""Where so many threads still hang, it is left alone until one of them is through."""

T = TypeVar("T")


class Patience:
    """What has become of one remote tier so far. Safe for threads.

    Args:
        name: what notices call it.
        clock: seconds that only ever grow; by it a rest is over.
        patience_s: how long an answer may take.
        rest_s: for how long it is left alone then.
    """

    def __init__(
        self, name: str, *, clock: Callable[[], float], patience_s: float, rest_s: float
    ) -> None:
        self.name = name
        self.clock = clock
        self.patience_s = patience_s
        self.rest_s = rest_s
        self._failures = 0
        self._back_at = float("-inf")
        self.last_error = ""
        """What went wrong last, in words."""
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._left = 0

    def limit_s(self, nbytes: int) -> float:
        """Return how long it may take to move so many bytes."""
        return self.patience_s + nbytes / BYTES_PER_S

    def is_away(self) -> bool:
        """Say whether it is left alone right now."""
        with self._lock:
            return self._left >= _MOST_LEFT or self.clock() < self._back_at

    def ask(self, work: Callable[[], T], limit_s: float, *, counts: bool = True) -> T | None:
        """Return what ``work`` returns; None where it fails, takes too long, or is not tried.

        Args:
            work: a call on the tier; a thread is in it, maybe for ever.
            limit_s: for how long it is waited for.
            counts: whether success shows that the tier is well.
        """
        if self.is_away():
            return None
        asked = _Asked(work)
        name = f"soma: asking {self.name}"
        try:
            threading.Thread(target=self._answer, args=(asked,), name=name, daemon=True).start()
        except RuntimeError:  # the process ends, or has as many threads as it may
            return None
        try:
            asked.done.wait(limit_s)
        finally:  # Ctrl-C leaves it behind as well
            with self._lock:
                asked.left = not asked.done.is_set()
                self._left += asked.left
        if asked.left:
            self.leave_alone(f"it has not answered within {limit_s:.3g} s")
            return None
        if asked.error is not None:
            self.failed(asked.error)
            return None
        if counts:
            self.succeeded()
        answer: T | None = asked.answer
        return answer

    def _answer(self, asked: _Asked) -> None:
        try:
            asked.answer = asked.work()
        except BaseException as error:  # noqa: BLE001  # the thread is ours and ends here
            asked.error = error
        with self._lock:
            asked.done.set()
            self._left -= asked.left

    def succeeded(self) -> None:
        """Note that it has done what it was asked for."""
        self._failures = 0

    def failed(self, error: BaseException) -> None:
        """Note that it has failed; it is left alone where that was the third time in a row."""
        with self._lock:
            self.last_error = describe_error(error)
            self._failures += 1
            enough = self._failures >= _MOST_FAILURES
        if enough:
            self.leave_alone(describe_error(error))

    def leave_alone(self, why: str) -> None:
        """Ask it nothing for a while."""
        with self._lock:
            self.last_error = why
            self._back_at = self.clock() + self.rest_s
        self.tell(
            f"is left alone for {self.rest_s:g} s at a time, and the run goes on with what is on "
            f"this machine: {why}"
        )

    def tell(self, what: str) -> None:
        """Say what is wrong with it, unless something was said of it already."""
        tell_once(("remote cache", self.name), f"the remote cache {self.name} {what}")


class _Asked:
    """One question, and what has become of it."""

    __slots__ = ("answer", "done", "error", "left", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.left = False
        """Whether nobody waits for it any more."""


_all: weakref.WeakSet[Patience] = weakref.WeakSet()


def _after_fork() -> None:
    """Forget the threads that hang: they did not come along."""
    for patience in _all:
        patience._begin()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
