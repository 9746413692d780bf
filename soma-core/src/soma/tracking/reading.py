"""The files of a run, read while somebody may be writing them.

A line that a crash has cut is passed over and counted; nothing that lies in a file can do more
than that. No file is held open: whoever reads a run does not keep it from being removed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from soma.errors import InvalidInput

__all__ = [
    "Kept",
    "Lines",
    "Stamp",
    "number",
    "object_in",
    "read_bytes",
    "read_json",
    "record_in",
    "stamp_of",
]

_decode = json.JSONDecoder().raw_decode
_TEXTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_T = TypeVar("_T")


class Stamp(NamedTuple):
    """What changes when a file does."""

    size: int
    mtime_ns: int
    inode: int


class Lines:
    """The records of a JSONL file, read one by one as they are asked for.

    The counts are complete when the last one was read.
    """

    def __init__(self, data: bytes) -> None:
        self.damaged = 0
        """Lines that are no records."""
        self.cut = 0
        """Those of them that no record follows: what they were, nothing says."""
        self._data = data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.damaged = self.cut = 0
        for line in io.BytesIO(self._data):
            record = record_in(line)
            if record is not None:
                self.cut = 0
                yield record
            elif not line.isspace():  # an empty one ends a line that was cut
                self.damaged += 1
                self.cut += 1


def record_in(line: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds, and nothing besides; None where it does not."""
    try:
        text = line.strip().decode()
        found, end = _decode(text)
    except (ValueError, RecursionError):  # no JSON, no UTF-8; or nested too deeply
        return None
    return found if end == len(text) and type(found) is dict else None


def number(value: Any) -> float | None:
    """Return a number, also one that JSON has no writing for; None where it is none."""
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return None
    return _TEXTS.get(value) if type(value) is str else None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that a file holds.

    Raises:
        InvalidInput: it cannot be read, or holds something else.
    """
    return Kept(path, object_in).get()


def object_in(data: bytes) -> dict[str, Any]:
    """Return the object that is all of a file.

    Raises:
        InvalidInput: it is something else.
    """
    found = record_in(data)
    if found is None:
        raise InvalidInput("it holds no JSON object")
    return found


def read_bytes(path: Path, start: int = 0) -> tuple[bytes, Stamp]:
    """Return what is in a file from ``start`` on, and its stamp from before it was read.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        # What is no file is not waited for: to open a pipe would take until somebody writes.
        found = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(found)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            with open(found, "rb", buffering=0, closefd=False) as file:
                file.seek(start)
                return file.read(), _stamp(about)
        finally:
            os.close(found)
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{path} cannot be read: {why}") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, or None where there is none."""
    try:
        return _stamp(path.stat())
    except (OSError, ValueError):
        return None


class Kept(Generic[_T]):
    """What was made of a file, as long as the file stays as it is."""

    def __init__(self, path: Path, make: Callable[[bytes], _T]) -> None:
        self.path = path
        """The file."""
        self._make = make
        self._found: tuple[Stamp, _T] | None = None

    def get(self) -> _T:
        """Return it, made anew where the file has changed.

        Raises:
            InvalidInput: the file cannot be read.
        """
        found = self._found  # another thread may come by
        if found is not None and found[0] == stamp_of(self.path):
            return found[1]
        self._found = None
        data, stamp = read_bytes(self.path)
        try:
            made = self._make(data)
        except InvalidInput as error:
            raise InvalidInput(f"{self.path} is damaged: {error}") from None
        self._found = stamp, made
        return made


def _stamp(about: os.stat_result) -> Stamp:
    return Stamp(about.st_size, about.st_mtime_ns, about.st_ino)
