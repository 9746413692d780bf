"""Where a session is open: which process has what of it, and how a call to it can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.errors import SessionError
from soma.sessions.calls import Child, Handlers
from soma.sessions.local import Member, Turn
from soma.sessions.sending import SentProgram
from soma.sessions.wire import Message

__all__ = ["Current", "Has", "Place"]

_LEFT = "sessions that are gone"


@dataclass(slots=True)
class Has:
    """What one process has of one session."""

    states: Mapping[str, NodeState] = field(default_factory=dict)
    puts: set[str] = field(default_factory=set)
    """Digests of values."""


class Current:
    """One call of a session, from when it waits for its turn, and how it is cancelled.

    Its requests end under a lock, so that a cancel never meets one of another session. One that
    comes between two requests is seen when the next begins.
    """

    __slots__ = ("_cancelled", "_child", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._child: Child | None = None

    def is_cancelled(self) -> bool:
        """Say whether nobody waits for it any more."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop it, from any thread."""
        self._cancelled = True
        with self._lock:
            if self._child is not None and self._child.call:
                self._child.cancel(self._child.call)

    def asks(self, child: Child | None) -> None:
        """Note which process is being asked for something; None when that is over."""
        with self._lock:
            self._child = child


class Place:
    """The place of one session at a member. Outlives the session, and knows nothing of it.

    Args:
        member: the member.
        session: the id of the session.
        name: what messages call the session.
    """

    __slots__ = ("_child", "_left", "_name", "current", "member", "session")

    def __init__(self, member: Member, session: str, name: str) -> None:
        self.member = member
        self.session = session
        self.current: Current | None = None
        """The call that is under way, or waits for its turn at the member."""
        self._name = name
        self._child: Child | None = None
        self._left = False
        member.sessions += 1

    def open(self, child: Child, sent: SentProgram) -> bool:
        """Open the program in a process; return False where that has been done already.

        Raises:
            SessionError: the process is lost, or has other code than this one.
            Exception: whatever taking the program over raises there.
        """
        _close_left(child)
        if self.session in child.known:
            return False
        blobs = list[Blob]()
        fields = sent.put(blobs)
        self._child = child
        self.request(child, "open", fields, blobs, during=f"opening of session {self._name!r}")
        self.give_back(child, Has())
        if self._left:
            raise SessionError(f"Session {self._name!r} was closed while its program was opened")
        return True

    def borrow(self, child: Child) -> Has:
        """Return what a process has. Until it is given back, it counts as having nothing."""
        found: Has | None = child.known.get(self.session)
        if found is None:
            raise SessionError(f"Session {self._name!r} was closed in the middle of a call")
        child.known[self.session] = Has()
        return found

    def give_back(self, child: Child, has: Has) -> None:
        """Note what a process has after a call; where the session is gone, it is told to forget."""
        child.known[self.session] = has
        if self._left:
            self._forget(child)

    def request(
        self,
        child: Child,
        kind: str,
        fields: Mapping[str, Any],
        blobs: list[Blob],
        *,
        during: str,
        handlers: Handlers | None = None,
    ) -> Message:
        """Ask the process for something; meanwhile callbacks cannot ask it for another thing.

        Raises:
            SessionCancelled: somebody has called ``cancel``, now or since the last request.
            Exception: whatever ``Child.request`` raises.
        """
        current = self.current
        fields = {**child.surroundings(blobs), **fields, "session": self.session}
        stopped = None if current is None else current.is_cancelled
        self.member.turns.calling = True
        try:
            if current is not None:
                current.asks(child)
            return child.request(
                kind, fields, blobs, during=during, handlers=handlers, stopped=stopped
            )
        finally:
            if current is not None:
                current.asks(None)
            self.member.turns.calling = False

    def leave(self) -> None:
        """The session is gone: the process is told when it is asked for something next."""
        self._left = True
        self.member.sessions -= 1
        child = self._child
        if child is not None:
            self._forget(child)

    def _forget(self, child: Child) -> None:
        if child.known.pop(self.session, None) is not None:
            child.known.setdefault(_LEFT, []).append(self.session)

    def tell(self) -> None:
        """Tell the process at once what is gone, if it is free."""
        child = self._child
        if child is None or not child.alive:
            return
        looks = iter((False, True))  # looks once
        with suppress(SessionError), Turn([self.member], lambda: next(looks)) as now:
            _close_left(now)


def _close_left(child: Child) -> None:
    left = child.known.pop(_LEFT, None)
    if left:
        child.request("close", {"sessions": left}, during="end of another session")
