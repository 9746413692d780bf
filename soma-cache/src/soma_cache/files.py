"""Files that are there whole or not at all.

    tmp/<host>-<pid>-<n>  ──write──►  ──fsync, where asked──►  ──rename──►  its name

A name in tmp is taken by creating it, so that no two writers ever share one, wherever they run.
Who reads sees the old file or the new one. Without fsync the same holds as long as the machine
stays up; after a power cut a file may be torn, and its hash or its check says so.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any

__all__ = [
    "host",
    "make_tmp",
    "move_into_place",
    "new_file",
    "put_file",
    "read_file",
    "sync",
    "unused_path",
    "write_all",
]

_MODE = 0o444
"""Nobody writes into a file that is there: it is replaced."""
_PIECES = 512
"""At most so many go into one writev; the system allows 1,024."""
_SMALL_BYTES = 1 << 14
_MOST_BYTES = 1 << 30
"""The system writes at most 2 GiB at once."""
_numbers = count(int.from_bytes(os.urandom(4), "big"))
"""From a number of its own: two containers may share the folder, the host name and the pid."""


@cache
def host() -> str:
    """Return the name of this machine, as it may stand in the name of a file."""
    name = socket.gethostname()
    return "".join(one if one.isalnum() or one in "-." else "_" for one in name)[:64] or "host"


def unused_path(root: str) -> str:
    """Return a path in tmp that nobody has."""
    return f"{root}/tmp/{host()}-{os.getpid()}-{next(_numbers)}"  # noqa: S108  # ours


def _create(root: str) -> tuple[str, int]:
    """Return (path, descriptor) of a new file in tmp."""
    while True:
        path = unused_path(root)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with suppress(FileExistsError):  # of another container with this host name and pid
            return path, os.open(path, flags, _MODE)


def make_tmp(root: str) -> None:
    """Make the folder in which every write starts.

    Raises:
        OSError: it cannot be made.
    """
    path = f"{root}/tmp"  # noqa: S108  # ours
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):  # a link that leads nowhere
            raise


@contextmanager
def new_file(root: str) -> Iterator[tuple[str, int]]:
    """Give the path and the descriptor of a new file in tmp, to be renamed; it is gone on an error.

    Raises:
        FileNotFoundError: there is no tmp: the folder of the cache is not there, or not as it was.
        OSError: it cannot be made.
    """
    path, fd = _create(root)
    try:
        yield path, fd
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def write_all(fd: int, pieces: Iterable[Any]) -> int:
    """Write pieces in a row, without joining them; return how many bytes that were.

    Raises:
        OSError: there is no room for them.
    """
    total, batch = 0, list[memoryview]()
    pieces = tuple(pieces)
    if sum(map(len, pieces)) <= _SMALL_BYTES:  # as most are: one copy is less than all this
        pieces = (b"".join(pieces),)
    for piece in pieces:
        view = memoryview(piece).cast("B")
        total += len(view)
        for start in range(0, len(view), _MOST_BYTES):
            part = view[start : start + _MOST_BYTES]
            if len(part) + sum(map(len, batch)) > _MOST_BYTES or len(batch) == _PIECES:
                _write_batch(fd, batch)
                batch = []
            batch.append(part)
    _write_batch(fd, batch)
    return total


def _write_batch(fd: int, batch: Sequence[memoryview]) -> None:
    rest = list(batch)
    while rest:
        done = os.writev(fd, rest)
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if rest and done:
            rest[0] = rest[0][done:]


def move_into_place(root: str, temporary: str, name: str) -> None:
    """Give a finished file its name; make the folders that it needs.

    Args:
        root: the folder of the cache.
        temporary: its path so far.
        name: its name in there, with slashes.

    Raises:
        OSError: it cannot be put there.
    """
    target = f"{root}/{name}"
    try:
        os.rename(temporary, target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(temporary, target)
    except IsADirectoryError:
        _move_aside(root, target)
        os.rename(temporary, target)


def _move_aside(root: str, target: str) -> None:
    """Move a folder that stands where a file belongs to tmp, with all that is in it.

    Raises:
        OSError: it is no folder, or cannot be moved.
    """
    os.rename(target, unused_path(root))


def put_file(root: str, name: str, pieces: Iterable[Any], *, durable: bool) -> None:
    """Write a file whole, or not at all.

    Args:
        root: the folder of the cache.
        name: its name in there, with slashes.
        pieces: its bytes.
        durable: whether its bytes have to survive a power cut; its name is another matter.

    Raises:
        OSError: it cannot be written.
    """
    with new_file(root) as (path, fd):
        write_all(fd, pieces)
        if durable:
            os.fsync(fd)
        move_into_place(root, path, name)


def read_file(path: str) -> bytes | None:
    """Return the bytes of a small file; None where there is none, or something else in its place.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:  # a pipe in its place is not waited for: it is empty
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = os.read(fd, _FIRST_BYTES)
        if len(found) < _FIRST_BYTES:
            return found
        pieces, nbytes = [found], len(found)
        while found and nbytes <= _MOST_SMALL_BYTES:
            found = os.read(fd, _FIRST_BYTES)
            pieces.append(found)
            nbytes += len(found)
        return b"".join(pieces) if nbytes <= _MOST_SMALL_BYTES else None
    except IsADirectoryError:
        return None
    finally:
        os.close(fd)


_FIRST_BYTES = 1 << 16
_MOST_SMALL_BYTES = 16 << 20
"""What is longer is no file of ours."""


def sync(path: str) -> None:
    """Have the bytes of a file, or the names in a folder, survive a power cut.

    Raises:
        OSError: it is not there, or the disk fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
