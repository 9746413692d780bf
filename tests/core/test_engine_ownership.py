"""Cold and warm alike, whoever holds what: ways in which a shared object could leak."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import weakref
from collections import Counter

import numpy as np
import pytest

from soma import CacheConfigError, Filter, Graph, InvalidInput, Opaque, codec, codecs
from soma.engine import MemoryStore, descriptors
from soma.engine import blobs as blobs_room
from soma.engine.blobs import MAP_FROM, Blob
from soma.engine.run import Run
from soma.frame import content_hash, decode_parts, encode


class Node(Filter):
    """Does what it is given a function for, where the config does not see it."""

    def __init__(self, name, function):
        self.name = name
        self._function = function

    def forward(self, x, state):
        return self._function(x)


def node(name, function, **attributes):
    made = type(name.title(), (Node,), attributes)(name, function)
    return made.named(name)


def both(expression, x):
    """Run cold and warm; return the two results."""
    g = Graph.somatize(expression, cache="memory")
    cold = g.forward(x)
    warm = g.forward(x)
    assert g.last_run.computed == ()
    return cold, warm


class TestWhatAProducerHolds:
    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_a_buffer_that_is_used_again(self, cache):
        buffer = np.zeros(3)

        def times(factor):
            return lambda x: np.multiply(x, factor, out=buffer)

        g = Graph.somatize(node("a", times(2)) | node("b", times(5)), cache=cache)
        for _ in range(2):
            found = g.forward(np.ones(3))
            np.testing.assert_array_equal(found["a"], [2.0, 2.0, 2.0])
            np.testing.assert_array_equal(found["b"], [5.0, 5.0, 5.0])

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_a_list_within_what_it_returns(self, cache):
        vocabulary = ["a"]

        def count(pair):
            pair[1].append("b")
            return len(pair[1])

        first = node("first", lambda x: (x, vocabulary))
        g = Graph.somatize(first >> node("count", count), cache=cache)
        assert [g.forward(1), g.forward(2), g.forward(3)] == [2, 2, 2]
        assert vocabulary == ["a"]

    @pytest.mark.parametrize("cache", ["memory", "off"])
    @pytest.mark.parametrize("what", ["x", "a view"])
    def test_its_own_input(self, cache, what):
        seen = []

        def keep(x):
            seen.append(x)
            return x if what == "x" else x[:2]

        def write(x):
            x[0] = 99.0
            return x

        g = Graph.somatize(node("keep", keep) >> node("write", write), cache=cache)
        assert g.forward(np.zeros(3))[0] == 99.0
        np.testing.assert_array_equal(seen[0], np.zeros(3))

    def test_memory_that_numpy_only_shows(self):
        raw = bytearray(4)

        def write(x):
            x[0] = 99
            return x

        show = node("show", lambda _: np.frombuffer(raw, np.uint8))
        assert Graph.somatize(show >> node("write", write), cache="off").forward(1)[0] == 99
        assert raw == bytearray(4)


class TestWhatIsHandedOnUncopied:
    def test_a_part_of_the_state(self):
        addresses = []

        class Weights(Filter):
            def fit(self, x, y=None):
                return {"weights": x}

            def forward(self, x, state):
                addresses.append(state["weights"].__array_interface__["data"][0])
                return state["weights"]

        g = Graph.somatize(
            Weights() >> node("at", lambda x: x.__array_interface__["data"][0]), cache="off"
        )
        g.fit(np.arange(3.0))
        assert [g.forward(0)] == addresses


class TestColdAndWarm:
    def test_one_list_at_two_places(self):
        def write(rows):
            rows[0][0] = 9
            return rows

        cold, warm = both(node("rows", lambda _: [[0] * 2] * 2) >> node("write", write), 1)
        assert cold == warm == [[9, 0], [0, 0]]
        pair = both(node("pair", lambda x: (x, x)) >> node("sum", _add_to_first), np.zeros(2))
        assert pair == (1.0, 1.0)

    def test_the_members_of_a_set_come_in_one_order(self):
        cold, warm = both(node("set", lambda _: {8, 0, 16}) >> node("list", list), 1)
        assert cold == warm

    def test_an_array_that_cannot_be_written_to(self):
        def write(x):
            x[0] = 7
            return x

        raw = np.arange(3, dtype="<i4").tobytes()
        read = node("read", lambda _: np.frombuffer(raw, "<i4"))
        cold, warm = both(read >> node("write", write), 1)
        assert cold.tolist() == warm.tolist() == [7, 1, 2]
        leaf = Graph.somatize(read, cache="memory")
        assert [leaf.forward(1).flags.writeable for _ in range(2)] == [True, True]

    def test_an_array_that_lies_askew(self):
        raw = b"x" + np.random.default_rng(0).random(100_001).tobytes()
        read = node("read", lambda _: np.frombuffer(raw, offset=1))
        cold, warm = both(read >> node("sum", np.sum, _cache_version=1), 1)
        assert cold == warm

    def test_a_file_that_is_mapped(self, tmp_path):
        np.save(tmp_path / "x.npy", np.arange(5.0))
        read = node("read", lambda x: np.load(tmp_path / "x.npy", mmap_mode="r") + 0 * x)
        load = node("load", lambda _: np.load(tmp_path / "x.npy", mmap_mode="r"))
        for expression in (read, load):
            cold, warm = both(expression, 1)
            assert type(cold) is type(warm) is np.ndarray
            np.testing.assert_array_equal(cold, warm)

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_every_taker_gets_the_same(self, cache):
        def write(x):
            x[0] = 7
            return x.tolist()

        raw = np.arange(3, dtype="<i4").tobytes()
        read = node("read", lambda _: np.frombuffer(raw, "<i4"))
        g = Graph.somatize(read >> (node("a", write) | node("b", write)), cache=cache)
        assert g.forward(1) == {"a": [7, 1, 2], "b": [7, 1, 2]}


def _total(x):
    parts = list(x.values()) if isinstance(x, dict) else [x]
    return sum(parts) + 1


def _add_to_first(pair):
    pair[0][0] += 1
    return float(pair[0][0] + pair[1][0])


class TestOneRun:
    def test_values_that_cannot_be_made_again_are_never_mixed(self):
        calls = {"a1": 0, "a": 0}

        def varies(name):
            def forward(x):
                calls[name] += 1
                return [name, calls[name], x]

            return forward

        store = MemoryStore()
        g = Graph(cache=store)
        g.node(node("a1", varies("a1"), _deterministic=False))
        g.node(node("a", varies("a"), _deterministic=False))
        last = Node("c", lambda x: ["c", x])
        g.node("b", Node("b", lambda x: ["b", x]))
        g.node("c", last)
        g.node("d", Node("d", lambda x: ["d", x]))
        for source, target in (("a1", "a"), ("a", "b"), ("b", "c"), ("a1", "d")):
            g.edge(source, target)
        for _ in range(3):
            found = g.forward(0)
            (_, (_, (_, _, through_a))) = found["c"]
            assert found["d"] == ["d", through_a]  # one a1 in both
            store.gc(max_bytes=0)
            last.name += "!"

    def test_many_that_come_out_differently_start_the_run_over_once(self):
        store, calls = MemoryStore(), []

        def varies(x):
            calls.append(x)
            return x + len(calls) * 1000

        g = Graph(cache=store)
        join = Node("join", lambda found: sorted(found.values()))
        g.node("join", join)
        for number in range(50):
            g.node(f"n{number}", Node(f"n{number}", varies))
            g.edge(f"n{number}", "join")
        g.forward(0)
        store.gc(max_bytes=0)
        join.name = "again"
        assert g.forward(0) == [1000 * number for number in range(51, 101)]
        assert len(calls) == 100
        assert len(g.last_run.actions) == 51

    def test_side_branches_on_a_chain_of_values_that_are_not_kept(self, monkeypatch):
        monkeypatch.setattr("soma.engine.run.KEEP_BELOW", 0)
        monkeypatch.setattr("soma.engine.run._BYTES_PER_MS", 1e-9)
        store, calls, metrics = MemoryStore(), [], []
        g = Graph(cache=store)
        previous = None
        for number in range(60):
            here = g.node(f"c{number:02}", Node(f"c{number}", lambda x: calls.append(1) or x + 1))
            metrics.append(Node(f"m{number}", lambda x: x * 1000))
            g.node(f"m{number:02}", metrics[-1])
            g.edge(here, f"m{number:02}")
            if previous is not None:
                g.edge(previous, here)
            previous = here
        expected = {f"m{number:02}": (number + 1) * 1000 for number in range(60)}
        assert g.forward(0) == expected
        for metric in metrics:
            metric.name += "!"
        calls.clear()
        assert g.forward(0) == expected
        assert len(calls) == 60  # each once, not once for every metric below it

    def test_a_value_that_is_lost_is_made_once_by_two_calls(self):
        store, calls = MemoryStore(), []
        started, go_on = threading.Event(), threading.Event()

        def slow(x):
            calls.append(x)
            if len(calls) == 2:
                started.set()
                assert go_on.wait(30)
            return x + 1

        shared = Node("slow", slow)
        Graph.somatize(shared, cache=store).forward(1)
        store.gc(max_bytes=0)
        results = []

        def call():
            results.append(Graph.somatize(shared, cache=store).forward(1))

        threads = [threading.Thread(target=call) for _ in range(2)]
        threads[0].start()
        assert started.wait(30)
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert (results, len(calls)) == ([2, 2], 2)

    def test_a_claim_that_ends_while_others_are_counted(self, monkeypatch):
        """o1 is known, lost, and needed by c1; its other taker, t, goes in the middle of the count.

        Then nobody else may end the claim of o1 on s, which the count relies on.
        """
        monkeypatch.setattr("soma.engine.schedule.SLOW_S", -1.0)
        monkeypatch.setattr("soma.engine.run.KEEP_BELOW", 0)
        monkeypatch.setattr("soma.engine.run._BYTES_PER_MS", 1e-9)
        counting, released = threading.Event(), threading.Event()
        digests = {}

        class Store(MemoryStore):
            armed = False

            def has(self, digest):
                if self.armed and digest == digests["t"]:
                    assert counting.wait(30)
                return (self.armed and digest == digests["c1"]) or super().has(digest)

            def read(self, digest):
                return None if self.armed and digest == digests["c1"] else super().read(digest)

        store = Store()
        g = Graph(cache=store)
        last = Node("d", _total)
        for id_ in ("s", "o1", "o2", "c1", "t"):
            g.node(id_, Node(id_, _total))
        g.node("d", last)
        for pair in ("s o1", "s o2", "o1 c1", "o2 c1", "o1 t", "c1 d"):
            g.edge(*pair.split())
        x = np.ones(3)
        expected = g.forward(x)
        digests |= {"t": content_hash(x + 3), "c1": content_hash(2 * (x + 2) + 1)}

        def count(takers):
            found = Counter(takers)
            counting.set()
            assert released.wait(30)
            return found

        let_go = Run.let_input_go

        def let_input_go(run, place):
            let_go(run, place)
            if run.program.ids[place] == "t":
                released.set()

        monkeypatch.setattr("soma.engine.recompute.Counter", count)
        monkeypatch.setattr(Run, "let_input_go", let_input_go)
        store.armed = True
        last.name = "changed"
        found = g.forward(x)
        assert {id_: value.tolist() for id_, value in found.items()} == {
            id_: value.tolist() for id_, value in expected.items()
        }

    def test_a_report_counts_what_this_call_has_done(self):
        store, calls = MemoryStore(), []

        def varies(x):
            calls.append(x)
            return x + 1000 * len(calls)

        join = Node("join", lambda found: list(found.values()))
        g = Graph(cache=store)
        g.node("a", Node("a", varies))
        g.node("b", Node("b", lambda x: x))
        g.node("join", join)
        g.edge("a", "join")
        g.edge("b", "join")
        g.forward(0)
        store.gc(max_bytes=0)
        join.name = "again"
        assert g.forward(0) == [2000, 0]
        rows = [(one.node, one.outcome) for one in g.last_run.actions]
        assert sorted(rows) == [("a", "recomputed"), ("b", "recomputed"), ("join", "computed")]

    def test_a_run_that_fails_leaves_its_report(self):
        def fails(x):
            raise ValueError("no")

        g = Graph.somatize(node("a", lambda x: x) >> node("b", fails), cache="memory")
        with pytest.raises(ValueError, match="no"):
            g.forward(1)
        assert g.last_run.computed == ("a",)


class TestInputsAndStates:
    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_a_generator_is_no_input(self, cache):
        g = Graph.somatize(node("a", list), cache=cache)
        for verb in ("fit", "forward"):
            with pytest.raises(InvalidInput, match="x is a generator, which can be read only once"):
                getattr(g, verb)(v for v in [1, 2])
        with pytest.raises(InvalidInput, match="y is a list_iterator"):
            g.fit([1], iter([1]))

    def test_an_opaque_state_is_handed_over_unwrapped(self):
        class Holds(Filter):
            def fit(self, x, y=None):
                return Opaque({"m": x})

            def forward(self, x, state):
                return state["m"]

        g = Graph.somatize(Holds(), cache="memory")
        g.fit(3)
        assert g.forward(0) == 3
        g.load_state({"holds": Opaque({"m": 5})})
        assert g.forward(0) == 5

    def test_a_frozen_node_does_not_go_on(self):
        class Sums(Filter):
            def fit(self, x, y=None, state=None):
                return (state or 0) + x

            def forward(self, x, state):
                return state

        g = Graph.somatize(Sums().frozen() | Sums().named("free"), cache="memory")
        g.fit(1)
        g.fit(1, warm_start=True)
        assert g.state() == {"sums": 1, "free": 2}

    @pytest.mark.parametrize("how", ["adds", "rebinds"])
    def test_a_fit_that_learns_under_a_private_name_and_shows_nothing(self, how):
        class Hides(Filter):
            def __init__(self):
                if how == "rebinds":
                    self._mean = 0.0

            def fit(self, x, y=None):
                self._mean = float(np.mean(x))
                return {}

            def forward(self, x, state):
                return x - self._mean

        g = Graph.somatize(Hides(), cache="memory")
        for x in (np.array([1.0, 3.0]), np.array([10.0, 20.0]), np.array([1.0, 3.0])):
            g.fit(x)
            (notice,) = g.last_run.notices
            assert "fit returned {} and has set attributes of its own" in notice.message
            np.testing.assert_array_equal(g.forward(x), x - x.mean())

    def test_a_fit_that_adds_what_has_no_hash_is_not_recorded(self, capsys):
        class Locks(Filter):
            def fit(self, x, y=None):
                self.lock = threading.Lock()
                return {"x": x}

            def forward(self, x, state):
                return state["x"]

        g = Graph.somatize(Locks(), cache="memory")
        g.fit(1)
        assert "changes itself during fit (the attribute 'lock' cannot" in capsys.readouterr().err
        with pytest.raises(CacheConfigError, match="'lock'"):
            g.forward(0)  # from here on its config has no hash


def _fails(x):
    raise ValueError("mine")


@pytest.fixture
def unreadable(monkeypatch):
    """A class whose codec writes and cannot read."""
    for table in ("_by_kind", "_by_type"):
        monkeypatch.setattr(codecs, table, dict(getattr(codecs, table)))
    monkeypatch.setattr(codecs, "_resolved", type(codecs._resolved)())

    class Box:
        pass

    def load(raw):
        raise ZeroDivisionError("cannot")

    codec("tests.UnreadableBox", Box, dump=lambda box: b"box", load=load)
    return Box


class TestFaults:
    @pytest.mark.parametrize("method", ["read", "claim", "commit", "write", "lookup", "has"])
    @pytest.mark.parametrize("error", [OSError, MemoryError, RuntimeError])
    def test_a_store_that_fails_costs_the_run_nothing(self, method, error):
        def fail(*_arguments, **_keywords):
            raise error("broken")

        store = MemoryStore()
        head = Node("head", lambda x: x + 1)
        g = Graph.somatize(head >> _Mean() >> Node("last", lambda x: x * 10), cache=store)
        x = np.array([1.0, 3.0])
        g.fit(x)
        setattr(store, method, fail)
        g.fit(x)
        np.testing.assert_array_equal(g.forward(x), [-10.0, 10.0])
        head.name = "changed"
        np.testing.assert_array_equal(g.forward(x), [-10.0, 10.0])

    def test_a_store_that_cannot_be_read_is_said(self, capsys):
        def fail(digest):
            raise OSError("the shelf fell down")

        store = MemoryStore()
        g = Graph.somatize(node("a", lambda x: x + 1), cache=store)
        g.forward(1)
        store.read = fail
        assert g.forward(1) == 2
        assert "the cache cannot be read, so what it kept is made again" in capsys.readouterr().err

    @pytest.mark.parametrize("when", ["__enter__", "__exit__"])
    def test_a_claim_that_fails_costs_the_run_nothing(self, when, capsys):
        class Claim:
            def __enter__(self):
                if when == "__enter__":
                    raise OSError("no locks here")

            def __exit__(self, *_error):
                if when == "__exit__":
                    raise OSError("no locks here")

        store = MemoryStore()
        store.claim = lambda key: Claim()
        g = Graph.somatize(node("a", lambda x: x + 1), cache=store)
        assert [g.forward(1), g.forward(1)] == [2, 2]
        assert g.last_run.computed == ()
        with pytest.raises(ValueError, match="mine"):
            Graph.somatize(node("b", _fails), cache=store).forward(1)

    def test_what_a_codec_cannot_read_is_made_again(self, unreadable, capsys):
        Box, calls = unreadable, []  # noqa: N806  # a class
        g = Graph.somatize(node("box", lambda x: calls.append(x) or Box()), cache="memory")
        assert [type(g.forward(1)) for _ in range(2)] == [Box, Box]
        assert calls == [1, 1]
        assert "what was kept cannot be read, and is made again" in capsys.readouterr().err

    def test_a_state_that_its_codec_cannot_read_is_learned_again(self, unreadable):
        calls = []

        class Learns(Filter):
            def fit(self, x, y=None):
                calls.append(x)
                return unreadable()

            def forward(self, x, state):
                return x

        g = Graph.somatize(Learns(), cache="memory")
        g.fit(1)
        g.fit(1)
        assert calls == [1, 1]

    def test_exceptions_that_cannot_be_read_stay_what_they_are(self):
        class Odd(TypeError):
            def __str__(self):
                raise ValueError("unreadable")

        class Notes(Exception):
            __notes__ = None

        def fail_with(error):
            def fail(x):
                raise error

            return fail

        for error in (Odd(), Notes()):
            with pytest.raises(type(error)):
                Graph.somatize(node("a", fail_with(error)), cache="off").forward(None)

    def test_maps_that_cannot_be_made_give_nothing_back_twice(self, monkeypatch):
        encoded = encode(np.zeros(MAP_FROM // 8))
        blob = Blob(encoded.header, encoded.buffers)
        held = descriptors._held

        class Refuses(blobs_room._Map):
            def __new__(cls, *_arguments, **_keywords):
                raise OSError(24, "Too many open files")

        monkeypatch.setattr(blobs_room, "_Map", Refuses)
        for _ in range(3):
            np.testing.assert_array_equal(decode_parts(*blob.frame()), np.zeros(MAP_FROM // 8))
        assert descriptors._held == held

    def test_without_memfd_a_temporary_file_serves(self, monkeypatch):
        monkeypatch.delattr("os.memfd_create", raising=False)
        encoded = encode(np.arange(MAP_FROM / 8))
        blob = Blob(encoded.header, encoded.buffers)
        assert blob._fd >= 0
        np.testing.assert_array_equal(decode_parts(*blob.frame()), np.arange(MAP_FROM / 8))


class _Mean(Filter):
    def fit(self, x, y=None):
        return {"mean": float(np.mean(x))}

    def forward(self, x, state):
        return x - state["mean"]


class TestThreads:
    @pytest.fixture
    def slow(self, monkeypatch):
        monkeypatch.setattr("soma.engine.schedule.SLOW_S", -1.0)

    @pytest.mark.parametrize("allowed", [0, 1, 2])
    def test_where_the_system_gives_no_more_threads(self, slow, monkeypatch, allowed):
        original, started = threading.Thread.start, []

        def start(thread):
            if len(started) >= allowed:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            original(thread)

        g = Graph(cache="off")
        for row in range(4):
            for column in range(4):
                g.node(f"{row}{column}", lambda x: x)
                if row:
                    g.edge(f"{row - 1}{column}", f"{row}{column}")
        monkeypatch.setattr(threading.Thread, "start", start)
        assert g.forward(5) == {f"3{column}": 5 for column in range(4)}

    def test_an_error_on_a_thread_keeps_no_array_alive(self, slow):
        refs = []

        def source(_):
            made = np.zeros(10)
            refs.append(weakref.ref(made))
            return made

        def fail(x):
            raise ValueError("no")

        g = Graph.somatize(
            node("source", source) >> (node("a", fail) | node("b", fail)), cache="off"
        )
        gc.disable()
        try:
            with contextlib.suppress(ValueError):
                g.forward(1)
            assert [ref() for ref in refs] == [None]
        finally:
            gc.enable()

    def test_what_was_slow_before_runs_side_by_side_at_once(self):
        barrier = threading.Barrier(2, timeout=30)

        def meet(x):
            if x:
                barrier.wait()  # which a single thread would never pass
            return x

        g = Graph.somatize(node("a", meet) | node("b", meet), cache="off")
        g.forward(0)
        g._program().slow.update((0, 1))
        assert g.forward(1) == {"a": 1, "b": 1}


class TestNothingIsHeld:
    def test_what_a_function_of_a_dead_graph_held_is_freed(self):
        class Big:
            pass

        def run():
            big = Big()
            array = np.arange(5.0)

            class Local(Filter):
                def forward(self, x, state):
                    return x + array

            g = Graph.somatize(Local() >> (lambda x: x + array), cache="memory")
            g.forward(1.0)
            Local.big = None
            return weakref.ref(big), weakref.ref(array)

        refs = run()
        gc.collect()
        assert [ref() for ref in refs] == [None, None]


class TestCopies:
    def test_a_copy_shares_the_filters_and_nothing_else(self):
        g = Graph.somatize(node("a", lambda x: x + 1), cache="memory")
        other = copy.copy(g)
        other.node("b", lambda x: x + 2)
        assert other.filter("a") is g.filter("a")
        assert (g.forward(1), other.forward(1)) == (2, {"a": 2, "b": 3})


class TestGraphsWithinFilters:
    def test_what_is_in_the_inner_graph_counts(self):
        class Times(Filter):
            def __init__(self, factor):
                self.factor = factor

            def forward(self, x, state):
                return x * self.factor

        class Outer(Filter):
            def __init__(self, inner):
                self.inner = inner

            def forward(self, x, state):
                return self.inner.forward(x)

        store = MemoryStore()
        inner = Graph.somatize(Times(2), cache="off")
        g = Graph.somatize(Outer(inner), cache=store)
        assert g.forward(1.0) == 2.0
        longer = Graph.somatize(Times(2) >> Times(4), cache="off")
        assert Graph.somatize(Outer(longer), cache=store).forward(1.0) == 8.0
        inner.filter("times").factor = 7
        assert g.forward(1.0) == 7.0
