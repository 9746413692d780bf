"""One computes, the others wait: claims on keys, within a process and, where asked, across them.

A claim is held by a thread. Whoever holds one already does not wait for a second (two that wait for
each other would wait for ever) and computes: that costs time, and is never wrong. A claim can be
let go by anybody, so that Ctrl-C frees what an abandoned thread holds.

The surprise: a lock between processes belongs to the process, and not to the thread that took it.
So it is taken and given back under the same lock as the claim that stands for it, at once and never
waiting; otherwise one thread could give back what another has just taken. Waiting is asking again.
Nothing is said under that lock: where nobody reads stderr, saying something takes for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from contextlib import AbstractContextManager, suppress
from functools import partial
from operator import is_not
from time import monotonic
from types import TracebackType
from typing import Any, Protocol

from soma._notices import tell, tell_once
from soma.errors import describe_error

__all__ = ["Across", "Claim", "Claims", "claim_at_once", "leave_claims"]

_WAIT_S = 0.1
"""A signal may be delivered to another thread, and this one then sees it when it wakes up."""
_POLL_S, _MOST_POLL_S = 0.001, 0.05
"""No process is told that another has let go: it asks, soon at first and then less often."""
TELL_AFTER_S = 5.0
"""A waiter says after this time whom it waits for."""


class Across(Protocol):
    """Locks on keys that other processes see. They die with their process."""

    def lock(self, key: str) -> bool:
        """Take a lock at once, for this process; False where another process has it.

        Raises:
            OSError: there are no working locks.
        """
        ...

    def unlock(self, key: str) -> None:
        """Give a lock back; nothing happens where it was not taken.

        Raises:
            OSError: there are no working locks.
        """
        ...

    def holder(self, key: str) -> str:
        """Return who has a lock, as ``process 1234``; nothing where nobody has it.

        Raises:
            OSError: there are no working locks.
        """
        ...


class Claims:
    """The claims of one store.

    Args:
        across: keeps other processes from what is claimed here; None where there are no others.
            One that does not work costs that what another process computes is computed here too.
    """

    def __init__(self, across: Across | None = None) -> None:
        self._across = across
        self._begin()
        with _adding:
            _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._held: dict[str, Claim] = {}
        self._unsaid: deque[OSError] = deque()
        """What went wrong with the locks between processes, to be told without the lock."""

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
        try:
            with self._lock:
                held = self._grab(claim, 0, who)
            self._say()
        except BaseException:
            self._let_go(claim)
            raise
        return claim if held else None

    def held_here(self) -> bool:
        """Say whether this thread holds a claim: then it should wait for nobody."""
        with self._lock:
            return self._holds(threading.get_ident())

    def _holds(self, thread: int) -> bool:
        return any(one.owner == thread for one in self._held.values())

    def _leave(self, thread: int) -> None:
        with self._lock:
            for claim in [one for one in self._held.values() if one.owner == thread]:
                self._free(claim)
        self._say()

    def _take(self, claim: Claim) -> None:
        """Wait until the key is free and take it; or go on without, where one is held already."""
        me, who = threading.get_ident(), threading.current_thread().name
        told, poll_s, deadline = False, _POLL_S, monotonic() + TELL_AFTER_S
        while not self._take_or_wait(claim, me, who, poll_s):
            self._say()
            poll_s = min(2 * poll_s, _MOST_POLL_S)
            if not told and monotonic() > deadline:
                told = self._tell_of_holder(claim.key)
        self._say()

    def _take_or_wait(self, claim: Claim, me: int, who: str, poll_s: float) -> bool:
        """Take a key, and return True; also where a claim is held already. Else wait for a bit."""
        with self._lock:
            if self._grab(claim, me, who) or self._holds(me):
                return True
            self._changed.wait(_WAIT_S if claim.key in self._held else poll_s)
        return False

    def _grab(self, claim: Claim, owner: int, who: str) -> bool:
        """Take a key that is free, here and for other processes. Under the lock."""
        if claim.key in self._held:
            return False
        claim.owner, claim.who = owner, who
        self._held[claim.key] = claim
        if self._across is None or self._lock_across(claim, self._across):
            return True
        del self._held[claim.key]
        return False

    def _lock_across(self, claim: Claim, across: Across) -> bool:
        claim.locked = True  # before it is, so that Ctrl-C in between leaves nothing locked
        try:
            claim.locked = across.lock(claim.key)
        except Exception as error:
            claim.locked = False
            if not isinstance(error, OSError):
                raise
            self._unsaid.append(error)
            return True
        return claim.locked

    def _tell_of_holder(self, key: str) -> bool:
        with self._lock:
            who = self._holder(key)
        self._say()
        if who:  # it may have let go just now
            tell(f"waiting for {who}, which computes the same")
        return bool(who)

    def _holder(self, key: str) -> str:
        claim = self._held.get(key)
        if claim is not None or self._across is None:
            return "" if claim is None else claim.who
        try:
            return self._across.holder(key)
        except OSError as error:
            self._unsaid.append(error)
            return ""

    def _say(self) -> None:
        """Say what went wrong meanwhile. Not under the lock."""
        while self._unsaid:
            with suppress(IndexError):  # another thread says it
                _tell_broken(self._unsaid.popleft())

    def _let_go(self, claim: Claim) -> None:
        with self._lock:
            if self._held.get(claim.key) is claim:
                self._free(claim)
        self._say()

    def _free(self, claim: Claim) -> None:
        """Let go of a claim: for other processes first, so that who breaks in can try again.

        Under the lock.
        """
        if claim.locked and self._across is not None:
            try:
                self._across.unlock(claim.key)
            except OSError as error:
                self._unsaid.append(error)
            claim.locked = False
        del self._held[claim.key]
        self._changed.notify_all()


_all: weakref.WeakSet[Claims] = weakref.WeakSet()
_adding = threading.RLock()
"""Who adds one does not disturb who goes through them."""


def _tell_broken(error: OSError) -> None:
    text = describe_error(error)
    tell_once(
        ("claims", text),
        f"processes cannot see what others compute, and may compute the same: {text}",
    )


def claim_at_once(store: Any, key: str, who: str, held: list[AbstractContextManager[None]]) -> bool:
    """Have a store hold a key at once, and put the claim into an empty list; False where it cannot.

    It is in the list before Python looks for Ctrl-C, as it does after every call that a function
    makes: nobody would let go of a claim that was on its way into a variable then.
    """
    attempt = getattr(store, "try_claim", None)
    if attempt is not None:
        held.extend(filter(partial(is_not, None), map(attempt, (key,), (who,))))
    return bool(held)


def leave_claims() -> None:
    """Let go of whatever this thread holds, in every store of this process.

    For a thread that is about to wait for something which somebody may have who waits for a claim:
    at worst the same is then computed twice.
    """
    me = threading.get_ident()
    with _adding:
        found = list(_all)
    for claims in found:
        claims._leave(me)  # noqa: SLF001  # the room's own


def _after_fork() -> None:
    """Forget every claim: the threads that hold them did not come along, and nor did the locks."""
    global _adding  # noqa: PLW0603  # a thread that did not come along may have held it
    _adding = threading.RLock()
    for claims in list(_all):
        claims._begin()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)


class Claim:
    """One claim. Leaving it twice, or from another thread, does no harm."""

    __slots__ = ("_claims", "key", "locked", "owner", "who")

    def __init__(self, claims: Claims, key: str) -> None:
        self._claims = claims
        self.key = key
        self.owner = 0
        self.who = ""
        self.locked = False
        """Whether other processes see it."""

    def __enter__(self) -> None:
        try:
            self._claims._take(self)  # noqa: SLF001  # the two are one
        except BaseException:
            self._claims._let_go(self)  # noqa: SLF001  # as above
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._claims._let_go(self)  # noqa: SLF001  # as above
        except BaseException:  # Ctrl-C in the middle of it
            self._claims._let_go(self)  # noqa: SLF001  # as above
            raise
