"""One process as the minder sees it: how it is started, whether it lives, how it ended.

It can be killed from any thread, and never by a number that has become somebody else's: it is
reaped under the lock that a kill takes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress

from soma.sessions.output import Output
from soma.sessions.wire import Connection

__all__ = ["Watched", "size_text"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEGABYTE = 1 << 20


class Watched:
    """A process from before its start to after its end.

    Args:
        name: what people call it.
        command: the arguments, the program first.
        connection: our end of the pair of sockets.
        theirs: the end that the process inherits; closed here when it has it.
        memory_bytes: how much memory of its own it may take; None for any.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        connection: Connection,
        theirs: socket.socket,
        memory_bytes: int | None,
    ) -> None:
        self.name = name
        self.connection = connection
        self.memory_bytes = memory_bytes
        self.owner = os.getpid()
        """The process that started it."""
        self.pid = 0
        self.measured = 0
        """The process whose memory counts: a script may have started the interpreter."""
        self.pidfd = -1
        self.output: Output | None = None
        self.error: Exception | None = None
        """Why it could not be started."""
        self.exceeded = False
        """Whether it was killed for the memory that it took; known when it has ended."""
        self.started = threading.Event()
        self.ended = threading.Event()
        self._command = [*command]
        self._theirs = theirs
        self._lock = threading.Lock()
        self._reason = self._too_much = ""
        self._abandoned = False
        self._gone = self._left = False
        self._how = ""
        _all.add(self)

    def begin(self) -> None:
        """Start the process: on the minder's thread, whose end would be the process's end."""
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001  # raised where the start was asked for
            self.error = error
            self._gone = True
            self.ended.set()
        finally:
            self._theirs.close()
            self.started.set()

    def _begin(self) -> None:
        reading, writing = os.pipe()
        self.output = Output(self.name, reading)
        try:
            made = subprocess.Popen(  # noqa: S603  # the user's own interpreter
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(self._theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            self.output.abandon()
            raise
        finally:
            os.close(writing)
        made.returncode = 0  # we reap it
        with suppress(AttributeError, OSError):  # not Linux, or a sandbox
            self.pidfd = os.pidfd_open(made.pid)
        with self._lock:
            self.pid = self.measured = made.pid
        if self._abandoned:
            self.kill(self._reason)

    def kill(self, reason: str) -> None:
        """Kill the process and all of its group."""
        if os.getpid() != self.owner:
            return
        with self._lock:
            if self._gone:
                return
            self._reason = self._reason or reason
            self._abandoned = True
            self._kill_group()

    def _kill_group(self) -> None:
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> bool:
        """Take the exit status if it has ended; return whether it has.

        What it started dies with it, unless that made itself a session of its own.
        """
        with self._lock:
            if self.pidfd >= 0 and _has_ended(self.pid):
                self._kill_group()
            try:
                found, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                code = None
            else:
                if not found:
                    return False
                code = os.waitstatus_to_exitcode(status)
            self._gone = True
            self._how = self._describe(code)
        return True

    def finish(self) -> None:
        """Tell the last that it printed, give all back, and wake whoever waits for it."""
        if self.output is not None:
            self.output.close()
        self._close_pidfd()
        self.ended.set()
        self.connection.shutdown()
        if self._left:
            self.connection.close()

    def leave(self) -> None:
        """Let it end on its own: nobody talks to it any more."""
        self._left = True
        self.connection.shutdown()
        if self.ended.is_set():
            self.connection.abandon()

    def check_memory(self) -> None:
        """Kill it if it has taken more memory than it may."""
        if self.memory_bytes is None:
            return
        taken = _own_memory(self.measured)
        if taken > self.memory_bytes:
            self._too_much = (
                f"it took {size_text(taken)} of memory, and may take "
                f"{size_text(self.memory_bytes)} (memory=)"
            )
            self.kill(self._too_much)

    def forget(self) -> None:
        """In a copy of this process after a fork: give back what was copied, touch nothing else."""
        self._how = f"belongs to process {self.owner}, which this one was forked from"
        self._gone = True
        self.connection.abandon()
        self._theirs.close()
        self._close_pidfd()
        if self.output is not None:
            self.output.abandon()

    @property
    def alive(self) -> bool:
        """Whether it runs and belongs to this process."""
        return not self._gone and bool(self.pid)

    def how(self) -> str:
        """Return how it ended, as the end of a sentence that it begins."""
        return self._how or "is running"

    def _close_pidfd(self) -> None:
        fd, self.pidfd = self.pidfd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _describe(self, code: int | None) -> str:
        if code is None:
            return "has ended, and other code of this process took its exit status"
        if code >= 0:
            return f"exited with status {code}"
        if code == -signal.SIGKILL and self._reason:
            self.exceeded = self._reason == self._too_much
            return f"was killed: {self._reason}"
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal
            name = "no name"
        hint = "; not by Soma: by hand, or by the system because memory ran out"
        return f"was killed by signal {-code} ({name}){hint if code == -signal.SIGKILL else ''}"


def _has_ended(pid: int) -> bool:
    """Say whether it has ended, and leave its exit status where it is."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False  # its number may be somebody else's by now


def _own_memory(pid: int) -> int:
    """Return the bytes of memory that are the process's alone: not files, not shared."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  # every 50 ms
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def size_text(size: int) -> str:
    """Return a number of bytes as people say it: ``612.3 MB``."""
    return f"{size / _MEGABYTE:.1f} MB"


_all: weakref.WeakSet[Watched] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_all):
        one.forget()


os.register_at_fork(after_in_child=_after_fork)
