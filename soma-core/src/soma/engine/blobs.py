"""The bytes of one frame, shared by all who take the value.

    Blob(header, buffers) ──► .frame() ──► (header, buffers) that belong to the taker alone

From 1 MiB the buffers lie in an anonymous file, and every taker gets a private map of it: writable,
copied page by page only where somebody writes. Smaller ones are copied. Such a file can be handed
to another process as it is: its descriptor travels, and its bytes stay where they are. Where no
descriptor is left (descriptors.py) or the file cannot be made, large ones are kept and taken as
plain memory.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from soma.contracts import Frame
from soma.engine import descriptors

__all__ = ["MAP_FROM", "Blob", "map_file", "private_frame"]

MAP_FROM = 1 << 20
"""Bytes of buffers from which a frame is mapped instead of copied."""
_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # F_SEAL_SEAL, SHRINK, GROW, WRITE
_F_ADD_SEALS = 1033


class Blob:
    """One frame, which nobody changes any more."""

    __slots__ = ("_fd", "_pieces", "header", "lengths", "nbytes")

    def __init__(self, header: bytes, buffers: Sequence[memoryview]) -> None:
        self.header = header
        self.lengths = tuple(map(len, buffers))
        size = sum(self.lengths)
        self.nbytes = len(header) + size
        """Size of the frame in bytes."""
        self._fd = _write_file(buffers) if size >= MAP_FROM else -1
        self._pieces: tuple[bytes, ...] = tuple(map(bytes, buffers)) if self._fd < 0 else ()

    @classmethod
    def of_file(cls, header: bytes, lengths: Sequence[int], fd: int) -> Blob:
        """Return the frame whose buffers lie in an anonymous file, which is taken over.

        Where no descriptor may be held, they are read into memory and the file is closed.

        Raises:
            OSError: the file does not have so many bytes, or cannot be read.
        """
        made = cls.__new__(cls)
        made._take_over(header, tuple(lengths), fd)  # noqa: SLF001  # the class's own
        return made

    def _take_over(self, header: bytes, lengths: tuple[int, ...], fd: int) -> None:
        self.header, self.lengths = header, lengths
        self._fd, self._pieces = -1, ()
        size = sum(lengths)
        self.nbytes = len(header) + size
        try:
            if os.fstat(fd).st_size < size:
                raise OSError(f"a frame of {size} bytes came in a file of fewer")
            if descriptors.reserve():
                self._fd, fd = fd, -1
                return
            whole = bytearray(size)
            _read_into(fd, memoryview(whole))
            self._pieces = tuple(_cut(whole, lengths))
        finally:
            if fd >= 0:
                os.close(fd)

    @property
    def fd(self) -> int:
        """Descriptor of the file that holds the buffers; -1 where they are in memory."""
        return self._fd

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The buffers, where they are in memory."""
        return self._pieces

    def frame(self) -> Frame:
        """Return the frame in memory that belongs to the caller: it may be written to."""
        if self._fd < 0:
            return self.header, [memoryview(bytearray(piece)) for piece in self._pieces]
        size = sum(self.lengths)
        whole = memoryview(map_file(self._fd, size))
        ends = list(accumulate(self.lengths))
        return self.header, [
            whole[end - length : end] for end, length in zip(ends, self.lengths, strict=True)
        ]

    def parts(self) -> Iterable[Any]:
        """Yield header and buffers, for reading only."""
        if self._fd < 0:
            return (self.header, *self._pieces)
        header, buffers = self.frame()
        return (header, *buffers)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            descriptors.release()


def private_frame(header: bytes, buffers: Sequence[memoryview]) -> Frame:
    """Return a copy of a frame that belongs to the caller."""
    return header, [memoryview(bytearray(piece)) for piece in buffers]


class _Map(mmap.mmap):
    """A map that gives its descriptor back when the last array in it is gone."""

    counted = False  # one that could not be made is finalized as well

    def __del__(self) -> None:
        if self.counted:
            descriptors.release()


def map_file(fd: int, size: int) -> Any:
    """Return the first bytes of a file as memory that belongs to the caller: a private map.

    The map outlives the descriptor. Where no descriptor may be held for it, they are read instead.

    Raises:
        OSError: the file cannot be read, or has fewer bytes.
    """
    if descriptors.reserve():
        try:
            made = _Map(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError:  # other code of this process has taken the rest
            descriptors.release()
        else:
            made.counted = True
            return made
    fresh = bytearray(size)
    _read_into(fd, memoryview(fresh))
    return fresh


def _read_into(fd: int, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], done)
        if count == 0:
            raise OSError(f"a file of {len(view)} bytes ends after {done}")
        done += count


def _cut(whole: bytearray, lengths: Sequence[int]) -> Iterable[bytes]:
    ends = accumulate(lengths)
    return (bytes(whole[end - length : end]) for end, length in zip(ends, lengths, strict=True))


def _write_file(buffers: Sequence[memoryview]) -> int:
    """Return the descriptor of an anonymous file with the buffers in it; -1 if there is none."""
    if not descriptors.reserve():
        return -1
    fd = -1
    try:
        fd, sealable = _anonymous_file()
        for buffer in buffers:
            done = 0
            while done < len(buffer):
                done += os.write(fd, buffer[done:])
        if sealable:
            fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
    except BaseException as error:
        descriptors.release()
        if fd >= 0:
            os.close(fd)
        if not isinstance(error, OSError):  # Ctrl-C in the middle of it
            raise
        return -1  # no memory for it, or not one descriptor
    return fd


def _anonymous_file() -> tuple[int, bool]:
    """Return (descriptor, whether it can be sealed against writing)."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # a sandbox may refuse it
            return os.memfd_create("soma", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), True
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno()), False
