"""What reading tracked runs costs: one with many events, and a list of many.

Targets: 100,000 events (about 250 bytes each) read and shown in 2 s, and in at most 4 times what
``json.loads`` takes over the same lines; 1,000 runs listed in 0.5 s. What the events tell is kept
as long as the file stays as it is, so a second look is shown beside the first.

Contestants take turns, and the quietest round counts. What is shown is looked at after each round.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from soma.tracking.find import runs
from soma.tracking.text import run_text
from soma.tracking.view import RunView

ROUNDS = 5
EVENTS = 100_000
RUNS = 1_000
NODES = 200
BEGAN = datetime(2026, 11, 30, 4, 15, tzinfo=UTC)


def events() -> Iterator[dict[str, Any]]:
    """Yield what loops over many nodes write: one in five is a hit."""
    yield {"event_type": "RunStarted", "run_id": "8c1f00aa11bb22cc", "phase": "fit", "seed": None}
    common = {"run_id": "8c1f00aa11bb22cc", "what": "output"}
    at = 0
    while True:
        node = {"node_id": f"node_{at % NODES}", "passes": [at // NODES + 1]}
        if at % 5 == 0:
            found = {"key": f"{at:064x}", "tier": "Memory", "load_time": 0.012345, "bytes": 48_049}
            yield {"event_type": "NodeCacheHit", **common, **node, **found}
        else:
            yield {
                "event_type": "NodeStarted",
                **common,
                **node,
                "kind": "Trainable",
                "effectful": False,
            }
            yield {
                "event_type": "NodeCompleted",
                **common,
                **node,
                "duration": 1.234567,
                "output_summary": "numpy.ndarray, float64, (1200, 10), 96,000 bytes",
                "outcome": "computed",
                "bytes": 48_049,
            }
        at += 1


def write_run(root: Path, number: int, count: int) -> Path:
    """Write a run of so many events."""
    began = BEGAN + timedelta(minutes=number)
    folder = root / "runs" / f"run_{began:%Y%m%dT%H%M%SZ}_{number:04x}"
    folder.mkdir(parents=True)
    manifest = {
        "schema_version": 1,
        "run_id": folder.name,
        "kind": "run",
        "name": f"baseline {number}",
        "tags": ["bench"],
        "params": {"lr": 0.1, "layers": [64, 64]},
        "created_at": began.isoformat(),
        "versions": {f"package-{at}": "1.2.3" for at in range(60)},
        "argv": ["train.py", "--epochs", "10"],
        "graph": {"n_nodes": NODES, "node_ids": [f"node_{at}" for at in range(NODES)]},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    ended = (began + timedelta(seconds=2)).isoformat()
    status = {"state": "completed", "heartbeat_at": ended, "finished_at": ended, "lost_events": 0}
    (folder / "status.json").write_text(json.dumps(status))
    with (folder / "events.jsonl").open("w") as file:
        for seq, event in zip(range(1, count + 1), events(), strict=False):
            file.write(json.dumps({"seq": seq, "ts": 1796012100.251 + seq / 1e3, **event}) + "\n")
    return folder


def loads(path: Path) -> int:
    return sum(1 for line in path.read_bytes().splitlines() if json.loads(line))


def show(folder: Path) -> RunView:
    view = RunView(folder)
    check(view)
    return view


def check(view: RunView) -> None:
    text = run_text(view, whole=False)
    if "total " not in text or "reused" not in text or view.lost_events:
        raise RuntimeError(f"not what is to be timed: {text[:200]}")


def list_runs(root: Path) -> None:
    rows = [(one.id, one.name, one.state, one.created_at, one.tags) for one in runs(root)]
    if len(rows) != RUNS or rows[0][1] != f"baseline {RUNS - 1}":
        raise RuntimeError(f"not what is to be timed: {rows[:1]}")


def parse_heads(root: Path) -> None:
    for folder in (root / "runs").iterdir():
        for name in ("manifest.json", "status.json"):
            json.loads((folder / name).read_bytes())


def contest(contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the seconds that each takes."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            gc.collect()  # nobody pays for what another left behind
            started = perf_counter()
            found = run()
            took = perf_counter() - started
            del found
            best[name] = min(took, best.get(name, took))
    return best


def print_row(title: str, ours: float, limit: float, floor: float, ratio: float) -> None:
    kept = (not limit or ours <= limit) and (not ratio or ours <= ratio * floor)
    target = f"<= {limit * 1e3:g} ms" + (f", <= {ratio:g} x" if ratio else "") if limit else ""
    line = f"{title:38}{ours * 1e3:10.1f} ms{floor * 1e3:10.1f} ms{ours / floor:8.2f}  {target:22}"
    print(line + ("" if not limit else "ok" if kept else "MISSED"))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        big = write_run(Path(name) / "big", 0, EVENTS)
        many = Path(name) / "many"
        for number in range(RUNS):
            write_run(many, number, 1)
        kept = show(big)
        took = contest(
            {
                "loads": lambda: loads(big / "events.jsonl"),
                "show": lambda: show(big),
                "again": lambda: check(kept),
                "parse": lambda: parse_heads(many),
                "list": lambda: list_runs(many),
            }
        )
        size = (big / "events.jsonl").stat().st_size / EVENTS
    print(f"{'':38}{'ours':>13}{'json.loads':>13}{'ours/it':>8}  target")
    title = f"{EVENTS:,} events of {size:.0f} bytes, shown"
    print_row(title, took["show"], 2.0, took["loads"], 4)
    print_row("    shown again, nothing changed", took["again"], 0, took["loads"], 0)
    print_row(f"{RUNS:,} runs, listed", took["list"], 0.5, took["parse"], 4)


if __name__ == "__main__":
    main()
