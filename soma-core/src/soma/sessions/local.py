"""``local://``: programs and nodes run in child processes of this machine.

    LocalRunner ── Member "local-1" ── Child (a process, started when it is first needed)
                └─ Member "local-2" ── Child

A runner knows the sessions that are open at it, and keeps none of them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from soma.contracts import WorkerInfo
from soma.errors import InvalidInput, SessionError, shown
from soma.sessions.members import Member, Turn
from soma.sessions.program import Program
from soma.sessions.settings import RESERVED, check_settings, check_tags

__all__ = ["LocalRunner", "Member", "Turn"]

_SCHEME = "local://"


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
        self._shut = False
        self._sessions: weakref.WeakSet[Any] = weakref.WeakSet()

    def open(self, program: Program, *, on_event: Callable[[Any], None] | None = None) -> Any:
        """Open a program in the member that has fewest sessions, and return the session.

        The process is started with the first call.

        Args:
            program: what ``Graph.program`` returns.
            on_event: called with every event of its runs, on the thread that calls the session.

        Raises:
            InvalidInput: it is no such program.
            SessionError: the runner was shut down.
            NotSendable: something in it cannot travel; the message names node and attribute.
        """
        from soma.sessions.base import check_program
        from soma.sessions.remote import ChildSession  # which those who place nodes do not need

        checked = check_program(program)
        if self._shut:
            raise SessionError(
                f"{self!r} was shut down, and opens no more programs. Make another LocalRunner"
            )
        member = min(self.members, key=lambda one: one.sessions)
        session = ChildSession(member, checked, on_event)
        self._sessions.add(session)
        return session

    def info(self) -> WorkerInfo:
        """Say what this place is and has."""
        return self.members[0].info()

    def shutdown(self) -> None:
        """Close every session, and end every process. May be called twice.

        A call in progress is cancelled.
        """
        self._shut = True
        for member in self.members:
            member.refuse()
        try:
            for session in list(self._sessions):
                session.close()
        finally:
            for member in self.members:
                member.shutdown()

    def let_go(self) -> None:
        """Let every process end on its own, without waiting: for a finalizer."""
        self._shut = True
        for member in self.members:
            member.let_go()

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
