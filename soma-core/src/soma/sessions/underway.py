"""One call that is under way: what it is, until when it may last, and whether it has to stop.

    deadline   when its time is over; what callbacks take is not its time
    stop_by    when a process that was told to stop is killed

Any thread may say that it has to stop; the one that calls sees to it that it does.
"""

from __future__ import annotations

from time import monotonic

__all__ = ["GRACE_S", "UnderWay"]

GRACE_S = 2.0
"""How long a child may take to stop once it was told to; then it is killed."""


class UnderWay:
    """A call.

    Args:
        number: what it is called by.
        during: what an error says of it: ``"fit of node 'a'"``.
        limit_s: how long it may take; None for as long as it takes.
    """

    __slots__ = (
        "_deadline",
        "during",
        "killed",
        "limit_s",
        "number",
        "stop_by",
        "timed_out",
        "told",
    )

    def __init__(self, number: int, during: str, limit_s: float | None) -> None:
        self.number = number
        self.during = during
        self.limit_s = limit_s
        self._deadline = None if limit_s is None else monotonic() + limit_s
        self.stop_by: float | None = None
        self.timed_out = self.killed = False
        self.told = False
        """Whether the process was told to stop."""

    def wait_until(self, longest_s: float) -> float:
        """Return until when to wait for what the process says next."""
        until = monotonic() + longest_s
        return until if self._deadline is None else min(until, self._deadline)

    def is_out_of_time(self) -> bool:
        """Say whether its time has come to an end, once."""
        if self.timed_out or self._deadline is None or monotonic() < self._deadline:
            return False
        self.timed_out, self._deadline = True, None
        return True

    def is_stuck(self) -> bool:
        """Say whether it goes on although it was told to stop."""
        return self.stop_by is not None and monotonic() >= self.stop_by

    def gives_up(self) -> bool:
        """Say whether nobody waits any longer until the process takes what is sent."""
        late = self._deadline is not None and monotonic() >= self._deadline
        return late or self.is_stuck()

    def stop(self) -> None:
        """Note that it has to stop."""
        if self.stop_by is None:
            self.stop_by = monotonic() + GRACE_S

    def was_away(self, began: float) -> None:
        """Note that a callback took the time since ``began``: the process has waited for it."""
        now = monotonic()
        if self._deadline is not None:
            self._deadline += now - began
        if self.stop_by is not None:
            self.stop_by += now - max(began, self.stop_by - GRACE_S)
