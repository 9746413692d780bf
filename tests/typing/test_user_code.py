"""What a user writes, as ``mypy --strict`` sees it. Checked, and run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

import pytest

import soma
from soma import CommandSpec, Filter, Graph, RunView, TrackedRun, hookimpl, runs
from soma.contracts import FitReport, Ref, WorkerInfo
from soma.engine import RunReport
from soma.events import NodeProgress, Subscription
from soma.plan import Plan
from soma.sessions import InProcessRunner, Program

try:
    from soma import Study
except ImportError:
    Study = None  # a name of a package that may be absent is Any, not an error


class Add(Filter):
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def forward(self, x: int, state: Any) -> int:  # forward has this signature
        return x + self.amount


@hookimpl
def soma_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(name="add", target="somewhere:add")


def test_a_graph_is_typed() -> None:
    g = Graph.somatize(Add(1) >> Add(2))
    assert_type(g, Graph)
    assert_type(g.node(Add(3)), str)
    assert_type(g.node("last", Add(4)), str)
    assert len(g) == 4


def test_what_a_graph_returns_is_typed() -> None:
    g = Graph(cache="memory", cache_max_bytes=1000)
    g.node("last", Add(4).named("other").cached(), frozen=True)
    assert_type(g.compile(), Plan)
    assert_type(g.state(), dict[str, Any])
    assert_type(g.edges(), list[tuple[str, str]])
    g.forward(1)
    assert_type(g.last_run, RunReport | None)
    assert_type(g.search_space(), list[dict[str, Any]])
    assert len(Graph.somatize(Add(1) >> (Add(2) | repr) >> len)) == 4


def test_workers_and_sessions_are_typed() -> None:
    g = Graph.somatize(Add(1), cache="off")
    assert_type(g.add_worker("local://", tags=["big"], timeout_s=60), tuple[str, ...])
    assert_type(g.workers(), list[WorkerInfo])
    assert_type(g.program(), Program)
    with InProcessRunner() as runner, runner.open(g.program()) as session:
        ref = session.put(1)
        assert_type(ref, Ref)
        assert session.forward(ref) == 2
        assert_type(session.fit(1, seed=None, options={}), FitReport)
        assert_type(session.capabilities, frozenset[str])
    g.shutdown_workers()


def test_runs_and_pictures_are_typed(tmp_path: Path) -> None:
    g = Graph.somatize(Add(1), cache="off")
    with g.track_run("typed", tmp_path, tags=["a"], params={"rows": 3}) as run:
        assert_type(run, TrackedRun)
        g.forward(1)
        run.log("loss", 0.5, step=1)
    found = runs(tmp_path)
    assert_type(found, list[RunView])
    assert_type(found[0].params, dict[str, Any])
    assert_type(found[0].metrics()["loss"][0].value, float)
    assert_type(found[0].created_at, datetime)
    assert_type(g.to_svg(overlay=False), str)
    assert_type(g.compile().to_mermaid(), str)
    assert [one.phase for one in found[0].calls()] == ["forward"]


def test_branches_loops_and_events_are_typed() -> None:
    g = Graph(cache="off")
    assert_type(g.branch("way", lambda x: x > 0, arms={True: Add(1), False: Add(2) >> Add(3)}), str)
    assert_type(g.branch("named", repr, arms={"1": "way", "default": [Add(4)]}), str)
    assert_type(g.loop("often", Add(1), until=False, max_iterations=3), str)
    g.edge("named", "often")
    heard: list[str] = []
    stop = g.on_event(lambda event: heard.append(event["event_type"]))
    assert_type(stop, Subscription)
    assert g.forward(1, run_id="mine", progress=False) == 5
    with stop:
        g.emit("my_event", loss=0.3)
        g.emit(NodeProgress(run_id="mine", node_id="way", progress=0.5))
    assert heard[-2:] == ["my_event", "NodeProgress"]


def test_a_hook_is_typed() -> None:
    assert [spec.name for spec in soma_commands()] == ["add"]


def test_an_unknown_name_is_an_error_for_the_type_checker() -> None:
    with pytest.raises(AttributeError):
        soma.Grph  # type: ignore[attr-defined]  # noqa: B018  # that it is one is the test
