"""What this process has seen of a cache: its records, and the bytes of what is small.

Held in memory, so that a second hit costs no system call. The records are those of the last 32,768
actions, some 100 MB at most; the bytes are bounded, and the least recently used go first.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from soma.contracts import ActionRecord
from soma_cache.records import unpack_inline

__all__ = ["Front"]

_MAX_RECORDS = 1 << 15
_MAX_LIES_IN = 1 << 17
_TIER = "Memory"


class Front:
    """Records and small blobs in memory. Safe for threads.

    Args:
        max_bytes: how many bytes of blobs are held.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.RLock()  # a destructor may come back here
        self._records: OrderedDict[str, ActionRecord] = OrderedDict()
        self._blobs: OrderedDict[str, bytes | str] = OrderedDict()
        """Digest -> the bytes; as they lie in a record, in base64, until they are asked for."""
        self._bytes = 0
        self._lies_in: OrderedDict[str, str] = OrderedDict()
        """Digest of an output that lies in a record -> the key of that record."""
        _all.add(self)

    def record(self, key: str) -> ActionRecord | None:
        """Return the record of a key, which says that it was in memory; None where it was not."""
        found = self._records.get(key)
        if found is None or found.tier == _TIER:
            return found
        again = replace(found, tier=_TIER)  # only now that it is asked for
        with self._lock:
            if self._records.get(key) is found:  # and not another, committed just now
                self._records[key] = again
        return again

    def add(self, record: ActionRecord, inline: Mapping[str, bytes] | Mapping[str, str]) -> None:
        """Have a record at hand, with the outputs that lie in it, as bytes or in base64."""
        with self._lock:
            self._records[record.key] = record
            while len(self._records) > _MAX_RECORDS:
                self._records.popitem(last=False)
            for digest, raw in inline.items():
                self._lies_in[digest] = record.key
                if digest not in self._blobs:
                    self._hold(digest, raw)
            while len(self._lies_in) > _MAX_LIES_IN:
                self._lies_in.popitem(last=False)

    def take_in(self, record: ActionRecord, inline: Mapping[str, str]) -> ActionRecord:
        """Have a record at hand that was read, and return it.

        Or the one that is at hand: it was committed while this one was read.
        """
        with self._lock:
            newer = self._records.get(record.key)
            if newer is None:
                self.add(record, inline)
            return newer or record

    def hold(self, digest: str, raw: bytes) -> None:
        """Have the bytes of a small blob at hand."""
        with self._lock:
            if digest not in self._blobs:
                self._hold(digest, raw)

    def _hold(self, digest: str, raw: bytes | str) -> None:
        self._blobs[digest] = raw
        self._bytes += len(raw)
        while self._bytes > self.max_bytes and len(self._blobs) > 1:
            self._bytes -= len(self._blobs.popitem(last=False)[1])

    def has(self, digest: str) -> bool:
        """Say whether a small blob is at hand, or lies in a record that is known."""
        return digest in self._blobs or digest in self._lies_in

    def blob(self, digest: str) -> bytes | None:
        """Return the bytes of a small blob, if they are at hand."""
        with self._lock:
            found = self._blobs.get(digest)
            if isinstance(found, str):
                return self._unpacked(digest, found)
            if found is not None:
                self._blobs.move_to_end(digest)
            return found

    def _unpacked(self, digest: str, text: str) -> bytes | None:
        self._bytes -= len(text)
        del self._blobs[digest]
        found = unpack_inline(text, digest)
        if found is None:
            self._lies_in.pop(digest, None)
        else:
            self._hold(digest, found)
        return found

    def lies_in(self, digest: str) -> str | None:
        """Return the key of the record in which a blob lies, if one is known."""
        return self._lies_in.get(digest)


_all: weakref.WeakSet[Front] = weakref.WeakSet()


def _after_fork() -> None:
    """Give every front a lock of its own: a thread that did not come along may have held it."""
    for front in _all:
        front._lock = threading.RLock()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
