"""What the suites of stores and tiers write: bytes, in pieces, and pieces that break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import pytest
from blake3 import blake3

from soma.contracts import Frame

__all__ = ["Breaking", "assert_same_bytes", "assert_same_frame", "hash_of", "whole"]


def hash_of(raw: bytes | str) -> str:
    """Return 64 hexadecimal digits, as keys and digests are: the BLAKE3 of the bytes."""
    return blake3(raw if isinstance(raw, bytes) else raw.encode()).hexdigest()


def whole(frame: Frame) -> bytes:
    """Return header and buffers in a row."""
    return b"".join((frame[0], *frame[1]))


def assert_same_bytes(found: bytes, expected: bytes, what: str = "what came back") -> None:
    """Check that the bytes are those, and say where they part.

    pytest would compare them line by line where it runs under CI, which takes hours for megabytes.
    """
    if found == expected:
        return
    both = enumerate(zip(found, expected, strict=False))
    place = next((at for at, (one, other) in both if one != other), min(len(found), len(expected)))
    pytest.fail(
        f"{what} has {len(found):,} bytes, {len(expected):,} were expected, and differs from "
        f"byte {place:,}: {found[place : place + 8]!r}, not {expected[place : place + 8]!r}"
    )


def assert_same_frame(found: Frame, expected: Frame) -> None:
    """Check that header and buffers are those, piece by piece."""
    assert_same_bytes(found[0], expected[0], "the header")
    assert len(found[1]) == len(expected[1]), "it has another number of buffers"
    for place, (one, other) in enumerate(zip(found[1], expected[1], strict=True)):
        assert_same_bytes(bytes(one), bytes(other), f"buffer {place}")


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
