"""Stores on disk in this process, and what is kept in them."""

from __future__ import annotations

from soma.contracts import ActionRecord
from soma.frame import decode_parts, encode
from soma_cache import DiskStore
from soma_cache.folder import Folder

__all__ = ["KEY", "LARGE", "MIDDLE", "OTHER", "keep", "opened", "value_of"]

KEY = "ab" * 32
OTHER = "cd" * 32
MIDDLE, LARGE = 100_000, 1 << 21


def opened(path, **choice):
    folder = Folder(str(path), **choice)
    if not choice.get("read_only"):
        folder.prepare()
    return DiskStore(folder)


def keep(store, *values, key=KEY, compute_ms=1.0, **more):
    written = [encode(value) for value in values]
    digests = [store.write((one.header, one.buffers)) for one in written]
    store.commit(
        ActionRecord(
            key=key,
            outputs={f"out {place}": digest for place, digest in enumerate(digests)},
            bytes={f"out {place}": one.nbytes for place, one in enumerate(written)},
            compute_ms=compute_ms,
            **more,
        )
    )
    return digests


def value_of(store, digest):
    found = store.read(digest)
    return None if found is None else decode_parts(*found)
