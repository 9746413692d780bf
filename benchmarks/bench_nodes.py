"""What a node costs beside its own work: building, compiling, running and hitting.

Targets: 10 us for a trivial node with the cache off, 40 us for one that hits in memory, 30 us to
build one; and per node at 10,000 nodes at most 1.5 times what it is at 1,000, in a chain and in a
fan-out. The floor is a loop over functions; the peer is Hamilton, its driver built beforehand.

A sample is of 10,000 nodes, whatever the size of the graph, so that a short one is not more often
undisturbed than a long one. Contestants take turns, and the quietest round counts.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from soma import Graph

ROUNDS = {"off": 6, "hit": 3, "build": 3, "compile": 3}
PEER_ROUNDS = 2
"""Of a peer's cached runs, which take long."""
SIZES = (1_000, 10_000)
SHAPES = ("chain", "fan-out")
WORK = max(SIZES)
RECURSION = 200_000
"""Hamilton walks a chain by recursion."""

NO_WHEEL = "no wheel for this Python"

Times = dict[str, float]
Sample = Callable[[], float]


class Add:
    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, x: int, state: Any) -> int:  # noqa: ARG002  # forward has its signature
        return x + self.number


def feeder(shape: str, number: int) -> int:
    return number - 1 if shape == "chain" else 0


def build(shape: str, size: int, cache: str) -> Graph:
    graph = Graph(cache=cache)
    graph.node("n0", Add(0))
    for number in range(1, size):
        graph.node(f"n{number}", Add(number))
        graph.edge(f"n{feeder(shape, number)}", f"n{number}")
    return graph


def build_without_ids(size: int) -> Graph:
    graph = Graph(cache="off")
    before = graph.node(Add(0))
    for number in range(1, size):
        after = graph.node(Add(number))
        graph.edge(before, after)
        before = after
    return graph


def check(graph: Graph, hits: int, computed: int) -> None:
    run = graph.last_run
    if run is None or (run.hits, len(run.computed)) != (hits, computed):
        raise RuntimeError(f"{hits} hits and {computed} computed expected, not {run!s:.80}")


def us_per_node(runs: list[Callable[[], Any]], size: int) -> float:
    gc.collect()  # nobody pays for what another left behind
    started = perf_counter()
    for run in runs:
        run()
    return (perf_counter() - started) / (len(runs) * size) * 1e6


def running(graph: Graph, size: int, *, hits: bool) -> float:
    took = us_per_node([partial(graph.forward, 1)] * (WORK // size), size)
    check(graph, size if hits else 0, 0 if hits else size)
    return took


def building(shape: str, size: int) -> float:
    return us_per_node([partial(build, shape, size, "off")] * (WORK // size), size)


def building_without_ids(size: int) -> float:
    return us_per_node([partial(build_without_ids, size)] * (WORK // size), size)


def compiling(shape: str, size: int) -> float:
    graphs = [build(shape, size, "off") for _ in range(WORK // size)]
    return us_per_node([graph.compile for graph in graphs], size)


def missing(shape: str, size: int) -> tuple[float, Graph]:
    """Return what a first run takes, and a graph that is warm by it."""
    graphs = [build(shape, size, "memory") for _ in range(WORK // size // 4 or 1)]
    for graph in graphs:
        graph.compile()
    took = us_per_node([partial(graph.forward, 1) for graph in graphs], size)
    for graph in graphs:
        check(graph, 0, size)
    return took, graphs[0]


def ours() -> tuple[dict[str, Sample], Times]:
    """Return what is sampled in turns with others, and what is measured once."""
    samples: dict[str, Sample] = {}
    once: Times = {}
    for shape in SHAPES:
        for size in SIZES:
            once[f"miss {shape} {size}"], warm = missing(shape, size)
            off = build(shape, size, "off")
            off.forward(1)
            samples[f"off {shape} {size}"] = partial(running, off, size, hits=False)
            samples[f"hit {shape} {size}"] = partial(running, warm, size, hits=True)
            samples[f"build {shape} {size}"] = partial(building, shape, size)
            samples[f"compile {shape} {size}"] = partial(compiling, shape, size)
    for size in SIZES:
        samples[f"build without-ids {size}"] = partial(building_without_ids, size)
    return samples, once


def increment(x: int) -> int:
    return x + 1


def loop(sources: list[list[int]]) -> int:
    outputs: dict[int, int] = {}
    for number, before in enumerate(sources):
        outputs[number] = increment(outputs[before[0]] if before else 1)
    return outputs[len(sources) - 1]


def looping(sources: list[list[int]]) -> float:
    return us_per_node([partial(loop, sources)] * (WORK // len(sources)), len(sources))


def floor() -> dict[str, Sample]:
    return {
        f"off {shape} {size}": partial(
            looping, [[], *([feeder(shape, number)] for number in range(1, size))]
        )
        for shape in SHAPES
        for size in SIZES
    }


def write_module(folder: Path, shape: str, size: int) -> tuple[str, Path]:
    lines = ["def n0(x: int) -> int:\n    return x\n"]
    for number in range(1, size):
        source = f"n{feeder(shape, number)}"
        lines.append(f"def n{number}({source}: int) -> int:\n    return {source} + {number}\n")
    name = f"bench_{shape.partition('-')[0]}_{size}"
    path = folder / f"{name}.py"
    path.write_text("\n".join(lines))
    return name, path


def load_module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def driven(driver: Any, shape: str, size: int) -> Callable[[], Any]:
    wanted = [f"n{size - 1}"] if shape == "chain" else [f"n{one}" for one in range(1, size)]
    return partial(driver.execute, wanted, inputs={"x": 1})


def with_deep_stack(sample: Sample) -> float:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION)
    try:
        return sample()
    finally:
        sys.setrecursionlimit(before)


def hamilton(folder: Path) -> tuple[dict[str, Sample], Times]:
    """Return what is sampled in turns with ours, and what takes too long for that."""
    builder: Any = importlib.import_module("hamilton.driver").Builder
    logging.getLogger("hamilton").setLevel(logging.CRITICAL)
    samples: dict[str, Sample] = {}
    once: Times = {}
    for shape in SHAPES:
        for size in SIZES:
            module = load_module(*write_module(folder, shape, size))
            started = perf_counter()
            driver = builder().with_modules(module).build()
            once[f"build {shape} {size}"] = (perf_counter() - started) / size * 1e6
            run = driven(driver, shape, size)
            sample = partial(us_per_node, [run] * (WORK // size), size)
            samples[f"off {shape} {size}"] = partial(with_deep_stack, sample)
    size = SIZES[0]
    module = sys.modules[f"bench_chain_{size}"]
    driver = builder().with_modules(module).with_cache(path=str(folder / "cache")).build()
    sample = partial(us_per_node, [driven(driver, "chain", size)], size)
    once[f"miss chain {size}"] = with_deep_stack(sample)
    once[f"hit chain {size}"] = min(with_deep_stack(sample) for _ in range(PEER_ROUNDS))
    return samples, once


def take_turns(contestants: dict[str, dict[str, Sample]]) -> dict[str, Times]:
    found: dict[str, Times] = {who: {} for who in contestants}
    # What was set up stays out of the garbage collector's way: peers must not slow each other.
    gc.collect()
    gc.freeze()
    most = max(ROUNDS.values())
    for number in range(most):
        for what in contestants["ours"]:
            if number % (most // ROUNDS[what.partition(" ")[0]]):
                continue
            for who, samples in contestants.items():
                if what in samples:
                    took = samples[what]()
                    found[who][what] = min(took, found[who].get(what, took))
    return found


def print_rows(what: str, name: str, found: dict[str, Times], target: float, growth: float) -> None:
    """Print a row for each size and one for how the cost of a node grows; 0 is no target."""
    few, many = keys = [f"{what} {size}" for size in SIZES]
    for size, key in zip(SIZES, keys, strict=True):
        figures = [found.get(who, {}).get(key) for who in ("ours", "loop", "hamilton")]
        print_row(f"{name}, {size:,} nodes", figures, target)
    ratios = []
    for who in ("ours", "loop", "hamilton"):
        times = found.get(who, {})
        ratios.append(times[many] / times[few] if few in times and many in times else None)
    print_row("    the second over the first", ratios, growth)


def print_row(title: str, figures: list[float | None], target: float) -> None:
    mine, *others = figures
    if mine is None:
        raise RuntimeError(f"{title}: not measured")
    line = f"{title:42}{mine:9.2f}{f'<= {target:g}' if target else '':>9}"
    for other in others:
        line += f"{'-':>11}{'-':>9}" if other is None else f"{other:11.2f}{mine / other:9.2f}"
    print(line + ("" if not target else "  ok" if mine <= target else "  MISSED"))


def main() -> None:
    once: dict[str, Times] = {}
    contestants = {"loop": floor()}
    contestants["ours"], once["ours"] = ours()
    installed = importlib.util.find_spec("hamilton") is not None
    with tempfile.TemporaryDirectory() as name:
        if installed:
            contestants["hamilton"], once["hamilton"] = hamilton(Path(name))
        found = take_turns(contestants)
    for who, times in once.items():
        found[who] |= times
    print(
        f"{'us per node':42}{'ours':>9}{'target':>9}{'loop':>11}{'ours/it':>9}"
        f"{'hamilton':>11}{'ours/it':>9}"
    )
    for shape in SHAPES:
        print_rows(f"off {shape}", f"cache off, {shape}", found, 10, 1.5)
    for shape in SHAPES:
        print_rows(f"hit {shape}", f"all hit in memory, {shape}", found, 40, 1.5)
    for shape in SHAPES:
        print_rows(f"miss {shape}", f"first run, all miss, {shape}", found, 0, 0)
    for shape in SHAPES:
        print_rows(f"build {shape}", f"build, {shape}", found, 30, 0)
    print_rows("build without-ids", "build without ids, chain", found, 30, 0)
    for shape in SHAPES:
        print_rows(f"compile {shape}", f"compile, {shape}", found, 0, 1.5)
    if not installed:
        print("hamilton: not installed (pip install -r benchmarks/requirements.txt)")
    # Its modules have the names of ours, so the two cannot be measured in one process.
    print("somatize: " + ("shares our names" if sys.version_info >= (3, 12) else NO_WHEEL))


if __name__ == "__main__":
    main()
