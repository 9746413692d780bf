"""What another process costs: to start, to be asked, and to be handed an array.

Targets: a child is ready in 1.2 times ``python -c "import soma, numpy"``; a warm call of 1 KB takes
1 ms; an argument and a result of 100 MB take 1.5 times one write of the same bytes into an
anonymous file plus their hash, each; 10,000 calls leave memory and descriptors as they were.

Contestants take turns, and the quietest round counts. Results are looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from soma import Filter, Graph
from soma.engine.blobs import Blob
from soma.frame import encode
from soma.sessions import LocalRunner
from soma.sessions.process import ChildProcess

ROUNDS = 7
SMALL = np.arange(128.0)
LARGE = np.random.default_rng(0).normal(size=12_500_000)  # 100 MB
CALLS = 10_000


class Swallow(Filter):
    """Takes anything and gives next to nothing."""

    _deterministic = False

    def forward(self, x: Any, state: None) -> float:  # noqa: ARG002  # a filter's form
        return float(x.flat[0])


class Give(Filter):
    """Gives 100 MB for next to nothing."""

    _deterministic = False

    def __init__(self) -> None:
        self._made: Any = None

    def forward(self, x: Any, state: None) -> Any:  # noqa: ARG002  # as above
        if self._made is None:
            self._made = np.random.default_rng(0).normal(size=12_500_000)
        return self._made


class Double(Filter):
    """The warm call of 1 KB."""

    def forward(self, x: Any, state: None) -> Any:  # noqa: ARG002  # as above
        return x * 2


def check(right: object) -> None:
    """Refuse to measure what is wrong."""
    if not right:
        raise SystemExit("a wrong result")


def quietest(*contestants: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Return the shortest time of each, in milliseconds."""
    best = [float("inf")] * len(contestants)
    for _ in range(rounds):
        for place, run in enumerate(contestants):
            started = perf_counter()
            run()
            best[place] = min(best[place], (perf_counter() - started) * 1e3)
    return best


def start() -> None:
    def ready() -> None:
        child = ChildProcess.start("bench")
        times.append(perf_counter() - began)
        child.close()

    times: list[float] = []
    best = float("inf")
    floor = float("inf")
    for _ in range(ROUNDS):
        began = perf_counter()
        subprocess.run([sys.executable, "-c", "import soma, numpy"], check=True)
        floor = min(floor, perf_counter() - began)
        began = perf_counter()
        ready()
        best = min(best, times[-1])
    print(f"child ready: {best * 1e3:.0f} ms, {best / floor:.2f} x import soma, numpy (target 1.2)")


def small() -> None:
    placed = Graph(cache="off")
    placed.node(Double())
    placed.add_worker("local://")
    g = Graph(cache="memory")
    g.node(Double())
    number = iter(range(1 << 30))

    def through_placing() -> None:
        for _ in range(100):
            placed.forward(SMALL)

    with LocalRunner() as runner, runner.open(g.program()) as session:

        def known() -> None:
            for _ in range(100):
                session.forward(SMALL)

        def unknown() -> None:
            for _ in range(100):
                session.forward(SMALL + next(number))

        check(np.array_equal(session.forward(SMALL), SMALL * 2))
        check(np.array_equal(placed.forward(SMALL), SMALL * 2))
        found = quietest(through_placing, known, unknown)
    names = ("a node at a worker", "a session, known", "a session, unknown and kept")
    for name, took in zip(names, found, strict=True):
        print(f"warm call of 1 KB, {name}: {took / 100:.3f} ms (target 1)")
    placed.shutdown_workers()


def large() -> None:
    def floor() -> None:
        encoded = encode(LARGE)
        Blob(encoded.header, encoded.buffers)
        encoded.digest  # noqa: B018  # hashes

    graphs = []
    for node in (Swallow(), Give()):
        g = Graph(cache="memory")
        g.node(node)
        graphs.append(g)
    with LocalRunner(count=2) as runner:
        swallow, give = (runner.open(g.program()) for g in graphs)
        check(swallow.forward(LARGE) == LARGE[0])
        check(give.forward(1).tobytes() == LARGE.tobytes())
        base, up, down = quietest(floor, lambda: swallow.forward(LARGE), lambda: give.forward(1))
    print(f"100 MB argument: {up:.0f} ms, {up / base:.2f} x a write and a hash (target 1.5)")
    print(f"100 MB result: {down:.0f} ms, {down / base:.2f} x a write and a hash (target 1.5)")


def leaks() -> None:
    def descriptors(pid: int | str) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    def resident(pid: int | str) -> float:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6

    g = Graph(cache="off")
    g.node(Double())
    g.add_worker("local://")
    for _ in range(500):
        g.forward(SMALL)
    pid = g._workers.members[0]._child.pid  # type: ignore[union-attr]  # noqa: SLF001  # to look at it
    before = [(descriptors(one), resident(one)) for one in ("self", pid)]
    large = LARGE[:200_000]
    for number in range(CALLS):
        g.forward(large if number % 10 == 0 else SMALL)
    after = [(descriptors(one), resident(one)) for one in ("self", pid)]
    for name, (fds, mb), (fds_now, mb_now) in zip(("parent", "child"), before, after, strict=True):
        print(f"{CALLS} calls, {name}: {fds_now - fds:+d} descriptors, {mb_now - mb:+.1f} MB")
    g.shutdown_workers()


if __name__ == "__main__":
    start()
    small()
    large()
    leaks()
