"""Which files lie in the folder of a cache, found by walking through it.

What is not named as a record or a blob is passed over, and so is what is no file: links, pipes,
folders. What goes meanwhile is not there.

The surprise: a folder that cannot be listed is an error, unless who asks wants to be told: a blob
that nobody can see is not gone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from soma_cache.layout import is_shard, parse_name

__all__ = ["Entry", "Failed", "Progress", "Use", "blobs", "records", "unfinished", "uses"]

Use: TypeAlias = tuple[bytes, int, float]
"""Digest, bytes, and when a blob was used last: there may be a million."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total) from time to time, by what takes long."""

Failed: TypeAlias = Callable[[str, OSError], None]
"""Called with what cannot be asked about, by its name in the cache, and why."""

_GONE = (FileNotFoundError, NotADirectoryError)


class Entry(NamedTuple):
    """One file of the folder."""

    name: str
    """Key or digest."""
    path: str
    nbytes: int
    used_at: float
    """When it was last written or asked for again, in seconds since the epoch."""


def records(root: str) -> Iterator[Entry]:
    """Yield every file that is named as a record.

    Raises:
        OSError: a folder cannot be listed.
    """
    return _entries(root, "actions", "record")


def blobs(root: str, failed: Failed | None = None) -> Iterator[Entry]:
    """Yield every file that is named as a blob.

    Args:
        root: the folder of the cache.
        failed: is told of what cannot be listed.

    Raises:
        OSError: a folder cannot be listed, and nobody wants to be told.
    """
    return _entries(root, "cas/b3", "blob", failed)


def uses(root: str, failed: Failed | None = None) -> list[Use]:
    """Return (digest as bytes, bytes, when it was used last) of every blob, by digest.

    Args:
        root: the folder of the cache.
        failed: is told of what cannot be listed.

    Raises:
        OSError: a folder cannot be listed, and nobody wants to be told.
    """
    return sorted(
        (bytes.fromhex(name), about.st_size, max(about.st_atime, about.st_mtime))
        for name, _, about in _files(root, "cas/b3", "blob", failed)
    )


def unfinished(root: str) -> Iterator[Entry]:
    """Yield every file in tmp: what is being written, and what killed writers have left.

    Raises:
        OSError: the folder cannot be listed.
    """
    for file in _scan(root, "tmp"):
        with suppress(OSError):  # gone meanwhile
            about = file.stat(follow_symlinks=False)
            if stat.S_ISREG(about.st_mode):
                yield Entry(file.name, file.path, about.st_size, about.st_mtime)


def _entries(root: str, below: str, kind: str, failed: Failed | None = None) -> Iterator[Entry]:
    for name, path, about in _files(root, below, kind, failed):
        yield Entry(name, path, about.st_size, max(about.st_atime, about.st_mtime))


def _files(
    root: str, below: str, kind: str, failed: Failed | None
) -> Iterator[tuple[str, str, os.stat_result]]:
    for shard in _scan(root, below, failed):
        if not is_shard(shard.name) or not shard.is_dir(follow_symlinks=False):
            continue
        for file in _scan(root, f"{below}/{shard.name}", failed):
            name = f"{below}/{shard.name}/{file.name}"
            found = parse_name(name)
            if found is None or found[0] != kind:
                continue
            try:
                about = file.stat(follow_symlinks=False)
            except OSError as error:
                if failed is not None and not isinstance(error, _GONE):
                    failed(name, error)
                continue
            if stat.S_ISREG(about.st_mode):
                yield found[1], file.path, about


def _scan(root: str, name: str, failed: Failed | None = None) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(f"{root}/{name}") as found:
            return list(found)
    except _GONE:
        return []
    except OSError as error:
        if failed is None:
            raise
        failed(name, error)
        return []
