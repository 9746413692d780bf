"""What has happened in the folder of a cache, as logs to which every process appends.

    index/<host>.log      r <key>       a record was written, or removed
                          b <digest>    a blob was

A line only says that something happened to a name: whoever reads it looks at the file. So lines may
be repeated, torn, lost or made up, and nothing becomes wrong. A writer opens its log, appends and
closes it: nothing is held open, locked or synced, and what cannot be noted is not. No log is longer
than 4 MiB; whoever finds one that long lists the folder instead.

The surprise: a log is read for the last time after it was renamed. Who had opened it just before
may still append to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from soma_cache import files

__all__ = ["INDEX", "LINE_BYTES", "Log", "Part", "inode_of", "logs", "note", "read_on", "tidy"]

INDEX = "index"
"""The folder of all that can be made again from records and blobs."""
LINE_BYTES = 67
"""Of one line: a letter, a blank, 64 digits and the end of the line."""
_MOST_LOG_BYTES = 4 << 20
_MOST_OTHER_BYTES = 16 << 20
"""What is longer is no log of ours."""
_ROTATE_FROM_BYTES = 1 << 16
_LINE = re.compile(rb"([rb]) ([0-9a-f]{64})\n")
_CAREFUL = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""A pipe in its place is not waited for, and a link leads to a file of somebody else."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CAREFUL
_READ = os.O_RDONLY | _CAREFUL
_MODE = 0o666
"""Less what the umask takes: a group may share it, as it does the rest."""
_MOST_INODE = (1 << 63) - 1
"""The largest that the index holds; some file systems have larger ones."""


class Log(NamedTuple):
    """One file of the logs."""

    path: str
    inode: int
    nbytes: int
    head: bytes
    """Its first line: by that and the inode it is known again."""
    is_old: bool
    """Whether it was renamed, and nobody opens it any more."""

    @property
    def is_long(self) -> bool:
        """Whether it is time to begin a new one."""
        return self.nbytes >= _ROTATE_FROM_BYTES

    @property
    def is_full(self) -> bool:
        """Whether lines may be missing, since it had become too long."""
        return self.nbytes >= _MOST_LOG_BYTES


class Part(NamedTuple):
    """What was read of a log."""

    keys: frozenset[str]
    digests: frozenset[str]
    end: int
    """How far it was read: up to the end of its last whole line."""


def note(root: str, keys: Iterable[str] = (), digests: Iterable[str] = ()) -> None:
    """Note that something has happened to records and blobs. What cannot be noted is not.

    Args:
        root: the folder of the cache.
        keys: names of the records.
        digests: names of the blobs.
    """
    lines = [f"r {key}\n" for key in keys] + [f"b {digest}\n" for digest in digests]
    raw = "".join(lines).encode("ascii")
    with suppress(OSError):
        try:
            _append(root, raw)
        except FileNotFoundError:
            os.mkdir(f"{root}/{INDEX}")
            _append(root, raw)


def _append(root: str, raw: bytes) -> None:
    above = os.open(f"{root}/{INDEX}", _READ | os.O_DIRECTORY)  # and no link to another
    try:
        fd = os.open(f"{files.host()}.log", _APPEND, _MODE, dir_fd=above)
    finally:
        os.close(above)
    try:
        if os.fstat(fd).st_size < _MOST_LOG_BYTES:
            os.write(fd, raw)
    finally:
        os.close(fd)


def inode_of(about: os.stat_result) -> int:
    """Return the number of a file, as the index keeps it."""
    return about.st_ino & _MOST_INODE


def logs(root: str) -> list[Log]:
    """Return the logs of all machines; those that were renamed first."""
    found = []
    with suppress(OSError):
        for name in os.listdir(f"{root}/{INDEX}"):
            if name.endswith((".log", ".old")):
                with suppress(OSError):  # gone meanwhile, or no file
                    found.append(_log(f"{root}/{INDEX}/{name}"))
    return sorted(found, key=lambda one: (not one.is_old, one.path))


def _log(path: str) -> Log:
    fd = os.open(path, _READ)
    try:
        about, head = os.fstat(fd), os.read(fd, LINE_BYTES)
    finally:
        os.close(fd)
    return Log(path, inode_of(about), about.st_size, head, path.endswith(".old"))


def read_on(log: Log, start: int) -> Part:
    """Return the names in a log from ``start`` on."""
    raw = b""
    with suppress(OSError):
        fd = os.open(log.path, _READ)
        try:
            if inode_of(os.fstat(fd)) == log.inode:  # and not another that was begun meanwhile
                raw = os.pread(fd, max(0, min(log.nbytes, _MOST_OTHER_BYTES) - start), start)
        finally:
            os.close(fd)
    names = _LINE.findall(raw)
    return Part(
        frozenset(name.decode("ascii") for kind, name in names if kind == b"r"),
        frozenset(name.decode("ascii") for kind, name in names if kind == b"b"),
        start + raw.rfind(b"\n") + 1,
    )


def tidy(log: Log) -> None:
    """Begin a long log anew: it is renamed, read once more, and then removed.

    To be called when it has been read, by one process at a time.
    """
    old = f"{log.path.removesuffix('.log')}.old"
    with suppress(OSError):
        if inode_of(os.lstat(log.path)) != log.inode:  # somebody else has done it
            return
        if log.is_old:
            os.unlink(log.path)
        elif log.is_long and not os.path.lexists(old):
            os.rename(log.path, old)
