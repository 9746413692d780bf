"""A value that has been written: header, buffers, and the hash of all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from blake3 import blake3

__all__ = ["Encoded", "hash_parts"]

_THREADS_FROM = 1 << 20
"""Bytes from which hashing with all cores beats hashing with one."""
_max_threads = blake3.AUTO


def _after_fork() -> None:
    """Hash with one thread: BLAKE3's others did not come along, and would be waited for."""
    global _max_threads  # noqa: PLW0603  # of the process
    _max_threads = 1


os.register_at_fork(after_in_child=_after_fork)


class Encoded:
    """The frame of a value. The buffers are views: valid while nobody changes what they show."""

    __slots__ = ("_digest", "_original", "_rearranged", "_shared", "buffers", "header", "pickled")

    def __init__(
        self,
        header: bytes,
        buffers: tuple[memoryview, ...],
        *,
        pickled: bool,
        original: Any,
        rearranged: bool,
        shared: bool = False,
    ) -> None:
        self.header = header
        """Preamble, header and padding."""
        self.buffers = buffers
        """What follows, padding included: header and buffers in a row are the frame."""
        self.pickled = pickled
        """Whether some of it was written with pickle, which only the local store may hold."""
        self._original = original
        self._rearranged = rearranged
        self._shared = shared
        self._digest = ""

    @property
    def nbytes(self) -> int:
        """Size of the frame in bytes."""
        return len(self.header) + sum(map(len, self.buffers))

    @property
    def digest(self) -> str:
        """The content hash: BLAKE3 of the frame, in hexadecimal."""
        if not self._digest:
            self._digest = hash_parts(self.header, self.buffers)
        return self._digest

    @property
    def known_digest(self) -> str:
        """The content hash if it has been asked for before, else an empty text."""
        return self._digest

    def know_digest(self, digest: str) -> None:
        """Take over a hash that somebody has taken while writing the frame."""
        self._digest = digest

    @property
    def value(self) -> Any:
        """What goes on instead of the value that was given.

        That value itself, unless reading the frame gives something that can be told from it: then
        what reading it gives. So it is with an array that was neither C- nor F-contiguous (sums
        differ in the last bit), lies askew in memory or cannot be written to; with a set, whose
        members come in the order of their bytes; and with one list, dict or array at two places.
        """
        if not (self._rearranged or self._shared):
            return self._original
        from soma.frame.decode import decode_parts

        buffers = self.buffers
        if self._shared:
            buffers = tuple(memoryview(bytearray(piece)) for piece in buffers)
        return decode_parts(self.header, buffers, allow_pickle=True)

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield header and buffers, in the order in which they are written."""
        yield self.header
        yield from self.buffers

    def to_bytes(self) -> bytes:
        """Return the frame in one piece, which copies every buffer."""
        return b"".join(self.parts())


def hash_parts(header: bytes, buffers: Sequence[memoryview]) -> str:
    """Return the BLAKE3 of header and buffers in a row, in hexadecimal."""
    if not buffers:
        return blake3(header).hexdigest()
    large = any(len(one) >= _THREADS_FROM for one in buffers)
    hasher = blake3(max_threads=_max_threads if large else 1)
    hasher.update(header)
    for one in buffers:
        hasher.update(one)
    return hasher.hexdigest()
