"""What is added to a file, as it is added, without holding it open."""

from __future__ import annotations

import os
from pathlib import Path

from soma.errors import InvalidInput
from soma.tracking.reading import Stamp, read_bytes

__all__ = ["Follower"]


class Follower:
    """Reads a file that grows; each line once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._before: Stamp | None = None
        self._read = 0
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Return the lines that were completed since the last time.

        Raises:
            InvalidInput: the file is gone, or is not the one that it was.
        """
        data, stamp = read_bytes(self._path, self._read)
        before = self._before
        if before is not None and (stamp.inode != before.inode or stamp.size < before.size):
            raise InvalidInput(f"{self._path} was replaced while it was read")
        self._before = stamp
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def rest(self) -> bytes:
        """Return what stands behind the last complete line."""
        return self._rest
