"""What both ends of a store's connection have: records as plain data, and the latest blobs.

Enough of the blobs that passed by are at hand that none has to be asked for at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from soma.contracts import ActionRecord
from soma.engine.blobs import Blob

__all__ = ["Recent", "plain_record"]

_MOST_BYTES = 256 << 20
_MOST = 64
"""Large ones hold a descriptor each."""


class Recent:
    """Digest -> blob, of the latest. The very last one stays, however large. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: OrderedDict[str, Blob] = OrderedDict()
        self._bytes = 0

    def add(self, digest: str, blob: Blob) -> None:
        """Have a blob at hand, and let go of the oldest where they are too many."""
        gone = []  # destroyed when the lock is free again
        with self._lock:
            before = self._blobs.pop(digest, None)
            if before is not None:
                self._bytes -= before.nbytes
                gone.append(before)
            self._blobs[digest] = blob
            self._bytes += blob.nbytes
            while len(self._blobs) > 1 and (self._bytes > _MOST_BYTES or len(self._blobs) > _MOST):
                oldest = self._blobs.popitem(last=False)[1]
                self._bytes -= oldest.nbytes
                gone.append(oldest)

    def get(self, digest: str) -> Blob | None:
        """Return the blob of a digest, if it is at hand."""
        return self._blobs.get(digest)


def plain_record(record: ActionRecord) -> dict[str, Any]:
    """Return a record as data that a message can say; ``ActionRecord(**...)`` is its inverse."""
    return {
        "key": record.key,
        "outputs": dict(record.outputs),
        "bytes": dict(record.bytes),
        "compute_ms": record.compute_ms,
        "name": record.name,
        "parts": dict(record.parts),
        "pickled": record.pickled,
        "effect": record.effect,
        "expensive": record.expensive,
        "origin": dict(record.origin),
        "created_at": record.created_at,
        "tier": record.tier,
    }
