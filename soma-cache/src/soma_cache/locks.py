"""Locks on keys between the processes of a machine, or of a network file system: ``Across``.

    byte int(key[:15], 16) of the empty file "locks"  ◄── a POSIX record lock, by fcntl

They end with the process that holds them, however it ends; a fork does not inherit them; they work
on NFS; and they leave nothing behind, since a lock may lie on bytes that are not there.

The surprise: a process that closes any descriptor of a file loses all its locks on that file. So
there is one descriptor per file and process, whatever paths lead there, and everybody in the
process uses it. For the same reason nothing else may open ``locks``, not even to read it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from soma_cache.layout import UnknownFormat

__all__ = ["KeyLocks"]

_FLOCK = "@hhqqi"
"""l_type, l_whence, l_start, l_len, l_pid on a 64-bit Linux."""
_LOOK_EVERY_S = 1.0
"""Looking whether the file is still the one at the path costs more than all the rest."""
_MODE = 0o666
"""Who may not write into the file cannot take a lock in it."""


class KeyLocks:
    """The locks of one folder, for one ``Claims``. Safe for threads and forks.

    What one of these holds, another one of the same process is given as well; it is free for other
    processes when both have let go.

    Args:
        path: the file, which is opened with the first lock, and made where it is not there.
        prepare: makes the folder of it; called before the file is made.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, prepare: Callable[[], None] | None = None
    ) -> None:
        self._path = os.path.abspath(path)
        self._prepare = prepare
        self._file: _File | None = None
        self._held: set[int] = set()
        self._leave: Callable[[], object] = _nothing
        self._look_at = 0.0

    def lock(self, key: str) -> bool:
        """Take a lock at once; False where another process has it.

        Where the folder takes no files, or none of ours, nobody keeps anything in it, and every
        lock is given.

        Raises:
            OSError: locks do not work here.
        """
        at = _byte_of(key)
        with _lock:
            file = self._file
            if file is None or monotonic() >= self._look_at:
                file = self._opened()
            taken = file is None or file.holds(at) or self._take(file, at)
            if taken:
                self._held.add(at)
            return taken

    def _take(self, file: _File, at: int) -> bool:
        try:
            fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except BlockingIOError:  # EACCES, as POSIX allows as well, is a sandbox's: no locks
            return False
        except OSError as error:
            error.filename = self._path
            raise
        return True

    def unlock(self, key: str) -> None:
        """Give a lock back, also one of which it is not known whether it was taken.

        Raises:
            OSError: locks do not work here.
        """
        at = _byte_of(key)
        with _lock:
            self._held.discard(at)
            if self._file is not None and not self._file.holds(at):
                fcntl.lockf(self._file.fd, fcntl.LOCK_UN, 1, at)

    def holder(self, key: str) -> str:
        """Return which process has a lock, as ``process 1234``; nothing where none has it.

        Raises:
            OSError: locks do not work here.
        """
        at = _byte_of(key)
        with _lock:
            file = self._file
            if file is None:
                return ""
            pid = os.getpid() if file.holds(at) else _pid_at(file.fd, at)
        if pid is None:
            return ""
        return f"process {pid}" if pid > 0 else "another process"

    def _opened(self) -> _File | None:
        """Return the file, opened; None where none can be made."""
        self._look_at = monotonic() + _LOOK_EVERY_S
        if self._file is not None:
            if self._held or self._file.identity == _identity(self._path):
                return self._file
            self._file = None  # the folder was removed, and others have a new file
            self._leave()
        held = set[int]()
        try:
            file = self._open()
        except UnknownFormat:
            return None
        except OSError:
            if _takes_files(os.path.dirname(self._path)):
                raise
            return None
        file.holders.append(held)
        leaving = weakref.finalize(self, _left.append, (file, held))
        leaving.atexit = False  # whoever ends lets go
        self._file, self._held, self._leave = file, held, leaving
        return file

    def _open(self) -> _File:
        if self._prepare is not None and not os.path.exists(self._path):
            self._prepare()
        return _open(self._path)


class _File:
    """One file of locks, opened once for all of the process."""

    __slots__ = ("fd", "holders", "identity")

    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self.fd = fd
        self.identity = identity
        self.holders: list[set[int]] = []
        """What each ``KeyLocks`` holds."""

    def holds(self, at: int) -> bool:
        """Say whether anybody in this process holds a byte."""
        for held in self.holders:  # noqa: SIM110  # a third of the time that any() takes
            if at in held:
                return True
        return False

    def leave(self, held: set[int]) -> None:
        """Let go of what a ``KeyLocks`` holds that is no more; the last one closes the file."""
        self.holders = [one for one in self.holders if one is not held]
        if not self.holders:
            del _files[self.identity]
            os.close(self.fd)
            return
        for at in held:
            if not self.holds(at):
                with suppress(OSError):
                    fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, at)


_lock = threading.RLock()  # a destructor may come back here
_files: dict[tuple[int, int], _File] = {}
_left: list[tuple[_File, set[int]]] = []
"""Of ``KeyLocks`` that are no more. Closed with the next opening: a destructor may run anywhere."""


def _open(path: str) -> _File:
    while _left:
        file, held = _left.pop()
        file.leave(held)
    identity = _identity(path)
    if identity not in _files:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        found = os.fstat(fd)
        identity = found.st_dev, found.st_ino
        # Where it is known after all, this descriptor stays open: closing it would unlock.
        _files.setdefault(identity, _File(fd, identity))
    return _files[identity]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:  # opening it says why
        return None
    return found.st_dev, found.st_ino


def _takes_files(folder: str) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)


def _byte_of(key: str) -> int:
    return int(key[:15], 16)  # 60 bits; an offset has 63


def _pid_at(fd: int, at: int) -> int | None:
    """Return the pid of the process that has a byte locked; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def _nothing() -> None:
    """Stand in for what leaves a file, as long as there is none."""


def _after_fork() -> None:
    """Forget what is held: it stays with the parent. The descriptors are good for both."""
    global _lock  # noqa: PLW0603  # a thread that did not come along may have held it
    _lock = threading.RLock()
    for file in _files.values():
        for held in file.holders:
            held.clear()


os.register_at_fork(after_in_child=_after_fork)
