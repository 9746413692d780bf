"""A type of our own, and how it is written down: beside each other, so that they never part."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A sampled signal."""

    hz: float
    samples: tuple[float, ...]


class ReadingCodec:
    """Writes hz, then the samples, each as a little-endian double."""

    kind = "soma_example.Reading"
    type_name = "soma_example.reading.Reading"

    def dump(self, obj: Reading, /) -> bytes:
        """Return the bytes of a Reading."""
        return struct.pack(f"<{1 + len(obj.samples)}d", obj.hz, *obj.samples)

    def load(self, raw: bytes, /) -> Reading:
        """Return the Reading in the bytes."""
        hz, *samples = struct.unpack(f"<{len(raw) // 8}d", raw)
        return Reading(hz, tuple(samples))


CODEC = ReadingCodec()
