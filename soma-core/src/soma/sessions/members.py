"""One worker of a runner: a name, and a process that is there when somebody needs it.

A member outlives its process: when that ends, for whatever reason, the call that was lost says so,
and the next one starts another.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType

from soma.contracts import WorkerInfo
from soma.engine import Action, Done
from soma.errors import SessionError
from soma.sessions.calls import Child
from soma.sessions.machine import this_machine
from soma.sessions.process import ChildProcess
from soma.sessions.settings import Settings
from soma.sessions.turns import Turns, take_one_of

__all__ = ["Member", "Turn"]

_CAPABILITIES = frozenset({"call", "nodes", "put"})
_HEIR = -1
"""Holds a member that nobody may have until its process is idle; no thread has that number."""


class Member:
    """One worker of a runner: a name under which there is a process, now or when it is needed."""

    def __init__(self, name: str, tags: tuple[str, ...], settings: Settings) -> None:
        self.name = name
        self.tags = tags
        self.turns = Turns(name)
        self.sessions = 0
        """Sessions that are open here."""
        self._settings = settings
        self._child: Child | None = None
        self._left: list[str] = []
        self._shut = False
        _all.add(self)

    def use(self) -> Turn:
        """Wait for one's turn, start the process if there is none, and hold it."""
        return Turn([self])

    def child(self) -> Child:
        """Return the process, started if need be. It must be one's turn.

        Raises:
            SessionError: it cannot be started, or the runner was shut down.
        """
        if self._shut:
            raise self._is_shut()
        child = self._child
        if child is None or not child.alive:
            if child is not None:
                child.close()
            child = self._child = self._start()
            self._end_if_shut(child)
        child.held()
        return child

    def _start(self) -> Child:
        process = ChildProcess.start(
            self.name, python=self._settings.python, memory_bytes=self._settings.memory_bytes
        )
        return Child(process, self._settings)

    def _end_if_shut(self, child: Child) -> None:
        """End a process that came to life while the runner was shut down, and saw none."""
        if self._shut:
            self._child = None
            child.close()
            raise self._is_shut()

    def _is_shut(self) -> SessionError:
        return SessionError(
            f"{self.name} was shut down, and takes no more calls. Make another LocalRunner and "
            "open the program there, or give the graph another worker with add_worker"
        )

    def leave(self, child: Child) -> None:
        """Let the next one have it, as soon as the process is idle."""
        if not child.unsettled or self.turns.is_held_twice:
            self.turns.release()
            return
        self.turns.hand_over(_HEIR)
        settling = threading.Thread(
            target=self._settle, args=(child,), name=f"soma-settle-{self.name}", daemon=True
        )
        try:
            settling.start()
        except BaseException as error:
            child.close()
            self.turns.release()
            if not isinstance(error, RuntimeError):
                raise
            # else the interpreter ends, or the system gives no thread

    def _settle(self, child: Child) -> None:
        try:
            child.settle()
        finally:
            self.turns.release()

    def forget(self, owner: str) -> None:
        """Tell the process, when it is asked for something next, that a graph is gone."""
        if self._child is not None:
            self._left.append(owner)

    def run(
        self, child: Child, owner: str, action: Action, stopped: Callable[[], bool] | None = None
    ) -> Done:
        """Run one node of a graph in the process that one holds, unless nobody waits any more."""
        while self._left:
            child.forget(self._left.pop())
        return child.run(owner, action, stopped)

    def info(self) -> WorkerInfo:
        """Say what it is and has."""
        return this_machine(
            self.name,
            tags=self.tags,
            memory_bytes=self._settings.memory_bytes,
            capabilities=_CAPABILITIES,
        )

    def refuse(self) -> None:
        """Take no more calls."""
        self._shut = True

    def let_go(self) -> None:
        """Take no more calls, and let the process end on its own. Never waits for anything.

        A finalizer calls it, on whatever thread runs it: also on the one that all others wait for.
        """
        self._shut = True
        self._child = None

    def shutdown(self) -> None:
        """End the process; what it was doing is lost."""
        self._shut = True
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def after_fork(self) -> None:
        """Let go of a process that belongs to the one that we were forked from."""
        self._child = None


class Turn:
    """Holds one of several members, from the moment when it is free."""

    __slots__ = ("_child", "_members", "_stopped", "member")

    def __init__(
        self, members: Sequence[Member], stopped: Callable[[], bool] | None = None
    ) -> None:
        self._members = members
        self._stopped = stopped

    def __enter__(self) -> Child:
        self.member = take_one_of(self._members, self._stopped)
        try:
            self._child = self.member.child()
        except BaseException:
            self.member.turns.release()
            raise
        return self._child

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.member.leave(self._child)

    def start_again(self) -> Child:
        """End the process that one holds, and start another in its place."""
        self._child.close()
        self._child = self.member.child()
        return self._child


_all: weakref.WeakSet[Member] = weakref.WeakSet()


def _after_fork() -> None:
    for member in list(_all):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)
