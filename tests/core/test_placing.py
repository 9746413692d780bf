"""Nodes that run at workers: where, at the same time, with the results that they have here."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import soma
from soma import (
    Graph,
    GraphError,
    InvalidInput,
    MemoryExceeded,
    MissingCapability,
    NotSendable,
    SessionError,
    SessionLost,
    SessionTimeout,
    UnknownName,
)
from soma.sessions import LocalRunner
from soma.sessions.parts import parts_of
from support import placed_filters
from support.distributions import run_python
from support.placed_filters import (
    Changes,
    Counts,
    Dies,
    Draws,
    Fails,
    Inside,
    Keeps,
    KeepsALock,
    Mean,
    Meet,
    Nested,
    Opens,
    Prints,
    Sleeps,
    Spins,
    Takes,
    Times,
    Twice,
    Where,
)

X = np.arange(12.0).reshape(6, 2)
LIMIT_S = 60


def wait_for(path):
    for _ in range(LIMIT_S * 20):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise TimeoutError(path)


def is_gone(pid):
    for _ in range(LIMIT_S * 20):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def graph():
    made = []

    def make(**settings):
        g = Graph(**{"cache": "memory", **settings})
        made.append(g)
        return g

    yield make
    for g in made:
        g.shutdown_workers()


def actions(g):
    return [(row.node, row.what, row.outcome, row.worker) for row in g.last_run.actions]


class TestWhere:
    def test_one_worker_takes_every_node_and_the_states_come_home(self, graph):
        here, there = graph(), graph()
        for g in (here, there):
            g.node("mean", Mean())
            g.node("times", Times(3))
            g.edge("mean", "times")
        assert there.add_worker("local://") == ("local-1",)
        here.fit(X)
        there.fit(X)
        assert there.state()["mean"]["pid"] != os.getpid()
        assert here.state()["mean"]["pid"] == os.getpid()
        assert np.array_equal(there.state()["mean"]["mean"], [5.0, 6.0])
        result = there.forward(X)
        assert result.tobytes() == here.forward(X).tobytes()
        assert result.dtype == np.float64
        assert actions(there) == [
            ("mean", "output", "computed", "local-1"),
            ("times", "output", "computed", "local-1"),
        ]
        assert np.array_equal(there.forward(X), result)
        assert [row[2:] for row in actions(there)] == [("hit", "")] * 2

    def test_a_target_names_a_worker_a_tag_or_this_process(self, graph):
        g = graph()
        for id_, target in [("a", "local-2"), ("b", "gpu"), ("c", "local"), ("d", None)]:
            g.node(id_, Where(), target=target)
        g.add_worker("local://", count=2)
        assert g.add_worker("local://big", tags=("gpu", "large")) == ("big-1",)
        found = g.forward(1)
        assert found["c"] == os.getpid()
        by_node = {node: worker for node, _, _, worker in actions(g)}
        assert by_node["a"] == "local-2"
        assert by_node["b"] == "big-1"
        assert by_node["c"] == ""
        assert by_node["d"] in {"local-1", "local-2", "big-1"}
        assert found["a"] != found["b"] != os.getpid()
        assert [one.name for one in g.workers()] == ["local-1", "local-2", "big-1"]
        assert g.workers()[2].tags == ("gpu", "large")

    def test_a_target_that_nobody_has_is_refused_before_anything_starts(self, graph):
        g = graph()
        g.node("a", Where(), target="gpu")
        g.add_worker("local://", tags=["large"])
        message = (
            "Node 'a' shall run at 'gpu', and this graph has no worker of that name or tag. There "
            "is: 'local', 'local-1', 'large'"
        )
        with pytest.raises(GraphError, match=f"^{message}$"):
            g.forward(1)

    def test_sequential_parts_stay_together_and_branches_run_at_once(self, graph, tmp_path):
        g = graph()
        g.node("start", Times(1), target="local")
        for one, other in [("left", "right"), ("right", "left")]:
            g.node(one, Meet(tmp_path, one, other))
            g.node(f"{one} again", Where())
            g.edge("start", one)
            g.edge(one, f"{one} again")
        g.node("last", lambda found: sorted(found.items()), target="local")
        g.edge("left again", "last")
        g.edge("right again", "last")
        g.add_worker("local://", count=2)
        found = dict(g.forward(1))
        by_node = {node: worker for node, _, _, worker in actions(g)}
        assert {by_node["left"], by_node["right"]} == {"local-1", "local-2"}
        assert by_node["left again"] == by_node["left"]
        assert by_node["right again"] == by_node["right"]
        assert found["left again"] != found["right again"]

    def test_branches_and_loops_run_their_nodes_at_workers(self, graph):
        results = []
        for workers in (0, 2):
            g = graph()
            g.node("double", Times(2))
            g.loop("until big", "double", until=lambda x: bool(x[0] > 50))
            g.branch("choose", lambda x: "a", {"a": Times(10), "b": Fails()})
            g.edge("until big", "choose")
            if workers:
                g.add_worker("local://", count=workers)
            results.append(g.forward(np.array([1.0, 2.0])))
            told = [(one.node, one.outcome) for one in g.last_run.decisions]
            assert told == [("until big", "6 passes, stopped"), ("choose", "took arm 'a'")]
        assert np.array_equal(results[0], [640.0, 1280.0])
        assert np.array_equal(results[1], results[0])
        assert {row[3] for row in actions(g)} <= {"local-1", "local-2"}

    def test_what_needs_nobody_starts_nobody(self, graph):
        g = graph()
        g.node("mean", Mean())
        g.fit(X)
        g.add_worker("local://", count=3)
        g.fit(X)
        assert [row[2] for row in actions(g)] == ["hit"]
        assert all(one._child is None for one in g._workers.members)  # none was started


class TestSameResults:
    def test_seeds_and_generators(self, graph):
        found = []
        for workers in (0, 1):
            g = graph()
            g.node("draws", Draws())
            if workers:
                g.add_worker("local://")
            found.append(g.forward(X, seed=7))
        assert found[0].tobytes() == found[1].tobytes()

    def test_a_fit_goes_on_from_its_state(self, graph):
        g = graph()
        g.node("twice", Twice())
        g.add_worker("local://")
        g.fit(X)
        g.fit(X, warm_start=True)
        assert g.state() == {"twice": {"n": 2}}
        assert np.array_equal(g.forward(X), X * 2)

    def test_keys_are_those_of_this_process(self, graph):
        store = soma.engine.MemoryStore()
        there = graph(cache=store)
        there.node("mean", Mean())
        there.add_worker("local://")
        there.fit(X)
        here = graph(cache=store)
        here.node("mean", Mean())
        here.fit(X)
        assert here.last_run.hits == 1
        assert here.last_run.computed == ()

    def test_without_a_cache(self, graph):
        g = graph(cache="off")
        g.node("mean", Mean())
        g.node("left", Times(2))
        g.node("right", Times(3))
        for one in ("left", "right"):
            g.edge("mean", one)
        g.add_worker("local://", count=2)
        g.fit(X)
        found = g.forward(X)
        assert np.array_equal(found["left"], (X - [5, 6]) * 2)
        assert np.array_equal(found["right"], (X - [5, 6]) * 3)

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_what_a_fit_keeps_to_itself_comes_home(self, graph, cache):
        g = graph(cache=cache)
        keeps = Keeps()
        g.node("keeps", keeps)
        g.add_worker("local://")
        g.fit(X)
        assert keeps._learned == X.sum()
        assert np.array_equal(g.forward(X), X + 66.0)
        g.shutdown_workers()  # the other process is gone, and what it learned is here
        assert np.array_equal(g.forward(X), X + 66.0)

    def test_public_attributes_that_a_fit_sets_come_home(self, graph):
        g = graph()
        changes = Changes()
        g.node("changes", changes)
        g.add_worker("local://")
        g.fit(X)
        assert changes.mean_ == 5.5
        assert [one.kind for one in g.last_run.notices] == ["NodeNotKept"]
        assert np.array_equal(g.forward(X), X - 5.5)

    def test_an_attribute_that_is_set_between_two_runs_counts(self, graph):
        g = graph()
        times = Times(2)
        g.node("times", times)
        g.add_worker("local://")
        assert np.array_equal(g.forward(X), X * 2)
        times.factor = 5
        assert np.array_equal(g.forward(X), X * 5)

    def test_values_that_no_codec_covers_travel_as_pickles(self, graph):
        g = graph()
        g.node("makes", lambda x: {"odd": complex, "set": frozenset({x}), "range": slice(1)})
        g.node("reads", lambda found: found["odd"](*found["set"]))
        g.edge("makes", "reads")
        g.add_worker("local://")
        assert g.forward(2) == complex(2)

    def test_large_values_go_through_several_workers(self, graph):
        g = graph()
        g.node("a", Times(2.0), target="local-1")
        g.node("b", Times(3.0), target="local-2")
        g.node("c", Times(5.0), target="local")
        g.edge("a", "b")
        g.edge("b", "c")
        g.add_worker("local://", count=2)
        x = np.random.default_rng(0).normal(size=400_000)
        assert g.forward(x).tobytes() == (x * 2.0 * 3.0 * 5.0).tobytes()

    @pytest.mark.parametrize(
        "x", [np.array(3.5), np.zeros((0, 4)), 2**200, "ünï", None, [1, (2.5, None)], {"a": b"x"}]
    )
    def test_odd_values(self, graph, x):
        g = graph()
        g.node("same", lambda x: x)
        g.add_worker("local://")
        found = g.forward(x)
        assert type(found) is type(x)
        assert soma.frame.content_hash(found) == soma.frame.content_hash(x)


SCRIPT = """
import enum, functools
import numpy as np
from soma import Filter, Graph

class Colour(enum.Enum):
    RED = 1

class Slotted:
    __slots__ = ("value",)
    def __init__(self, value):
        self.value = value

@functools.lru_cache
def cached(x):
    return x + 1

class Holder(Filter):
    @functools.cached_property
    def five(self):
        return 5
    @functools.lru_cache
    def plus(self, x):
        return x + self.five
    def fit(self, x, y=None):
        return {"colour": Colour.RED}
    def forward(self, x, state):
        return (Slotted(self.plus(x)), state["colour"], x)

def look(found):
    slotted, colour, x = found
    return [slotted.value, colour is Colour.RED, x is Colour.RED]

def fails(found):
    raise ValueError("here")

g = Graph(cache="memory")
g.node("cached", cached)
g.node("holder", Holder())
g.node("look", look)
g.edge("cached", "holder")
g.edge("holder", "look")
g.add_worker("local://", count=2)
g.fit(1)
print(g.forward(1))
h = Graph(cache="memory")
h.node("slotted", lambda x: Slotted(x))
h.node("enum", lambda x: x)
h.node("read", lambda x: x is Colour.RED)
h.edge("enum", "read")
h.add_worker("local://")
found = h.forward(Colour.RED)
print(found["slotted"].value is Colour.RED, type(found["slotted"]) is Slotted, found["read"])
g.node("fails", fails)
g.edge("look", "fails")
try:
    g.forward(2)
except ValueError as error:
    print(*error.__notes__)
"""


def test_what_a_script_defines_travels_there_and_back(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    made = run_python(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert made.returncode == 0, made.stderr
    first, second, *note = made.stdout.splitlines()
    assert first == "[7, True, False]"
    assert second == "True True True"
    assert f'File "{path}", line ' in "".join(note)
    assert 'raise ValueError("here")' in "".join(note)  # the line, from the file


class TestCode:
    """A class that is another in the child must not be run under the key of ours."""

    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        path = tmp_path / "changing.py"
        path.write_text(CHANGING)
        monkeypatch.syspath_prepend(tmp_path)
        yield importlib.import_module("changing"), path
        del sys.modules["changing"]

    @pytest.mark.parametrize("cache", ["memory", "off"])
    @pytest.mark.parametrize("what", ["global", "method", "file"])
    def test_what_is_not_the_same_there_is_refused(self, graph, module, cache, what):
        changing, path = module
        g = graph(cache=cache)
        g.node("scale", changing.Scale())
        g.add_worker("local://")
        if what == "global":
            changing.FACTOR = 10
        elif what == "method":
            changing.Scale.forward = lambda self, x, state: x * 10
        else:
            path.write_text(CHANGING.replace("FACTOR = 1", "FACTOR = 10"))
        with pytest.raises(SessionError, match=r"Node 'scale': changing\.Scale") as caught:
            g.forward(2)
        assert "in node 'scale' (Scale), during forward" in caught.value.__notes__
        if what == "file":
            changing = importlib.reload(changing)
            g.filter("scale").__class__ = changing.Scale
            assert g.forward(2) == 20
        g.shutdown_workers()
        assert g.forward(2) == (2 if what == "nothing" else 20)

    def test_a_worker_that_has_an_older_module_is_started_again(self, graph, module):
        changing, path = module
        g = graph()
        g.node("scale", changing.Scale())
        g.node("where", Where())
        g.add_worker("local://")
        before = g.forward(2)
        assert before["scale"] == 2
        path.write_text(CHANGING.replace("FACTOR = 1", "FACTOR = 10"))
        os.utime(path, (1, 1))  # another time than that of the file before
        g.filter("scale").__class__ = importlib.reload(changing).Scale
        after = g.forward(2)
        assert after["scale"] == 20
        assert is_gone(before["where"])
        assert after["where"] != before["where"]


CHANGING = """
from soma import Filter

FACTOR = 1

class Scale(Filter):
    def forward(self, x, state):
        return x * FACTOR
"""


class TestFiltersThatChange:
    """The filter at home counts, whatever a call did with the copy in the child."""

    def test_a_fit_that_learns_the_same_into_itself_again_is_not_recorded(self, graph):
        found = []
        for workers in (0, 1):
            g = graph()
            g.node("inside", Inside())
            if workers:
                g.add_worker("local://")
            for x in (X, X, X + 100, X):
                g.fit(x)
            assert g.last_run.hits == 0
            assert g.state() == {}
            found.append(g.forward(X))
        assert np.array_equal(found[0], X - 5.5)
        assert np.array_equal(found[1], found[0])

    def test_what_is_set_back_at_home_is_set_back(self, graph):
        g = graph()
        counts = Counts()
        g.node("counts", counts)
        g.add_worker("local://")
        for _ in range(3):
            counts._n = 10
            assert g.forward(1) == 11
        assert counts._n == 11

    def test_a_fit_that_was_refused_is_refused_again(self, graph):
        g = graph()
        g.node("keeps", KeepsALock())
        g.add_worker("local://")
        for _ in range(2):
            with pytest.raises(NotSendable, match=r"self\._lock"):
                g.fit(X)

    def test_a_public_attribute_that_cannot_come_home_is_not_recorded(self, graph):
        g = graph()
        g.node("opens", Opens())
        g.add_worker("local://")
        for _ in range(2):
            assert g.forward(3) == 3
            assert g.last_run.hits == 0
            assert "attribute handle is new" in g.last_run.notices[0].message


class TestTurns:
    def test_a_node_that_runs_a_graph_with_workers_frees_what_it_holds(self, graph, monkeypatch):
        """Else it waits for a worker at which somebody waits for the node."""
        with LocalRunner() as runner:
            store, started = soma.engine.MemoryStore(), threading.Event()
            inner = graph(cache="off")
            inner.node("sleeps", Sleeps(0.2))
            inner.add_worker(runner)
            monkeypatch.setattr(placed_filters, "NESTED", [(inner, started.set)])
            here, there = graph(cache=store), graph(cache=store)
            here.node("nested", Nested())
            there.node("nested", Nested())
            there.add_worker(runner)
            found = []

            def place():
                if started.wait(LIMIT_S):
                    found.append(there.forward(4))

            thread = threading.Thread(target=place, daemon=True)
            thread.start()
            assert here.forward(4) == 8
            thread.join(LIMIT_S)
            assert found == [8]

    def test_workers_that_are_shut_down_during_a_run_end_it(self, graph):
        g = graph()
        g.node("first", Times(2))
        g.node("second", Times(3), target="local")
        g.node("third", Times(5))
        g.edge("first", "second")
        g.edge("second", "third")
        g.add_worker("local://")
        g.on_event(
            lambda event: (
                g.shutdown_workers()
                if event["event_type"] == "NodeStarted" and event["node_id"] == "second"
                else None
            )
        )
        with pytest.raises(SessionError, match="local-1 was shut down"):
            g.forward(1)
        assert g.forward(1) == 30

    def test_a_worker_that_cannot_start_names_the_node(self, graph, tmp_path):
        program = tmp_path / "python"
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        g = graph()
        g.node("first", Times(2))
        g.add_worker("local://", python=program)
        with pytest.raises(SessionError) as caught:
            g.forward(1)
        assert caught.value.__notes__ == ["in node 'first' (Times), during forward"]
        assert [one.node for one in g.last_run.failures] == ["first"]

    def test_graphs_that_are_gone_leave_nothing_at_a_worker(self, graph):
        with LocalRunner(count=2) as runner:
            for _ in range(5):
                g = Graph(cache="off")
                g.node("first", Times(2))
                g.add_worker(runner)
                assert g.forward(1) == 2
                del g
                gc.collect()
            last = graph(cache="off")
            last.node("first", Times(2))
            last.add_worker(runner)
            assert last.forward(1) == 2
            first, second = runner.members
            known = [key for key in first._child.known if type(key) is tuple]
            assert known == [(last._workers.owner, "first")]
            assert first._left == second._left == []  # the second was never started

    def test_odd_surroundings(self, graph, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        g = graph()
        g.node("first", Times(2))
        g.add_worker("local://")
        assert g.forward(1) == 2

    def test_a_block_stays_at_one_worker(self):
        class Layer(soma.Filter):
            _kind = "trainable"

            def forward(self, x, state):
                return x

        g = Graph(cache="off")
        g.node("before", Times(1))
        for id_ in ("a", "b", "c"):
            g.node(id_, Layer())
        g.node("after", Times(1))
        for edge in [("before", "a"), ("a", "b"), ("a", "c"), ("b", "after"), ("c", "after")]:
            g.edge(*edge)
        parts = {id_: part for part in parts_of(g._program()) for id_ in part.ids}
        assert parts["a"] is parts["b"] is parts["c"] is parts["before"]
        assert parts["after"] is not parts["a"]


class TestFaults:
    def test_errors_keep_their_type_and_say_where(self, graph):
        g = graph()
        g.node("fails", Fails())
        g.node("fine", Times(2))
        g.add_worker("local://")
        with pytest.raises(ValueError, match=r"^this is wrong") as caught:
            g.forward(X)
        assert caught.value.args == ("this is wrong",)
        notes = "\n".join(caught.value.__notes__)
        assert "in node 'fails' (Fails), during forward" in notes
        assert "local-1" in notes
        assert "raise ValueError(self.message)" in notes
        g.filter("fails").message = "still"
        with pytest.raises(ValueError, match=r"^still"):
            g.forward(X)

    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ("exit", "exited with status 3"),
            (str(int(signal.SIGKILL)), "SIGKILL"),
            ("segfault", "SIGSEGV"),
        ],
    )
    def test_a_process_that_dies_is_named_and_the_next_call_works(
        self, graph, tmp_path, how, words, capfd
    ):
        g = graph()
        g.node("mean", Mean())
        g.node("dies", Dies(how, tmp_path / "spared"))
        g.edge("mean", "dies")
        g.add_worker("local://")
        with pytest.raises(SessionLost, match=words) as caught:
            g.fit(X)
        assert "local-1" in str(caught.value)
        assert "fit of node 'dies'" in str(caught.value)
        (tmp_path / "spared").touch()
        g.fit(X)
        assert [row[:3] for row in actions(g)] == [
            ("mean", "state", "hit"),
            ("mean", "output", "hit"),
            ("dies", "state", "computed"),
        ]
        assert g.state()["dies"] == {"n": 6}

    def test_a_call_that_takes_too_long_is_stopped(self, graph):
        g = graph()
        g.node("sleeps", Sleeps(LIMIT_S))
        g.add_worker("local://", timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(SessionTimeout, match=r"0\.5 s") as caught:
            g.forward(1)
        assert "forward of node 'sleeps'" in str(caught.value)
        assert time.monotonic() - began < LIMIT_S / 2
        g.filter("sleeps").seconds = 0
        assert g.forward(1) == 1

    def test_memory_is_limited(self, graph):
        g = graph()
        g.node("takes", Takes(2 << 30))
        g.add_worker("local://", memory="500M")
        with pytest.raises(MemoryExceeded, match="local-1") as caught:
            g.forward(1)
        assert isinstance(caught.value, MemoryError)
        g.filter("takes").nbytes = 8 << 20
        assert g.forward(1) == 1.0

    def test_what_cannot_travel_is_named_before_anything_is_sent(self, graph):
        g = graph()
        lock = threading.Lock()
        times = Times(2)
        times._lock = lock
        g.node("locked", times)
        g.add_worker("local://")
        with pytest.raises(NotSendable, match=r"Node 'locked' \(Times\): self\._lock"):
            g.forward(X)
        del times._lock
        assert np.array_equal(g.forward(X), X * 2)

    def test_an_opaque_does_not_travel(self, graph):
        g = graph()
        g.node("opens", lambda x: soma.Opaque(threading.Lock()), target="local")
        g.node("uses", lambda lock: lock.locked(), target="local-1")
        g.edge("opens", "uses")
        g.add_worker("local://")
        with pytest.raises(NotSendable, match="'uses' runs at 'local-1', and what 'opens' gives"):
            g.forward(1)

    def test_what_is_learned_into_a_lock_cannot_come_home(self, graph):
        g = graph()
        g.node("keeps", KeepsALock())
        g.add_worker("local://")
        with pytest.raises(NotSendable, match=r"fit of node 'keeps'.*self\._lock"):
            g.fit(X)

    def test_prints_are_marked(self, graph, capsys):
        g = graph()
        g.node("prints", Prints())
        g.add_worker("local://")
        g.forward(1)
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.splitlines() == [
            "[local-1] a line of Python",
            "[local-1] raw bytes \\xff",
            "[local-1] no end",
        ]

    def test_four_graphs_on_two_children_and_one_fails(self, graph):
        with LocalRunner(count=2) as runner:
            graphs = []
            for number in range(4):
                g = graph()
                g.node("mean", Mean())
                g.node("last", Fails() if number == 2 else Times(number))
                g.edge("mean", "last")
                assert g.add_worker(runner) == ("local-1", "local-2")
                graphs.append(g)
            results = [None] * 4

            def run(number):
                try:
                    graphs[number].fit(X + number)
                    results[number] = graphs[number].forward(X + number)
                except ValueError as error:
                    results[number] = error

            threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join(LIMIT_S)
            assert str(results[2]) == "this is wrong"
            for number in (0, 1, 3):
                assert np.array_equal(results[number], (X - [5, 6]) * number)

    def test_ten_seconds_of_pure_python_can_be_stopped(self, graph, tmp_path):
        g = graph()
        g.node("spins", Spins(LIMIT_S, tmp_path / "mark"))
        g.add_worker("local://", timeout_s=1)
        with pytest.raises(SessionTimeout):
            g.forward(1)
        pid = wait_for(tmp_path / "mark")
        g.filter("spins").seconds = 0
        assert g.forward(1) == 1
        assert wait_for(tmp_path / "mark") == pid  # it stopped, and was not killed

    def test_a_graph_that_is_gone_leaves_no_process(self, tmp_path):
        g = Graph(cache="memory")
        g.node("where", Where())
        g.add_worker("local://")
        pid = g.forward(1)
        del g
        gc.collect()
        assert is_gone(pid)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"count": 0}, "count is how many processes"),
            ({"count": 1.5}, "count is how many processes"),
            ({"count": True}, "count is how many processes"),
            ({"memory": "much"}, "memory is a size"),
            ({"memory": "1M"}, "too little"),
            ({"timeout_s": 0}, "timeout_s is a number of seconds"),
            ({"timeout_s": float("nan")}, "timeout_s is a number of seconds"),
            ({"python": "/nowhere/python"}, "python='/nowhere/python'"),
            ({"tags": "local"}, "'local' cannot be a tag"),
            ({"tags": [""]}, "A tag is a text"),
            ({"token": "t"}, "take no token="),
        ],
    )
    def test_what_makes_no_sense_is_refused_at_once(self, graph, settings, words):
        g = graph()
        with pytest.raises(InvalidInput, match=words):
            g.add_worker("local://", **settings)
        assert g.workers() == []

    @pytest.mark.parametrize("url", ["local", "", 3, None, "local://a b"])
    def test_addresses(self, graph, url):
        with pytest.raises(InvalidInput):
            graph().add_worker(url)

    def test_an_address_that_nobody_serves(self, graph):
        with pytest.raises(UnknownName, match=r"There is no runner 'lokal'\. Did you mean 'local'"):
            graph().add_worker("lokal://")

    def test_an_address_whose_package_is_missing(self, graph):
        with pytest.raises(soma.MissingPackage, match="soma-worker"):
            graph().add_worker("ws://127.0.0.1:1")

    def test_a_runner_of_whole_programs_is_refused_by_name(self, graph):
        class Whole:
            def open(self, program, *, on_event=None):
                raise AssertionError

        with pytest.raises(MissingCapability, match="Whole opens whole programs"):
            graph().add_worker(Whole())

    def test_names_go_on(self, graph):
        g = graph()
        assert g.add_worker("local://") == ("local-1",)
        assert g.add_worker("local://", count=2) == ("local-2", "local-3")
        with LocalRunner() as runner, pytest.raises(InvalidInput, match="'local-1' already"):
            g.add_worker(runner)
        g.shutdown_worker("local-2")
        assert [one.name for one in g.workers()] == ["local-1", "local-3"]
        with pytest.raises(InvalidInput, match="no worker 'local-2'"):
            g.shutdown_worker("local-2")
