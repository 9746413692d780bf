"""One child process, from its start to its end.

    ChildProcess.start("local-1") ──► send / receive ──► close

Whatever ends it (it exits, crashes, is killed, takes too much memory) ends ``receive`` within
moments, with a ``SessionLost`` that says how; what it had said before is delivered first.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from soma.engine.blobs import Blob
from soma.errors import MemoryExceeded, SessionLost
from soma.sessions.launch import MAIN, launch
from soma.sessions.watched import Watched
from soma.sessions.wire import Message

__all__ = ["ChildProcess"]

_END_S = 1.0
"""How long a child may go on living after it has closed its connection."""
_KILLED_S = 5.0
"""How long to wait for the kernel to end a process that was killed."""


class ChildProcess:
    """A child process; ``start`` makes one."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._connection = watched.connection
        self._closing = threading.Lock()
        self._closed = False
        _all.add(self)

    @classmethod
    def start(
        cls,
        name: str,
        *,
        python: str | None = None,
        memory_bytes: int | None = None,
        start_timeout_s: float = 60,
        _main: str = MAIN,
    ) -> ChildProcess:
        """Start a child and wait until it is ready.

        Args:
            name: stands before every line that it prints, and in errors.
            python: the interpreter; the one of this process if None.
            memory_bytes: how much memory of its own it may take; any if None.
            start_timeout_s: seconds until it must be ready.

        Raises:
            InvalidInput: ``python`` is no program.
            SessionError: it did not start, or is of another version of Python or of Soma.
        """
        watched = launch(
            name, python=python, memory_bytes=memory_bytes, timeout_s=start_timeout_s, main=_main
        )
        return cls(watched)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._watched.name

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._watched.measured

    @property
    def alive(self) -> bool:
        """Whether it runs and can be talked to."""
        return self._watched.alive and not self._connection.broken

    def send(
        self,
        kind: str,
        fields: dict[str, Any],
        blobs: Sequence[Blob] = (),
        *,
        give_up: Callable[[], bool] | None = None,
    ) -> None:
        """Say something to it.

        Args:
            kind: what kind of message it is.
            fields: what it says.
            blobs: what goes with it.
            give_up: asked now and then while it does not listen; True ends the wait.

        Raises:
            ValueError: the fields hold what CBOR cannot say; nothing was sent.
            TimeoutError: ``give_up`` said so.
            SessionLost: it is gone; the message says how it ended.
        """
        try:
            self._connection.send(kind, fields, blobs, give_up=give_up)
        except ConnectionError as error:
            raise self._lost(f"its connection broke: {error}") from None

    def receive(self, deadline: float | None) -> Message | None:
        """Return what it says next; None when the deadline has passed.

        Args:
            deadline: by ``time.monotonic``; None waits as long as it lives.

        Raises:
            SessionLost: it is gone, and all that it had said was received.
        """
        try:
            message = self._connection.receive(deadline)
        except TimeoutError:
            return None
        except ConnectionError as error:
            raise self._lost(f"its connection broke: {error}") from None
        if message is None:
            raise self._lost("it closed its connection")
        return message

    def kill(self, reason: str) -> None:
        """Kill it and all that it has started; ``reason`` is what errors will say."""
        self._watched.kill(reason)

    def ended(self) -> str:
        """Return how it ended: "exited with status 3", say; "is running" if it has not."""
        return self._watched.how()

    def drain_output(self) -> None:
        """Write what it has printed by now to ``sys.stderr``, an unfinished line as well."""
        if self._watched.output is not None and os.getpid() == self._watched.owner:
            self._watched.output.drain()

    def close(self, timeout_s: float = 2.0) -> None:
        """Close its connection and wait for its end; kill it if that takes too long."""
        if os.getpid() != self._watched.owner:
            return
        with self._closing:
            if self._closed:
                return
            self._connection.shutdown()
            self._end(timeout_s, f"it did not end in {timeout_s:g} s after it was told to")
            self._connection.close()
            self._closed = True

    def _end(self, timeout_s: float, reason: str) -> None:
        if not self._watched.ended.wait(timeout_s):
            self._watched.kill(reason)
            self._watched.ended.wait(_KILLED_S)

    def _lost(self, reason: str) -> SessionLost:
        """Return the error for a child that cannot be talked to; kill it where it still lives."""
        _end_here_if_all_ends()
        if self._watched.alive:
            self._end(_END_S, reason)
        kind = MemoryExceeded if self._watched.exceeded else SessionLost
        return kind(f"Process {self.name} (pid {self.pid}) {self.ended()}")

    def __del__(self) -> None:
        # A child that nobody can talk to any more reads the end of its connection, and ends.
        if not getattr(self, "_closed", True):
            self._watched.leave()


_all: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


_leaving = False
"""Whether the interpreter ends."""


def _end_here_if_all_ends() -> None:
    """Stay here for ever on a daemon thread of an interpreter that ends: nobody is left to tell.

    What it lost is what that thread waited for, and an exception there would be printed.
    """
    while _leaving and threading.current_thread().daemon:
        time.sleep(1)


def _close_all() -> None:
    """Close all children when the interpreter ends: all are told before the first is waited for."""
    global _leaving  # noqa: PLW0603  # once
    _leaving = True
    children = [one for one in list(_all) if one.alive]
    for child in children:
        child._connection.shutdown()  # noqa: SLF001  # the class's own
    deadline = time.monotonic() + 2
    for child in children:
        child.close(max(0.1, deadline - time.monotonic()))


atexit.register(_close_all)
