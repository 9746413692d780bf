"""What keeping house costs, against floors of the same run and the original's.

Targets, at 100,000 records with a blob each: figures in 100 ms where the index is up to date, and
30 times quicker than the original's; gc bound by unlinking, so at most 1.3 times that of as many
files; verify bound by reading and BLAKE3, at most 1.5 times that. At 1,000,000 rows in the index:
figures in 0.5 s, the plan of a gc in 5 s.

Records and blobs are written as files, as a store would have left them. The floors do by hand what
has to be done: each file opened and read, hashed, or removed. gc takes one half of the blobs, and
the floor removes the other, in an order of its own. The original shares our import name: it runs in
a process of its own, where a Python that has it is named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from time import perf_counter, time
from typing import Any

from blake3 import blake3

from soma.contracts import ActionRecord
from soma_cache.collecting import collect
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.ranking import Worth, ranked
from soma_cache.records import dump_record
from soma_cache.survey import survey
from soma_cache.tables import Tables
from soma_cache.verifying import verify

BLOB_BYTES = 4_000
NEW = 1_000
"""So many records come in between two looks."""
ROUNDS = 5
WAIT_S = 900


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    found = work()
    return perf_counter() - started, found


def check(right: bool, found: Any) -> None:  # noqa: FBT001  # an assertion
    if not right:
        raise RuntimeError(f"that is not what was to be timed: {found!r}"[:500])


def print_row(
    title: str, ours: float, floor: str = "", other: float = 0.0, **target: float
) -> None:
    """Print one line. Targets: ``ratio`` to the other, ``limit_s``."""
    line = f"{title:46}{shown(ours)}  {floor:34}"
    ratio = ours / other if other else 0.0
    line += f"{shown(other)}{ratio:9.2f}" if other else " " * 21
    told = []
    if "limit_s" in target:
        told.append(f"{shown(target['limit_s']).strip()} {met(ours <= target['limit_s'])}")
    if "ratio" in target and other:
        told.append(f"{target['ratio']:g} times {met(ratio <= target['ratio'])}")
    print(f"{line}  {', '.join(told)}".rstrip(), flush=True)


def met(there: bool) -> str:  # noqa: FBT001  # the one thing it is asked
    return "met" if there else "MISSED"


def shown(seconds: float) -> str:
    return f"{seconds * 1e3:9.1f} ms"


# Files as a store leaves them


def lay(folder: Path, numbers: Iterable[int], chance: random.Random) -> None:
    """Write records, each with a blob, as files."""
    for number in numbers:
        raw = number.to_bytes(8, "little") * (BLOB_BYTES // 8)
        digest, key = blake3(raw).hexdigest(), chance.randbytes(32).hex()
        record = ActionRecord(
            key=key,
            outputs={"output": digest},
            bytes={"output": len(raw)},
            compute_ms=chance.random() * 1e3,
            name=f"study.Step{number % 20}",
            parts={f"part {at}": bytes(4) for at in range(6)},
            created_at=1.7e9 + number,
            origin={"node": "step", "run": "run", "host": "host", "python": "3.11", "soma": "0.1"},
        )
        for path, found in (
            (folder / "actions" / key[:2] / f"{key}.json", dump_record(record, {})),
            (folder / "cas" / "b3" / digest[:2] / f"{digest}.bin", raw),
        ):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
            os.write(fd, found)
            os.close(fd)


def made(folder: Path) -> Folder:
    found = Folder(str(folder))
    found.prepare()
    for above in ("actions", "cas/b3"):
        for shard in range(256):
            (folder / above / f"{shard:02x}").mkdir(parents=True)
    return found


def files_of(folder: Path, above: str) -> list[str]:
    return [
        entry.path
        for shard in sorted((folder / above).iterdir())
        for entry in sorted(os.scandir(shard), key=lambda one: one.name)
    ]


# Floors


def read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def read_and_hashed(paths: list[str]) -> int:
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda half: [blake3(read(one)).digest() for one in half], split(paths))
        return sum(map(len, halves))


def split(paths: list[str]) -> tuple[list[str], list[str]]:
    return paths[: len(paths) // 2], paths[len(paths) // 2 :]


def unlink_all(paths: list[str]) -> None:
    for path in paths:
        os.unlink(path)  # noqa: PTH108  # a floor


# Parts


def with_files(root: Path, count: int, original_s: float) -> None:
    chance = random.Random(0)  # noqa: S311  # names, not secrets
    folder = made(root)
    lay(root, range(count), chance)
    os.sync()  # what has to go lies on a disk
    records, blobs = files_of(root, "actions"), files_of(root, "cas/b3")
    floor_s, _ = timed(lambda: [json.loads(read(path)) for path in records])
    took_s, found = timed(lambda: survey(folder))
    check((found.records, found.blobs) == (count, count), found)
    print_row(f"{count:,} records, first look", took_s, "every record read, json.loads", floor_s)
    samples = [timed(lambda: survey(folder))[0] for _ in range(ROUNDS)]
    warm_s = statistics.median(samples)
    print_row("stats, index up to date", warm_s, limit_s=0.1)
    if original_s:
        print_row("stats, index up to date", warm_s, "the original's", original_s, ratio=1 / 30)
    lay(root, range(count, count + NEW), chance)
    took_s, found = timed(lambda: survey(folder))
    check(found.records == count + NEW, found)
    print_row(f"stats, {NEW:,} records of others later", took_s)
    verified(folder, files_of(root, "cas/b3"), files_of(root, "actions"))
    collected(folder, root, len(blobs))


def verified(folder: Folder, blobs: list[str], records: list[str]) -> None:
    floor_s, _ = timed(lambda: read_and_hashed([*blobs, *records]))
    took_s, found = timed(lambda: verify(folder))
    check(found.checked == len(blobs), found)
    print_row("verify", took_s, "all read, BLAKE3, 2 threads", floor_s, ratio=1.5)
    took_s, found = timed(lambda: verify(folder))
    check(found.skipped == len(blobs), found)
    floor_s, _ = timed(lambda: read_and_hashed(records))
    print_row("verify again", took_s, "records read, BLAKE3, 2 threads", floor_s)


def collected(folder: Folder, root: Path, count: int) -> None:
    nbytes = survey(folder).bytes
    took_s, found = timed(lambda: collect(folder, max_bytes=nbytes, min_age_s=0.0))
    check(not found.removed, found)
    print_row("gc that removes nothing", took_s)
    plan_s, found = timed(
        lambda: collect(folder, max_bytes=nbytes // 2, min_age_s=0.0, dry_run=True)
    )
    print_row("gc, dry run", plan_s)
    took_s, found = timed(lambda: collect(folder, max_bytes=nbytes // 2, min_age_s=0.0))
    check(count // 2 <= len(found.removed) <= count // 2 + NEW, len(found.removed))
    left = files_of(root, "cas/b3")
    chance = random.Random(1)  # noqa: S311  # an order, no secret
    chance.shuffle(left)
    floor_s, _ = timed(lambda: unlink_all(left))
    floor_s *= len(found.removed) / len(left)
    print_row(f"gc of {len(found.removed):,}", took_s, "as many files removed", floor_s, ratio=1.3)
    print_row("the same without its plan", took_s - plan_s, "as many files removed", floor_s)


def with_rows(root: Path, count: int) -> None:
    """Fill the index alone: there are no files, and so none is looked at."""
    folder = Folder(str(root))
    folder.prepare()
    chance = random.Random(2)  # noqa: S311  # names, not secrets
    digests = sorted(chance.randbytes(32) for _ in range(count))
    keys = sorted(chance.randbytes(32) for _ in range(count))

    def fill(tables: Tables) -> None:
        many = tables._connection.executemany  # noqa: SLF001  # rows without files
        with tables.changing():
            names = [(name, b"study.Step%d" % name) for name in range(20)]
            many("INSERT INTO names VALUES (?, ?)", names)
            many("INSERT INTO blobs VALUES (?, ?, ?, NULL)", ((one, 1, 4_096) for one in digests))
            rows = zip(keys, digests, strict=True)
            many(
                "INSERT INTO records VALUES (?, 1, 600, 0, ?, ?, ?, 0, ?)",
                (
                    (key, at % 20, 1.7e9 + at, float(at % 997), one)
                    for at, (key, one) in enumerate(rows)
                ),
            )
            outputs = zip(digests, keys, strict=True)
            many(
                "INSERT INTO outputs VALUES (?, ?, ?, 0)",
                ((one, key, float(at % 997)) for at, (one, key) in enumerate(outputs)),
            )

    filled_s, _ = timed(lambda: consult(folder, fill))
    nbytes = (root / "index" / "base.sqlite").stat().st_size
    print_row(f"{count:,} rows, {nbytes / 1e6:.0f} MB, filled", filled_s)
    samples = [timed(lambda: survey(folder)) for _ in range(ROUNDS)]
    check(samples[0][1].records == count, samples[0])
    print_row(f"stats at {count:,} rows", statistics.median(one for one, _ in samples), limit_s=0.5)
    blobs = [(one, 4_096, time() - at % 10**6) for at, one in enumerate(digests)]

    def plan() -> int:
        worth = consult(folder, lambda tables: Worth(*tables.worth()))
        return len(list(islice(ranked(blobs, worth, time()), count // 2)))

    samples = [timed(plan) for _ in range(ROUNDS)]
    check(samples[0][1] == count // 2, samples[0])
    took_s = statistics.median(one for one, _ in samples)
    print_row(f"gc plan at {count:,} rows, of one half", took_s, limit_s=5.0)


# The original, in a process of its own

ORIGINAL = """
import sys, time
from soma import _soma
import soma

class Step(soma.Filter):
    _kind = "stateless"
    def forward(self, x, state):
        return x

root, count = sys.argv[1], int(sys.argv[2])
graph = soma.Graph(cache="local", cache_path=root)
graph.node("step", Step())
graph.mark_fitted()
for number in range(count):
    graph.forward([float(number)] * 500)
samples = []
for _ in range(5):
    started = time.perf_counter()
    _soma.cache_stats(root)
    samples.append(time.perf_counter() - started)
print(sorted(samples)[2])
"""


def originals_stats(python: str, root: Path, count: int) -> float:
    """Return the seconds of the original's figures over as many results; 0 without it."""
    if not python:
        return 0.0
    command = [python, "-I", "-c", ORIGINAL, str(root), str(count)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", "") or error
        print(f"the original: {str(told).strip().splitlines()[-1]}", flush=True)
        return 0.0
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeping house: figures, gc and verify.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records and rows")
    parser.add_argument("--original", default="", help="a Python that has somatize 0.5.1")
    parser.add_argument("--folder", help="where files are written; the system's folder for them")
    parser.add_argument("--only", default="", help="numbers of parts, such as 1,2")
    given = parser.parse_args()
    count, rows = (10_000, 100_000) if given.quick else (100_000, 1_000_000)
    print(f"load {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} CPUs")
    print(f"{'':46}{'ours':>12}  {'floor or peer':34}{'':12}{'ratio':>9}  target", flush=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        root = Path(name)
        if "2" not in given.only:
            theirs_s = originals_stats(given.original, root / "theirs", count)
            with_files(root / "files", count, theirs_s)
        if "1" not in given.only:
            with_rows(root / "rows", rows)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
