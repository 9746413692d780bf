"""Files that are there whole or not at all, and lines that survive the process that writes them.

JSON as a machine of any language reads it: ASCII, and no NaN, which stands as a text.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from soma.events.plain import MAX_DEPTH

__all__ = ["LineFile", "json_text", "replace_json", "sync_folder", "write_output"]

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def json_text(data: Any) -> str:
    """Return data on one line; what JSON has no writing for as a text."""
    try:
        return _encode(data)
    except (TypeError, ValueError, RecursionError):
        return _encode(_writable(data, _DEPTH))


def _writable(value: Any, depth: int) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else _NOT_FINITE[str(float(value))]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        with suppress(ValueError):  # so large that Python neither writes nor reads it
            int.__repr__(value)
            return value
    if depth and isinstance(value, Mapping):
        return {str(name): _writable(one, depth - 1) for name, one in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_writable(one, depth - 1) for one in value]
    return f"<{type(value).__name__}>"


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_DEPTH = MAX_DEPTH + 10
"""Plain data has at most ``MAX_DEPTH`` levels, and what it stands in a few more."""


def replace_json(path: Path, data: Any, *, sync: bool = False) -> None:
    """Put a file with this data in place of the one that is there.

    Whoever reads sees the old one or the new one.

    Args:
        path: the file.
        data: what is to be in it.
        sync: whether it is to outlive a power cut.

    Raises:
        OSError: it could not be written; the old file is as it was.
    """
    _replace(path, f"{json_text(data)}\n".encode("ascii"), sync=sync)


def write_output(path: str | os.PathLike[str], text: str) -> None:
    """Write what a user asked for into a file of theirs; one that is there is replaced when done.

    A link stays a link, a file keeps who may read it, and a device or a pipe is written to.

    Raises:
        OSError: it could not be written; the file that was there is as it was.
    """
    data, target = text.encode("utf-8"), Path(os.path.realpath(path))
    mode = target.stat().st_mode if target.exists() else None
    if mode is None or stat.S_ISREG(mode):
        _replace(target, data, mode)
    else:
        target.write_bytes(data)


def _replace(path: Path, data: bytes, mode: int | None = None, *, sync: bool = False) -> None:
    beside = path.with_name(f".{path.name[:80]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(file, "wb") as opened:
            if mode is not None:
                os.fchmod(file, stat.S_IMODE(mode))
            opened.write(data)
            if sync:
                opened.flush()
                os.fsync(opened.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def sync_folder(path: Path) -> None:
    """See to it that the names in a folder outlive a power cut."""
    found = os.open(path, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)


class LineFile:
    """Lines that are added, each by one write, so that they outlive a process that is killed.

    A line that a full disk has cut is ended before the next one is written.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._torn = False

    def write(self, line: str) -> None:
        """Add a line.

        Raises:
            OSError: it could not be written, or not all of it.
        """
        data = f"\n{line}\n" if self._torn else f"{line}\n"
        left = memoryview(data.encode("ascii"))
        while left:
            written = os.write(self._file, left)
            left = left[written:]
            self._torn = bool(left) or (self._torn and not written)

    def close(self, *, sync: bool = False) -> None:
        """Close it; with ``sync``, so that it outlives a power cut."""
        if self._file < 0:
            return
        try:
            if sync:
                os.fsync(self._file)
        finally:
            os.close(self._file)
            self._file = -1
