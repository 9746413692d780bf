"""How a child comes to life: the command, the handshake, and the refusals.

    child                                   this process
    soma-hello 3.11.7 cpython 4711  ──►     another minor version: refused, both sides named
                                    ◄──     sys.path and the rest, one line
    ready {soma, protocol}          ──►     another release: refused, both named

The first line is said before anything of Soma is imported, in a Python that every version reads.
Nothing of ``__main__`` is run again: the child is a fresh interpreter with a program of our own.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from typing import Any

from soma._version import __version__
from soma.errors import (
    InvalidInput,
    MemoryExceeded,
    SessionError,
    SessionTimeout,
    SomaError,
    shown,
)
from soma.sessions import minder
from soma.sessions.paths import foreign_path as _foreign_path
from soma.sessions.watched import Watched
from soma.sessions.wire import NO_SIGNAL, PROTOCOL, Connection

__all__ = ["MAIN", "launch"]

MAIN = "soma.sessions.child.main:main"
_BOOTSTRAP = """\
import os, sys
def begin(fd):
    name = getattr(getattr(sys, "implementation", None), "name", "python")
    hello = "soma-hello %d.%d.%d %s %d\\n" % (tuple(sys.version_info[:3]) + (name, os.getpid()))
    os.write(fd, hello.encode("ascii"))
    text = b""
    while not text.endswith(b"\\n"):
        piece = os.read(fd, 65536)
        if not piece:
            os._exit(0)
        text += piece
    config = eval(text)
    sys.argv[:] = config["argv"]
    if config["path"] is not None:
        sys.path[:] = config["path"]
    sys.path.extend(one for one in config["more_path"] if one not in sys.path)
    from soma.sessions.child.guard import run
    return run, config
fd = int(sys.argv[1])
run, config = begin(fd)
del begin
run(fd, config)
"""
_HELLO = re.compile(rb"soma-hello (\d+)\.(\d+)\.(\d+) (\w+) (\d+)\n")
_HELLO_BYTES = 200
_LAST_WORDS_S = 1.0
_KILLED_S = 5.0


def launch(
    name: str,
    *,
    python: str | None,
    memory_bytes: int | None,
    timeout_s: float,
    main: str = MAIN,
) -> Watched:
    """Start a child; return it when it is ready for work.

    Raises:
        InvalidInput: ``python`` is no program.
        SessionError: it did not start, or is of another version; the message says what it printed.
    """
    interpreter = _checked(python)
    flags = [one for one in subprocess._args_from_interpreter_flags() if one != "-P"]  # type: ignore[attr-defined]  # noqa: SLF001  # what multiprocessing uses as well
    ours, theirs = socket.socketpair()
    command = [interpreter, *flags, "-c", _BOOTSTRAP, str(theirs.fileno())]
    child = Watched(name, command, Connection(ours), theirs, memory_bytes)
    try:
        minder.begin(child)
        _shake_hands(child, ours, interpreter, time.monotonic() + timeout_s, _config(python, main))
    except SomaError:
        _end(child)
        raise
    except OSError as error:
        _end(child)
        raise _explained(child, f"could not be started: {error}", interpreter) from error
    except BaseException:
        _end(child)
        raise
    if child.output is not None:
        child.output.release()
    return child


def _end(child: Watched) -> None:
    child.kill("its start was given up")
    if child.started.is_set():
        child.ended.wait(_KILLED_S)
    child.connection.close()


def _checked(python: str | None) -> str:
    if python is None:
        if not sys.executable:
            raise SessionError(
                "This process does not know which Python runs it (sys.executable is empty): say "
                "python='/path/to/python'"
            )
        return sys.executable
    found = shutil.which(os.path.expanduser(python))  # noqa: PTH111  # a text, as the shell has it
    if found is None:
        raise InvalidInput(
            f"python={shown(python, 200)} is no program that can be run: give the path of a Python "
            f"{_minor(sys.version_info)}, as 'which python' prints it"
        )
    return found


def _config(python: str | None, main: str) -> dict[str, Any]:
    torch = sys.modules.get("torch")
    threads = getattr(torch, "get_num_threads", None)
    return {
        "main": main,
        "argv": [str(one) for one in getattr(sys, "argv", [])],
        "path": [str(one) for one in sys.path] if python is None else None,
        "more_path": [] if python is None else list(_foreign_path()),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "torch_threads": threads() if callable(threads) else None,
    }


def _shake_hands(
    child: Watched, sock: socket.socket, interpreter: str, deadline: float, config: dict[str, Any]
) -> None:
    _hear_hello(child, sock, interpreter, deadline)
    config["parent"] = os.getpid() if child.measured == child.pid else 0
    sock.sendall(f"{config!a}\n".encode("ascii"), NO_SIGNAL)
    try:
        ready = child.connection.receive(deadline)
    except TimeoutError:
        raise _too_slow(child, interpreter) from None
    if ready is None or ready.kind != "ready":
        raise _explained(child, "ended before it was ready", interpreter)
    theirs = ready.fields.get("soma"), ready.fields.get("protocol")
    if theirs != (__version__, PROTOCOL):
        raise SessionError(
            f"Process {child.name} ({interpreter}) has Soma {theirs[0]} with protocol {theirs[1]}, "
            f"and this process has Soma {__version__} with protocol {PROTOCOL}: install the same "
            "release there"
        )


def _hear_hello(child: Watched, sock: socket.socket, interpreter: str, deadline: float) -> None:
    raw = b""
    while not raw.endswith(b"\n") and len(raw) < _HELLO_BYTES:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1e3):
            raise _too_slow(child, interpreter)
        piece = sock.recv(_HELLO_BYTES)
        if not piece:
            raise _explained(child, "ended before it said a word", interpreter)
        raw += piece
    found = _HELLO.fullmatch(raw)
    if found is None:
        raise _explained(child, f"is no Python: it began with {shown(raw)}", interpreter)
    *version, implementation, pid = found.groups()
    child.measured = int(pid)
    theirs = tuple(map(int, version))
    if theirs[:2] != sys.version_info[:2] or implementation.decode() != sys.implementation.name:
        raise SessionError(
            f"Process {child.name} ({interpreter}) runs Python {'.'.join(map(str, theirs))} "
            f"({implementation.decode()}), and this process runs Python "
            f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.implementation.name}): code and "
            f"values travel only between equal minor versions. Give python= a Python "
            f"{_minor(sys.version_info)}"
        )


def _too_slow(child: Watched, interpreter: str) -> SessionError:
    return _explained(child, "was not ready in time", interpreter, SessionTimeout)


def _explained(
    child: Watched, what: str, interpreter: str, kind: type[SessionError] = SessionError
) -> SessionError:
    """Return an error with what it printed last."""
    how = ""
    if child.error is None:
        child.ended.wait(_LAST_WORDS_S if kind is SessionError else 0)
        how = f": it {child.how()}" if child.ended.is_set() else ""
    if child.output is not None:
        child.output.drain()
    printed = child.output.last_lines() if child.output else ""
    said = f". It printed:{printed}" if printed else ". It printed nothing"
    if "ModuleNotFoundError" in printed:
        said += (
            "\nWhat a child needs is installed for its own interpreter: "
            f"{interpreter} -m pip install soma-core"
        )
    made = MemoryExceeded if child.exceeded else kind
    return made(f"Process {child.name} ({interpreter}) {what}{how}{said}")


def _minor(version: Any) -> str:
    return f"{version[0]}.{version[1]}"
