"""Threads within a run, threads around a graph, and an event loop around both."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import sys
import threading

import numpy as np
import pytest

from soma import Filter, Graph
from soma.engine import MemoryStore, schedule
from support.threads import run_in_threads


class Meets(Filter):
    """Waits until so many nodes run at the same time."""

    def __init__(self, barrier):
        self._barrier = barrier

    def forward(self, x, state):
        self._barrier.wait()
        return threading.current_thread().name


class Slow(Filter):
    """Slow enough for threads to be worth it, by the clock of the test."""

    def forward(self, x, state):
        return x


@pytest.fixture
def always_slow(monkeypatch):
    monkeypatch.setattr(schedule, "SLOW_S", -1.0)


def fan(head, *branches, cache="off"):
    g = Graph(cache=cache)
    g.node("head", head)
    for number, branch in enumerate(branches):
        g.node(f"b{number}", branch)
        g.edge("head", f"b{number}")
    return g


def test_slow_nodes_run_side_by_side(always_slow):
    barrier = threading.Barrier(3, timeout=30)
    found = fan(Slow(), *(Meets(barrier) for _ in range(3))).forward(1)
    assert len(set(found.values())) == 3
    assert threading.current_thread().name not in found.values()


def test_quick_nodes_run_on_the_calling_thread(monkeypatch):
    monkeypatch.setattr(schedule, "SLOW_S", 1e9)
    found = fan(Slow(), *(lambda _: threading.current_thread().name for _ in range(5))).forward(1)
    assert set(found.values()) == {threading.current_thread().name}


def test_threads_go_home_where_nodes_prove_quick(monkeypatch):
    seen = []

    class Name(Filter):
        def __init__(self):
            self._seen = seen

        def forward(self, x, state):
            self._seen.append(threading.current_thread().name)
            return x

    g = fan(Slow(), *(Name() for _ in range(1000)))
    slow = iter([True])  # the first node is slow, and no other
    monkeypatch.setattr(schedule, "SLOW_S", 1e9)
    original = schedule.run_node

    def first_is_slow(run, place, inputs):
        if next(slow, False):
            monkeypatch.setattr(schedule, "SLOW_S", -1.0)
            original(run, place, inputs)
            return
        monkeypatch.setattr(schedule, "SLOW_S", 1e9)
        original(run, place, inputs)

    monkeypatch.setattr(schedule, "run_node", first_is_slow)
    g.forward(1)
    assert len(seen) == 1000
    assert seen.count(threading.current_thread().name) > 800


def test_threads_end_with_the_run(always_slow):
    before = threading.active_count()
    for _ in range(20):
        fan(Slow(), *(Slow() for _ in range(8))).forward(1)
    for thread in threading.enumerate():
        if thread.name.startswith("soma-"):
            thread.join(30)
    assert threading.active_count() == before


def test_a_large_graph_on_threads(always_slow):
    g = Graph(cache="memory")
    layers = [[g.node(f"{row}-{column}", lambda x: x) for column in range(6)] for row in range(1)]
    for row in range(1, 30):
        layer = [g.node(f"{row}-{column}", _total) for column in range(6)]
        for column, target in enumerate(layer):
            g.edge(layers[-1][column], target)
            g.edge(layers[-1][(column + 1) % 6], target)
        layers.append(layer)
    expected = 2**29 * 3.0
    for _ in range(3):
        assert set(g.forward(np.float64(3.0)).values()) == {expected}


def _total(x):
    return sum(x.values())


def test_the_first_error_is_raised_when_the_others_are_done(always_slow):
    started, failing, done = (threading.Event() for _ in range(3))

    class Fails(Filter):
        def forward(self, x, state):
            assert started.wait(30)
            failing.set()
            raise LookupError("this one")

    class Finishes(Filter):
        def forward(self, x, state):
            started.set()
            assert failing.wait(30)
            done.set()
            return x

    g = fan(Slow(), Fails(), Finishes())
    with pytest.raises(LookupError, match="this one") as caught:
        g.forward(1)
    assert done.is_set()
    assert caught.value.__notes__ == ["in node 'b0' (Fails), during forward"]


def test_nothing_new_starts_after_an_error(always_slow):
    ran = []

    class Fails(Filter):
        def forward(self, x, state):
            raise LookupError("this one")

    g = fan(Fails(), *(ran.append for _ in range(50)))
    with pytest.raises(LookupError):
        g.forward(1)
    assert ran == []


def test_a_node_on_a_thread_sees_the_callers_context(always_slow):
    place = contextvars.ContextVar("place", default="nowhere")

    def look(x):
        return place.get(), decimal.getcontext().prec

    place.set("here")
    with decimal.localcontext() as context:
        context.prec = 7
        found = fan(Slow(), look, look, look, cache="off").forward(1)
    assert set(found.values()) == {("here", 7)}


def test_twelve_threads_on_one_graph():
    class Mean(Filter):
        def fit(self, x, y=None):
            return {"mean": x.mean(axis=0)}

        def forward(self, x, state):
            x -= state["mean"]
            return x

    class Square(Filter):
        def forward(self, x, state):
            x **= 2
            return x

    g = Graph.somatize(Mean() >> (Square() | Mean()), cache="memory")
    train = np.arange(40.0).reshape(10, 4)
    g.fit(train)
    wrong = []

    def work(number):
        x = train + number % 4
        for _ in range(25):
            found = g.forward(x)
            centred = train + number % 4 - train.mean(axis=0)
            if not (
                np.array_equal(found["square"], centred**2)
                and np.array_equal(found["mean_2"], centred)
            ):
                wrong.append(number)

    run_in_threads(work, 12)
    assert wrong == []


def test_fits_from_several_threads_each_leave_a_whole_state():
    class Pair(Filter):
        def fit(self, x, y=None):
            return x

        def forward(self, x, state):
            return state

    g = Graph.somatize(Pair() >> Pair(), cache="memory")
    wrong = []

    def work(number):
        for _ in range(20):
            g.fit([number])
            state = g.state()
            if state["pair"] != state["pair_2"]:
                wrong.append(state)

    run_in_threads(work, 6)
    # pair forwards its state, so pair_2 learns what pair learned in the same fit
    assert wrong == []


class Lazy(Filter):
    """Attributes of it come and go while it runs."""

    def __init__(self):
        vars(self).update({f"a{number}": number for number in range(30)})

    def forward(self, x, state):
        for number in range(20):
            setattr(self, f"_{threading.get_ident()}_{number}", x)
        for number in range(20):
            delattr(self, f"_{threading.get_ident()}_{number}")
        return x + 1


def test_a_filter_whose_attributes_change_while_others_look_at_it():
    g = Graph.somatize(Lazy(), cache="memory")
    interval, found = sys.getswitchinterval(), []

    def work(thread):
        found.extend(g.forward(thread * 1000 + number) for number in range(60))

    sys.setswitchinterval(1e-6)
    try:
        run_in_threads(work, 6)
    finally:
        sys.setswitchinterval(interval)
    assert sorted(found) == [t * 1000 + number + 1 for t in range(6) for number in range(60)]


def test_inside_a_running_event_loop(always_slow):
    async def main():
        g = fan(Slow(), lambda x: x + 1, lambda x: x + 2, cache="memory")
        return g.forward(1)

    assert asyncio.run(main()) == {"b0": 2, "b1": 3}


def test_recomputes_from_several_threads_make_a_value_once(always_slow):
    store = MemoryStore()
    calls = []

    class Head(Filter):
        def __init__(self):
            self._calls = calls

        def forward(self, x, state):
            self._calls.append(x)
            return np.full(300_000, x)  # 2.4 MB: recorded, and kept only if it is slow

    class Pick(Filter):
        def __init__(self, number):
            self.number = number

        def forward(self, x, state):
            return float(x[self.number]) + self.number

    nodes = [Pick(number) for number in range(6)]
    g = fan(Head(), *nodes, cache=store)
    g.forward(1.0)
    for node in nodes:
        node.number += 100
    store.gc(max_bytes=0)
    calls.clear()
    assert g.forward(1.0) == {f"b{number}": 1.0 + number + 100 for number in range(6)}
    assert calls == [1.0]
