"""What a child is, apart from what it does: it dies with its parent, and Ctrl-C passes it by.

The terminal's Ctrl-C is the parent's to hear. A cancel comes through the connection, is heard by
the thread that reads it, and becomes an exception on the main thread, but only while that runs code
of the user's: between two bytes of a message it would take the connection with it.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

from soma._version import __version__
from soma.sessions.wire import PROTOCOL, Connection

__all__ = [
    "AGAIN_S",
    "Cancelled",
    "cancel",
    "goes_on",
    "guard",
    "leave",
    "remind",
    "run",
    "user_code",
    "was_asked",
]

AGAIN_S = 0.05
"""How often a call that was cancelled, and goes on, is looked at."""
_INSIST_S = 0.5
"""After this time one that has been stopped, and goes on all the same, is stopped once more."""
_PR_SET_PDEATHSIG = 1


class Cancelled(BaseException):
    """The call that runs was cancelled. No ``except Exception`` of a user's stops it."""


class _State:
    """What the main thread runs, and what was asked of it."""

    connection: Connection | None = None
    running: int | None = None
    asked: int | None = None
    stopped: int | None = None
    stopped_at = 0.0
    torch_threads: int | None = None


_state = _State()


def run(fd: int, config: dict[str, Any]) -> None:
    """Be a child: guard it, say that it is ready, and do its work until that returns.

    Args:
        fd: its end of the pair of sockets.
        config: what the parent has said about the place to work in.
    """
    import importlib

    guard(config["parent"], fd)
    _settle(config)
    module, _, name = config["main"].partition(":")
    main = getattr(importlib.import_module(module), name)
    connection = Connection(socket.socket(fileno=fd))
    connection.after_send = _check
    _state.connection = connection
    connection.send("ready", {"soma": __version__, "protocol": PROTOCOL, "pid": os.getpid()})
    main(connection)


def guard(parent_pid: int, connection_fd: int) -> None:
    """Make this process one that ends with its parent, whatever its code does.

    Args:
        parent_pid: the process that has to be the parent; 0 where another one lies between.
        connection_fd: what nobody who is started from here shall inherit.
    """
    os.set_inheritable(connection_fd, False)  # noqa: FBT003  # its name says it
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent_pid and os.getppid() != parent_pid:
        os._exit(0)
    faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, _interrupted)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def cancel(call: int) -> None:
    """Stop a call with ``Cancelled``, now or as soon as it runs. For the thread that reads."""
    _state.asked = call
    remind()


def remind() -> None:
    """Tell the call that runs to stop, once more, if it was cancelled and goes on.

    A signal that comes just before the call waits for something does not end that wait. And what it
    raises may go nowhere: where C code has called Python and ignores what that raises, or in a
    destructor. So a call that has been stopped, and is not over some time later, is asked again.
    """
    running = _state.running
    if _state.stopped is not None and _state.stopped == running:
        if monotonic() - _state.stopped_at < _INSIST_S:
            return
        _state.stopped, _state.asked = None, running
    if _state.asked is not None and _state.asked == running:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def goes_on() -> bool:
    """Say whether a call was cancelled and still runs."""
    running = _state.running
    return running is not None and running in (_state.asked, _state.stopped)


def was_asked(call: int) -> bool:
    """Say whether a call was cancelled and did not end by that."""
    return _state.asked == call


class user_code:  # noqa: N801  # a context manager reads like a function
    """While it is entered, the main thread runs code of the user's, and may be cancelled.

    Args:
        call: the number of the call.
    """

    def __init__(self, call: int) -> None:
        self._call = call

    def __enter__(self) -> None:
        set_torch_threads()
        _state.running = self._call
        _check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave()


def leave() -> None:
    """Code of the user's has ended: from here on no signal does any harm.

    It may have set a handler of its own, which may raise right here, for a signal under way.
    """
    done = False
    while not done:
        with suppress(BaseException):  # of that handler: the call has ended all the same
            _state.running = None
            if signal.getsignal(signal.SIGINT) is not _interrupted:
                signal.signal(signal.SIGINT, _interrupted)
            done = True


def set_torch_threads() -> None:
    """Give torch as many threads as the parent's has, once it has been imported here."""
    settle = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if _state.torch_threads is not None and settle is not None:
        threads, _state.torch_threads = _state.torch_threads, None
        settle(threads)


def _settle(config: dict[str, Any]) -> None:
    _state.torch_threads = config["torch_threads"]
    affinity = config["affinity"]
    if affinity is not None and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # a container may forbid it
            os.sched_setaffinity(0, affinity)


def _interrupted(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # a handler's
    connection = _state.connection
    if connection is None or connection.sender != threading.get_ident():
        _check()


def _check() -> None:
    """Stop the call that runs on this thread if that was asked for."""
    if _state.asked is None or _state.asked != _state.running:
        return
    if threading.current_thread() is threading.main_thread():
        _state.stopped, _state.stopped_at = _state.asked, monotonic()
        _state.asked = None
        raise Cancelled("the call was cancelled")
