"""One computes, the others wait: claims on keys within a process.

A claim is held by a thread. Whoever holds one already does not wait for a second (two that wait for
each other would wait for ever) and computes: that costs time, and is never wrong. A claim can be
let go by anybody, so that Ctrl-C frees what an abandoned thread holds.
"""

from __future__ import annotations

import os
import threading
import weakref
from time import monotonic
from types import TracebackType

from soma._notices import tell

__all__ = ["Claim", "Claims", "leave_claims"]

_WAIT_S = 0.1
"""A signal may be delivered to another thread, and this one then sees it when it wakes up."""
TELL_AFTER_S = 5.0
"""A waiter says after this time whom it waits for."""


class Claims:
    """The claims of one store."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, Claim] = {}

    def claim(self, key: str) -> Claim:
        """Return a context manager that holds ``key``."""
        return Claim(self, key)

    def attempt(self, key: str, who: str) -> Claim | None:
        """Hold ``key`` at once, for no thread of this process; None where somebody holds it.

        Args:
            key: the key.
            who: whom a waiter says that it waits for.
        """
        claim = Claim(self, key)
        claim.who = who
        with self._changed:
            if key in self._held:
                return None
            self._held[key] = claim
        return claim

    def held_here(self) -> bool:
        """Say whether this thread holds a claim: then it should wait for nobody."""
        me = threading.get_ident()
        with self._changed:
            return any(one.owner == me for one in self._held.values())

    def _leave(self, thread: int) -> None:
        with self._changed:
            for claim in [one for one in self._held.values() if one.owner == thread]:
                del self._held[claim.key]
            self._changed.notify_all()

    def _take(self, claim: Claim) -> None:
        """Wait until the key is free and take it; or go on without, where one is held already."""
        me = threading.get_ident()
        told = False
        deadline = monotonic() + TELL_AFTER_S
        with self._changed:
            while claim.key in self._held:
                if any(one.owner == me for one in self._held.values()):
                    return
                self._changed.wait(_WAIT_S)
                if not told and claim.key in self._held and monotonic() > deadline:
                    told = True
                    tell(f"waiting for {self._held[claim.key].who}, which computes the same")
            claim.owner = me
            claim.who = threading.current_thread().name
            self._held[claim.key] = claim

    def _let_go(self, claim: Claim) -> None:
        with self._changed:
            if self._held.get(claim.key) is claim:
                del self._held[claim.key]
                self._changed.notify_all()


_all: weakref.WeakSet[Claims] = weakref.WeakSet()


def leave_claims() -> None:
    """Let go of whatever this thread holds, in every store of this process.

    For a thread that is about to wait for something which somebody may have who waits for a claim:
    at worst the same is then computed twice.
    """
    me = threading.get_ident()
    for claims in list(_all):
        claims._leave(me)  # noqa: SLF001  # the room's own


def _after_fork() -> None:
    """Forget every claim: the threads that hold them did not come along."""
    for claims in _all:
        claims._begin()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)


class Claim:
    """One claim. Leaving it twice, or from another thread, does no harm."""

    __slots__ = ("_claims", "key", "owner", "who")

    def __init__(self, claims: Claims, key: str) -> None:
        self._claims = claims
        self.key = key
        self.owner = 0
        self.who = ""

    def __enter__(self) -> None:
        self._claims._take(self)  # noqa: SLF001  # the two are one

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._claims._let_go(self)  # noqa: SLF001  # as above
