"""What a remote tier has, as far as this process knows: it is not asked the same again and again.

What comes from there is checked before it counts: a record has to be whole, and nothing in it may
have been written with pickle, which would run code of whoever wrote it.
"""

from __future__ import annotations

import time
from typing import Any

from soma.errors import FrameError
from soma.frame import is_pickled
from soma_cache.records import Read, load_record, unpack_inline
from soma_cache.remote import Remote

__all__ = ["Afar"]

_MOST_NOTED = 1 << 17
_MISSED_S = 10.0
"""For how long it is not asked again for what it did not have."""


class Afar:
    """One remote tier, and what is known of it. Safe for threads.

    Args:
        remote: the tier.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._there: set[str] = set()
        """Digests that it has."""
        self._sizes: dict[str, int] = {}
        """Digest -> size in bytes of a blob that some record names."""
        self._missed: dict[str, float] = {}
        """Key or digest -> when it was not there."""

    def record(self, key: str) -> tuple[bytes, Read] | None:
        """Return a record as it lies there, and what it says; None where it may not be used."""
        if self._was_missed(key):
            return None
        raw = self.remote.record(key)
        found = None if raw is None else load_record(raw, key, tier="Remote")
        if raw is None or found is None or not _may_come_in(found):
            self._note_missed(key)
            return None
        self._there.update(set(found.record.outputs.values()) - found.inline.keys())
        return raw, found

    def blob(self, digest: str) -> memoryview | None:
        """Return the bytes of a blob; None where there are none that may be used."""
        raw = self.remote.blob(digest, self._sizes.get(digest))
        self._there.discard(digest)
        if raw is None or _is_refused(raw):
            self._note_missed(digest)
            return None
        return raw

    def has(self, digest: str) -> bool:
        """Say whether a blob seems to be there."""
        if digest in self._there:
            return True
        if self._was_missed(digest):
            return False
        if not self.remote.has(digest):
            self._note_missed(digest)
            return False
        self._there.add(digest)
        return True

    def note_sizes(self, found: Read) -> None:
        """Take in how large the blobs of a record are: as long may fetching them take."""
        _bound(self._sizes)
        for name, digest in found.record.outputs.items():
            if digest not in found.inline:
                self._sizes[digest] = found.record.bytes[name]

    def _note_missed(self, name: str) -> None:
        _bound(self._missed)
        self._missed[name] = time.monotonic()

    def _was_missed(self, name: str) -> bool:
        found = self._missed.get(name)
        return found is not None and time.monotonic() - found < _MISSED_S


def _bound(table: dict[str, Any]) -> None:
    if len(table) >= _MOST_NOTED:
        table.clear()


def _may_come_in(found: Read) -> bool:
    if found.record.pickled:
        return False
    raws = [unpack_inline(text, digest) for digest, text in found.inline.items()]
    return all(raw is not None and not _is_refused(raw) for raw in raws)


def _is_refused(raw: bytes | memoryview) -> bool:
    try:
        return is_pickled(raw)
    except FrameError:  # its hash is right: somebody has kept something else than a frame
        return True
