"""What a graph says while it runs: the exact events, in their order."""

from __future__ import annotations

import _thread
import itertools
import re
import signal
import subprocess
import sys
import textwrap
import threading
from time import sleep

import numpy as np
import pytest

from soma import (
    CacheConfigError,
    Filter,
    Graph,
    GraphError,
    InvalidInput,
    InvalidOutput,
    NotFittedError,
    UnknownName,
    UnknownNode,
)
from soma.engine import MemoryStore, NodeRun, schedule
from soma.events import NodeProgress, UserEvent
from support.distributions import run_python, write_plugin
from support.threads import run_in_threads

BIG = 200_000  # float64 items: 1.6 MB, more than is kept of what is quickly made


class Add(Filter):
    def __init__(self, amount=1):
        self.amount = amount

    def forward(self, x, state):
        return x + self.amount


class Mean(Filter):
    def fit(self, x, y=None):
        return {"mean": float(np.mean(x))}

    def forward(self, x, state):
        return x - state["mean"]


class Fails(Filter):
    """Raises when it has got so far."""

    def __init__(self, fit=np.inf, forward=np.inf, error=ValueError):
        self._fit, self._forward, self._error = fit, forward, error
        self.limits = [fit, forward]

    def fit(self, x, y=None):
        if np.max(x) >= self._fit:
            raise self._error("no\nmore")
        return {}

    def forward(self, x, state):
        if np.max(x) >= self._forward:
            raise self._error("no\nmore")
        return x + 1


@pytest.fixture
def threads(monkeypatch):
    """Everything counts as slow, and so runs on threads."""
    monkeypatch.setattr(schedule, "SLOW_S", -1.0)


@pytest.fixture
def quick(monkeypatch):
    """Whatever is large is quickly made, and not kept."""
    monkeypatch.setattr("soma.engine.run._BYTES_PER_MS", 1e-9)


@pytest.fixture
def ctrl_c():
    """Ctrl-C is heard, however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def listened(g):
    events = []
    g.on_event(events.append)
    return events


def told(events):
    """Return one word or two for each event, and empty the list."""
    found = [_told(event) for event in events]
    events.clear()
    return found


_SHORT = {
    "NodeCacheHit": "hit",
    "NodeCacheMiss": "miss",
    "NodeStarted": "start",
    "NodeCompleted": "done",
    "NodeFailed": "failed",
}


def _told(event):
    kind = event["event_type"]
    if "what" in event:
        passes = "".join(f" {one}" for one in event["passes"])
        again = "again " if event.get("outcome") == "recomputed" else ""
        return f"{_SHORT[kind]} {again}{event['node_id']}.{event['what']}{passes}"
    if kind == "BranchTaken":
        return f"{event['node_id']} takes {event['arm']}" + "".join(
            f" {one}" for one in event["passes"]
        )
    if kind == "LoopCompleted":
        how = "stopped" if event["stopped"] else "ended"
        passes = "".join(f" in {one}" for one in event["passes"])
        return f"{event['node_id']} {how} after {event['iterations']}{passes}"
    return f"{kind} {event['node_id']}".strip() if "node_id" in event else kind


def computed(*actions):
    """Return what is told of actions that are not known."""
    return [f"{word} {one}" for one in actions for word in ("miss", "start", "done")]


def hits(*actions):
    return [f"hit {one}" for one in actions]


def unkept(*actions):
    return [f"{word} {one}" for one in actions for word in ("start", "done")]


def run(*between):
    return ["RunStarted", *between, "RunCompleted"]


def failed(*between):
    return ["RunStarted", *between, "RunFailed"]


def check_brackets(events):
    """Every run begins once, ends once, and says nothing afterwards; so does every call in it."""
    for run_id in {event["run_id"] for event in events}:
        mine = [event for event in events if event["run_id"] == run_id]
        assert mine[0]["event_type"] == "RunStarted"
        assert mine[-1]["event_type"] in ("RunCompleted", "RunFailed")
        kinds = [event["event_type"] for event in mine]
        assert sum(kind.startswith("Run") for kind in kinds) == 2
        begun = set()
        for event in mine:
            site = (event.get("node_id"), event.get("what"), tuple(event.get("passes", ())))
            if event["event_type"] == "NodeStarted":
                assert site not in begun
                begun.add(site)
            elif event["event_type"] in ("NodeCompleted", "NodeFailed"):
                begun.remove(site)
        if kinds[-1] == "RunCompleted":
            assert not begun


class TestChain:
    def graph(self, cache="memory"):
        return Graph.somatize(Add() >> Mean() >> Add(2), cache=cache)

    def test_cold_and_warm(self):
        g = self.graph()
        events, x = listened(g), np.arange(3.0)
        g.fit(x)
        fit = [event["key"] for event in events if "key" in event]
        assert told(events) == run(*computed("add.output", "mean.state"))
        g.forward(x)
        forward = [event["key"] for event in events if "key" in event]
        assert told(events) == run("hit add.output", *computed("mean.output", "add_2.output"))
        g.fit(x)
        assert [event["key"] for event in events if "key" in event] == fit
        assert told(events) == run("hit add.output", "hit mean.state")
        g.forward(x)
        assert [event["key"] for event in events if "key" in event] == forward
        assert told(events) == run("hit add.output", "hit mean.output", "hit add_2.output")
        assert forward[0] == fit[0]
        assert len({*fit, *forward}) == 4

    def test_keys_are_those_of_the_store(self):
        store = MemoryStore()
        g = self.graph(store)
        events, x = listened(g), np.arange(3.0)
        for _ in range(2):
            g.fit(x)
            g.forward(x)
        keys = {event["key"] for event in events if "key" in event}
        assert keys == {record.key for record in store.records()}
        assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
        sizes = {record.key: sum(record.bytes.values()) for record in store.records()}
        hits = [event for event in events if event["event_type"] == "NodeCacheHit"]
        assert all(event["bytes"] == sizes[event["key"]] for event in hits)
        assert {event["tier"] for event in hits} == {"Memory"}

    def test_every_field(self):
        g = self.graph()
        events, x = listened(g), np.arange(3.0)
        g.fit(x)
        g.forward(x)
        (fit,) = {event["run_id"] for event in events[:8]}
        (forward,) = {event["run_id"] for event in events[8:]}
        assert forward == g.last_run.run_id != fit
        assert events[0] == {
            "event_type": "RunStarted",
            "run_id": fit,
            "phase": "fit",
            "plan_summary": {"total_nodes": 3, "cached_nodes": 0, "parallel_branches": 1},
            "seed": None,
            "refreshed": [],
        }
        assert events[8]["phase"] == "forward"
        durations = [event["duration"] for event in events if "duration" in event]
        durations += [event["load_time"] for event in events if "load_time" in event]
        assert all(type(one) is float and 0 <= one < 60_000 for one in durations)
        assert events[-1]["duration"] == g.last_run.duration_ms
        start, done = events[5:7]
        assert start == {
            "event_type": "NodeStarted",
            "run_id": fit,
            "node_id": "mean",
            "what": "state",
            "kind": "Trainable",
            "effectful": False,
            "passes": [],
        }
        assert done == {
            "event_type": "NodeCompleted",
            "run_id": fit,
            "node_id": "mean",
            "what": "state",
            "duration": done["duration"],
            "output_summary": "dict of 1",
            "outcome": "computed",
            "bytes": done["bytes"],
            "passes": [],
        }
        assert events[2]["kind"] == "Stateless"
        assert events[3]["output_summary"] == "ndarray float64 (3,)"
        rows = [
            (event["node_id"], event["what"], event["outcome"], event["duration"], event["bytes"])
            for event in events[8:]
            if event["event_type"] == "NodeCompleted"
        ]
        assert rows == [tuple(one)[:5] for one in g.last_run.actions if one.outcome != "hit"]
        assert all(one.passes == () for one in g.last_run.actions)
        assert all(row[-1] > 24 for row in rows)

    def test_without_a_cache(self):
        g = self.graph("off")
        events, x = listened(g), np.arange(3.0)
        for _ in range(2):
            g.fit(x)
            assert [event["bytes"] for event in events if "bytes" in event] == [0, 0]
            assert told(events) == run(*unkept("add.output", "mean.state"))
            g.forward(x)
            assert told(events) == run(*unkept("add.output", "mean.output", "add_2.output"))

    def test_refresh(self):
        g = self.graph()
        events, x = listened(g), np.arange(3.0)
        g.fit(x)
        keys = [event["key"] for event in events if "key" in event]
        told(events)
        g.fit(x, refresh=["mean"])
        assert [event["key"] for event in events if "key" in event] == keys
        assert told(events) == run("hit add.output", *computed("mean.state"))
        g.fit(x, refresh=True)
        assert told(events) == run(*computed("add.output", "mean.state"))

    def test_nodes_without_a_key(self, capsys):
        class Unwritable:
            pass

        class Unkept(Add):
            _cacheable = False

        g = Graph.somatize(
            Unkept() >> Add(3) >> (lambda _: Unwritable()) >> (lambda _: 1) >> Add(4),
            cache="memory",
        )
        events = listened(g)
        g.forward(1)
        assert told(events) == run(
            *unkept("unkept.output"),
            *computed("add.output"),
            "miss lambda.output",
            "start lambda.output",
            "NodeNotKept lambda",
            "done lambda.output",
            *unkept("lambda_2.output"),
            *computed("add_2.output"),
        )
        assert [one.kind for one in g.last_run.notices] == ["NodeNotKept"]
        g.forward(1)
        assert told(events) == run(
            *unkept("unkept.output"),
            "hit add.output",
            "miss lambda.output",
            "start lambda.output",
            "NodeNotKept lambda",
            "done lambda.output",
            *unkept("lambda_2.output"),
            "hit add_2.output",
        )
        capsys.readouterr()

    def test_an_input_without_a_hash(self, capsys):
        class Unwritable:
            pass

        g = Graph.somatize(lambda _: 1, cache="memory")
        events = listened(g)
        g.forward(Unwritable())
        assert told(events) == run("NodeNotKept", *unkept("lambda.output"))
        (notice,) = g.last_run.notices
        assert notice.node == ""
        capsys.readouterr()

    def test_the_plan_in_numbers(self):
        g = Graph(cache="memory")
        g.node("head", Add(), cached=True)
        for number in range(3):
            g.node(f"n{number}", Add(number))
            g.edge("head", f"n{number}")
        g.branch("b", lambda x: x > 0, {True: Add(5) >> Add(6), False: Add(7)})
        g.loop("l", Add(8), until=False, max_iterations=2)
        events = listened(g)
        g.forward(1)
        # Those in bodies count, and the branch and the loop, which compute nothing, do not.
        assert events[0]["plan_summary"] == {
            "total_nodes": 9,
            "cached_nodes": 1,
            "parallel_branches": 3,
        }

    def test_what_is_refused_before_anything_runs_is_no_run(self):
        g = self.graph()
        events = listened(g)
        x = np.arange(3.0)
        for error, call in (
            (NotFittedError, lambda: g.forward(x)),
            (InvalidInput, lambda: g.fit(x, [1])),
            (InvalidInput, lambda: g.fit(x, seed="1")),
            (InvalidInput, lambda: g.fit(x, epochs=0)),
            (InvalidInput, lambda: g.fit(iter(x))),
            (UnknownNode, lambda: g.fit(x, refresh=["nobody"])),
            (InvalidInput, lambda: g.fit(x, progress="yes")),
            (InvalidInput, lambda: g.forward(x, run_id="")),
            (InvalidInput, lambda: g.forward(x, run_id=3)),
        ):
            with pytest.raises(error):
                call()
        g.edge("add_2", "add")
        with pytest.raises(GraphError):
            g.fit(x)
        h = Graph.somatize(Add(object()), cache="memory")
        others = listened(h)
        with pytest.raises(CacheConfigError):
            h.forward(1)
        assert events == others == []

    def test_a_run_id_of_ones_own(self):
        g = self.graph()
        g.fit(np.arange(3.0))
        events = listened(g)
        for _ in range(2):
            g.forward(np.arange(3.0), run_id="mine")
            assert {event["run_id"] for event in events} == {"mine"} == {g.last_run.run_id}
        told(events)
        g.forward(np.arange(3.0))
        g.forward(np.arange(3.0))
        ids = {event["run_id"] for event in events}
        assert len(ids) == 2
        assert "mine" not in ids


class TestFailures:
    def test_in_fit_and_in_forward(self):
        for cache, missed in (("memory", True), ("off", False)):
            before = computed("add.output") if missed else unkept("add.output")
            g = Graph.somatize(Add() >> Fails(fit=2, forward=12) >> Add(5), cache=cache)
            events = listened(g)
            with pytest.raises(ValueError, match="no"):
                g.fit(1)
            assert events[-1]["error"] == events[-2]["error"] == "ValueError: no\nmore"
            miss = ["miss fails.state"] if missed else []
            assert told(events) == failed(*before, *miss, "start fails.state", "failed fails.state")
            g.load_state({"fails": {}})
            with pytest.raises(ValueError, match="no"):
                g.forward(11)
            miss = ["miss fails.output"] if missed else []
            assert told(events) == failed(
                *before, *miss, "start fails.output", "failed fails.output"
            )

    def test_again_with_what_is_known(self):
        g = Graph.somatize(Add() >> Fails(fit=2), cache="memory")
        events = listened(g)
        for first in (computed("add.output"), ["hit add.output"]):
            with pytest.raises(ValueError, match="no"):
                g.fit(1)
            assert told(events) == failed(
                *first, "miss fails.state", "start fails.state", "failed fails.state"
            )

    def test_in_an_arm(self):
        g = Graph(cache="off")
        g.branch("b", lambda x: "low" if x < 5 else "high", {"low": Add(), "high": Fails(fit=0)})
        events = listened(g)
        with pytest.raises(ValueError, match="no"):
            g.fit(9)
        assert told(events) == failed(
            *unkept("lambda.output"), "b takes high", "start fails.state", "failed fails.state"
        )

    def test_in_pass_3(self):
        g = Graph(cache="memory")
        g.loop("l", Fails(fit=3), until=False, max_iterations=9)
        events = listened(g)
        with pytest.raises(ValueError, match="no"):
            g.fit(1)
        assert events[-2]["passes"] == [3]
        passes = [f"fails.{what} {number}" for number in (1, 2) for what in ("state", "output")]
        end = ["miss fails.state 3", "start fails.state 3", "failed fails.state 3"]
        assert told(events) == failed(*computed(*passes), *end)

    def test_a_selector_that_names_no_arm(self):
        g = Graph(cache="off")
        g.branch("b", lambda _: "c", {"a": Add()})
        g.loop("l", Add(), lambda _: 3)
        events = listened(g)
        with pytest.raises(InvalidOutput):
            g.forward(1)
        assert told(events) == failed(*unkept("lambda.output"))

    def test_an_arm_that_was_never_fitted(self):
        g = Graph(cache="off")
        g.branch("b", lambda _: "a", {"a": Mean()})
        events = listened(g)
        with pytest.raises(NotFittedError):
            g.forward(1)
        assert events[-1]["error"].startswith("NotFittedError: Branch 'b' takes arm 'a'")
        assert told(events) == failed(*unkept("lambda.output"))

    def test_what_can_be_read_only_once(self):
        g = Graph.somatize(lambda _: iter([1]), cache="memory")
        events = listened(g)
        with pytest.raises(InvalidOutput):
            g.forward(1)
        assert told(events) == failed(
            "miss lambda.output", "start lambda.output", "failed lambda.output"
        )

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_interrupted_on_the_calling_thread(self, kind, cache):
        g = Graph.somatize(Add() >> Fails(fit=2, error=kind) >> Add(), cache=cache)
        events = listened(g)
        with pytest.raises(kind):
            g.fit(1)
        assert events[-1]["error"].startswith(kind.__name__)
        assert told(events)[-3:] == ["start fails.state", "failed fails.state", "RunFailed"]
        assert g.state() == {}

    @pytest.mark.usefixtures("threads", "ctrl_c")
    @pytest.mark.parametrize("fails_later", [False, True])
    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_nothing_of_an_interrupted_run_is_told_after_its_end(self, cache, fails_later):
        go_on, done = threading.Event(), threading.Event()

        class Lingers(Filter):
            def __init__(self, *parts):
                self._parts = parts

            def forward(self, x, state):
                go_on, done, fails = self._parts
                _thread.interrupt_main()
                assert go_on.wait(30)
                done.set()
                if fails:
                    raise ValueError("too late")
                return x

        g = Graph(cache=cache)
        g.node("head", Add())
        g.node("lingers", Lingers(go_on, done, fails_later))
        g.node("beside", Add(7))
        g.node("after", Add(8))
        for source, target in (("head", "lingers"), ("head", "beside"), ("lingers", "after")):
            g.edge(source, target)
        events = listened(g)
        with pytest.raises(KeyboardInterrupt):
            g.forward(1)
        count = len(events)
        assert events[-1]["event_type"] == "RunFailed"
        assert events[-1]["error"] == "KeyboardInterrupt"
        go_on.set()
        assert done.wait(30)
        for thread in threading.enumerate():
            if thread.name.startswith("soma-"):
                thread.join(30)
        assert len(events) == count
        assert "start after.output" not in told(events)

    @pytest.mark.usefixtures("threads")
    def test_an_error_on_a_thread(self):
        g = Graph(cache="memory")
        g.node("head", Add())
        g.node("fails", Fails(fit=0))
        g.node("beside", Mean())
        g.node("after", Mean())
        g.edge("head", "fails")
        g.edge("head", "beside")
        g.edge("fails", "after")
        events = listened(g)
        with pytest.raises(ValueError, match="no"):
            g.fit(1)
        check_brackets(events)
        found = told(events)
        assert found[-1] == "RunFailed"
        assert "failed fails.state" in found
        assert not any("after" in one for one in found)


class TestControl:
    def graph(self, cache="memory"):
        g = Graph(cache=cache)
        g.branch("b", Odd(), {True: Mean(), False: Add(1)})
        g.loop("l", "b", Above(6), 9)
        return g

    def test_a_branch_in_a_loop(self):
        for cache, shape in (("memory", computed), ("off", unkept)):
            g = self.graph(cache)
            g.load_state({"mean": {"mean": -2.0}})
            events = listened(g)
            g.forward(2)
            told_once = run(
                *shape("odd.output 1"),
                "b takes false 1",
                *shape("add.output 1", "above.output 1", "odd.output 2"),
                "b takes true 2",
                *shape("mean.output 2", "above.output 2", "odd.output 3"),
                "b takes true 3",
                *shape("mean.output 3", "above.output 3"),
                "l stopped after 3",
            )
            assert [event["passes"] for event in events if "arm" in event] == [[1], [2], [3]]
            keys = [event["key"] for event in events if "key" in event]
            assert told(events) == told_once
            g.forward(2)
            if cache == "memory":
                assert [event["key"] for event in events if "key" in event] == keys
                assert told(events) == [
                    one.replace("miss", "hit")
                    for one in told_once
                    if not one.startswith(("start", "done"))
                ]
            else:
                assert told(events) == told_once

    def test_a_fit(self):
        g = Graph(cache="memory")
        g.loop("l", Fails(), until=False, max_iterations=2)
        g.branch("b", lambda x: x > 0, {True: Mean(), False: Fails()})
        g.edge("l", "b")
        events = listened(g)
        g.fit(1)
        actions = [f"fails.{what} {number}" for number in (1, 2) for what in ("state", "output")]
        assert told(events) == run(
            *computed(*actions),
            "l ended after 2",
            *computed("lambda.output"),
            "b takes true",
            *computed("mean.state"),
        )
        g.fit(1)
        assert told(events) == run(
            *(f"hit {one}" for one in actions),
            "l ended after 2",
            "hit lambda.output",
            "b takes true",
            "hit mean.state",
        )

    def test_the_fields_of_decisions(self):
        g = Graph(cache="off")
        g.loop("in", Add(), Above(2), 2)
        g.loop("out", "in", False, 2)
        g.branch("b", lambda _: True, {True: Add(), False: Add()})
        events = listened(g)
        g.forward(0, run_id="r")
        ends = [event for event in events if event["event_type"] == "LoopCompleted"]
        common = {"event_type": "LoopCompleted", "run_id": "r"}
        assert ends == [
            {**common, "node_id": "in", "iterations": 2, "stopped": False, "passes": [1]},
            {**common, "node_id": "in", "iterations": 1, "stopped": True, "passes": [2]},
            {**common, "node_id": "out", "iterations": 2, "stopped": None, "passes": []},
        ]
        (taken,) = (event for event in events if event["event_type"] == "BranchTaken")
        assert taken == {
            "event_type": "BranchTaken",
            "run_id": "r",
            "node_id": "b",
            "arm": "true",
            "passes": [],
        }

    def test_a_loop_that_was_never_told_to_stop_has_no_event_of_its_own(self, capsys):
        g = Graph(cache="memory")
        g.loop("l", Add(), Above(10), 2)
        events = listened(g)
        for word in (computed, hits):
            g.forward(0)
            assert [one.kind for one in g.last_run.notices] == ["LoopNotStopped"]
            assert told(events) == run(
                *word("add.output 1", "above.output 1", "add.output 2", "above.output 2"),
                "l ended after 2",
            )
        capsys.readouterr()

    def test_passes_of_nested_loops_go_from_the_outermost(self):
        g = Graph(cache="off")
        g.loop("in", Add(), False, 2)
        g.loop("out", "in", False, 3)
        events = listened(g)
        g.forward(0)
        found = [event["passes"] for event in events if event["event_type"] == "NodeStarted"]
        assert found == [[out, inner] for out in (1, 2, 3) for inner in (1, 2)]

    def test_a_branch_that_nobody_needs_is_silent_in_a_fit(self):
        g = Graph(cache="off")
        g.node("m", Mean())
        g.branch("b", lambda _: True, {True: Add()})
        g.loop("l", Add(), False, 3)
        g.edge("m", "b")
        g.edge("m", "l")
        events = listened(g)
        g.fit(1)
        assert told(events) == run(*unkept("m.state"))


class Odd(Filter):
    def forward(self, x, state):
        return bool(x % 2)


class Above(Filter):
    def __init__(self, limit):
        self.limit = limit

    def forward(self, x, state):
        return bool(x > self.limit)


class Large(Filter):
    def forward(self, x, state):
        return np.full(BIG, np.ravel(x)[0] + 1)


class Pick(Filter):
    def __init__(self, place=0):
        self.place = place

    def forward(self, x, state):
        return float(x[self.place])


@pytest.mark.usefixtures("quick")
class TestAgain:
    def test_what_was_not_kept_is_made_again(self):
        pick = Pick()
        g = Graph.somatize(Large() >> Large() >> pick, cache="memory")
        events = listened(g)
        g.forward(1.0)
        keys = [event["key"] for event in events if "key" in event]
        told(events)
        pick.place = 3
        g.forward(1.0)
        notices = [event for event in events if event["event_type"] == "NodeRecomputed"]
        assert [(event["node_id"], event["message"]) for event in notices] == [
            (one.node, one.message) for one in g.last_run.notices
        ]
        assert [event["key"] for event in events if "key" in event][:2] == keys[:2]
        again = ["large", "large_2"]
        assert told(events) == run(
            "hit large.output",
            "hit large_2.output",
            "miss pick.output",
            *itertools.chain.from_iterable(
                (f"NodeRecomputed {one}", f"start {one}.output", f"done again {one}.output")
                for one in again
            ),
            "start pick.output",
            "done pick.output",
        )

    def test_in_a_loop(self):
        pick = Pick()
        g = Graph(cache="memory")
        g.loop("l", Large(), False, 2)
        g.node("pick", pick)
        g.edge("l", "pick")
        events = listened(g)
        g.forward(1.0)
        told(events)
        pick.place = 3
        g.forward(1.0)
        assert told(events) == run(
            "hit large.output 1",
            "hit large.output 2",
            "l ended after 2",
            "miss pick.output",
            "NodeRecomputed large",
            "start large.output 1",
            "done again large.output 1",
            "NodeRecomputed large",
            "start large.output 2",
            "done again large.output 2",
            "start pick.output",
            "done pick.output",
        )

    def test_a_state_that_was_evicted(self):
        store = MemoryStore()
        g = Graph.somatize(Mean(), cache=store)
        g.fit(np.arange(3.0))
        store.gc(max_bytes=0)
        events = listened(g)
        g.fit(np.arange(3.0))
        assert told(events) == run("miss mean.state", "start mean.state", "done again mean.state")

    def graph_that_drifts(self):
        class Drifts(Filter):
            def __init__(self):
                self._calls = []

            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, np.ravel(x)[0] + len(self._calls))

        g = Graph(cache="memory")
        g.node("head", Add(1.0))
        g.branch("b", Above(-1), {True: Drifts()})
        g.loop("l", Add(0.5), False, 2)
        g.node("pick", Pick())
        g.node("other", Pick(-1))
        g.edge("head", "b")
        g.edge("b", "pick")
        g.edge("b", "other")
        g.edge("head", "l")
        return g

    def test_a_run_that_starts_over_tells_nothing_twice(self):
        g = self.graph_that_drifts()
        events = listened(g)
        g.forward(1.0)
        told(events)
        g.filter("pick").place = 3
        g.forward(1.0)
        check_brackets(events)
        lookups = [
            (event["event_type"], event["node_id"], event["what"], *event["passes"], event["key"])
            for event in events
            if "key" in event
        ]
        assert len(lookups) == len(set(lookups))
        found = told(events)
        assert found[:2] == ["RunStarted", "hit head.output"]
        assert found.count("NodeRecomputed drifts") == 1
        assert found.count("NodeNotDeterministic drifts") == 1
        assert found.count("done again drifts.output") == 1
        assert found.count("hit head.output") == found.count("hit above.output") == 1
        assert found.count("hit drifts.output") == 1
        assert [one for one in found if one.endswith("pick.output")][-2:] == [
            "start pick.output",
            "done pick.output",
        ]
        assert found.count("miss other.output") == 1

    def test_a_run_that_starts_over_tells_decisions_once(self):
        g = self.graph_that_drifts()
        g.forward(1.0)
        g.filter("pick").place = 3
        events = listened(g)
        g.forward(1.0)
        assert len(g.last_run.decisions) == 2
        found = told(events)
        assert found.count("b takes true") == 1
        assert found.count("l ended after 2") == 1

    def test_a_run_on_threads_that_starts_over(self, threads):
        g = self.graph_that_drifts()
        events = listened(g)
        first = g.forward(1.0)
        g.filter("pick").place = 3
        again = g.forward(1.0)
        assert again["pick"] == again["other"] != first["pick"]
        check_brackets(events)

    def test_a_run_that_starts_over_reports_what_threads_did(self, threads, monkeypatch):
        class Drifts(Filter):
            def __init__(self):
                self._calls = []

            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, x + len(self._calls))

        def total(x):
            return float(x["d"][0]) + x["a"] + x["b"]

        g = Graph(cache="memory")
        for name, node in (("a", Add(1)), ("b", Add(2)), ("d", Drifts()), ("p", total)):
            g.node(name, node)
        for name in "abd":
            g.edge(name, "p")
        g.forward(1.0)
        g.filter("b").amount = 5
        late = []

        def node_run(node, *rest):
            if node == "a" and not late:
                late.append(node)
                for _ in range(3000):
                    if any(row.node == "b" for row in g.last_run.actions):
                        break
                    sleep(0.01)
            return NodeRun(node, *rest)

        monkeypatch.setattr("soma.engine.recording.NodeRun", node_run)
        g.forward(1.0)
        assert late
        outcomes = sorted((row.node, row.outcome) for row in g.last_run.actions)
        assert outcomes[:2] == [("a", "hit"), ("b", "computed")]

    def test_an_input_without_a_hash_is_told_once_in_a_run(self, capsys):
        class Unwritable:
            pass

        g = Graph(cache="memory")
        g.loop("l", Mean(), False, 5)
        g.fit(1, Unwritable())
        assert [one.node for one in g.last_run.notices] == [""]
        capsys.readouterr()

    @pytest.mark.parametrize("shape", ["a loop", "a loop in a loop"])
    def test_what_cannot_be_kept_is_told_once_in_a_run(self, shape, capsys):
        class Unwritable:
            def __init__(self, number):
                self.number = number

        g = Graph(cache="memory")
        g.node("wrap", lambda x: [Unwritable(x)])
        g.node("unwrap", lambda found: found[0].number + 1)
        g.edge("wrap", "unwrap")
        g.loop("l", "wrap", False, 50 if shape == "a loop" else 10)
        if shape != "a loop":
            g.loop("m", "l", False, 5)
        events = listened(g)
        for _ in range(2):
            assert g.forward(0) == 50
            (notice,) = g.last_run.notices
            assert (notice.kind, notice.node) == ("NodeNotKept", "wrap")
            heard = [one for one in events if one["event_type"] == "NodeNotKept"]
            assert heard == [
                {
                    "event_type": "NodeNotKept",
                    "run_id": g.last_run.run_id,
                    "node_id": "wrap",
                    "message": notice.message,
                }
            ]
            events.clear()
        capsys.readouterr()

    def test_what_is_made_again_is_told_each_time(self):
        g = Graph(cache="memory")
        g.loop("l", Large(), False, 4)
        g.node("pick", Pick(0))
        g.edge("l", "pick")
        g.forward(1.0)
        g.filter("pick").place = 3
        events = listened(g)
        g.forward(1.0)
        heard = [one["node_id"] for one in events if one["event_type"] == "NodeRecomputed"]
        assert heard == ["large"] * 4
        assert [(one.kind, one.node) for one in g.last_run.notices] == [
            ("NodeRecomputed", "large")
        ] * 4

    def test_notices_are_events(self, capsys):
        class ChangesItself(Add):
            def forward(self, x, state):
                self.amount += 1
                return x

        class LearnsInside(Filter):
            def fit(self, x, y=None):
                self._mean = x

            def forward(self, x, state):
                return x

        g = Graph.somatize(ChangesItself() >> LearnsInside(), cache="memory")
        events = listened(g)
        g.fit(1)
        notices = [event for event in events if event["event_type"] == "NodeNotKept"]
        assert [(event["node_id"], event["message"]) for event in notices] == [
            (one.node, one.message) for one in g.last_run.notices
        ]
        assert [event["node_id"] for event in notices] == ["changes_itself", "learns_inside"]
        check_brackets(events)
        capsys.readouterr()

    def test_a_broken_store(self, capsys):
        class Broken(MemoryStore):
            def lookup(self, key):
                raise OSError("gone")

            def write(self, frame, digest=None):
                raise OSError("full")

        g = Graph.somatize(Add(), cache=Broken())
        events = listened(g)
        assert g.forward(1) == 2
        found = told(events)
        assert set(found[1:-1]) == {
            "NodeNotKept",
            "miss add.output",
            "start add.output",
            "done add.output",
            "NodeNotKept add",
        }
        capsys.readouterr()


class TestThreads:
    @pytest.mark.usefixtures("threads")
    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_the_events_of_a_node_are_in_order(self, cache):
        g = Graph(cache=cache)
        g.node("head", Add())
        for number in range(6):
            g.node(f"m{number}", Mean())
            g.node(f"n{number}", Add(number))
            g.loop(f"l{number}", Add(number), False, 3)
            g.edge("head", f"m{number}")
            g.edge(f"m{number}", f"n{number}")
            g.edge(f"n{number}", f"l{number}")
        x = np.arange(4.0)
        events = listened(g)
        g.fit(x)
        events.clear()
        for warm in range(2):
            g.forward(x)
            check_brackets(events)
            mine = {}
            for event in events[1:-1]:
                if "what" in event:
                    site = (event["node_id"], tuple(event["passes"]))
                    mine.setdefault(site, []).append(_SHORT[event["event_type"]])
            assert len(mine) == 1 + 6 * (1 + 1 + 3)
            cold = ["miss", "start", "done"] if cache == "memory" else ["start", "done"]
            allowed = [cold, ["hit"]] if cache == "memory" else [cold]
            if warm and cache == "memory":
                allowed = [["hit"]]
            # add 1 after one that adds 1: two nodes may ask for one key at once
            also = ["miss", "hit"] if cache == "memory" and not warm else None
            assert all(one in allowed or one == also for one in mine.values())
            events.clear()

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_two_runs_at_once(self, cache):
        both = threading.Barrier(2, timeout=30)

        class Meets(Filter):
            _cacheable = False

            def __init__(self):
                self._both = both

            def forward(self, x, state):
                self._both.wait()
                return x

        g = Graph(cache=cache)
        g.node("meets", Meets())
        g.loop("l", Add(), False, 5)
        g.edge("meets", "l")
        events, found = listened(g), {}

        def work(number):
            for turn in range(5):
                found[number, turn] = g.forward(10 * number, run_id=f"{number}.{turn}")

        run_in_threads(work, 2)
        assert found == {(n, t): 10 * n + 5 for n in range(2) for t in range(5)}
        assert len({event["run_id"] for event in events}) == 10
        check_brackets(events)

    @pytest.mark.usefixtures("threads")
    def test_one_computes_what_two_ask_for(self):
        """The one that waits looks it up twice: a miss, and then a hit."""
        started, waiting = threading.Event(), threading.Event()

        class Holds(Filter):
            def __init__(self, *events):
                self._events = events

            def forward(self, x, state):
                started, waiting = self._events
                started.set()
                assert waiting.wait(30)
                return x

        store = MemoryStore()
        claim = store.claim

        def claims(key):
            if started.is_set():
                waiting.set()
            return claim(key)

        store.claim = claims
        g, h = (Graph.somatize(Holds(started, waiting), cache=store) for _ in range(2))
        first, second = listened(g), listened(h)

        def work(number):
            if number:
                assert started.wait(30)
            (h if number else g).forward(1)

        run_in_threads(work, 2)
        assert told(first) == run(*computed("holds.output"))
        assert told(second) == run("miss holds.output", "hit holds.output")


class TestListening:
    def test_hearing_no_more_inside_the_callback(self):
        g, found = Graph.somatize(Add() >> Add(2), cache="off"), []

        def twice(event):
            found.append(event["event_type"])
            if len(found) == 2:
                handle()

        handle = g.on_event(twice)
        assert g.forward(1) == 4
        assert found == ["RunStarted", "NodeStarted"]
        assert g.forward(1) == 4
        assert len(found) == 2

    def test_hearing_from_the_middle_of_a_run(self):
        g, found = Graph.somatize(Add() >> Add(2), cache="off"), []

        def later(event):
            if event["event_type"] == "NodeCompleted" and not found:
                found.append("subscribed")
                g.on_event(lambda event: found.append(_told(event)))

        g.on_event(later)
        g.forward(1)
        assert found == ["subscribed", *unkept("add_2.output"), "RunCompleted"]

    def test_a_callback_that_raises(self, capsys):
        g, found = Graph.somatize(Add() >> Add(2), cache="memory"), []

        def breaks(event):
            raise RuntimeError("mine")

        g.on_event(breaks)
        g.on_event(found.append)
        assert [g.forward(1), g.forward(1)] == [4, 4]
        assert len(found) == 8 + 4
        err = capsys.readouterr().err
        (line,) = err.splitlines()
        assert "breaks failed at the event 'RunStarted': RuntimeError: mine (" in line
        assert line.startswith("soma: ")
        assert line.endswith("The run goes on; further errors of it are not shown")

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
    def test_a_callback_that_interrupts(self, kind):
        g, found = Graph.somatize(Add(), cache="memory"), []

        def interrupts(event):
            if event["event_type"] == "NodeStarted":
                raise kind

        handle = g.on_event(interrupts)
        g.on_event(lambda event: found.append(_told(event)))
        with pytest.raises(kind):
            g.forward(1)
        told = ["miss add.output", "start add.output", "failed add.output"]
        assert found == ["RunStarted", *told, "RunFailed"]
        handle()
        assert g.forward(1) == 2
        assert found[5:] == run(*computed("add.output"))

    def test_a_callback_that_runs_the_same_graph(self):
        g, found = Graph.somatize(Add() >> Add(2), cache="memory"), []

        def runs(event):
            found.append((event["run_id"], _told(event)))
            if event["event_type"] == "RunStarted" and event["run_id"] == "outer":
                assert g.forward(10, run_id="inner") == 13

        g.on_event(runs)
        assert g.forward(1, run_id="outer") == 4
        cold = run(*computed("add.output", "add_2.output"))
        for run_id in ("inner", "outer"):
            assert [one for who, one in found if who == run_id] == cold
        assert [who for who, _ in found] == ["outer"] + ["inner"] * 8 + ["outer"] * 7

    def test_a_callback_that_runs_the_same_graph_on_threads(self):
        """In a process that ends: what waits for itself waits for ever."""
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(NESTED)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "{'c': 14, 'd': 15}\n{'c': 4, 'd': 5}\n"

    def test_a_callback_that_changes_its_dict(self):
        g, found = Graph(cache="off"), []
        g.loop("l", Add(), False, 2)

        def spoils(event):
            event.get("plan_summary", {}).clear()
            event.get("passes", []).append(99)
            event.clear()

        g.on_event(spoils)
        g.on_event(found.append)
        g.on_event(spoils)
        assert g.forward(1) == 3
        assert [event.get("passes") for event in found[1:-2]] == [[1], [1], [2], [2]]
        assert found[0]["plan_summary"]["total_nodes"] == 1

    def test_a_callback_that_changes_the_graph(self):
        g, found = Graph.somatize(Add() >> Add(2), cache="off"), []

        def grows(event):
            if event["event_type"] == "NodeCompleted" and len(g) == 2:
                g.node("more", Add(100))

        g.on_event(grows)
        g.on_event(lambda event: found.append(_told(event)))
        assert g.forward(1) == 4
        assert g.forward(1) == {"add_2": 4, "more": 101}

    def test_what_is_no_callback(self):
        g = Graph()

        async def later(event):
            pass

        for wrong in (3, None, later):
            with pytest.raises(InvalidInput):
                g.on_event(wrong)
        with pytest.raises(UnknownName):
            g.on_event("no-such-sink")

    def test_copies_have_no_listeners(self):
        from copy import copy, deepcopy

        g = Graph.somatize(Add(), cache="off")
        events = listened(g)
        for one in (copy(g), deepcopy(g)):
            assert one.forward(1) == 2
            assert events == []
            others = listened(one)
            one.forward(1)
            assert told(others) == run(*unkept("add.output"))
        assert events == []
        g.forward(1)
        assert told(events) == run(*unkept("add.output"))

    def test_listening_changes_nothing(self):
        quiet, heard = Graph(cache="memory"), Graph(cache="memory")
        for g in (quiet, heard):
            g.loop("l", Mean(), False, 3)
        events = listened(heard)
        for g in (quiet, heard):
            g.fit(np.arange(4.0))
            np.testing.assert_array_equal(g.forward(np.arange(4.0)), np.arange(4.0))
        assert [one[:3] for one in quiet.last_run.actions] == [
            one[:3] for one in heard.last_run.actions
        ]
        assert events


NESTED = """
    import faulthandler
    from soma import Filter, Graph
    from soma.engine import schedule
    faulthandler.dump_traceback_later(3, exit=True)
    schedule.SLOW_S = -1.0

    def add(amount):
        return lambda x: x + amount

    g = Graph(cache="off")
    g.node("a", add(1))
    for name, amount in (("c", 2), ("d", 3)):
        g.node(name, add(amount))
        g.edge("a", name)

    def runs(event):
        if event["event_type"] == "RunStarted" and event["run_id"] == "outer":
            print({name: x + 1 for name, x in g.forward(10).items()})

    g.on_event(runs)
    print(g.forward(1, run_id="outer"))
"""


class TestEmit:
    def test_all_forms(self):
        g = Graph(cache="off")
        events = listened(g)
        progress = {"run_id": "r", "node_id": "a", "progress": 0.5}
        g.emit("mine", loss=np.float32(0.5), more={"a": (1, 2)})
        g.emit({"event_type": "mine", "loss": 0.5, "more": {"a": [1, 2]}})
        g.emit(UserEvent("mine", {"loss": 0.5, "more": {"a": [1, 2]}}))
        g.emit("NodeProgress", **progress)
        g.emit({"event_type": "NodeProgress", **progress})
        g.emit(NodeProgress(**progress))
        assert events[:3] == [{"event_type": "mine", "loss": 0.5, "more": {"a": [1, 2]}}] * 3
        assert events[3:] == [{"event_type": "NodeProgress", **progress}] * 3

    @pytest.mark.parametrize(
        ("event", "fields", "message"),
        [
            ("NodeProgress", {"run_id": "r", "node_id": "a"}, "NodeProgress needs progress"),
            (
                "NodeProgress",
                {"run_id": "r", "node_id": "a", "progress": "half"},
                "NodeProgress: progress must be a number, not 'half'",
            ),
            (
                "NodeProgress",
                {"run_id": "r", "node_id": "a", "progress": 1, "proggress": 1},
                "NodeProgress has no field 'proggress'. Did you mean 'progress'?",
            ),
            ("mine", {"loss": object()}, "'mine': loss must be plain data"),
            ("node_progress", {}, "'NodeProgress' is Soma's"),
            ("", {}, "The name of an event must be a text"),
            (3, {}, "emit takes the name of an event"),
            ({"loss": 1}, {}, "'event_type'"),
            ({"event_type": "mine"}, {"loss": 1}, "emit takes fields only after the name"),
        ],
    )
    def test_what_is_refused_also_where_nobody_listens(self, event, fields, message):
        g = Graph(cache="off")
        for listen in (False, True):
            events = listened(g) if listen else []
            with pytest.raises(InvalidInput, match=re.escape(message)):
                g.emit(event, **fields)
            assert events == []

    def test_from_inside_a_filter(self):
        g = Graph(cache="off")

        class Says(Filter):
            def forward(self, x, state):
                g.emit("half way", x=x)
                return x

        g.node("says", Says())
        events = listened(g)
        g.forward(3)
        assert [event["event_type"] for event in events] == [
            "RunStarted",
            "NodeStarted",
            "half way",
            "NodeCompleted",
            "RunCompleted",
        ]

    def test_from_inside_a_callback(self):
        g, found = Graph.somatize(Add(), cache="off"), []

        def answers(event):
            if event["event_type"] == "NodeStarted":
                g.emit("answer")

        g.on_event(answers)
        g.on_event(lambda event: found.append(event["event_type"]))
        g.forward(1)
        assert found == ["RunStarted", "NodeStarted", "answer", "NodeCompleted", "RunCompleted"]

    def test_a_field_called_event(self):
        g = Graph(cache="off")
        events = listened(g)
        g.emit("mine", event=1, self=2, name=3)
        assert events == [{"event_type": "mine", "event": 1, "self": 2, "name": 3}]


PLUGIN = """
import soma

@soma.hookimpl
def soma_event_sinks():
    yield soma.EventSinkSpec(name="{name}", target="{module}.cli:Sink", default={default})
"""
SINK = """
class Sink:
    def __init__(self, run_dir):
        pass

    def __call__(self, event):
        print("{says}", type(event).__name__, getattr(event, "node_id", ""))
"""


class TestSinks:
    def test_installed_sinks(self, tmp_path):
        for name, default in (("always", True), ("asked", False)):
            write_plugin(
                tmp_path,
                name,
                plugin=PLUGIN.format(name=name, module=name, default=default),
                cli=SINK.format(says=name),
            )
        done = run_python(
            """
            from copy import copy
            from soma import Graph

            g = Graph.somatize(lambda x: x + 1, cache="off")
            print(g.forward(1))
            handle = g.on_event("asked")
            g.forward(1)
            handle()
            print(copy(g).forward(1))
            """,
            tmp_path,
        )
        kinds = ["RunStarted ", "NodeStarted lambda", "NodeCompleted lambda", "RunCompleted "]
        always = [f"always {kind}" for kind in kinds]
        both = [f"{who} {kind}" for kind in kinds for who in ("always", "asked")]
        assert done.stdout.splitlines() == [*always, "2", *both, *always, "2"]
        assert done.stderr == ""


class TestProgress:
    def lines(self, capsys):
        out, err = capsys.readouterr()
        assert out == ""
        return [re.sub(r"in [\d.]+ (µs|us|ms|s)\b", "in T", line) for line in err.splitlines()]

    def test_lines(self, capsys):
        g = Graph(cache="memory")
        g.node("scaler", Mean())
        g.loop("l", Add(), Above2(1.5), 9)
        g.node("end", Mean())
        g.edge("scaler", "l")
        g.edge("l", "end")
        x = np.arange(3.0)
        g.fit(x, progress=True)
        assert self.lines(capsys) == [
            "soma: fit scaler: computed in T, 36 B",
            "soma: forward scaler: computed in T, 88 B",
            "soma: forward add (pass 1): computed in T, 88 B",
            "soma: forward above2 (pass 1): computed in T, 20 B",
            "soma: forward add (pass 2): computed in T, 88 B",
            "soma: forward above2 (pass 2): computed in T, 20 B",
            "soma: fit end: computed in T, 36 B",
            "soma: fit done in T: 7 computed",
        ]
        g.fit(x, progress=True)
        assert self.lines(capsys) == [
            "soma: fit scaler: hit",
            "soma: forward scaler: hit",
            "soma: forward add (pass 1): hit",
            "soma: forward above2 (pass 1): hit",
            "soma: forward add (pass 2): hit",
            "soma: forward above2 (pass 2): hit",
            "soma: fit end: hit",
            "soma: fit done in T: 7 hits",
        ]
        g.forward(x)
        g.forward(x, progress=False)
        assert self.lines(capsys) == []

    def test_a_failure(self, capsys):
        g = Graph.somatize(Add() >> Fails(fit=0), cache="off")
        with pytest.raises(ValueError, match="no"):
            g.fit(1, progress=True)
        assert self.lines(capsys) == [
            "soma: forward add: computed in T",
            "soma: fit fails: failed: ValueError: no more",
            "soma: fit failed: ValueError: no more",
        ]
        assert g._events().listening is False

    def test_what_is_refused_before_the_run(self, capsys):
        g = Graph.somatize(Mean(), cache="off")
        with pytest.raises(NotFittedError):
            g.forward(1, progress=True)
        assert self.lines(capsys) == ["soma: forward stopped: NotFittedError"]
        assert g._events().listening is False

    @pytest.mark.parametrize("wrong", ["yes", 1, None, "", np.True_])
    def test_true_or_false(self, wrong, capsys):
        g = Graph.somatize(Add(), cache="off")
        for call in (g.forward, g.fit):
            with pytest.raises(InvalidInput, match="progress must be True or False, not"):
                call(1, progress=wrong)
        assert self.lines(capsys) == []

    def test_only_this_run_is_shown(self, capsys):
        g = Graph.somatize(Add(), cache="off")

        def runs(event):
            if event["event_type"] == "RunStarted" and event["run_id"] == "outer":
                g.forward(5)

        g.on_event(runs)
        g.forward(1, run_id="outer", progress=True)
        assert self.lines(capsys) == [
            "soma: forward add: computed in T",
            "soma: forward done in T: 1 computed",
        ]


class Above2(Filter):
    def __init__(self, limit):
        self.limit = limit

    def forward(self, x, state):
        return bool(x[0] >= self.limit - 0.5)
