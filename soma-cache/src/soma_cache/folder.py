"""The records and blobs of one folder.

Reading takes no lock. A blob is mapped, and its hash is taken once per process and state of its
file (inode, size, time of change): what has been cut, flipped or put in its place since is noticed
and is a miss. Then it is taken away, and whoever needs the value makes it again.

The surprise: what is asked to be written may be there already, in whatever condition. Only what is
known to be whole is left as it is; anything else is hashed, and replaced where it is damaged.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from soma._notices import tell_once
from soma.contracts import ActionRecord
from soma.engine.blobs import MAP_FROM, map_file
from soma.errors import describe_error
from soma.frame import hash_parts
from soma_cache import changes, files
from soma_cache.layout import FORMAT, blob_name, check_format, record_name
from soma_cache.records import Read, dump_record, load_record
from soma_cache.touching import touch

__all__ = ["Folder"]

_HASH_BESIDE_FROM = 4 << 20
"""Bytes from which taking the hash on another thread, while they are written, is faster."""
_MOST_NOTED = 1 << 17
_LEAST_BYTES = 16
"""No frame is smaller than its preamble."""

_Signature: TypeAlias = tuple[int, int, int]


class Folder:
    """One folder in the layout of a cache. Safe for threads and processes.

    Args:
        root: its path; it may be absent until ``prepare``.
        read_only: change nothing in it.
        mode: of the folder itself, where it is made here.
        always_sync: have everything survive a power cut, not only what took long.
    """

    def __init__(
        self,
        root: str,
        *,
        read_only: bool = False,
        mode: int = 0o700,
        always_sync: bool = False,
    ) -> None:
        self.root = root
        self.read_only = read_only
        self._mode = mode
        self._always_sync = always_sync
        self._whole: dict[str, _Signature] = {}
        """Digest -> state of the file whose hash was right."""
        self._damaged: dict[str, _Signature] = {}
        """Digest -> state of a file whose hash was wrong, and which is still there."""
        self._synced: set[str] = set()
        """Folders whose own name survives a power cut."""
        self._format: _Signature | None = None
        """State of format.json when the folder was prepared."""
        self.written_bytes = 0
        """How much this process has added, about: who limits the folder goes by it."""

    def prepare(self) -> None:
        """Make the folder, unless it is there.

        Raises:
            UnknownFormat: it is there, and of another version.
            OSError: it cannot be made.
        """
        state = self._state_of_format()
        if check_format(self.root):
            files.make_tmp(self.root)
            self._format = state
            return
        parent = os.path.dirname(self.root)
        if parent:
            os.makedirs(parent, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self.root, self._mode)
        files.make_tmp(self.root)
        files.put_file(self.root, "format.json", [FORMAT], durable=True)
        self._format = self._state_of_format()
        self._synced.clear()

    def ensure(self) -> None:
        """Prepare the folder again, where it is not as it was: it may be another by now.

        Raises:
            UnknownFormat: it is of another version now.
            OSError: it cannot be made.
        """
        if self._format is None or self._state_of_format() != self._format:
            self.prepare()

    def prepare_to_change(self) -> None:
        """Have the folder be there, before something in it is changed by who keeps house.

        Raises:
            OSError: it was opened to be read only, or cannot be made.
        """
        if self.read_only:
            raise OSError(errno.EROFS, "this cache was opened to be read only", self.root)
        self.ensure()

    def _state_of_format(self) -> _Signature | None:
        try:
            return _signature(os.stat(f"{self.root}/format.json"))
        except OSError:
            return None

    # Records

    def record(self, key: str, *, tier: str = "") -> Read | None:
        """Return the record of a key; None where there is none that is whole and can be read."""
        try:
            raw = files.read_file(f"{self.root}/{record_name(key)}")
        except OSError as error:
            self._tell_unreadable(error)
            return None
        return None if raw is None else load_record(raw, key, tier=tier)

    def read_record(self, key: str) -> Read | None:
        """Return the record of a key; None where there is none, or none that is whole.

        Raises:
            OSError: it is there and cannot be read.
        """
        raw = files.read_file(f"{self.root}/{record_name(key)}")
        return None if raw is None else load_record(raw, key)

    def put_record(self, record: ActionRecord, inline: dict[str, bytes]) -> bytes:
        """Make a record visible, and return its bytes.

        Raises:
            OSError: it cannot be written; it is not visible.
        """
        durable = self._always_sync or record.compute_ms > _SYNC_MS or record.effect == "impure"
        if durable:
            for digest in {*record.outputs.values()} - inline.keys():
                with suppress(FileNotFoundError):  # a gc has taken it, and it is made again
                    files.sync(f"{self.root}/{blob_name(digest)}")
                    self.sync_name(blob_name(digest))
        raw = dump_record(record, inline)
        self._put(record_name(record.key), [raw], durable=durable)
        changes.note(self.root, keys=(record.key,))
        return raw

    def put_raw_record(self, key: str, raw: bytes) -> None:
        """Take a record over as it is, with all that it says of where it comes from.

        Raises:
            OSError: it cannot be written.
        """
        self._put(record_name(key), [raw], durable=self._always_sync)
        changes.note(self.root, keys=(key,))

    def _put(self, name: str, pieces: Sequence[Any], *, durable: bool) -> None:
        self.ensure()
        try:
            files.put_file(self.root, name, pieces, durable=durable)
        except FileNotFoundError:  # somebody has removed the folder, or put another there
            self.prepare()
            files.put_file(self.root, name, pieces, durable=durable)
        if durable:
            self.sync_name(name)

    def sync_name(self, name: str) -> None:
        """Have the name of a file survive a power cut: those of the folders around it as well.

        Raises:
            OSError: it is not there, or the disk fails.
        """
        folder = os.path.dirname(f"{self.root}/{name}")
        files.sync(folder)
        if folder in self._synced:
            return
        above = folder
        while len(above) > len(self.root):  # whoever has made them may not have cared
            above = os.path.dirname(above)
            files.sync(above)
        self._synced.add(folder)

    # Blobs

    def has(self, digest: str) -> bool:
        """Say whether a blob seems to be there, without reading it."""
        try:
            found = os.stat(f"{self.root}/{blob_name(digest)}")
        except OSError:
            return False
        return _can_be(found) and self._damaged.get(digest) != _signature(found)

    def read(self, digest: str) -> memoryview | None:
        """Return the bytes of a blob, in memory of the caller's own; None where it is gone.

        Or where it cannot be read, or has another hash than it should.
        """
        try:
            fd = os.open(f"{self.root}/{blob_name(digest)}", _READ)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._tell_unreadable(error)
            return None
        try:
            found = os.fstat(fd)
            whole = _taken(fd, found)
        except OSError as error:
            self._tell_unreadable(error)
            return None
        finally:
            os.close(fd)
        state = _signature(found)
        if whole is not None and self._whole.get(digest) == state:
            return whole
        if whole is not None and hash_parts(b"", [whole]) == digest:
            _note(self._whole, digest, state)
            self._touch(digest, found)
            return whole
        self._take_away(digest, state)
        return None

    def write(self, header: bytes, buffers: Sequence[memoryview], digest: str | None) -> str:
        """Write a blob, and return its hash, which is ``digest`` where that is given.

        Raises:
            OSError: it cannot be written; nothing is half there.
        """
        self.ensure()
        if digest is not None and self._is_whole(digest, len(header) + sum(map(len, buffers))):
            return digest
        try:
            digest, is_new = self._write(header, buffers, digest)
        except FileNotFoundError:  # somebody has removed the folder, or put another there
            self.prepare()
            digest, is_new = self._write(header, buffers, digest)
        if is_new:
            self.written_bytes += len(header) + sum(map(len, buffers))
            changes.note(self.root, digests=(digest,))
        return digest

    def _write(
        self, header: bytes, buffers: Sequence[memoryview], digest: str | None
    ) -> tuple[str, bool]:
        """Write a blob; return its hash, and whether it was not there."""
        nbytes = len(header) + sum(map(len, buffers))
        with files.new_file(self.root) as (path, fd):
            if digest is not None:
                files.write_all(fd, (header, *buffers))
                files.move_into_place(self.root, path, blob_name(digest))
                self._damaged.pop(digest, None)
                return digest, True  # whose hash is taken when it is read: here it was only said
            digest = _hash_beside(fd, header, buffers)
            if self._is_whole(digest, nbytes):
                os.unlink(path)
                return digest, False
            state = _signature(os.fstat(fd))
            files.move_into_place(self.root, path, blob_name(digest))
        self._damaged.pop(digest, None)
        _note(self._whole, digest, state)
        return digest, True

    def _is_whole(self, digest: str, nbytes: int) -> bool:
        """Say whether a blob is there as it should be; then it counts as used."""
        path = f"{self.root}/{blob_name(digest)}"
        try:
            found = os.stat(path)
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
            return False
        if self._whole.get(digest) != _signature(found) and self.read(digest) is None:
            return False
        self._touch(digest, found)
        return True

    def _touch(self, digest: str, found: os.stat_result) -> None:
        """Note that a blob was used. That is for gc to know, and nothing hangs on it."""
        if not self.read_only:
            touch(f"{self.root}/{blob_name(digest)}", found.st_mtime_ns)

    def _take_away(self, digest: str, state: _Signature) -> None:
        """Take a blob away that is not what its name says."""
        self._whole.pop(digest, None)
        _note(self._damaged, digest, state)
        tell_once(
            ("damaged", self.root),
            f"something kept in {self.root} was damaged, and is made again where it is needed "
            f"(the first: {blob_name(digest)})",
        )
        if not self.may_change():
            return
        path, aside = f"{self.root}/{blob_name(digest)}", files.unused_path(self.root)
        with suppress(OSError):
            os.rename(path, aside)
            found = os.lstat(aside)
            if _signature(found) != state:  # somebody has just put it right
                os.rename(aside, path)
            elif not stat.S_ISDIR(found.st_mode):
                os.unlink(aside)
        changes.note(self.root, digests=(digest,))

    def may_change(self) -> bool:
        """Say whether the folder is one that we write to, and not another by now."""
        with suppress(OSError):
            return not self.read_only and check_format(self.root)
        return False

    def _tell_unreadable(self, error: OSError) -> None:
        tell_once(
            ("unreadable", self.root),
            f"something kept in {self.root} cannot be read, and is made again where it is needed: "
            f"{describe_error(error)}",
        )


_SYNC_MS = 50.0
"""What took longer than this to compute is written so that it survives a power cut."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in its place is not waited for


def _note(table: dict[str, _Signature], digest: str, state: _Signature) -> None:
    if len(table) >= _MOST_NOTED:
        table.clear()  # then some hashes are taken again
    table[digest] = state


def _signature(found: os.stat_result) -> _Signature:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _can_be(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size >= _LEAST_BYTES


def _taken(fd: int, found: os.stat_result) -> memoryview | None:
    """Return the bytes of a file; None where they cannot be a frame's."""
    if not _can_be(found):
        return None
    try:
        if found.st_size >= MAP_FROM:
            return memoryview(map_file(fd, found.st_size))
        whole = bytearray(found.st_size)
        return memoryview(whole) if os.preadv(fd, [whole], 0) == len(whole) else None
    except ValueError:  # it has just become shorter
        return None


def _hash_beside(fd: int, header: bytes, buffers: Sequence[memoryview]) -> str:
    """Write a frame and return its hash, which is taken on another thread where that pays."""
    if sum(map(len, buffers)) < _HASH_BESIDE_FROM:
        files.write_all(fd, (header, *buffers))
        return hash_parts(header, buffers)
    found: list[str] = []
    beside = threading.Thread(
        target=lambda: found.append(hash_parts(header, buffers)), name="soma-hash", daemon=True
    )
    try:
        beside.start()
    except RuntimeError:  # the system gives no thread
        files.write_all(fd, (header, *buffers))
        return hash_parts(header, buffers)
    try:
        files.write_all(fd, (header, *buffers))
    finally:
        beside.join()
    return found[0] if found else hash_parts(header, buffers)
