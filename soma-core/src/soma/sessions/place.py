"""Where a session is open: which process has what of it, and how a call to it can be cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
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
_BEGINS_S = 1.0
"""How long a cancel waits for a call that is just about to begin."""


@dataclass(slots=True)
class Has:
    """What one process has of one session."""

    states: Mapping[str, NodeState] = field(default_factory=dict)
    puts: set[str] = field(default_factory=set)
    """Digests of values."""


class Current:
    """One call, from when it waits for its turn."""

    __slots__ = ("cancelled", "child", "over")

    def __init__(self) -> None:
        self.cancelled = self.over = False
        self.child: Child | None = None
        """The process, when it is this call's turn there."""

    def is_cancelled(self) -> bool:
        """Say whether nobody waits for it any more."""
        return self.cancelled

    def cancel(self) -> None:
        """Stop it, from any thread."""
        self.cancelled = True
        deadline = monotonic() + _BEGINS_S
        while self.child is not None and not self.over:
            if self.child.unsettled or monotonic() > deadline:
                self.child.cancel()
                return
            sleep(0.001)


class Place:
    """The place of one session at a member. Outlives the session, and knows nothing of it.

    Args:
        member: the member.
        session: the id of the session.
    """

    __slots__ = ("_child", "member", "session")

    def __init__(self, member: Member, session: str) -> None:
        self.member = member
        self.session = session
        self._child: Child | None = None
        member.sessions += 1

    def open(self, child: Child, name: str, sent: SentProgram) -> bool:
        """Open the program in a process; return False where that has been done already.

        Raises:
            SessionError: the process is lost, or has other code than this one.
            Exception: whatever taking the program over raises there.
        """
        _close_left(child)
        if self.session in child.known:
            return False
        blobs = list[Blob]()
        fields = {**child.surroundings(blobs), "session": self.session, **sent.put(blobs)}
        self._child = child
        child.request("open", fields, blobs, during=f"opening of session {name!r}")
        child.known[self.session] = Has()
        return True

    def has(self, child: Child) -> Has:
        """Return what a process has. Until ``knows`` is called, it counts as having nothing."""
        found: Has = child.known[self.session]
        child.known[self.session] = Has()
        return found

    def knows(self, child: Child, has: Has) -> None:
        """Note what a process has after a call."""
        child.known[self.session] = has

    def request(
        self,
        child: Child,
        kind: str,
        fields: Mapping[str, Any],
        blobs: list[Blob],
        *,
        during: str,
        handlers: Handlers,
    ) -> Message:
        """Ask the process for something; meanwhile callbacks cannot ask it for another thing."""
        self.member.turns.calling = True
        try:
            return child.request(
                kind,
                {**child.surroundings(blobs), **fields, "session": self.session},
                blobs,
                during=during,
                handlers=handlers,
            )
        finally:
            self.member.turns.calling = False

    def leave(self) -> None:
        """The session is gone: the process is told when it is asked for something next."""
        self.member.sessions -= 1
        child = self._child
        if child is not None and child.known.pop(self.session, None) is not None:
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
