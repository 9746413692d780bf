"""The action store in memory: records, blobs in least-recently-used order, claims.

What it holds is bounded by bytes. A blob that had to go leaves its record behind, so that keys
below it are still found, and whoever needs the value has it computed again.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any

from soma.contracts import ActionRecord, Frame
from soma.engine.blobs import Blob
from soma.engine.claims import Claims
from soma.errors import InvalidInput, UnknownName, did_you_mean, shown
from soma.frame import hash_parts

__all__ = ["DEFAULT_MAX_BYTES", "MemoryStore", "shared_store"]

DEFAULT_MAX_BYTES = 1 << 30
_MAX_RECORDS = 1 << 18


class MemoryStore:
    """An ``ActionStore`` that lives as long as the process. Safe for threads.

    Args:
        max_bytes: bytes of blobs that are kept; the least recently used go first. Pinned ones stay.

    Raises:
        InvalidInput: ``max_bytes`` is no whole number above 0.
    """

    tier = "Memory"
    """What ``NodeCacheHit`` events call it."""
    open_options = None
    """No other process can open it."""

    def __init__(self, max_bytes: int | None = None) -> None:
        limit: Any = DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0:
            raise InvalidInput(
                f"cache_max_bytes must be a whole number of bytes above 0, not {shown(limit)}"
            )
        self.max_bytes: int = limit
        self._lock = threading.RLock()  # a destructor may come back here
        self._records: OrderedDict[str, ActionRecord] = OrderedDict()
        self._blobs: OrderedDict[str, Blob] = OrderedDict()
        self._bytes = 0
        self._pins: dict[str, str] = {}
        self._claims = Claims()
        _all.add(self)

    def lookup(self, key: str) -> ActionRecord | None:
        """Return the record of ``key``; None is a miss."""
        return self._records.get(key)

    def write(self, frame: Frame, digest: str | None = None) -> str:
        """Keep a frame and return its content hash.

        Raises:
            OSError: it is larger than the whole store.
        """
        header, buffers = frame
        name = digest if digest is not None else hash_parts(header, buffers)
        with self._lock:
            if name in self._blobs:
                self._blobs.move_to_end(name)
                return name
        self._check_size(len(header) + sum(map(len, buffers)))
        self._hold(name, Blob(header, buffers))
        return name

    def adopt(self, blob: Blob, digest: str) -> None:
        """Keep a blob that lies in memory already, as it is. It is never written to.

        Raises:
            OSError: it is larger than the whole store.
        """
        if digest in self._blobs:
            return
        self._check_size(blob.nbytes)
        self._hold(digest, blob)

    def share(self, digest: str) -> Blob | None:
        """Return the blob itself, to be handed to another process; None when it is gone."""
        with self._lock:
            blob = self._blobs.get(digest)
            if blob is not None:
                self._blobs.move_to_end(digest)
        return blob

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise OSError(f"its {size} bytes are more than the store holds ({self.max_bytes})")

    def _hold(self, name: str, blob: Blob) -> None:
        with self._lock:
            if name not in self._blobs:
                self._blobs[name] = blob
                self._bytes += blob.nbytes
                self._shrink_to(self.max_bytes, spare=name)

    def read(self, digest: str) -> Frame | None:
        """Return the frame in memory of the caller's own; None when it is gone."""
        blob = self.share(digest)
        return None if blob is None else blob.frame()

    def has(self, digest: str) -> bool:
        """Say whether a blob is there."""
        return digest in self._blobs

    def commit(self, record: ActionRecord) -> None:
        """Make the record visible."""
        if not record.created_at:
            record = replace(record, created_at=time.time())
        with self._lock:
            self._records[record.key] = record
            self._records.move_to_end(record.key)
            while len(self._records) > _MAX_RECORDS:
                key, oldest = self._records.popitem(last=False)
                if key in self._pins.values():
                    self._records[key] = oldest

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Hold ``key`` while computing it, so that others wait for the result."""
        return self._claims.claim(key)

    def try_claim(self, key: str, who: str) -> AbstractContextManager[None] | None:
        """Hold ``key`` for another process, at once; None where somebody holds it.

        What is returned is entered already: leave it, from whatever thread.

        Args:
            key: the key.
            who: whom those who wait say that they wait for.
        """
        return self._claims.attempt(key, who)

    def holds_claim(self) -> bool:
        """Say whether this thread holds a claim: then it should wait for nobody."""
        return self._claims.held_here()

    def records(self) -> Iterator[ActionRecord]:
        """Yield every record, in no particular order."""
        with self._lock:
            found = list(self._records.values())
        return iter(found)

    def pin(self, name: str, key: str) -> None:
        """Keep the blobs of ``key`` from being evicted, under a name.

        Raises:
            UnknownName: there is no record of that key.
        """
        if key not in self._records:
            raise UnknownName(f"pin({name!r}): there is no record of the key {shown(key)}")
        with self._lock:
            self._pins[name] = key

    def unpin(self, name: str) -> None:
        """Take a pin away.

        Raises:
            KeyError: there is no pin of that name.
        """
        with self._lock:
            if name not in self._pins:
                raise KeyError(f"There is no pin {name!r}.{did_you_mean(name, self._pins)}")
            del self._pins[name]

    def stats(self) -> Mapping[str, float]:
        """Return counts, sizes in bytes and milliseconds of compute banked."""
        with self._lock:
            return {
                "records": len(self._records),
                "blobs": len(self._blobs),
                "bytes": self._bytes,
                "max_bytes": self.max_bytes,
                "compute_ms": sum(one.compute_ms for one in self._records.values()),
            }

    def gc(self, *, max_bytes: int, min_age_s: float = 0.0, dry_run: bool = False) -> int:  # noqa: ARG002  # blobs in memory have no age
        """Remove the least recently used blobs until ``max_bytes`` remain; return bytes freed."""
        with self._lock:
            return self._shrink_to(max_bytes, dry_run=dry_run)

    def verify(self) -> list[str]:
        """Return the digests whose blob does not have that hash."""
        with self._lock:
            blobs = list(self._blobs.items())
        return [digest for digest, blob in blobs if hash_parts(*blob.frame()) != digest]

    def _shrink_to(self, limit: int, *, spare: str = "", dry_run: bool = False) -> int:
        if self._bytes <= limit:
            return 0
        pinned = {
            digest
            for key in self._pins.values()
            if (record := self._records.get(key)) is not None
            for digest in record.outputs.values()
        }
        freed, going = 0, []
        for digest, blob in self._blobs.items():
            if self._bytes - freed <= limit:
                break
            if digest != spare and digest not in pinned:
                freed += blob.nbytes
                going.append(digest)
        if not dry_run:
            self._bytes -= freed
            for digest in going:
                del self._blobs[digest]
        return freed


_all: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _after_fork() -> None:
    """Give every store a lock of its own: a thread that did not come along may have held it."""
    for store in _all:
        store._lock = threading.RLock()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)


@cache
def shared_store() -> MemoryStore:
    """Return the store that the graphs of this process share."""
    return MemoryStore()
