"""What a hit and a miss cost in memory, against BLAKE3 over the same bytes and against peers.

Targets: a chain of 5 hits over 10 MB at most 2 times BLAKE3 of its input; a hit of 100 MB at most
1.6 times that, and 8 times quicker than joblib; where the digest of the input is carried, 0.2 ms
and 2 times what 1 KB takes; a hit of 1 KB in 40 us. BLAKE3 runs with threads.

Contestants take turns; a figure is the median of the calls of a round, and the quietest round
counts. Results are let go between two calls, outside of the clock. What is timed is what it says:
after every call the report of the run is looked at, and peers count what they compute.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from soma import Graph

ROUNDS = 7
NODES = 5
STORE_BYTES = 4 << 30
SMALL, MIDDLE, LARGE = 1_000, 10_000_000, 100_000_000

COUNT = {"calls": 0}
"""What peers have computed since they were warm."""


class Step:
    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, x: Any, state: Any) -> Any:  # noqa: ARG002  # forward has its signature
        return x * np.float32(1 + self.number / 10)


class Make:
    """Makes much of little, so that the digest of much is known without hashing it again."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def forward(self, x: float, state: Any) -> Any:  # noqa: ARG002  # forward has its signature
        return np.full(self.nbytes // 4, x, dtype=np.float32)


def step(x: Any, number: int) -> Any:
    COUNT["calls"] += 1
    return x * np.float32(1 + number / 10)


class Contestant(NamedTuple):
    run: Callable[[], Any]
    calls: int
    """How often in a round."""
    check: Callable[[], None]
    """Raises if the last call did not do what is to be timed."""


def contest(contestants: dict[str, Contestant]) -> dict[str, float]:
    """Return the seconds of one call of each."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, one in contestants.items():
            samples = []
            for _ in range(one.calls):
                started = perf_counter()
                result = one.run()
                samples.append(perf_counter() - started)
                del result
                one.check()
            took = statistics.median(samples)
            best[name] = min(took, best.get(name, took))
    return best


def nothing() -> None:
    """Check nothing: of a floor there is nothing to be checked."""


def graph_of(*nodes: Any) -> Graph:
    graph = Graph(cache="memory", cache_max_bytes=STORE_BYTES)
    before = ""
    for number, node in enumerate(nodes):
        after = graph.node(f"n{number}", node)
        if before:
            graph.edge(before, after)
        before = after
    return graph


def check_run(graph: Graph, hits: int, computed: int) -> None:
    run = graph.last_run
    if run is None or (run.hits, len(run.computed)) != (hits, computed):
        raise RuntimeError(f"{hits} hits and {computed} computed expected, not {run}")


def hitting(graph: Graph, x: Any, calls: int) -> Contestant:
    graph.forward(x)
    check = partial(check_run, graph, hits=len(graph), computed=0)
    return Contestant(partial(graph.forward, x), calls, check)


def missing(graph: Graph, inputs: Iterator[Any], calls: int) -> Contestant:
    check = partial(check_run, graph, hits=0, computed=len(graph))
    return Contestant(lambda: graph.forward(next(inputs)), calls, check)


def floats(nbytes: int) -> Any:
    return np.random.default_rng(0).random(nbytes // 4, dtype=np.float32)


def hash_of(x: Any) -> bytes:
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update(x.view(np.uint8).data)
    return hasher.digest()


def hashing(x: Any, calls: int) -> Contestant:
    return Contestant(partial(hash_of, x), calls, nothing)


def counted(run: Callable[[], Any], calls: int) -> Contestant:
    """Return a contestant of a peer that hits: once it is warm nothing is computed any more."""
    run()
    COUNT["calls"] = 0

    def check() -> None:
        if COUNT["calls"]:
            raise RuntimeError("the peer computes what it was to have kept")

    return Contestant(run, calls, check)


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def joblib_steps(folder: Path, x: Any, nodes: int, calls: int) -> Contestant:
    memory = importlib.import_module("joblib").Memory(str(folder), verbose=0, mmap_mode="r")
    cached = memory.cache(step)

    def run() -> Any:
        value = x
        for number in range(nodes):
            value = cached(value, number)
        return value

    return counted(run, calls)


def hamilton_steps(folder: Path, x: Any, nodes: int, calls: int) -> Contestant:
    logging.getLogger("hamilton").setLevel(logging.CRITICAL)
    builder: Any = importlib.import_module("hamilton.driver").Builder
    lines = ["import numpy as np", "from __main__ import step"]
    for number in range(nodes):
        lines.append(f"def n{number + 1}(n{number}: np.ndarray) -> np.ndarray:")
        lines.append(f"    return step(n{number}, {number})")
    name = f"bench_steps_{nodes}"
    (folder / f"{name}.py").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
    driver = builder().with_modules(module).with_cache(path=str(folder)).build()
    return counted(partial(driver.execute, [f"n{nodes}"], inputs={"n0": x}), calls)


def print_row(
    title: str, ours: float, name: str, other: float | None, *, ratio: float = 0, limit: float = 0
) -> None:
    """Print one comparison. Targets: ``ratio`` to the other, ``limit`` in seconds; 0 is none."""
    line = f"{title:40}{shown(ours)}  {name:26}"
    if other is None:
        print(f"{line}  not installed")
        return
    line += f"{shown(other)}{ours / other:9.3f}"
    targets = []
    if ratio:
        targets.append(f"<= {ratio:.3g} x")
    if limit:
        targets.append(f"<= {shown(limit).lstrip()}")
    line += f"  {', '.join(targets):24}"
    if targets:
        kept = (not ratio or ours <= ratio * other) and (not limit or ours <= limit)
        line += "ok" if kept else "MISSED"
    print(line)


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:9.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:9.2f} ms"


def chain_of_hits(folder: Path) -> None:
    x = floats(MIDDLE)
    contestants = {
        "ours": hitting(graph_of(*map(Step, range(NODES))), x, 15),
        "BLAKE3": hashing(x, 15),
    }
    if is_there("joblib"):
        contestants["joblib"] = joblib_steps(folder, x, NODES, 2)
    if is_there("hamilton"):
        contestants["hamilton"] = hamilton_steps(folder, x, NODES, 2)
    took = contest(contestants)
    title = f"chain of {NODES} hits, 10 MB"
    print_row(title, took["ours"], "BLAKE3 of the input", took["BLAKE3"], ratio=2)
    print_row(title, took["ours"], "joblib, mapped", took.get("joblib"))
    print_row(title, took["ours"], "hamilton's cache", took.get("hamilton"))


def hit_with_carried_digest() -> None:
    took = contest(
        {
            "large": hitting(graph_of(Make(LARGE), Step(1)), 1.5, 40),
            "small": hitting(graph_of(Make(SMALL), Step(1)), 1.5, 40),
        }
    )
    print_row(
        "100 MB hit, digest carried",
        took["large"],
        "the same with 1 KB",
        took["small"],
        ratio=2,
        limit=0.2e-3,
    )


def hit_with_unknown_digest(folder: Path) -> None:
    x = floats(LARGE)
    contestants = {"ours": hitting(graph_of(Step(1)), x, 5), "BLAKE3": hashing(x, 5)}
    if is_there("joblib"):
        contestants["joblib"] = joblib_steps(folder, x, 1, 1)
    took = contest(contestants)
    title = "100 MB hit, digest unknown"
    print_row(title, took["ours"], "BLAKE3 of the input", took["BLAKE3"], ratio=1.6)
    print_row(title, took["ours"], "joblib, mapped", took.get("joblib"), ratio=1 / 8)


def small_ones(folder: Path) -> None:
    calls = 500
    rows = list(map(np.copy, np.random.default_rng(1).random((calls * ROUNDS, 250), np.float32)))
    contestants = {
        "hit": hitting(graph_of(Step(1)), rows[0], calls),
        "BLAKE3": hashing(rows[0], calls),
        "miss": missing(graph_of(Step(1)), iter(rows), calls),
        "compute": Contestant(lambda: rows[0] * np.float32(1.1), calls, nothing),
    }
    if is_there("joblib"):
        contestants["joblib"] = joblib_steps(folder, rows[0], 1, 100)
    took = contest(contestants)
    print_row("1 KB hit", took["hit"], "BLAKE3 of the input", took["BLAKE3"], limit=40e-6)
    print_row("1 KB hit", took["hit"], "joblib, mapped", took.get("joblib"))
    print_row("1 KB miss and store", took["miss"], "the node alone", took["compute"], limit=0.4e-3)


def large_misses() -> None:
    x, touched = floats(LARGE), np.ones(LARGE // 4, dtype=np.float32)

    def inputs() -> Iterator[Any]:
        while True:
            x[0] += 1
            yield x

    took = contest(
        {
            "miss": missing(graph_of(Step(1)), inputs(), 1),
            "memcpy": Contestant(partial(np.copyto, touched, x), 1, nothing),
            "copy": Contestant(x.copy, 1, nothing),
            "compute": Contestant(lambda: x * np.float32(1.1), 1, nothing),
        }
    )
    title = "100 MB miss and store"
    print_row(title, took["miss"], "memcpy, touched memory", took["memcpy"])
    print_row(title, took["miss"], "a copy, fresh memory", took["copy"])
    print_row(title, took["miss"], "the node alone", took["compute"])


def main() -> None:
    print(f"{'':40}{'ours':>12}  {'floor or peer':26}{'':12}{'ratio':>9}  target")
    with tempfile.TemporaryDirectory() as name:
        chain_of_hits(Path(name))
        hit_with_carried_digest()
        hit_with_unknown_digest(Path(name))
        small_ones(Path(name))
        large_misses()
    # Its modules have the names of ours, so the two cannot be measured in one process.
    wheel = sys.version_info >= (3, 12)
    print("somatize: " + ("shares our names" if wheel else "no wheel for this Python"))


if __name__ == "__main__":
    main()
