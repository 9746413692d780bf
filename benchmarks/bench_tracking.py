"""What recording a run costs: to begin and end one, and per event while it goes on.

Target: an empty ``with g.track_run(...)`` in 20 ms, without starting a process; graph.json grows
with the graph. The floor of an event is json.dumps and os.write: it writes the very lines of the
record again, one write each, in the same round. What the graph takes with a callback that does
nothing is taken off.

Contestants take turns, and the quietest round counts.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from soma import Filter, Graph
from soma.events import Event

ROUNDS = 7
BEGINNINGS = 30
TURNS = 5_000
"""Passes of a loop: two events each."""
METRICS = 10_000


class Step(Filter):
    _secret = ("token",)

    def __init__(self, token: str | None = None) -> None:
        self.token = token

    def forward(self, x: int, state: Any) -> int:  # noqa: ARG002  # forward has its signature
        return x + 1


def chain(size: int) -> Graph:
    graph = Graph(cache="off")
    before = graph.node(Step())
    for _ in range(size - 1):
        after = graph.node(Step())
        graph.edge(before, after)
        before = after
    return graph


def looping(token: str | None = None) -> Graph:
    graph = Graph(cache="off")
    graph.loop("l", Step(token), False, TURNS)  # noqa: FBT003  # it has no end but the number
    return graph


def seconds(work: Callable[[], Any]) -> float:
    gc.collect()  # nobody pays for what another left behind
    started = perf_counter()
    work()
    return perf_counter() - started


def empty_runs(graph: Graph, root: Path) -> float:
    """Return the median ms of a run in which nothing happens."""
    graph.compile()

    def once() -> None:
        with graph.track_run("bench", root):
            pass

    once()
    return statistics.median(seconds(once) for _ in range(BEGINNINGS)) * 1e3


def write_again(lines: list[Any], path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for line in lines:
            os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def heard(graph: Graph) -> float:
    """Return what a forward takes whose events somebody hears who does nothing."""

    def nothing(event: Event) -> None:
        pass

    with graph._events().subscribe(nothing, plain=False):  # noqa: SLF001  # as the record does
        return seconds(lambda: graph.forward(0))


def recorded(graph: Graph, root: Path) -> tuple[float, list[Any]]:
    with graph.track_run("bench", root) as run:
        took = seconds(lambda: graph.forward(0))
    if run.path is None:
        raise RuntimeError("nothing was recorded")
    return took, [json.loads(line) for line in (run.path / "events.jsonl").open()]


def logged(root: Path) -> tuple[float, list[Any]]:
    graph = Graph(cache="off")
    graph.node(Step())

    def work() -> None:
        for step in range(METRICS):
            run.log("loss", 0.5, step=step)

    with graph.track_run("bench", root) as run:
        took = seconds(work)
    if run.path is None:
        raise RuntimeError("nothing was recorded")
    names = ("events.jsonl", "metrics.jsonl")
    return took, [json.loads(line) for name in names for line in (run.path / name).open()]


def row(title: str, figure: float, target: float) -> None:
    """Print a figure; 0 is no target."""
    verdict = "" if not target else "  ok" if figure <= target else "  MISSED"
    print(f"{title:50}{figure:9.2f}{f'<= {target:g}' if target else '':>9}{verdict}")


def main() -> None:
    started: list[Any] = []
    real = subprocess.Popen.__init__

    def counted(self: Any, *args: Any, **how: Any) -> None:
        started.append(args)
        real(self, *args, **how)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]  # to count
    plain, secret = looping(), looping("sk-0123456789abcdef")
    contestants = ("heard", "record", "record, a secret", "floor", "log", "log floor")
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sizes = {size: empty_runs(chain(size), root) for size in (1, 100, 1_000)}
        for number in range(ROUNDS):
            floor = root / f"floor{number}"
            took: dict[str, float] = {"heard": heard(plain)}
            took["record"], lines = recorded(plain, root)
            took["floor"] = seconds(lambda: write_again(lines, floor))  # noqa: B023  # called now
            took["record, a secret"], _ = recorded(secret, root)
            events = len(lines)
            took["log"], lines = logged(root)
            took["log floor"] = seconds(lambda: write_again(lines, floor))  # noqa: B023  # as above
            best = {who: min(best[who], took[who]) for who in contestants}
    for size, ms in sizes.items():
        row(f"ms of an empty run, {size:,} nodes", ms, 20 if size <= 100 else 0)
    print(f"{'processes started':50}{len(started):9}{'none':>9}  {'MISSED' if started else 'ok'}")
    per = {who: best[who] / events * 1e6 for who in contestants[:4]}
    row("us per event, with a callback that does nothing", per["heard"], 0)
    row("us per event, json.dumps and os.write", per["floor"], 0)
    for who in ("record", "record, a secret"):
        over = per[who] - per["heard"]
        row(f"us per event, {who}, over that", over, 0)
        row("    ours/floor", over / per["floor"], 0)
    row("us per run.log, two lines each", best["log"] / METRICS * 1e6, 0)
    row("    ours/floor", best["log"] / best["log floor"], 0)


if __name__ == "__main__":
    main()
