"""What loops hold in memory, and what callbacks and forks may do while a graph runs."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

from soma import Filter, Graph
from soma.engine import MemoryStore, schedule
from soma.engine import run as run_room
from soma.engine.blobs import Blob
from support.threads import run_in_threads

MIB = 1 << 20
WAIT_S = 20


class Grows(Filter):
    """Adds 1 to an array of 2 MiB; quick, so that its outputs are not worth keeping."""

    def __init__(self):
        self.calls = 0

    __soma_config__ = staticmethod(lambda: None)

    def forward(self, x, state):
        self.calls += 1
        return x + np.uint8(1)


@pytest.fixture(autouse=True)
def _nothing_is_slow(monkeypatch):
    """However long a node takes on this machine, it is not worth keeping for that."""
    monkeypatch.setattr(run_room, "_BYTES_PER_MS", 1)


class TestLoops:
    def test_of_a_loop_that_is_a_leaf_only_the_last_output_is_kept(self):
        store, step = MemoryStore(), Grows()
        g = Graph(cache=store)
        g.loop("l", step, until=False, max_iterations=10)
        x = np.zeros(2 * MIB, dtype=np.uint8)
        assert g.forward(x)[0] == 10
        assert 2 * MIB < store.stats()["bytes"] < 3 * MIB
        assert g.forward(x)[0] == 10
        assert step.calls == 10
        assert g.last_run.hits == 10

    def test_the_same_where_it_hangs_in_an_arm_or_ends_in_a_branch(self):
        store = MemoryStore()
        for kind in ("arm", "end"):
            step, g = Grows(), Graph(cache=store)
            if kind == "arm":
                g.loop("l", step, until=False, max_iterations=10)
                g.branch("b", lambda _: "a", {"a": "l"})
            else:
                g.branch("b", lambda _: "a", {"a": step})
                g.loop("l", "b", until=False, max_iterations=10)
            before = store.stats()["bytes"]
            x = np.full(2 * MIB, len(kind) * 16 + (kind == "arm"), dtype=np.uint8)
            for _ in range(2):
                assert g.forward(x)[0] == x[0] + 10
            assert step.calls == 10
            assert 2 * MIB < store.stats()["bytes"] - before < 3 * MIB

    def test_states_of_earlier_passes_are_let_go_without_a_store(self):
        alive = []

        class Learned:
            """Nothing says how to write it down, so it is held as it is."""

        class Learns(Filter):
            def fit(self, x, y=None):
                gc.collect()
                alive.append(sum(one() is not None for one in made))
                found = Learned()
                made.append(weakref.ref(found))
                return found

            def forward(self, x, state):
                return x + 1

        made = []
        g = Graph(cache="off")
        g.loop("l", Learns(), until=False, max_iterations=20)
        g.fit(0)
        assert max(alive) <= 2
        assert isinstance(g.state()["learns"], Learned)

    def test_states_of_earlier_passes_are_let_go_with_the_store(self):
        alive = []

        class Learns(Filter):
            def fit(self, x, y=None):
                gc.collect()
                alive.append(sum(type(one) is Blob for one in gc.get_objects()) - before)
                return np.full(2 * MIB, x, dtype=np.uint8)

            def forward(self, x, state):
                return int(state[0]) + 1

        gc.collect()
        before = sum(type(one) is Blob for one in gc.get_objects())
        g = Graph(cache="memory", cache_max_bytes=8 * MIB)
        g.loop("l", Learns(), until=False, max_iterations=20)
        g.fit(0)
        assert g.state()["learns"][0] == 19
        assert max(alive) < 10  # 3 in the store, and what is under way

    def test_a_state_that_is_needed_again_and_gone_is_learned_again(self):
        """Five passes are known, not kept; the sixth misses, and by then the states are gone."""
        store = Forgets()
        for passes in (5, 7):
            g = Graph(cache=store)
            g.loop("l", Shifts(), until=False, max_iterations=passes)
            store.known = passes > 5
            g.fit({"at": 0, "data": np.zeros(MIB, dtype=np.uint8)})
            assert store.forgets == (passes > 5)
            assert g.state()["shifts"]["shift"][0] == passes
            found = g.forward({"at": 0, "data": np.zeros(MIB, dtype=np.uint8)})
            assert found["data"][0] == passes * passes

    def test_what_a_class_says_is_not_to_be_kept_is_not_kept_as_a_result_either(self):
        """There is a record under its key, of a node of the same class that was to be cached."""
        store = MemoryStore()
        for cached, blobs in ((True, 1), (False, 1), (False, 1)):
            g = Graph(cache=store)
            step = Draws().cached() if cached else Draws()
            g.loop("l", step, until=False, max_iterations=1)
            g.forward(0.0)
            assert store.stats()["blobs"] == blobs


class Draws(Filter):
    """Large, and another one each time, whatever it is given."""

    _deterministic = False

    def forward(self, x, state, rng):
        return np.full(MIB // 4, float(next(COUNT)))


COUNT = itertools.count()


class Shifts(Filter):
    def fit(self, x, y=None):
        return {"shift": np.full(MIB, x["at"] + 1, dtype=np.uint8)}

    def forward(self, x, state):
        return {"at": x["at"] + 1, "data": x["data"] + state["shift"]}


class Forgets(MemoryStore):
    """Once it is known, the first key that is not there makes it lose every blob."""

    known = forgets = False

    def lookup(self, key):
        found = super().lookup(key)
        self.forgets |= self.known and found is None
        return found

    def read(self, digest):
        return None if self.forgets else super().read(digest)


class TestCallbacks:
    def test_one_that_runs_a_graph_waits_for_no_claim(self):
        """A holds the claim and waits to be heard; B is in a callback, and wants the same key."""
        asking, in_callback, claimed = threading.Event(), threading.Event(), threading.Event()

        class Store(MemoryStore):
            def claim(self, key):
                if threading.current_thread().name == "a":
                    asking.set()
                    assert in_callback.wait(WAIT_S)
                found = super().claim(key)
                claimed.set()
                return found

        def slow(x):
            return x + 1

        store = Store()
        g, other = Graph(cache=store), Graph(cache=store)
        g.node("slow", slow)
        other.node("slow", slow)
        nested = []

        def runs_another(event):
            if event["event_type"] == "RunStarted" and threading.current_thread().name == "b":
                in_callback.set()
                assert claimed.wait(WAIT_S)
                nested.append(other.forward(1))

        g.on_event(runs_another)
        found = {}
        threads = [
            threading.Thread(
                target=lambda name=name, x=x: found.update({name: g.forward(x)}),
                name=name,
                daemon=True,
            )
            for name, x in (("a", 1), ("b", 2))
        ]
        threads[0].start()
        assert asking.wait(WAIT_S)  # its start has been heard: B's callback keeps nobody from that
        threads[1].start()
        for thread in threads:
            thread.join(WAIT_S)
        assert found == {"a": 2, "b": 3}
        assert nested == [2]

    def test_a_fork_while_another_thread_is_in_one(self):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKS)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.stdout.splitlines() == ["child 2", "parent 0"], done.stderr

    def test_a_fork_out_of_one_while_another_graph_is_in_one(self):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKS_INSIDE)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.stdout.splitlines() == ["child ['mine']", "parent 0"], done.stderr

    def test_ctrl_c_waits_for_the_one_that_runs_and_for_no_other(self, monkeypatch):
        """Four workers want to be heard; one is in the callback when Ctrl-C comes."""
        monkeypatch.setattr(schedule, "SLOW_S", -1.0)
        g = Graph(cache="off")
        g.node("a", _same)
        for number in range(4):
            g.node(f"b{number}", _same)
            g.edge("a", f"b{number}")
        g.forward(1)
        entered, heard = threading.Event(), []

        def waits(event):
            heard.append((event["event_type"], event.get("node_id")))
            if threading.current_thread() is not threading.main_thread() and not entered.is_set():
                entered.set()
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(0.5)  # the others come, and wait behind it

        g.on_event(waits)
        with pytest.raises(KeyboardInterrupt):
            g.forward(1)
        last = heard.index(("RunFailed", None))
        assert last == len(heard) - 1
        assert len(heard) <= 3 + 2  # the run, node a, the one that waited, and the end

    def test_threads_that_subscribe_at_once_are_all_heard(self):
        for _ in range(50):
            g, heard = Graph(cache="off"), []
            g.node("a", _same)
            run_in_threads(lambda _, g=g, heard=heard: g.on_event(heard.append), count=4)
            g.emit("mine")
            assert len(heard) == 4


def _same(x):
    return x


FORKS = """
    import os, threading
    from soma import Graph

    inside, go_on = threading.Event(), threading.Event()
    g = Graph(cache="off")
    g.node("plus", lambda x: x + 1)

    def waits(event):
        if threading.current_thread().name == "other":
            inside.set()
            go_on.wait(10)

    g.on_event(waits)
    other = threading.Thread(target=g.forward, args=(1,), name="other")
    other.start()
    inside.wait(10)
    child = os.fork()
    if not child:
        import signal
        signal.alarm(10)
        print("child", g.forward(1), flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    go_on.set()
    other.join(10)
    print("parent", status)
"""


FORKS_INSIDE = """
    import os, threading
    from soma import Graph

    inside, go_on, heard = threading.Event(), threading.Event(), []
    first, second = Graph(cache="off"), Graph(cache="off")

    def waits(event):
        if threading.current_thread().name == "other":
            inside.set()
            go_on.wait(10)
        else:
            heard.append(event["event_type"])

    def forks(event):
        child = os.fork()
        if not child:
            import signal
            signal.alarm(10)
            second.emit("mine")
            print("child", heard, flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        print("parent", status)

    first.on_event(forks)
    second.on_event(waits)
    other = threading.Thread(target=second.emit, args=("theirs",), name="other")
    other.start()
    inside.wait(10)
    first.emit("fork")
    other.join(10)
"""
