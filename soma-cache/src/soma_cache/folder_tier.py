"""A folder that several machines see, as a remote tier: ``file:///shared/cache``.

It has the layout of a cache, so that it can also be looked into, or cleaned up, like one. Its files
belong to those who wrote them, and their modes are left to each writer's umask. Bytes are read and
not mapped: where somebody else removes a file from a network folder, or cuts it, looking at a map
of it kills the process, and a failed read is an error like any other.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from soma._notices import tell_once
from soma.contracts import Frame
from soma.errors import InvalidInput, shown
from soma_cache.files import make_tmp, put_file
from soma_cache.layout import FORMAT, check_format, is_shard, parse_name

__all__ = ["FolderTier", "folder_of_url"]

_MOST_BYTES = 1 << 30
"""The system reads at most 2 GiB at once."""
_DROPPED = re.compile(r"[\x00-\x1f]|^ | $")
"""What ``urlsplit`` would leave out in silence."""
_EXAMPLE = "write it like file:///shared/cache"


class FolderTier:
    """A ``CacheTier`` in a folder. Safe for threads and processes, on one machine and on many.

    The folder is made by the first ``put``. What lies in it under other names than those of records
    and blobs is left as it is.

    Args:
        url: ``file:///shared/cache``, with ``?read_only=true`` where nothing is to be written.
        read_only: the same.

    Raises:
        InvalidInput: the url does not name a folder of this machine.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.folder, asked = folder_of_url(url)
        self.read_only = read_only or asked
        self._known = False

    def get(self, name: str) -> Frame | None:
        """Return ``(b"", [the bytes])``, memory of the caller's own; None when it is not there.

        Raises:
            InvalidInput: it is not the name of a record or a blob.
            OSError: it is there and cannot be read, or the folder is of an unknown format.
        """
        fd = self._open(name)
        if fd < 0:
            return None
        try:
            return b"", [_read(fd, os.fstat(fd).st_size)]
        finally:
            os.close(fd)

    def size(self, name: str) -> int | None:
        """Return how many bytes lie under a name, without reading them; None when it is not there.

        Raises:
            InvalidInput: it is not the name of a record or a blob.
            OSError: that cannot be told, or the folder is of an unknown format.
        """
        path = self._path(name)
        if not self._is_cache():
            return None
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def exists(self, name: str) -> bool:
        """Say whether the name is there.

        Raises:
            InvalidInput: it is not the name of a record or a blob.
            OSError: that cannot be told, or the folder is of an unknown format.
        """
        return self.size(name) is not None

    def put(self, name: str, frame: Frame) -> None:
        """Write the frame under that name, whole or not at all; it replaces what is there.

        Raises:
            InvalidInput: it is not the name of a record or a blob.
            OSError: it could not be written, or the folder is of an unknown format or read-only.
        """
        self._path(name)
        self._refuse_if_read_only(name)
        is_cache = check_format(self.folder)  # looked at each time: somebody may have cleaned up
        if not is_cache and not os.path.isdir(self.folder):
            self._tell("was not there, and is made: is what it lies on mounted?")
            os.makedirs(self.folder, exist_ok=True)
        make_tmp(self.folder)
        if not is_cache:
            put_file(self.folder, "format.json", [FORMAT], durable=False)
        # Durable, since a server says there, at the latest, that it had no room.
        put_file(self.folder, name, (frame[0], *frame[1]), durable=True)

    def delete(self, name: str) -> None:
        """Remove the name; no error when it is not there.

        Raises:
            InvalidInput: it is not the name of a record or a blob.
            OSError: it could not be removed, or the folder is of an unknown format or read-only.
        """
        path = self._path(name)
        self._refuse_if_read_only(name)
        if check_format(self.folder):  # looked at each time, as above
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the names that start with ``prefix``, sorted within a folder.

        Raises:
            OSError: a folder cannot be read, or is of an unknown format.
        """
        if not self._is_cache():
            return iter(())
        return self._walk(prefix)

    def _walk(self, prefix: str) -> Iterator[str]:
        for tree in ("actions/", "cas/b3/"):
            for shard in self._entries(tree, prefix):
                if is_shard(shard.name):
                    below = f"{tree}{shard.name}/"
                    for entry in self._entries(below, prefix):
                        name = below + entry.name
                        if name.startswith(prefix) and parse_name(name) and entry.is_file():
                            yield name

    def _entries(self, below: str, prefix: str) -> Sequence[os.DirEntry[str]]:
        """Return what lies in a folder, unless nothing in there can start with the prefix."""
        if not below.startswith(prefix[: len(below)]):
            return ()
        try:
            with os.scandir(f"{self.folder}/{below}") as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def _path(self, name: str) -> str:
        if parse_name(name) is None:
            raise InvalidInput(
                f"{shown(name)} is not a name in a cache: those are actions/<aa>/<key>.json and "
                "cas/b3/<aa>/<digest>.bin"
            )
        return f"{self.folder}/{name}"

    def _refuse_if_read_only(self, name: str) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, "this cache was opened to be read only", self._path(name))

    def _is_cache(self) -> bool:
        """Say whether the folder is a cache; it is looked at until it is one.

        Raises:
            OSError: it is of an unknown format, or cannot be read.
        """
        self._known = self._known or check_format(self.folder)
        if not self._known and self.read_only:
            self._tell("is not there, and nothing is found in it: is what it lies on mounted?")
        return self._known

    def _tell(self, what: str) -> None:
        tell_once(("shared folder", self.folder), f"the shared cache in {self.folder} {what}")

    def _open(self, name: str) -> int:
        """Return the descriptor of a file; -1 where there is none of that name."""
        path = self._path(name)
        if not self._is_cache():
            return -1
        try:  # a pipe that lies there would have us wait for a writer
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        return -1


def _read(fd: int, size: int) -> memoryview:
    """Return the first bytes of a file in fresh memory.

    Raises:
        OSError: they cannot be read, or there are fewer.
    """
    view, done = memoryview(bytearray(size)), 0
    while done < size:
        count = os.readv(fd, [view[done : done + _MOST_BYTES]])
        if count == 0:
            raise OSError(f"a file of {size} bytes ends after {done}")
        done += count
    return view


def folder_of_url(url: str) -> tuple[str, bool]:
    """Return (folder, whether it is to be read only) of a ``file:`` url.

    Raises:
        InvalidInput: it is not one, or does not name a folder of this machine.
    """
    if not isinstance(url, str):
        raise InvalidInput(f"a shared cache is given by its url, not by {shown(url)}: {_EXAMPLE}")
    if _DROPPED.search(url):
        raise InvalidInput(
            f"the url of a shared cache has blanks or control characters: {_EXAMPLE}"
        )
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        path = os.fsdecode(unquote_to_bytes(parts.path))
    except ValueError as error:
        raise InvalidInput(f"this is no url of a shared cache ({error}): {_EXAMPLE}") from None
    if parts.scheme != "file":
        raise InvalidInput(
            f"a shared folder has a url of the scheme file, not {parts.scheme!r}: {_EXAMPLE}"
        )
    if host not in ("", "localhost"):
        raise InvalidInput(
            f"the url of a shared folder names the host {host!r}, but a folder is opened on this "
            "machine: mount it, and write three slashes, as in file:///shared/cache"
        )
    if parts.fragment or url.endswith("#"):
        raise InvalidInput("a '#' in the url of a shared folder is written %23")
    folder = path.rstrip("/")
    if not folder.startswith("/") or "\0" in folder:
        raise InvalidInput(f"the url of a shared folder has to name its whole path: {_EXAMPLE}")
    return folder, _read_only(parts.query)


def _read_only(query: str) -> bool:
    """Return what the query of a url says about writing.

    Raises:
        InvalidInput: it says something else, or something else as well.
    """
    said = parse_qsl(query, keep_blank_values=True)
    for name, value in said:
        if name != "read_only":
            raise InvalidInput(
                f"the url of a shared folder has the query {shown(name)}; there is only read_only"
            )
        if value not in ("true", "false"):
            raise InvalidInput(f"read_only in a url is true or false, not {shown(value)}")
    if len(said) > 1:
        raise InvalidInput("the url of a shared folder says read_only more than once")
    return said == [("read_only", "true")]
