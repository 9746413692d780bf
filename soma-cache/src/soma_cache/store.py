"""The action store on disk: memory over a folder over a remote tier, where there is one.

    lookup   seen before? ──► the folder ──► the remote, whose record is then kept here as it is
    read     seen before? ──► the folder ──► the remote, whose blob is then kept here
    write    blobs first, the record last: the rename of the record is the moment it counts

Frames up to 2 KiB lie in the record. Where the folder cannot be written, what is computed is held
in the memory of this process, and what is there is still found.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

from soma import __version__
from soma._notices import tell_once
from soma.contracts import ActionRecord, Frame
from soma.engine.blobs import MAP_FROM, Blob
from soma.engine.claims import Claims
from soma.engine.memory import MemoryStore
from soma.errors import FrameError, InvalidInput, UnknownName, shown
from soma.frame import hash_parts, split
from soma_cache import listing
from soma_cache.afar import Afar
from soma_cache.folder import Folder
from soma_cache.front import Front
from soma_cache.layout import INLINE_BYTES, UnknownFormat, blob_name, is_hash
from soma_cache.limit import Limit
from soma_cache.locks import KeyLocks
from soma_cache.records import Read, unpack_inline
from soma_cache.remote import Remote

__all__ = ["DEFAULT_MAX_BYTES", "DiskStore"]

DEFAULT_MAX_BYTES = 1 << 30
"""Bytes of small values that a process holds in memory."""
_MOST_WRITTEN = 1 << 14
_MOST_MADE = 1 << 14
_PARTS = ("actions", "cas", "pins", "tmp", "locks")


class DiskStore:
    """An ``ActionStore`` in a folder. Safe for threads and processes.

    Made by ``open_store``, which finds the folder and says so where it cannot be used.

    Args:
        folder: the folder; what is computed is held in memory where that is read-only.
        remote: a tier behind it.
        max_bytes: bytes of small values that are held in memory.
        open_options: with what ``open_store`` opens the same in another process.
    """

    tier = "Local"
    """What ``NodeCacheHit`` events call a hit that does not say where it was."""
    inline_bytes = INLINE_BYTES
    """Frames up to this size lie in the record that names them."""

    def __init__(
        self,
        folder: Folder,
        *,
        remote: Remote | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        open_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.open_options = open_options
        self._folder = folder
        self._front = Front(max_bytes)
        self._spare = MemoryStore(max_bytes) if folder.read_only else None
        self._claims = Claims() if folder.read_only else _claims_of(folder)
        self._written: OrderedDict[str, bytes] = OrderedDict()
        """Digest -> the bytes of a small frame whose record was not committed yet."""
        self._afar = None if remote is None else Afar(remote)
        self._limit = Limit(folder)
        self._made: OrderedDict[str, ActionRecord] = OrderedDict()
        """Key -> record, of those that are held in memory since they cannot be written."""

    @property
    def path(self) -> str:
        """The folder."""
        return self._folder.root

    @property
    def read_only(self) -> bool:
        """Whether nothing is written to the folder."""
        return self._folder.read_only

    # Records

    def lookup(self, key: str) -> ActionRecord | None:
        """Return the record of ``key``; None is a miss. Takes no lock."""
        record = self._front.record(key)
        if record is not None:
            return record
        _check("key", key)
        found = self._folder.record(key, tier="Local")
        if self._afar is not None:
            found = self._promoted(key, self._afar) if found is None else found
            if found is not None:
                self._afar.note_sizes(found)
        if found is None:
            return None
        return self._front.take_in(found.record, found.inline)

    def peek(self, key: str) -> ActionRecord | None:
        """Return the record of ``key`` as ``lookup`` does, and change nothing anywhere.

        What a remote has is asked for as well, and not kept here.
        """
        _check("key", key)
        found = self._front.record(key)
        if found is not None:
            return found
        here = self._folder.record(key, tier="Local")
        if here is not None:
            return here.record
        there = None if self._afar is None else self._afar.record(key)
        return None if there is None else there[1].record

    def recent(self, name: str, limit: int) -> Iterator[ActionRecord]:
        """Yield the newest records of a class, the last one first.

        Where nothing can be written, those that this process has made come before all others.

        Args:
            name: class or function, with its module, as ``ActionRecord.name`` has it.
            limit: at most so many.

        Raises:
            SomaError: this Python has no SQLite, in which the index is kept.
        """
        from soma_cache.index import consult

        limit = max(0, limit)
        made = [one for one in list(self._made.values())[::-1] if one.name == name][:limit]
        yield from made
        seen, left = {record.key for record in made}, limit - len(made)
        for key in consult(self._folder, lambda tables: tables.newest(name, limit)):
            found = None if key in seen or not left else self._folder.record(key, tier="Local")
            if found is not None and found.record.name == name:
                left -= 1
                yield found.record

    def _promoted(self, key: str, afar: Afar) -> Read | None:
        """Return what the remote has recorded, and keep that here, as it is."""
        there = afar.record(key)
        if there is None:
            return None
        raw, found = there
        if self._spare is None:
            self._keep(lambda: self._folder.put_raw_record(key, raw))
        return found

    def _keep(self, put: Callable[[], object]) -> None:
        """Keep here what the remote has; where that cannot be, it is asked again the next time."""
        try:
            put()
        except OSError as error:
            tell_once(
                ("not kept", self.path, error.errno),
                f"what the remote cache has cannot be kept in {self.path}: {_text(error)}",
            )

    def commit(self, record: ActionRecord) -> None:
        """Make the record visible. Its blobs were written before: this is the commit point.

        Raises:
            OSError: the record could not be written; it is not visible.
        """
        _check("key", record.key)
        outputs = record.outputs.values()
        for digest in outputs:
            _check("digest", digest)
        record = replace(
            record,
            origin={**_here(), **record.origin},
            created_at=record.created_at or time.time(),
            tier="Memory",
        )
        small = {one: self._written.get(one) or self._small(one) for one in outputs}
        inline = {one: raw for one, raw in small.items() if raw and len(raw) <= INLINE_BYTES}
        if self._spare is not None:
            self._hold(record)
        else:
            with _NamingFolder(self.path):
                raw = self._folder.put_record(record, inline)
            if self._afar is not None and not record.pickled:
                self._push(self._afar.remote, record, raw, inline)
        self._front.add(record, inline)
        for digest in inline:
            self._written.pop(digest, None)

    def _hold(self, record: ActionRecord) -> None:
        self._made.pop(record.key, None)
        self._made[record.key] = record
        while len(self._made) > _MOST_MADE:
            self._made.popitem(last=False)

    def _push(
        self, remote: Remote, record: ActionRecord, raw: bytes, inline: dict[str, bytes]
    ) -> None:
        frames: dict[str, Frame] = {}
        for digest in {*record.outputs.values()} - inline.keys():
            whole = self._folder.read(digest)
            if whole is None:
                return
            frames[digest] = (b"", [whole])
        remote.push(record.key, raw, frames)

    def records(self) -> Iterator[ActionRecord]:
        """Yield every record, in no particular order; those that are damaged are left out."""
        for entry in listing.records(self.path):
            found = self._folder.record(entry.name, tier="Local")
            if found is not None:
                yield found.record

    # Blobs

    def write(self, frame: Frame, digest: str | None = None) -> str:
        """Keep a frame and return its content hash, which is ``digest`` where that is given.

        A small one is held until the record that names it is committed.

        Raises:
            OSError: it could not be kept; nothing is half written.
        """
        header, buffers = frame
        if digest is not None:
            _check("digest", digest)
        nbytes = len(header) + sum(map(len, buffers))
        if nbytes <= INLINE_BYTES:
            found = hash_parts(header, buffers)
            if digest is not None and digest != found:  # then nothing has that hash
                return digest
            self._written[found] = b"".join((header, *buffers))
            while len(self._written) > _MOST_WRITTEN:
                self._written.popitem(last=False)
            return found
        if self._spare is not None:
            return self._spare.write(frame, digest)
        with _NamingFolder(self.path):
            return self._folder.write(header, buffers, digest)

    def read(self, digest: str) -> Frame | None:
        """Return the frame, or None when it is gone or its hash is wrong.

        Its buffers are the caller's own: a private map of the file, or a copy where it is small.
        """
        small = self._small(digest)
        if small is not None:
            return _split(memoryview(bytearray(small)))
        if self._spare is not None and (kept := self._spare.read(digest)) is not None:
            return kept
        _check("digest", digest)
        found = self._folder.read(digest)
        if found is None and self._afar is not None:
            found = self._fetched(digest, self._afar)
        if found is None:
            return None
        if len(found) < MAP_FROM:
            self._front.hold(digest, bytes(found))
        return _split(found)

    def _small(self, digest: str) -> bytes | None:
        """Return the bytes of a frame that is in memory, or lies in a record that was seen."""
        raw = self._front.blob(digest) or self._written.get(digest)
        if raw is not None:
            return raw
        key = self._front.lies_in(digest)
        found = None if key is None else self._folder.record(key)
        text = None if found is None else found.inline.get(digest)
        return None if text is None else unpack_inline(text, digest)

    def _fetched(self, digest: str, afar: Afar) -> memoryview | None:
        """Return a blob that the remote has, and keep it here."""
        raw = afar.blob(digest)
        if raw is None:
            return None
        if self._spare is None:
            self._keep(lambda: self._folder.write(b"", [raw], digest))
            kept = self._folder.read(digest)
            if kept is not None:
                return kept
        return memoryview(bytearray(raw))

    def has(self, digest: str) -> bool:
        """Say whether a blob seems to be there, without reading it."""
        if self._front.has(digest) or digest in self._written:
            return True
        if self._spare is not None and self._spare.has(digest):
            return True
        return self._folder.has(digest) or (self._afar is not None and self._afar.has(digest))

    def share(self, digest: str) -> Blob | None:
        """Return the bytes of a frame to be handed to another process; None when it is gone."""
        found = self.read(digest)
        return None if found is None else Blob(bytes(found[0]), found[1])

    # Who computes what

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Hold ``key`` while computing it, so that other threads and processes wait."""
        return self._claims.claim(key)

    def try_claim(self, key: str, who: str) -> AbstractContextManager[None] | None:
        """Hold ``key`` for another process, at once; None where somebody holds it.

        Args:
            key: the key.
            who: whom those who wait say that they wait for.
        """
        return self._claims.attempt(key, who)

    def holds_claim(self) -> bool:
        """Say whether this thread holds a claim: then it should wait for nobody."""
        return self._claims.held_here()

    # Keeping house

    def pin(self, name: str, key: str) -> None:
        """Keep the blobs of ``key`` from every gc, under a name.

        Raises:
            InvalidInput: it is no name, or no key.
            UnknownName: there is no record of that key.
            OSError: the pin cannot be written.
        """
        from soma_cache import pins

        _check("key", key)
        if self.lookup(key) is None:
            raise UnknownName(f"pin({name!r}): there is no record of the key {shown(key)}")
        pins.pin(self._folder, name, key)

    def unpin(self, name: str) -> None:
        """Take a pin away.

        Raises:
            KeyError: there is no pin of that name.
        """
        from soma_cache import pins

        pins.unpin(self._folder, name)

    def stats(self) -> Mapping[str, float]:
        """Return counts, sizes in bytes and milliseconds of compute banked."""
        from soma_cache import survey

        return survey.stats(self._folder)

    def gc(self, *, max_bytes: int, min_age_s: float = 0.0, dry_run: bool = False) -> int:
        """Remove blobs of the least value until ``max_bytes`` remain; return bytes freed.

        Raises:
            InvalidInput: ``max_bytes`` or ``min_age_s`` is no such number.
            OSError: a blob cannot be removed, or the cache is read only.
        """
        from soma_cache.collecting import collect

        done = collect(self._folder, max_bytes=max_bytes, min_age_s=min_age_s, dry_run=dry_run)
        if done.failed:
            digest, why = done.failed[0]
            raise OSError(
                f"{len(done.failed):,} of {len(done.removed) + len(done.failed):,} values cannot "
                f"be removed; the first is {self.path}/{blob_name(digest)}: {why}"
            )
        return done.freed_bytes

    def verify(self) -> Sequence[str]:
        """Return the digests whose blob does not have that hash. Nothing is taken away.

        Raises:
            OSError: a file cannot be read.
        """
        from soma_cache.verifying import verify

        found = verify(self._folder, everything=True)
        if found.unreadable:
            name, why = found.unreadable[0]
            raise OSError(
                f"{len(found.unreadable):,} files cannot be read; the first is "
                f"{self.path}/{name}: {why}"
            )
        return list(found.blobs)

    def after_run(self) -> None:
        """Keep the folder below ``$SOMA_CACHE_MAX_SIZE``, where that is set.

        Raises:
            OSError: the folder cannot be listed, or changed.
        """
        self._limit.look_after()

    def flush(self, timeout_s: float = 60.0) -> bool:
        """Wait until the remote has what was computed so far; say whether it has."""
        return self._afar is None or self._afar.remote.flush(timeout_s)


def _claims_of(folder: Folder) -> Claims:
    """Return the claims on a folder, which all stores in it share: one thread, one claim."""
    with _lock:
        found = _claims.get(folder.root)
        if found is None:
            found = Claims(KeyLocks(f"{folder.root}/locks", prepare=folder.prepare))
            _claims[folder.root] = found
        return found


_claims: weakref.WeakValueDictionary[str, Claims] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # a thread that did not come along may have held it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _split(whole: memoryview) -> Frame | None:
    try:
        return split(whole)
    except FrameError:  # the hash is right: somebody has kept something else than a frame
        return None


class _NamingFolder:
    """Has an error of a folder say which folder, and not which of its thousand files."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, UnknownFormat):
            raise OSError(error.errno, _text(error), self._part_of(error)) from error

    def _part_of(self, error: OSError) -> str:
        """Return the folder, with the part of it that the error is about."""
        path = error.filename2 or error.filename or ""  # of a renaming, where it was to go
        below = str(path).removeprefix(f"{self._path}/")
        first = below.partition("/")[0]
        return f"{self._path}/{first}" if first in _PARTS else self._path


def _text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _check(what: str, text: Any) -> None:
    if not isinstance(text, str) or not is_hash(text):
        raise InvalidInput(f"a {what} is 64 hexadecimal digits in lower case, not {shown(text)}")


def _here() -> dict[str, str]:
    """Return what a record says of where it was made."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"host": platform.node(), "python": python, "soma": __version__}
