"""``local://``: programs and nodes run in child processes of this machine.

    LocalRunner ── Member "local-1" ── Child (a process, started when it is first needed)
                └─ Member "local-2" ── Child

A member outlives its process: when that ends, for whatever reason, the call that was lost says so,
and the next one starts another.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from soma.contracts import WorkerInfo
from soma.engine import Action, Done
from soma.errors import InvalidInput, SessionError, shown
from soma.sessions.calls import Child
from soma.sessions.machine import this_machine
from soma.sessions.process import ChildProcess
from soma.sessions.program import Program
from soma.sessions.settings import RESERVED, Settings, check_settings, check_tags
from soma.sessions.turns import Turns, take_one_of

__all__ = ["LocalRunner", "Member", "Turn"]

CAPABILITIES = frozenset({"call", "nodes", "put"})
_SCHEME = "local://"


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
            raise SessionError(f"{self.name} was shut down, and takes no more calls")
        if self._child is not None and not self._child.alive:
            self._child.close()
            self._child = None
        if self._child is None:
            process = ChildProcess.start(
                self.name, python=self._settings.python, memory_bytes=self._settings.memory_bytes
            )
            self._child = Child(process, self._settings)
        return self._child

    def cancel(self) -> None:
        """Stop the call in progress, if there is one; from any thread."""
        child = self._child
        if child is not None:
            child.cancel()

    def leave(self, child: Child) -> None:
        """Let the next one have it, as soon as the process is idle."""
        if not child.unsettled:
            self.turns.release()
            return
        settling = threading.Thread(
            target=self._settle, args=(child,), name=f"soma-settle-{self.name}", daemon=True
        )
        try:
            settling.start()
        except RuntimeError:  # the interpreter ends, or the system gives no thread
            child.close()
            self.turns.release()

    def _settle(self, child: Child) -> None:
        self.turns.hand_over(threading.get_ident())
        try:
            child.settle()
        finally:
            self.turns.release()

    def forget(self, owner: str) -> None:
        """Tell the process, when it is asked for something next, that a graph is gone."""
        self._left.append(owner)

    def run(self, child: Child, owner: str, action: Action) -> Done:
        """Run one node of a graph in the process that one holds."""
        while self._left:
            child.request("forget", {"owner": self._left.pop()}, during="end of another graph")
        return child.run(owner, action)

    def info(self) -> WorkerInfo:
        """Say what it is and has."""
        return this_machine(
            self.name,
            tags=self.tags,
            memory_bytes=self._settings.memory_bytes,
            capabilities=CAPABILITIES,
        )

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


class LocalRunner:
    """Opens programs, and runs nodes, in child processes of this machine.

    >>> runner = LocalRunner(count=2, memory="2G")
    >>> [one.name for one in runner.members]
    ['local-1', 'local-2']
    >>> runner.shutdown()

    Args:
        url: ``"local://"``, or ``"local://NAME"`` for members called ``NAME-1``, ``NAME-2``, ...
        count: how many processes there may be. Each is started when it is first needed.
        memory: resident memory of its own that each may take, in bytes or as ``"500M"``; a process
            that takes more is killed, and its call fails by name. None: as much as there is.
        timeout_s: seconds that one call may take. None: as long as it takes.
        python: the interpreter, of the same Python minor; None for the one of this process.
        tags: further names under which nodes may have it as their target.
        first: the number of the first member.

    Raises:
        InvalidInput: an argument makes no sense.
    """

    def __init__(
        self,
        url: str = _SCHEME,
        *,
        count: int = 1,
        memory: int | str | None = None,
        timeout_s: float | None = None,
        python: str | os.PathLike[str] | None = None,
        tags: Sequence[str] = (),
        first: int = 1,
    ) -> None:
        name = _name_in(url)
        settings = check_settings(count, memory, timeout_s, python)
        checked = check_tags(tags)
        self.members = tuple(
            Member(f"{name}-{first + number}", checked, settings)
            for number in range(settings.count)
        )
        """The workers, in order."""

    def open(self, program: Program, *, on_event: Callable[[Any], None] | None = None) -> Any:
        """Open a program in the member that has fewest sessions, and return the session.

        The process is started with the first call.

        Args:
            program: what ``Graph.program`` returns.
            on_event: called with every event of its runs, on the thread that calls the session.

        Raises:
            InvalidInput: it is no such program.
            NotSendable: something in it cannot travel; the message names node and attribute.
        """
        from soma.sessions.remote import ChildSession  # which those who place nodes do not need

        if not isinstance(program, Program):
            raise InvalidInput(f"open takes what g.program() returns, not {shown(program)}")
        member = min(self.members, key=lambda one: one.sessions)
        return ChildSession(member, program, on_event)

    def info(self) -> WorkerInfo:
        """Say what this place is and has."""
        return self.members[0].info()

    def shutdown(self) -> None:
        """End every process. May be called twice."""
        for member in self.members:
            member.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<LocalRunner: {', '.join(one.name for one in self.members)}>"


def _name_in(url: Any) -> str:
    if not isinstance(url, str) or not url.startswith(_SCHEME):
        raise InvalidInput(f"The address of a local worker is 'local://', not {shown(url)}")
    name = url.removeprefix(_SCHEME).rstrip("/") or RESERVED
    if not name.translate(_ALLOWED).isalnum():
        raise InvalidInput(
            f"{shown(url)}: what follows local:// is a name of letters, digits, '-', '_' and '.'"
        )
    return name


_ALLOWED = dict.fromkeys(map(ord, "-_."))


_all: weakref.WeakSet[Member] = weakref.WeakSet()


def _after_fork() -> None:
    for member in list(_all):
        member.after_fork()


os.register_at_fork(after_in_child=_after_fork)
