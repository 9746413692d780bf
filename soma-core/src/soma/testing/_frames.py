"""What the suites of stores and tiers write: bytes, in pieces, and pieces that break."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from blake3 import blake3

from soma.contracts import Frame

__all__ = ["Breaking", "hash_of", "pieces_of", "whole"]


def hash_of(raw: bytes | str) -> str:
    """Return 64 hexadecimal digits, as keys and digests are: the BLAKE3 of the bytes."""
    return blake3(raw if isinstance(raw, bytes) else raw.encode()).hexdigest()


def whole(frame: Frame) -> bytes:
    """Return header and buffers in a row."""
    return b"".join((frame[0], *frame[1]))


def pieces_of(buffers: Iterable[memoryview]) -> list[bytes]:
    """Return the pieces one by one, as bytes that nobody changes."""
    return [bytes(one) for one in buffers]


class Breaking(Sequence[memoryview]):
    """Buffers of which the last cannot be had: as a file behind them that is cut short.

    Args:
        pieces: the buffers.
        looks: how often the last is given before it cannot be had any more; whoever measures the
            buffers first has looked once when he comes to write.
    """

    def __init__(self, pieces: Sequence[memoryview], looks: int) -> None:
        self._pieces = pieces
        self._left = looks

    def __len__(self) -> int:
        return len(self._pieces)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[memoryview]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        if place in (-1, len(self) - 1):
            self._left -= 1
            if self._left < 0:
                raise OSError("these buffers break off")
        return self._pieces[place]
