"""What hashing, writing and reading values costs, against BLAKE3 over the same bytes.

Targets: hashing 100 MB at most 1.3 times BLAKE3 with threads; encoding and decoding copy nothing; a
small value written and hashed in 10 us; identity and config of an unchanged filter in 6 us; a list
of 2,000,000 floats written and hashed in 0.3 s.
"""

from __future__ import annotations

import mmap
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from blake3 import blake3

from soma import Filter
from soma.frame import decode, encode
from soma.identity import NodeIdentity

ROUNDS = 15
RATE = 3


def helper(x: Any) -> Any:
    return x * RATE


class Scale(Filter):
    def __init__(self) -> None:
        self.factor = 2.0
        self.name = "scale"

    def fit(self, x: Any, y: Any = None) -> dict[str, Any]:  # noqa: ARG002  # fit has its signature
        return {"mean": np.mean(x)}

    def forward(self, x: Any, state: Any) -> Any:
        return helper(x - state["mean"]) * self.factor


def seconds(run: Callable[[], Any], calls: int = 1) -> float:
    """Return the median time of one call."""
    samples = []
    for _ in range(ROUNDS):
        started = perf_counter()
        for _ in range(calls):
            run()
        samples.append((perf_counter() - started) / calls)
    return statistics.median(samples)


def digest_of(value: Any) -> str:
    return encode(value).digest


def hash_of(raw: bytes) -> str:
    return blake3(raw).hexdigest()


def row(what: str, ours: float, floor: float, name: str) -> None:
    print(f"{what:44}{ours * 1e6:14,.1f} us{floor * 1e6:14,.1f} us{ours / floor:8.2f}  {name}")


def main() -> None:
    print(f"{'':44}{'ours':>17}{'floor':>17}{'ratio':>8}  floor")
    array = np.random.default_rng(0).random(12_500_000)
    raw = array.view(np.uint8).data

    def floor() -> bytes:
        hasher = blake3(max_threads=blake3.AUTO)
        hasher.update(raw)
        return hasher.digest()

    row("hash 100 MB", seconds(lambda: encode(array).digest), seconds(floor), "BLAKE3, threads")
    row("encode 100 MB, no hash", seconds(lambda: encode(array)), seconds(floor), "BLAKE3, threads")
    with tempfile.TemporaryFile() as file:
        file.writelines(encode(array).parts())
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            row(
                "decode 100 MB from a map",
                seconds(lambda: decode(mapped)),
                seconds(array.copy),
                "a copy",
            )
    small: dict[str, Any] = {"int": 3, "text": "abc", "list": [1, 2.5, "a"], "dict": {"a": 1}}
    for name, value in small.items():
        bytes_ = encode(value).to_bytes()
        row(
            f"write and hash a small {name}",
            seconds(partial(digest_of, value), 2000),
            seconds(partial(hash_of, bytes_), 2000),
            "BLAKE3 of the frame",
        )
    floats = [0.5 + number for number in range(2_000_000)]
    row(
        "write and hash 2,000,000 floats",
        seconds(lambda: encode(floats).digest),
        seconds(lambda: np.array(floats)),
        "np.array of the list",
    )
    reader = NodeIdentity("scale", Scale())
    reader.read()
    row(
        "identity and config, unchanged",
        seconds(reader.read, 2000),
        seconds(lambda: blake3(b"x" * 100).hexdigest(), 2000),
        "BLAKE3 of 100 bytes",
    )


if __name__ == "__main__":
    main()
