"""The folders in which records and blobs lie: when each was changed, and what is in it.

A folder's time of change moves with every name that comes or goes, whoever did it, and no tool sets
it back, as copying ones do with the time that `ls` shows. So 512 calls say where to look again. Of
the files it is what `lstat` says that tells one from another in its place; none is opened.

The surprise: only what the system says is not there counts as gone. What it will not say is told to
whoever asks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from soma_cache.changes import inode_of
from soma_cache.layout import is_shard, parse_name

__all__ = [
    "BLOBS",
    "GONE",
    "RECORDS",
    "Failed",
    "State",
    "folder_of_blob",
    "folder_of_record",
    "hides_records",
    "names",
    "state_of_blob",
    "state_of_record",
    "states",
]

RECORDS = "actions"
BLOBS = "cas/b3"
GONE = (FileNotFoundError, NotADirectoryError)
"""What the system says of a file that is not there."""

State: TypeAlias = tuple[int, ...]
"""Of a file, by which it is known again."""
Failed: TypeAlias = Callable[[str, OSError], None]
"""Called with what cannot be asked about, by its name in the cache, and why."""


def folder_of_record(key: str) -> str:
    """Return the folder of a record, as ``states`` names it."""
    return f"{RECORDS}/{key[:2]}"


def folder_of_blob(digest: str) -> str:
    """Return the folder of a blob, as ``states`` names it."""
    return f"{BLOBS}/{digest[:2]}"


def state_of_record(about: os.stat_result) -> tuple[int, int, int]:
    """Return what is kept of the file of a record."""
    return inode_of(about), about.st_size, about.st_ctime_ns


def state_of_blob(about: os.stat_result) -> tuple[int, int]:
    """Return what is kept of the file of a blob, whose time of change moves with each use."""
    return inode_of(about), about.st_size


def hides_records(unreadable: Iterable[str]) -> bool:
    """Say whether something that cannot be read, by its name in the cache, is or holds a record."""
    return any(name == RECORDS or name.startswith(f"{RECORDS}/") for name in unreadable)


def states(root: str, failed: Failed | None = None) -> dict[str, int]:
    """Return folder -> its time of change in nanoseconds; links are none of ours.

    Args:
        root: the folder of the cache.
        failed: is told of what cannot be asked about.

    Raises:
        OSError: something cannot be asked about, and nobody is to be told.
    """
    found = {}
    for above in (BLOBS, RECORDS):
        with _unless_gone(above, failed):
            for name in filter(is_shard, os.listdir(f"{root}/{above}")):
                with _unless_gone(f"{above}/{name}", failed):
                    about = os.lstat(f"{root}/{above}/{name}")
                    if stat.S_ISDIR(about.st_mode):
                        found[f"{above}/{name}"] = about.st_ctime_ns
    return found


def names(root: str, folder: str, failed: Failed | None = None) -> dict[str, State]:
    """Return key or digest -> state of the files in a folder.

    Args:
        root: the folder of the cache.
        folder: as ``states`` names it.
        failed: is told of files that cannot be asked about.

    Raises:
        OSError: the folder cannot be listed; or a file not be asked about, and nobody is told.
    """
    found: dict[str, State] = {}
    state_of = state_of_record if folder.startswith(RECORDS) else state_of_blob
    with _unless_gone(folder, None), os.scandir(f"{root}/{folder}") as entries:
        for entry in entries:
            name = f"{folder}/{entry.name}"
            parsed = parse_name(name)
            if parsed is not None:
                try:
                    about = entry.stat(follow_symlinks=False)
                except GONE:
                    continue
                except OSError as error:
                    if failed is None:
                        raise
                    failed(name, error)
                    continue
                if stat.S_ISREG(about.st_mode):
                    found[parsed[1]] = state_of(about)
    return found


@contextmanager
def _unless_gone(name: str, failed: Failed | None) -> Iterator[None]:
    try:
        yield
    except GONE:
        return
    except OSError as error:
        if failed is None:
            raise
        failed(name, error)
