"""Folders of tracked runs, written by hand as docs/formats/run.md says."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from soma.tracking.alive import machine

__all__ = [
    "completed",
    "dead_process",
    "events_of_a_fit",
    "hit",
    "live_process",
    "write_lines",
    "write_run",
]

BEGAN = "2026-11-30T04:15:00.125+00:00"
ENDED = "2026-11-30T04:15:02.625+00:00"
ID = "run_20261130T041500Z_3fa9"


def write_run(
    root,
    id_=ID,
    *,
    events=(),
    metrics=None,
    state="completed",
    process=None,
    heartbeat=ENDED,
    error=None,
    lost_events=0,
    schema_version=1,
    plan=None,
    **manifest,
):
    """Write a run and return its folder."""
    folder = Path(root) / "runs" / id_
    folder.mkdir(parents=True)
    write(
        folder / "manifest.json",
        {
            "schema_version": schema_version,
            "run_id": id_,
            "kind": "run",
            "name": "digits",
            "tags": [],
            "params": {},
            "created_at": BEGAN,
            "soma_version": "0.1.0",
            "python_version": "3.11.7",
            "versions": {"numpy": "2.1.0"},
            "git": {"sha": "0123abcd", "branch": "main", "dirty": None},
            "graph": {"n_nodes": 1, "node_ids": ["scaler"], "graph_path": "graph.json"},
            **manifest,
        },
    )
    write(
        folder / "status.json",
        {
            "state": state,
            "updated_at": heartbeat,
            "heartbeat_at": heartbeat,
            "finished_at": None if state == "running" else ENDED,
            "error": error,
            "process": process,
            "lost_events": lost_events,
        },
    )
    nodes = [{"id": "scaler", "label": "Scaler", "kind": {"type": "trainable"}, "params": {}}]
    graph = {"schema_version": schema_version, "nodes": nodes, "edges": [], "plan": plan}
    write(folder / "graph.json", {**graph, "error": None})
    write_lines(folder / "events.jsonl", events)
    if metrics is not None:
        write_lines(folder / "metrics.jsonl", metrics)
    return folder


def write(path, data):
    path.write_text(json.dumps(data) + "\n")


def write_lines(path, records, *, numbered=True):
    """Add records to a file, one a line; bytes are written as they are."""
    with path.open("ab") as file:
        for seq, record in enumerate(records, start=1):
            if isinstance(record, bytes):
                file.write(record)
            else:
                head = {"seq": seq, "ts": 1000.0 + seq} if numbered else {}
                file.write(json.dumps({**head, **record}).encode() + b"\n")


def event(event_type, run_id="c1", **fields):
    return {"event_type": event_type, "run_id": run_id, **fields}


def completed(node, what="output", run_id="c1", *, ms=2.0, size=100, passes=(), outcome="computed"):
    return event(
        "NodeCompleted",
        run_id,
        node_id=node,
        what=what,
        duration=ms,
        output_summary="float",
        outcome=outcome,
        bytes=size,
        passes=list(passes),
    )


def hit(node, what="output", run_id="c1", *, key="ab" * 32, size=100, passes=()):
    return event(
        "NodeCacheHit",
        run_id,
        node_id=node,
        what=what,
        key=key,
        tier="Memory",
        load_time=0.5,
        bytes=size,
        passes=list(passes),
    )


def events_of_a_fit(run_id="c1"):
    """Return a fit of two nodes and a loop: one computed, one known, one known in three passes."""
    return [
        event("RunStarted", run_id, phase="fit", plan_summary={}, seed=7),
        event("NodeCacheMiss", run_id, node_id="scaler", what="state", key="00", passes=[]),
        event("NodeStarted", run_id, node_id="scaler", what="state", kind="Trainable", passes=[]),
        completed("scaler", "state", run_id, ms=3.0, size=40),
        hit("pca", "state", run_id, key="cd" * 32, size=50),
        *(hit("step", run_id=run_id, passes=(number,)) for number in (1, 2, 3)),
        event("LoopCompleted", run_id, node_id="refine", iterations=3, stopped=True, passes=[]),
        event("BranchTaken", run_id, node_id="classify", arm="balanced", passes=[]),
        event("RunCompleted", run_id, duration=12.5),
    ]


def dead_process():
    """Return what status.json says of a process that was and is no more."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        return _process(child.pid)


@contextmanager
def live_process():
    """Give what status.json says of a process that lives as long as the block."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            yield _process(child.pid)
        finally:
            child.kill()


def _process(pid):
    stat = Path(f"/proc/{pid}/stat").read_text()
    started = int(stat.rpartition(")")[2].split()[19])
    return {"hostname": "here", "pid": pid, "started": started, **machine()}
