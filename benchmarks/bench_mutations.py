"""A million mutated frames: each raises FrameError or CodecError, or is read. Nothing else.

The tests do the same with a few thousand (tests/core/test_frame_hostile.py); here is the long run.
Give a count to run fewer: python benchmarks/bench_mutations.py 10000
"""

from __future__ import annotations

import datetime as dt
import random
import resource
import sys
from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np

from soma.errors import CodecError, FrameError
from soma.frame import decode, encode

COUNT = 1_000_000
MEMORY_BYTES = 4 << 30

VALUES: list[Any] = [
    {"a": [1, 2.5, None], "b": {"c": (True, "text", b"bytes")}},
    [np.arange(6.0).reshape(2, 3), np.array([1, "a", None], dtype=object)],
    np.array([(1, 2.0)], dtype=[("a", "i1"), ("b", "<f8")]),
    np.array([(1, [2])], dtype=[("a", "i1"), ("b", object)]),
    {1, "a", (1, 2), frozenset({3})},
    [0.5] * 40,
    [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta(1), slice(1, 2), range(3), 2**70],
    "x" * 2000,
]


def mutate(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed))
        choice = rng.random()
        if choice < 0.7:
            changed[place] = rng.randrange(256)
        elif choice < 0.8:
            del changed[place : place + rng.randint(1, 8)]
        elif choice < 0.9:
            changed[place:place] = rng.randbytes(rng.randint(1, 8))
        else:
            changed = changed[: place + 1]
        if not changed:
            return b""
    return bytes(changed)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    rng = random.Random(0)  # noqa: S311  # damage, not secrets
    frames = [encode(value).to_bytes() for value in VALUES]
    outcomes: Counter[str] = Counter()
    started = perf_counter()
    for number in range(count):
        raw = mutate(frames[number % len(frames)], rng)
        try:
            decode(raw)
        except (FrameError, CodecError) as error:
            outcomes[type(error).__name__] += 1
        else:
            outcomes["read"] += 1
    took = perf_counter() - started
    found = ", ".join(f"{name} {number:,}" for name, number in sorted(outcomes.items()))
    print(f"{count:,} mutated frames in {took:.0f} s: {found}")


if __name__ == "__main__":
    main()
