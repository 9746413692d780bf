"""What hits and misses cost on disk, against floors and peers of the same run.

Targets: a hit of 100 MB at most 1.6 times BLAKE3 of the input, and 8 times quicker than joblib; a
chain of 5 hits over 10 MB at most 2 times BLAKE3; a hit of 1 KB from disk in 60 us, from memory in
40 us; a miss of 1 KB at most 2.5 times two files written, synced and renamed, and 0.4 ms where no
sync is asked; 100 us a node for a process that finds a chain of 10,000 nodes; a hit no slower among
100,000 records. BLAKE3 runs with threads.

Contestants take turns. A figure is the median over rounds of a round's median, a ratio the median
of the rounds' ratios. Results are let go, and files taken away, outside of the clock. After every
call the report of the run is looked at; peers count what they compute. "From disk" is the first
look of this process at what another has stored; the pages are in memory. The original shares our
import name and has wheels for other Pythons: it runs in a process of its own, where one is found.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from soma import Graph
from soma.contracts import ActionRecord
from soma.frame import encode
from soma_cache.opening import open_store

NODES = 5
SMALL, MEGABYTE, MIDDLE, LARGE = 1_000, 1_000_000, 10_000_000, 100_000_000
SMALL_CALLS = 200
WAIT_S = 55

COUNT = {"calls": 0}
"""What peers have computed since they were warm."""


class Step:
    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, x: Any, state: Any) -> Any:  # noqa: ARG002  # forward has its signature
        return x * np.float32(1 + self.number / 10)


class Add:
    """A node that does next to nothing."""

    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, x: float, state: Any) -> float:  # noqa: ARG002  # forward has its signature
        return x + self.number


class HandOut:
    """Gives arrays that lie ready, so that only keeping them takes time."""

    def __init__(self) -> None:
        self._ready: list[Any] = []

    def lay_ready(self) -> None:
        self._ready[:] = [np.ones(LARGE // 4, dtype=np.float32)]

    def forward(self, x: float, state: Any) -> Any:  # noqa: ARG002  # forward has its signature
        made = self._ready.pop()
        made[0] = x
        return made


def step(x: Any, number: int) -> Any:
    COUNT["calls"] += 1
    return x * np.float32(1 + number / 10)


def nothing() -> None:
    """Check nothing: of a floor there is nothing to be checked."""


class Contestant(NamedTuple):
    run: Callable[[], Any]
    calls: int
    """How often in a round."""
    check: Callable[[], None] = nothing
    """Raises if the last call did not do what is to be timed, and tidies up."""
    prepare: Callable[[], None] = nothing


def contest(contestants: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of one call of each, round by round."""
    took: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, one in contestants.items():
            samples = []
            gc.collect()  # what others have left is not this one's
            for _ in range(one.calls):
                one.prepare()
                started = perf_counter()
                result = one.run()
                samples.append(perf_counter() - started)
                del result
                one.check()
            took[name].append(statistics.median(samples))
    return took


def print_row(
    title: str,
    ours: list[float],
    name: str,
    other: list[float] | None,
    *,
    ratio: float = 0,
    limit: float = 0,
) -> None:
    """Print one comparison. Targets: ``ratio`` to the other, ``limit`` in seconds; 0 is none."""
    mine = statistics.median(ours)
    line = f"{title:40}{shown(mine)}  {name:30}"
    if other is None:
        print(f"{line}  not installed here", flush=True)
        return
    times = statistics.median(a / b for a, b in zip(ours, cycle(other), strict=False))
    line += f"{shown(statistics.median(other))}{times:9.3f}"
    targets = []
    if ratio:
        targets.append(f"<= {ratio:.3g} x")
    if limit:
        targets.append(f"<= {shown(limit).strip()}")
    line += f"  {', '.join(targets):24}"
    if targets:
        kept = (not ratio or times <= ratio) and (not limit or mine <= limit)
        line += "ok" if kept else "MISSED"
    print(line, flush=True)


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:9.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:9.2f} ms"


# Ours


def disk_graph(folder: Path, *nodes: Any) -> Graph:
    graph, before = Graph(cache="disk", cache_path=folder), ""
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


def over(
    graph: Graph, inputs: Iterable[Any], calls: int, *, hit: bool, prepare: Any = nothing
) -> Contestant:
    """Return the contestant that is given one input after the other, each of them once."""
    left = iter(inputs)
    hits, computed = (len(graph), 0) if hit else (0, len(graph))
    check = partial(check_run, graph, hits=hits, computed=computed)
    return Contestant(lambda: graph.forward(next(left)), calls, check, prepare)


def floats(nbytes: int) -> Any:
    return np.random.default_rng(0).random(nbytes // 4, dtype=np.float32)


def rows(number: int, seed: int = 1) -> list[Any]:
    """Return so many arrays of 1 KB."""
    made = np.random.default_rng(seed).random((number, SMALL // 4), dtype=np.float32)
    return list(map(np.copy, made))


# Floors and peers


def hash_of(x: Any) -> bytes:
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update(x.view(np.uint8).data)
    return hasher.digest()


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def hashing(x: Any, calls: int) -> Contestant:
    return Contestant(partial(hash_of, x), calls)


def write_file(folder: Path, name: str, data: Any, *, sync: bool) -> None:
    """Write a file as it is done where it has to be there whole or not at all."""
    temporary = f"{folder}/{name}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]
    if sync:
        os.fsync(fd)
    os.close(fd)
    Path(temporary).rename(f"{folder}/{name}")


def writing(folder: Path, calls: int, files: int, *, sync: bool) -> Contestant:
    """Return the floor of a small miss: so many files of 1 KB.

    They are made where the store makes its own: what a new file costs differs from one part of a
    disk to the next.
    """
    numbers, data = count(), bytes(range(250)) * 4

    def run() -> None:
        for _ in range(files):
            write_file(folder, f"f{next(numbers)}", data, sync=sync)

    return Contestant(run, calls)


def parsing(folder: Path, calls: int) -> Contestant:
    """Return the floor of a small hit: reading one record after the other."""
    paths = cycle([str(one) for one in folder.glob("actions/*/*.json")])

    def run() -> Any:
        fd = os.open(next(paths), os.O_RDONLY)
        raw = os.read(fd, 1 << 16)
        os.close(fd)
        return json.loads(raw)

    return Contestant(run, calls)


def joblib_steps(
    folder: Path, x: Any, calls: int, *, nodes: int = 1, mapped: bool = True
) -> Contestant:
    memory: Any = importlib.import_module("joblib").Memory
    cached = memory(str(folder), verbose=0, mmap_mode="r" if mapped else None).cache(step)

    def run() -> Any:
        value = x
        for number in range(nodes):
            value = cached(value, number)
        return value

    run()
    COUNT["calls"] = 0
    return Contestant(run, calls, check_nothing_computed)


def diskcache_by_hand(folder: Path, inputs: Iterator[Any], calls: int, *, hit: bool) -> Contestant:
    """Return what people write who know that a key should be small."""
    cache = importlib.import_module("diskcache").Cache(str(folder), size_limit=1 << 40)

    def run() -> Any:
        x = next(inputs)
        key = "step" + hashlib.blake2b(x, digest_size=32).hexdigest()
        found = cache.get(key)
        if found is None:
            found = cache[key] = step(x, 0)
        return found

    if hit:
        run()
    COUNT["calls"] = 0
    return Contestant(run, calls, check_nothing_computed if hit else nothing)


def check_nothing_computed() -> None:
    if COUNT["calls"]:
        raise RuntimeError("the peer computes what it was to have kept")


ORIGINAL = """
import json, statistics, sys, time
import numpy as np, soma
COUNT = [0]
class Step(soma.Filter):
    _kind = "stateless"
    def __init__(self, number): self.number = number
    def forward(self, x, state):
        COUNT[0] += 1
        return np.asarray(x, dtype=np.float32) * np.float32(1 + self.number / 10)
def run(title, size, nodes, calls, hit=True):
    g = soma.Graph(cache="local", cache_path=sys.argv[1] + "/" + title.replace(" ", "-"))
    for n in range(nodes):
        g.node(f"n{n}", Step(n))
        if n: g.edge(f"n{n-1}", f"n{n}")
    g.mark_fitted()
    x = np.random.default_rng(0).random(size // 4, dtype=np.float32)
    g.forward(x)
    before, took = COUNT[0], []
    for n in range(calls):
        if not hit: x[0] = n + 2
        began = time.perf_counter(); g.forward(x); took.append(time.perf_counter() - began)
    if hit and COUNT[0] != before: raise SystemExit("it computes what it was to have kept")
    print(json.dumps([title, statistics.median(took)]), flush=True)
run("1 KB miss", 1000, 1, 100, False)
run("1 KB hit", 1000, 1, 300)
run("1 MB hit", 1000000, 1, 9)
run("chain", 10000000, 5, 3)
if len(sys.argv) > 2: run("100 MB hit", 100000000, 1, 3)
"""


def original(folder: Path, python: str, *, quick: bool) -> dict[str, list[float]]:
    """Return what the original takes; nothing where it cannot be had within a minute."""
    found: dict[str, list[float]] = {}
    try:
        python = python or ("" if quick else original_installed(folder / "venv"))
        if python:
            command = [python, "-I", "-c", ORIGINAL, str(folder), *([] if quick else ["large"])]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
            for line in done.stdout.splitlines():
                title, took = json.loads(line)
                found[title] = [took]
    except (OSError, subprocess.SubprocessError) as error:
        print(f"the original: {type(error).__name__}", flush=True)
    return found


def original_installed(folder: Path) -> str:
    """Return a Python that has the original; empty where this machine has none for its wheels."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for found in sorted((*versions.glob("3.12.*/bin/python"), *versions.glob("3.13.*/bin/python"))):
        subprocess.run([found, "-m", "venv", folder], check=True, timeout=WAIT_S)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", "somatize==0.5.1", "numpy"]
        subprocess.run(install, check=True, timeout=WAIT_S, capture_output=True)
        return python
    return ""


# What other processes do


def ask_child(what: str, *arguments: Any) -> Any:
    """Run a part of this file in another process, and return what it says."""
    command = [sys.executable, __file__, "--child", what, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def child_stores(folder: str, number: str, steps: str) -> float:
    """Store what small inputs give."""
    graph, started = disk_graph(Path(folder), Step(int(steps))), perf_counter()
    for x in rows(int(number)):
        graph.forward(x)
    return perf_counter() - started


def child_commits(folder: str, number: str) -> float:
    """Put records into a store that look like those of some other work."""
    store: Any = open_store(folder)
    chance, started = random.Random(0), perf_counter()  # noqa: S311  # names, not secrets
    for index in range(int(number)):
        frame = encode(float(index))
        digest = store.write((frame.header, frame.buffers))
        key = chance.randbytes(32).hex()
        sizes, made = {"output": frame.nbytes}, {"output": digest}
        store.commit(ActionRecord(key=key, outputs=made, bytes=sizes, compute_ms=1.0, name="m.F"))
    return perf_counter() - started


def child_hits_once(folder: str, peers: str) -> dict[str, float]:
    """Return what the first hit of this process takes."""
    x, found = floats(LARGE), {}
    graph = disk_graph(Path(folder) / "ours", Step(0))
    runs: dict[str, Callable[[], Any]] = {"ours": partial(graph.forward, x)}
    if "joblib" in peers:
        memory: Any = importlib.import_module("joblib").Memory
        mapped = memory(f"{folder}/joblib", verbose=0, mmap_mode="r").cache(step)
        runs["joblib"] = partial(mapped, x, 0)
    if "diskcache" in peers:
        cache = importlib.import_module("diskcache").Cache(f"{folder}/diskcache")
        runs["diskcache"] = lambda: cache[f"step{hashlib.blake2b(x, digest_size=32).hexdigest()}"]
    runs["BLAKE3"] = partial(hash_of, x)
    for name, run in runs.items():
        started = perf_counter()
        run()
        found[name] = perf_counter() - started
    check_run(graph, hits=1, computed=0)
    check_nothing_computed()
    return found


def child_chains(folder: str, nodes: str) -> dict[str, float]:
    """Return what a node takes in a long chain: without a cache, the first time, and again."""
    number, found = int(nodes), {}
    graph = disk_graph(Path(folder), *map(Add, range(number)))
    bare = Graph(cache="off")
    for at in range(number):
        bare.node(f"n{at}", Add(at))
        if at:
            bare.edge(f"n{at - 1}", f"n{at}")
    for name, one in (("off", bare), ("first", graph), ("again", graph)):
        one.compile()  # as a part of building
        gc.collect()
        started = perf_counter()
        one.forward(0.5)
        found[name] = (perf_counter() - started) / number
        if name == "first" and graph.last_run is not None:
            found["hits"] = graph.last_run.hits
    return found


# The parts


def large_hits(folder: Path, rounds: int, theirs: dict[str, list[float]]) -> None:
    x, peers = floats(LARGE), []
    runs = {
        "ours": hitting(disk_graph(folder / "ours", Step(0)), x, 5),
        "BLAKE3": hashing(x, 5),
    }
    if is_there("joblib"):
        runs["mapped"] = joblib_steps(folder / "joblib", x, 1)
        runs["joblib"] = joblib_steps(folder / "joblib", x, 1, mapped=False)
        peers.append("joblib")
    if is_there("diskcache"):
        runs["diskcache"] = diskcache_by_hand(folder / "diskcache", cycle([x]), 1, hit=True)
        peers.append("diskcache")
    took = contest(runs, rounds)
    title, ours = "100 MB hit", took["ours"]
    print_row(title, ours, "BLAKE3 of the input", took["BLAKE3"], ratio=1.6)
    print_row(title, ours, "joblib, mapped", took.get("mapped"), ratio=1 / 8)
    print_row(title, ours, "joblib", took.get("joblib"))
    print_row(title, ours, "diskcache, blake2b by hand", took.get("diskcache"))
    print_row(title, ours, "the original", theirs.get("100 MB hit"))
    new = [ask_child("hits_once", folder, ",".join(peers)) for _ in range(rounds)]
    first = {name: [one[name] for one in new] for name in new[0]}
    title, ours = "100 MB, first hit of a process", first["ours"]
    print_row(title, ours, "BLAKE3 of the input", first["BLAKE3"])
    print_row(title, ours, "joblib, mapped", first.get("joblib"))
    print_row(title, ours, "diskcache, blake2b by hand", first.get("diskcache"))


def middling_hits(folder: Path, rounds: int, theirs: dict[str, list[float]]) -> None:
    x = floats(MEGABYTE)
    runs = {
        "ours": hitting(disk_graph(folder / "ours", Step(0)), x, 100),
        "BLAKE3": hashing(x, 100),
    }
    if is_there("joblib"):
        runs["mapped"] = joblib_steps(folder / "joblib", x, 20)
    if is_there("diskcache"):
        runs["diskcache"] = diskcache_by_hand(folder / "diskcache", cycle([x]), 20, hit=True)
    took = contest(runs, rounds)
    title, ours = "1 MB hit", took["ours"]
    print_row(title, ours, "BLAKE3 of the input", took["BLAKE3"])
    print_row(title, ours, "joblib, mapped", took.get("mapped"))
    print_row(title, ours, "diskcache, blake2b by hand", took.get("diskcache"))
    print_row(title, ours, "the original", theirs.get("1 MB hit"))


def small_hits(folder: Path, rounds: int, theirs: dict[str, list[float]]) -> None:
    number = SMALL_CALLS * rounds + 1
    ask_child("stores", folder / "ours", number, 0)
    inputs = rows(number)
    graph = disk_graph(folder / "ours", Step(0))
    graph.forward(inputs[0])
    runs = {
        "disk": over(graph, inputs[1:], SMALL_CALLS, hit=True),
        "read": parsing(folder / "ours", SMALL_CALLS),
        "memory": hitting(graph, inputs[0], SMALL_CALLS),
    }
    if is_there("diskcache"):
        fill = diskcache_by_hand(folder / "diskcache", iter(inputs), 1, hit=False)
        for _ in inputs:
            fill.run()
        again = diskcache_by_hand(folder / "diskcache", cycle(inputs), SMALL_CALLS, hit=True)
        runs["diskcache"] = again
    if is_there("joblib"):
        runs["joblib"] = joblib_steps(folder / "joblib", inputs[0], 50)
    took = contest(runs, rounds)
    for title, ours, limit in (
        ("1 KB hit from disk", took["disk"], 60e-6),
        ("1 KB hit from memory", took["memory"], 40e-6),
    ):
        print_row(title, ours, "open, read, json.loads", took["read"], limit=limit)
        print_row(title, ours, "diskcache, blake2b by hand", took.get("diskcache"))
        print_row(title, ours, "joblib, mapped", took.get("joblib"))
        print_row(title, ours, "the original, from disk", theirs.get("1 KB hit"))


def small_misses(folder: Path, rounds: int, theirs: dict[str, list[float]]) -> None:
    calls = 50
    inputs = rows(2 * (calls * rounds + 1), seed=2)
    runs = {}
    for name, half in (("always", inputs[::2]), ("auto", inputs[1::2])):
        os.environ["SOMA_CACHE_FSYNC"] = name
        graph = disk_graph(folder / name, Step(0))
        graph.forward(half[0])  # which opens the store
        make_shards(folder / name)
        runs[name] = over(graph, half[1:], calls, hit=False)
        del os.environ["SOMA_CACHE_FSYNC"]
    runs["two synced"] = writing(folder / "always" / "tmp", calls, 2, sync=True)
    runs["one"] = writing(folder / "auto" / "tmp", calls, 1, sync=False)
    if is_there("diskcache"):
        fresh = iter(rows(calls * rounds + 1, seed=3))
        runs["diskcache"] = diskcache_by_hand(folder / "diskcache", fresh, calls, hit=False)
    took = contest(runs, rounds)
    title, ours = "1 KB miss and store, synced", took["always"]
    print_row(title, ours, "two files synced and renamed", took["two synced"], ratio=2.5)
    print_row(title, ours, "the original", theirs.get("1 KB miss"))
    title, ours = "1 KB miss and store, no sync", took["auto"]
    print_row(title, ours, "one file renamed", took["one"], limit=0.4e-3)
    print_row(title, ours, "diskcache, blake2b by hand", took.get("diskcache"))


def make_shards(folder: Path) -> None:
    """Make the folders of records that are not there yet: a store makes each once in its life."""
    for shard in range(256):
        (folder / "actions" / f"{shard:02x}").mkdir(parents=True, exist_ok=True)


def chain_of_hits(folder: Path, rounds: int, theirs: dict[str, list[float]]) -> None:
    x = floats(MIDDLE)
    graph = disk_graph(folder / "ours", *map(Step, range(NODES)))
    runs = {"ours": hitting(graph, x, 15), "BLAKE3": hashing(x, 15)}
    if is_there("joblib"):
        runs["mapped"] = joblib_steps(folder / "joblib", x, 2, nodes=NODES)
    took = contest(runs, rounds)
    title, ours = f"chain of {NODES} hits, 10 MB", took["ours"]
    print_row(title, ours, "BLAKE3 of the input", took["BLAKE3"], ratio=2)
    print_row(title, ours, "joblib, mapped", took.get("mapped"))
    print_row(title, ours, "the original", theirs.get("chain"))


def cold_chain(folder: Path, rounds: int, nodes: int) -> None:
    ask_child("chains", folder, nodes)
    new = [ask_child("chains", folder, nodes) for _ in range(rounds)]
    if any(one["hits"] != nodes for one in new):
        raise RuntimeError("a new process computes what another has kept")
    took = {name: [one[name] for one in new] for name in ("first", "again", "off")}
    title = f"new process, a node of {nodes:,}"
    print_row(title, took["first"], "without a cache", took["off"], limit=100e-6)
    print_row("the same again, from memory", took["again"], "without a cache", took["off"])


def crowded_hits(folder: Path, rounds: int, records: int) -> None:
    number = SMALL_CALLS * rounds + 1
    took_s = ask_child("commits", folder / "full", records)
    runs, inputs = {}, rows(number)
    for name in ("empty", "full"):
        ask_child("stores", folder / name, number, 7)
        graph = disk_graph(folder / name, Step(7))
        graph.forward(inputs[0])
        runs[name] = over(graph, inputs[1:], SMALL_CALLS, hit=True)
    took = contest(runs, rounds)
    title = f"1 KB hit among {records:,} records"
    print_row(title, took["full"], f"among {number:,}", took["empty"], ratio=1.1)
    print(f"{'a record of these committed':40}{shown(took_s / records)}", flush=True)


def large_misses(folder: Path, rounds: int) -> None:
    x, numbers = np.ones(LARGE // 4, dtype=np.float32), count(2)

    def tidy(below: Path) -> None:
        for file in below.glob("**/f" if below.name == "files" else "cas/**/*.bin"):
            file.unlink()

    def keeping(name: str) -> Contestant:
        os.environ["SOMA_CACHE_FSYNC"] = name
        node = HandOut()
        node.lay_ready()
        graph = disk_graph(folder / name, node)
        graph.forward(1.5)
        del os.environ["SOMA_CACHE_FSYNC"]
        one = over(graph, numbers, 1, hit=False, prepare=node.lay_ready)

        def check() -> None:
            one.check()
            tidy(folder / name)

        return one._replace(check=check)

    def writing_once(*, sync: bool, hashed: bool = False) -> Contestant:
        def run() -> None:
            if hashed:
                hash_of(x)
            write_file(folder / "files", "f", x, sync=sync)

        return Contestant(run, 1, partial(tidy, folder / "files"))

    (folder / "files").mkdir(parents=True)
    took = contest(
        {
            "auto": keeping("auto"),
            "write": writing_once(sync=False),
            "both": writing_once(sync=False, hashed=True),
            "always": keeping("always"),
            "synced": writing_once(sync=True),
        },
        rounds,
    )
    title = "100 MB miss and store, no sync"
    print_row(title, took["auto"], "write of the same bytes", took["write"])
    print_row(title, took["auto"], "BLAKE3, then write", took["both"])
    title = "100 MB miss and store, synced"
    print_row(title, took["always"], "write and fsync of the same", took["synced"])


def main() -> None:
    parser = argparse.ArgumentParser(description="The disk cache against floors and peers.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nodes and records")
    parser.add_argument("--records", type=int, default=0, help="how many lie in the full store")
    parser.add_argument("--original", default="", help="a Python that has somatize 0.5.1")
    parser.add_argument("--folder", help="where files are written; the system's folder for them")
    parser.add_argument("--only", default="", help="numbers of parts, such as 1,4")
    given = parser.parse_args()
    for name in ("SOMA_CACHE_FSYNC", "SOMA_CACHE_REMOTE", "SOMA_CACHE_KEEP"):
        os.environ.pop(name, None)
    rounds = 2 if given.quick else 7
    nodes, records = (1_000, 10_000) if given.quick else (10_000, 100_000)
    print(f"load {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} CPUs, {rounds} rounds")
    print(f"{'':40}{'ours':>12}  {'floor or peer':30}{'':12}{'ratio':>9}  target", flush=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        theirs = original(folder, given.original, quick=given.quick)
        parts: list[Callable[[Path], None]] = [
            lambda own: large_hits(own, rounds, theirs),
            lambda own: middling_hits(own, rounds, theirs),
            lambda own: small_hits(own, rounds, theirs),
            lambda own: small_misses(own, rounds, theirs),
            lambda own: chain_of_hits(own, rounds, theirs),
            lambda own: cold_chain(own, 1 if given.quick else 3, nodes),
            lambda own: crowded_hits(own, rounds, given.records or records),
            lambda own: large_misses(own, rounds),
        ]
        for number, part in enumerate(parts, 1):
            if not given.only or str(number) in given.only.split(","):
                own = folder / str(number)
                own.mkdir()
                part(own)
    print(f"load {os.getloadavg()[0]:.1f} at the end; the chain excludes imports and building")


CHILDREN: dict[str, Callable[..., Any]] = {
    "stores": child_stores,
    "commits": child_commits,
    "hits_once": child_hits_once,
    "chains": child_chains,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
    else:
        main()
