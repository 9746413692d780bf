"""What is computed, what is reused, and who owns an object. Calls are counted by hand."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from soma import (
    Filter,
    Graph,
    GraphError,
    InvalidInput,
    InvalidOutput,
    Nameless,
    NotFittedError,
    Opaque,
    StateWarning,
    UnknownName,
    UnknownNode,
    Unsettled,
)
from soma.engine import MemoryStore, RunReport
from soma.engine.recompute import Inputs
from soma.engine.run import Call, Run
from soma.engine.schedule import run_all

BIG = 400_000  # float64 items: 3.2 MB, above the size from which frames are mapped


class Counted(Filter):
    """Counts its calls where the config does not see it."""

    def __init__(self):
        self._calls = []

    @property
    def calls(self):
        return len(self._calls)


class Add(Counted):
    def __init__(self, amount):
        super().__init__()
        self.amount = amount

    def forward(self, x, state):
        self._calls.append(x)
        return x + self.amount


class Mean(Counted):
    def fit(self, x, y=None):
        self._calls.append("fit")
        return {"mean": np.mean(x), "weighted": None if y is None else float(np.dot(x, y))}

    def forward(self, x, state):
        self._calls.append("forward")
        return x - state["mean"]


class Writes(Counted):
    """Writes into what it is given, state included."""

    def fit(self, x, y=None):
        result = {"seen": float(x[0])}
        x[0] = -7.0
        if y is not None:
            y[0] = -7.0
        return result

    def forward(self, x, state):
        x[0] = x[0] + state["seen"]
        state["seen"] = 1000.0
        return x


class Noise(Counted):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, x, state, *, rng):
        self._calls.append(x)
        return x + self.scale * rng.normal(size=len(x))


class Counter(Counted):
    """Gives something else each time it is asked."""

    def forward(self, x, state):
        self._calls.append(x)
        return x + 1000 * len(self._calls)


class Unwritable:
    """A value that nothing says how to write down."""

    def __init__(self, items):
        self.items = items


def memory(expression):
    return Graph.somatize(expression, cache="memory")


def drop_blobs(store):
    store.gc(max_bytes=0)


class TestHits:
    def test_a_second_run_computes_nothing(self):
        first, mean = Add(1), Mean()
        g = memory(first >> mean)
        x = np.array([1.0, 2.0, 6.0])
        g.fit(x)
        np.testing.assert_array_equal(g.forward(x), x - 3.0)
        before = (first.calls, mean.calls)
        g.fit(x)
        assert g.last_run.computed == ()
        assert g.last_run.hits == 2  # the output of add, the state of mean
        np.testing.assert_array_equal(g.forward(x), x - 3.0)
        assert g.last_run.reused == ("add", "mean")
        assert (first.calls, mean.calls) == before

    def test_a_changed_attribute_counts_at_once(self):
        node = Add(1)
        g = memory(node)
        assert [g.forward(10), g.forward(10)] == [11, 11]
        node.amount = 2
        assert g.forward(10) == 12
        node.amount = 1
        assert g.forward(10) == 11
        assert node.calls == 2

    def test_one_parameter_recomputes_what_depends_on_it(self):
        one, other, last = Add(1), Add(10), Add(100)
        g = memory((one | other) >> (lambda x: sum(x.values())) >> last)
        assert g.forward(0) == 1 + 10 + 100
        other.amount = 20
        assert g.forward(0) == 1 + 20 + 100
        assert g.last_run.computed == ("add_2", "lambda", "add_3")
        assert g.last_run.reused == ("add",)

    def test_an_id_is_in_no_key(self):
        store = MemoryStore()
        g = Graph(cache=store)
        g.node("one", Add(1))
        assert g.forward(1) == 2
        other = Add(1)
        h = Graph(cache=store)
        h.node("another", other)
        assert h.forward(1) == 2
        assert other.calls == 0

    def test_graphs_of_a_process_share_and_those_in_memory_do_not(self):
        class Mine(Add):
            pass

        node = Mine(3)
        assert [Graph.somatize(node).forward(1) for _ in range(2)] == [4, 4]
        assert node.calls == 1
        assert [memory(node).forward(1) for _ in range(2)] == [4, 4]
        assert node.calls == 3
        assert [Graph.somatize(node, cache="off").forward(1) for _ in range(2)] == [4, 4]
        assert node.calls == 5

    def test_equal_numbers_of_other_types_are_other_inputs(self):
        node = Add(0)
        g = memory(node)
        for x in (1, 1.0, True, np.float32(1), np.array(1), np.array([1]), np.array([[1]])):
            result = g.forward(x)
            assert type(result) is type(x + 0)
        assert node.calls == 7

    def test_labels_their_order_and_options_count(self):
        class Epochs(Mean):
            def fit(self, x, y=None, *, epochs, batch_size):
                self._calls.append("fit")
                return [float(np.dot(x, y)), epochs, batch_size]

        node = Epochs()
        g = memory(node)
        x = np.array([1.0, 2.0])
        expected = []
        for y, options, state in (
            ([1.0, 3.0], {}, [7.0, 1, None]),
            ([3.0, 1.0], {}, [5.0, 1, None]),
            ([1.0, 3.0], {"epochs": 2}, [7.0, 2, None]),
            ([1.0, 3.0], {"batch_size": 1}, [7.0, 1, 1]),
            ([1.0, 3.0], {"shuffle": True}, [7.0, 1, None]),  # which reaches nobody
        ):
            g.fit(x, np.array(y), **options)
            expected.append(state)
            assert g.state() == {"epochs": state}
        assert node.calls == 4

    def test_early_cutoff(self):
        """What depends on an output that did not change is not computed again."""
        rounding = Add(0.1)
        below = Add(5)
        g = memory(rounding >> round >> below)
        assert g.forward(1.0) == 6
        rounding.amount = 0.2
        assert g.forward(1.0) == 6
        assert g.last_run.computed == ("add", "round")
        assert below.calls == 1

    def test_a_failed_run_loses_nothing(self):
        class Fails(Add):
            def forward(self, x, state):
                raise ValueError("no")

        first = Add(1)
        g = memory(first >> Fails(0))
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                g.forward(1)
        assert first.calls == 1


class TestSeeds:
    def test_a_seed_is_the_graphs_until_another_is_given(self):
        node = Mean()
        g = memory(node)
        x = np.arange(3.0)
        for seed in (1, 2, 1, None, 1):
            g.fit(x, seed=seed)
        assert node.calls == 2
        g.fit(x, seed=2)
        g.fit(x)  # seed 2 still
        assert node.calls == 2

    def test_a_node_that_uses_no_seed_is_not_computed_again(self):
        class Seedless(Add):
            _uses_seed = False

        node = Seedless(1)
        g = memory(node)
        assert [g.forward(1, seed=seed) for seed in (None, 1, 2)] == [2, 2, 2]
        assert node.calls == 1

    def test_rng_depends_on_the_action_alone(self):
        x = np.zeros(4)
        node = Noise()
        first = memory(node).forward(x, seed=7)
        assert np.array_equal(memory(Noise()).forward(x, seed=7), first)
        assert np.array_equal(Graph.somatize(Noise(), cache="off").forward(x, seed=7), first)
        assert not np.array_equal(memory(Noise()).forward(x, seed=8), first)
        assert not np.array_equal(memory(Noise()).forward(x + 1, seed=7) - 1, first)
        assert not np.array_equal(memory(Noise()).forward(x), first)
        g = memory(node)
        assert np.array_equal(g.forward(x), g.forward(x))

    def test_rng_in_fit(self):
        class Draws(Counted):
            def fit(self, x, y=None, rng=None):
                return float(rng.normal())

            def forward(self, x, state):
                return state

        def drawn(cache, seed):
            g = Graph.somatize(Draws(), cache=cache)
            g.fit([1.0], seed=seed)
            return g.forward(0)

        assert drawn("memory", 1) == drawn("off", 1) == drawn("memory", 1)
        assert drawn("memory", 1) != drawn("memory", 2)

    @pytest.mark.parametrize("seed", [1.5, "1", True, np.float64(1)])
    def test_a_seed_is_a_whole_number(self, seed):
        g = memory(Add(1))
        with pytest.raises(InvalidInput, match="seed must be a whole number"):
            g.forward(1, seed=seed)
        with pytest.raises(InvalidInput, match="seed must be a whole number"):
            g.fit(1, seed=seed)

    def test_seeds_of_any_size_and_of_numpy(self):
        node = Add(1)
        g = memory(node)
        for seed in (np.int64(3), 3, -1, 10**30):
            assert g.forward(1, seed=seed) == 2
        assert node.calls == 3

    def test_the_seed_of_a_fit_that_is_refused_is_not_kept(self):
        node = Add(1)
        g = memory(node)
        g.forward(1)
        with pytest.raises(InvalidInput):
            g.fit(1, seed=5, epochs=0)
        g.forward(1)
        assert node.calls == 1


class TestWhatIsNotKept:
    def test_a_fit_that_returns_none_runs_every_time(self, capsys):
        class Inside(Counted):
            def fit(self, x, y=None):
                self._mean = float(np.mean(x))

            def forward(self, x, state):
                self._calls.append(state)
                return x - self._mean

        g = memory(Inside())
        one, two = np.array([1.0, 3.0]), np.array([10.0, 20.0])
        for x in (one, two, one):
            g.fit(x)
            np.testing.assert_array_equal(g.forward(x), x - x.mean())
        assert g.state() == {}
        told = [line for line in capsys.readouterr().err.splitlines() if "returned None" in line]
        (line,) = told
        assert line.startswith("soma: 'inside' (Inside): fit returned None, so what it learned")
        assert line.endswith("return what it learned, or {} if it learns nothing")
        assert [notice.kind for notice in g.last_run.notices] == []

    def test_a_fit_that_returns_an_empty_dict_is_kept(self):
        class Nothing(Mean):
            def fit(self, x, y=None):
                self._calls.append("fit")
                return {}

            def forward(self, x, state):
                return state

        node = Nothing()
        g = memory(node)
        g.fit([1])
        g.fit([1])
        assert node.calls == 1
        assert g.forward([1]) == {}

    @pytest.mark.parametrize("how", ["changes", "adds", "in place"])
    def test_a_forward_that_changes_its_config_is_not_recorded(self, how, capsys):
        class Restless(Add):
            def __init__(self):
                super().__init__(0)
                self.history = [0]

            def forward(self, x, state):
                self._calls.append(x)
                if how == "changes":
                    self.amount += 1
                elif how == "adds":
                    setattr(self, f"seen_{len(self._calls)}", x)
                else:
                    self.history.append(x)
                return x + len(self._calls)

        node = Restless()
        g = memory(node)
        assert [g.forward(0) for _ in range(3)] == [1, 2, 3]
        name = {"changes": "amount", "adds": "seen_1", "in place": "history"}[how]
        err = capsys.readouterr().err
        assert f"'restless' (Restless) changes itself during forward (attribute {name}" in err
        assert all(action.outcome == "computed" for action in g.last_run.actions)

    def test_a_fit_that_learns_into_a_public_attribute_is_not_recorded(self):
        class Public(Counted):
            def fit(self, x, y=None):
                self._calls.append("fit")
                self.mean_ = float(np.mean(x))
                return {}

            def forward(self, x, state):
                return x - self.mean_

        node = Public()
        g = memory(node)
        one, two = np.array([1.0, 3.0]), np.array([10.0, 20.0])
        for x in (one, two, one):
            g.fit(x)
            np.testing.assert_array_equal(g.forward(x), x - x.mean())
        assert node.calls == 3

    def test_uncacheable_and_nondeterministic_filters(self):
        class Never(Add):
            _cacheable = False

        class Chance(Add):
            _deterministic = False

        never, chance, below = Never(1), Chance(2), Add(3)
        g = memory(never >> chance >> below)
        assert [g.forward(0), g.forward(0)] == [6, 6]
        assert (never.calls, chance.calls, below.calls) == (2, 2, 1)
        assert [g.forward(0, seed=1), g.forward(0, seed=1)] == [6, 6]
        assert (never.calls, chance.calls) == (4, 3)

    def test_a_value_without_a_codec_goes_on_and_is_computed_every_time(self, capsys):
        class Wraps(Counted):
            def forward(self, x, state):
                self._calls.append(x)
                return Unwritable([x])

        class Unwraps(Counted):
            def forward(self, x, state):
                self._calls.append(x)
                return x.items[0] + 1

        first, wraps, unwraps, last = Add(1), Wraps(), Unwraps(), Add(100)
        g = memory(first >> wraps >> unwraps >> last)
        assert [g.forward(1), g.forward(1)] == [103, 103]
        assert (first.calls, wraps.calls, unwraps.calls, last.calls) == (1, 2, 2, 1)
        lines = [line for line in capsys.readouterr().err.splitlines() if "'wraps'" in line]
        assert len(lines) == 1
        assert "could not be kept" in lines[0]
        assert "Unwritable" in lines[0]
        assert [(n.kind, n.node) for n in g.last_run.notices] == [("NodeNotKept", "wraps")]

    def test_an_input_without_a_codec_is_said_once(self, capsys):
        class OtherUnwritable(Unwritable):
            pass

        node = Add(1)
        g = memory((lambda x: x.items) >> node)
        x = OtherUnwritable(5)
        assert [g.forward(x), g.forward(x)] == [6, 6]
        assert node.calls == 1
        assert capsys.readouterr().err.count("the input of the graph") == 1

    def test_opaque_values_reach_the_nodes_unwrapped_and_as_they_are(self):
        box = {"a": [1]}

        class Puts(Filter):
            def forward(self, x, state):
                x["a"].append(2)
                return Opaque(x)

        g = memory(Puts() >> (lambda x: x) >> (lambda x: x["a"]))
        assert g.forward(Opaque(box)) == [1, 2]
        assert box == {"a": [1, 2]}

    def test_a_state_without_a_codec_is_held_as_it_is(self):
        class Holds(Mean):
            def fit(self, x, y=None):
                self._calls.append("fit")
                return Unwritable(x)

            def forward(self, x, state):
                return list(state.items) + list(x)

        node = Holds()
        g = memory(node)
        g.fit([1])
        g.fit([1])
        assert node.calls == 2
        assert g.forward([2]) == [1, 2]
        assert g.state()["holds"].items == [1]

    @pytest.mark.parametrize(
        "made", [lambda x: (i for i in x), iter, lambda x: zip(x, x, strict=True)]
    )
    def test_what_can_be_read_only_once_is_refused(self, made):
        class Lazily(Filter):
            def __init__(self, cache_number):
                self._number = cache_number

            def forward(self, x, state):
                return made(x)

        for cache in ("memory", "off"):
            with pytest.raises(InvalidOutput, match=r"'lazily' .Lazily.: forward returned a"):
                Graph.somatize(Lazily(1), cache=cache).forward([1, 2])

    def test_a_coroutine_is_refused(self):
        class Later(Filter):
            async def forward(self, x, state):
                return x

        with pytest.raises(InvalidOutput, match="returned a coroutine"):
            memory(Later()).forward(1)
        gc.collect()  # which would warn of a coroutine that nobody closed


class TestSizes:
    """Outputs from 1 MiB are kept where computing them is slower than 1 GB/s."""

    def chain(self):
        class Spread(Add):
            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, x + self.amount)

        class First(Add):
            def forward(self, x, state):
                self._calls.append(1)
                return float(x[0]) + self.amount

        return Spread(1), First(0)

    def run(self, g, x, *, ms):
        """Forward with a clock by which every call takes so many milliseconds."""
        ticks = iter(range(10**9))
        call = Call(fitting=False, x=x, clock=lambda: next(ticks) * ms / 1e3)
        run = Run(g._program(), g._cache.store, call, RunReport("forward"))
        run_all(run, Inputs())
        return next(iter(run.results.values())), run.report

    @pytest.mark.parametrize(("ms", "kept"), [(1.0, False), (3.0, False), (3.5, True)])
    def test_a_large_output_is_kept_if_it_took_long(self, ms, kept):
        # 400,000 floats are 3.2 MB, which are read in 3.2 ms at 1 GB/s.
        spread, first = self.chain()
        g = memory(spread >> first)
        assert self.run(g, 2.0, ms=ms)[0] == 3.0
        first.amount = 5
        value, report = self.run(g, 2.0, ms=ms)
        assert value == 8.0
        assert spread.calls == (1 if kept else 2)
        outcomes = [(one.node, one.outcome) for one in report.actions]
        assert outcomes == [
            ("spread", "hit"),
            *([] if kept else [("spread", "recomputed")]),
            ("first", "computed"),
        ]
        assert [n.kind for n in report.notices] == ([] if kept else ["NodeRecomputed"])

    def test_keep_all_keeps_it(self, monkeypatch):
        monkeypatch.setenv("SOMA_CACHE_KEEP", "all")
        spread, first = self.chain()
        g = memory(spread >> first)
        self.run(g, 2.0, ms=0.001)
        first.amount = 5
        self.run(g, 2.0, ms=0.001)
        assert spread.calls == 1

    def test_cached_keeps_it(self):
        spread, first = self.chain()
        g = memory(spread.cached() >> first)
        self.run(g, 2.0, ms=0.001)
        first.amount = 5
        self.run(g, 2.0, ms=0.001)
        assert spread.calls == 1

    def test_a_large_leaf_is_kept(self):
        spread, _ = self.chain()
        g = memory(spread)
        for _ in range(2):
            np.testing.assert_array_equal(self.run(g, 2.0, ms=0.001)[0], np.full(BIG, 3.0))
        assert spread.calls == 1

    def test_nothing_is_read_where_everything_hits(self):
        class Reads(MemoryStore):
            def __init__(self):
                super().__init__()
                self.read_count = 0

            def read(self, digest):
                self.read_count += 1
                return super().read(digest)

        store = Reads()
        g = Graph.somatize(Add(1) >> Add(2) >> Add(3) >> Add(4), cache=store)
        x = np.arange(10.0)
        g.forward(x)
        store.read_count = 0
        np.testing.assert_array_equal(g.forward(x), x + 10)
        assert store.read_count == 1  # the last output


class TestRecompute:
    def test_a_lost_blob_is_made_again_by_its_producer(self):
        nodes = [Add(1), Add(2), Add(3)]
        store = MemoryStore()
        g = Graph.somatize(nodes[0] >> nodes[1] >> nodes[2], cache=store)
        x = np.arange(3.0)
        g.forward(x)
        drop_blobs(store)
        np.testing.assert_array_equal(g.forward(x), x + 6)
        assert [one.calls for one in nodes] == [2, 2, 2]
        np.testing.assert_array_equal(g.forward(x), x + 6)  # healed
        assert [one.calls for one in nodes] == [2, 2, 2]

    def test_only_what_is_needed_is_made_again(self):
        nodes = [Add(1), Add(2), Add(3)]
        store = MemoryStore()
        g = Graph.somatize(nodes[0] >> nodes[1] >> nodes[2], cache=store)
        g.forward(0)
        digest = [r.outputs["output"] for r in store.records()][-1]
        store._bytes -= store._blobs.pop(digest).nbytes
        assert g.forward(0) == 6
        assert [one.calls for one in nodes] == [1, 1, 2]

    def test_an_idempotent_filter_twice_in_a_row(self):
        """Both have one key, and the second is the producer of what the first recorded."""

        class Absolute(Counted):
            def forward(self, x, state):
                self._calls.append(x)
                return np.abs(x)

        store = MemoryStore()
        g = Graph.somatize(Absolute() >> Absolute() >> Absolute(), cache=store)
        x = np.array([1.0, 2.0])
        for _ in range(3):
            np.testing.assert_array_equal(g.forward(x), x)
            drop_blobs(store)
        np.testing.assert_array_equal(g.forward(-x), x)

    def test_a_chain_of_ten_thousand_is_made_again_without_recursion(self):
        expression = Add(1)
        for _ in range(9_999):
            expression = expression >> Add(1)
        store = MemoryStore()
        g = Graph.somatize(expression, cache=store)
        assert g.forward(0) == 10_000
        drop_blobs(store)
        assert g.forward(0) == 10_000

    def test_a_lost_state_is_learned_again(self):
        node = Mean()
        store = MemoryStore()
        g = Graph.somatize(node, cache=store)
        x = np.array([1.0, 5.0])
        g.fit(x)
        drop_blobs(store)
        np.testing.assert_array_equal(g.forward(x), x - 3)  # the graph has its state
        drop_blobs(store)
        g.fit(x)
        assert g.last_run.actions[0].outcome == "recomputed"
        np.testing.assert_array_equal(g.forward(x), x - 3)

    def test_what_comes_out_differently_is_never_mixed_with_the_old(self, capsys):
        """head is recorded, not deterministic, and lost: all below follows the new value."""
        head, left, right = Counter(), Add(1), Add(2)
        store = MemoryStore()
        g = Graph(cache=store)
        for id_, node in (("head", head), ("left", left), ("right", right)):
            g.node(id_, node)
        g.node("both", dict.copy)
        for source, target in (("head", "left"), ("head", "right"), ("left", "both")):
            g.edge(source, target)
        g.edge("right", "both")
        assert g.forward(0) == {"left": 1001, "right": 1002}
        drop_blobs(store)
        right.amount = 3  # needs head's object; left's output is still recorded from the old
        assert g.forward(0) == {"left": 2001, "right": 2003}
        assert "'head' (Counter) is not deterministic" in capsys.readouterr().err
        assert "NodeNotDeterministic" in [notice.kind for notice in g.last_run.notices]
        assert g.forward(0) == {"left": 2001, "right": 2003}  # the record was replaced
        assert g.last_run.computed == ()

    def test_a_chain_of_nodes_that_all_come_out_differently_settles(self):
        store = MemoryStore()
        nodes = [Counter() for _ in range(6)]
        expression = nodes[0]
        for node in nodes[1:]:
            expression = expression >> node
        g = Graph.somatize(expression, cache=store)
        for _ in range(4):
            result = g.forward(0)
            assert g.forward(0) == result
            drop_blobs(store)

    def test_refresh_computes_the_named_nodes_anew(self):
        one, two, three = Add(1), Add(2), Add(3)
        g = memory(one.named("one") >> two.named("two") >> three.named("three"))
        g.forward(0)
        assert g.forward(0, refresh="two") == 6
        assert (one.calls, two.calls, three.calls) == (1, 2, 1)
        assert g.forward(0, refresh=["one", "three"]) == 6
        assert (one.calls, two.calls, three.calls) == (2, 2, 2)
        assert g.forward(0, refresh=True) == 6
        assert (one.calls, two.calls, three.calls) == (3, 3, 3)
        with pytest.raises(UnknownNode, match=r"refresh: 'tow' is not in this graph. Did you mean"):
            g.forward(0, refresh=["tow"])
        with pytest.raises(InvalidInput, match="refresh must be node ids"):
            g.forward(0, refresh=7)

    def test_refresh_in_a_fit(self):
        node = Mean()
        g = memory(node)
        for refresh in ((), (), "mean"):
            g.fit([1.0], refresh=refresh)
        assert node.calls == 2
        assert g.forward(np.array([3.0])) == [2.0]


class TestOwnership:
    @pytest.mark.parametrize("cache", ["memory", "off"])
    @pytest.mark.parametrize("size", [3, BIG])
    def test_a_filter_that_writes_harms_nobody(self, cache, size):
        class Mark(Filter):
            def forward(self, x, state):
                x[0] = 99.0
                return x

        class First(Filter):
            def forward(self, x, state):
                return float(x[0])

        x = np.arange(float(size))
        copy = x.copy()
        g = Graph(cache=cache)
        for id_, node in (("mark", Mark()), ("first", First()), ("again", Mark())):
            g.node(id_, node)
        g.node("pass", lambda x: x)
        g.node("below", First())
        g.node("beside", Mark())
        g.edge("pass", "beside")
        g.edge("pass", "below")
        for _ in range(3):
            found = g.forward(x)
            assert (found["first"], found["below"]) == (0.0, 0.0)
            assert found["mark"][0] == found["again"][0] == found["beside"][0] == 99.0
            np.testing.assert_array_equal(x, copy)
            for array in (found["mark"], found["again"], found["beside"]):
                array[:] = -1.0  # the caller's own

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_data_and_states_are_each_calls_own(self, cache):
        g = Graph.somatize(Writes() >> Writes(), cache=cache)
        x, y = np.array([2.0, 5.0]), np.array([1.0, 1.0])
        for _ in range(3):
            g.fit(x, y)
            # the first learns 2 and gives [2 + 2, 5]; the second learns 4
            assert g.state() == {"writes": {"seen": 2.0}, "writes_2": {"seen": 4.0}}
            np.testing.assert_array_equal(g.forward(x), [2.0 + 2.0 + 4.0, 5.0])
            g.state()["writes"]["seen"] = 55.0
        np.testing.assert_array_equal(x, [2.0, 5.0])
        np.testing.assert_array_equal(y, [1.0, 1.0])

    def test_a_caller_who_changes_a_result_or_a_state_changes_nothing(self):
        g = memory(Mean() >> Add(0))
        x = np.array([1.0, 3.0])
        g.fit(x)
        loaded = {"mean": {"mean": np.array(2.0), "weighted": None}}
        g.load_state(loaded)
        g.forward(x)[:] = 1e9
        loaded["mean"]["mean"][...] = -5.0
        g.state()["mean"]["mean"][...] = -6.0
        np.testing.assert_array_equal(g.forward(x), [-1.0, 1.0])

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_the_last_taker_gets_the_producers_object(self, cache):
        """Nothing is copied along a chain, but for what the caller gave."""
        seen = []
        g = Graph.somatize(Keep(seen) >> Keep(seen), cache=cache)
        x = np.zeros(BIG)
        result = g.forward(x)
        assert seen[0] != id(x)
        assert seen == [seen[0], seen[0]]
        assert id(result) == seen[0]

    def test_a_view_is_made_contiguous_cold_and_warm_alike(self):
        class Flags(Filter):
            def forward(self, x, state):
                return x.flags.c_contiguous or x.flags.f_contiguous

        whole = np.arange(24.0).reshape(4, 6)
        g = memory((lambda x: x[:, ::2]) >> Flags())
        assert g.forward(whole) is True
        assert memory(Flags()).forward(whole[:, ::2]) is True
        h = memory(lambda x: x[:, ::2])
        cold, warm = h.forward(whole), h.forward(whole)
        assert cold.flags.c_contiguous == warm.flags.c_contiguous
        np.testing.assert_array_equal(cold, warm)

    def test_the_order_of_a_fortran_array_is_kept(self):
        x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        for cache in ("memory", "off"):
            g = Graph.somatize(lambda x: x.flags.f_contiguous, cache=cache)
            assert g.forward(x) is True

    def test_values_are_freed_after_their_last_taker(self):
        alive = []

        class Watch(Filter):
            def forward(self, x, state):
                alive.append(sum(ref() is not None for ref in refs))
                out = np.zeros(10) + len(refs)
                refs.append(weakref.ref(out))
                return out

        refs = []
        expression = Watch()
        for _ in range(9):
            expression = expression >> Watch()
        Graph.somatize(expression, cache="off").forward(0)
        assert max(alive) <= 1


class Keep(Filter):
    _cacheable = False

    def __init__(self, seen):
        self._seen = seen

    def forward(self, x, state):
        self._seen.append(id(x))
        return x


class TestStates:
    def test_states_round_trip(self):
        g = memory(Mean() >> Mean())
        x = np.array([1.0, 3.0])
        g.fit(x)
        h = memory(Mean() >> Mean())
        with pytest.raises(NotFittedError, match="'mean', 'mean_2' learned nothing yet"):
            h.forward(x)
        h.load_state(g.state())
        np.testing.assert_array_equal(h.forward(x + 1), g.forward(x + 1))

    def test_unknown_and_needless_states_are_refused_and_nothing_is_loaded(self):
        g = memory(Mean().named("mean") >> Add(1).named("add"))
        with pytest.raises(UnknownNode, match=r"'maen' not in this graph. Did you mean 'mean'"):
            g.load_state({"mean": {"mean": 1.0}, "maen": {}})
        with pytest.raises(KeyError, match="not in this graph"):
            g.load_state({7: {}})
        with pytest.raises(InvalidInput, match="'add' learns nothing"):
            g.load_state({"mean": {"mean": 1.0}, "add": {}})
        with pytest.raises(InvalidInput, match="takes a dict"):
            g.load_state([("mean", {})])
        assert g.state() == {}
        with pytest.raises(NotFittedError):
            g.forward(np.array([1.0]))

    def test_not_strict_warns_of_both(self):
        g = memory(Mean() >> Mean())
        with pytest.warns(StateWarning) as caught:
            g.load_state({"mean": {"mean": 1.0}, "other": {}}, strict=False)
        assert [str(one.message) for one in caught] == [
            "load_state: states left out, not in this graph or without use: 'other'",
            "load_state: nodes without state: 'mean_2'",
        ]
        assert caught[0].filename == __file__
        assert g.state() == {"mean": {"mean": 1.0}}

    def test_states_are_gone_on_from_only_where_asked(self):
        class Sums(Counted):
            def fit(self, x, y=None, *, state=None):
                self._calls.append(state)
                return (state or 0) + sum(x)

            def forward(self, x, state):
                return state

        node = Sums()
        g = memory(node)
        g.fit([1, 2])
        g.fit([1, 2])
        assert (g.forward(0), node.calls) == (3, 1)  # from scratch, and known
        g.fit([1, 2], warm_start=True)
        assert g.forward(0) == 6
        g.fit([1, 2], warm_start=True)
        assert (g.forward(0), node.calls) == (9, 3)
        g.load_state({"sums": 100})
        g.fit([1, 2])
        assert g.forward(0) == 103
        g.fit([1, 2])  # what was loaded has been used
        assert (g.forward(0), node.calls) == (3, 4)
        g.load_state({"sums": 100})
        g.fit([1, 2])
        assert (g.forward(0), node.calls) == (103, 4)  # known as well

    def test_a_fit_that_takes_no_state_is_not_touched_by_one(self):
        node = Mean()
        g = memory(node)
        g.fit([1.0])
        g.fit([1.0], warm_start=True)
        assert node.calls == 1


class TestFrozenAndCached:
    def test_a_frozen_node_keeps_a_loaded_state(self):
        frozen, free = Mean(), Mean()
        g = memory(frozen.frozen() >> free)
        g.load_state({"mean": {"mean": 10.0}})
        x = np.array([1.0, 3.0])
        g.fit(x)
        assert g.state()["mean"] == {"mean": 10.0}
        assert g.state()["mean_2"]["mean"] == -8.0

    def test_a_frozen_node_without_a_state_fits(self):
        g = memory(Mean().frozen())
        g.fit([1.0, 3.0])
        assert g.state()["mean"]["mean"] == 2.0
        g.fit([1.0, 5.0])
        assert g.state()["mean"]["mean"] == 3.0

    @pytest.mark.parametrize("verb", ["fit", "forward"])
    def test_what_may_learn_cannot_be_cached(self, verb):
        g = memory(Mean().named("above") >> Add(1).named("below").cached())
        if verb == "forward":
            g.load_state({"above": {"mean": 1.0}})
        with pytest.raises(Unsettled, match="'below' is cached, and 'above' may still learn"):
            getattr(g, verb)(np.array([1.0]))
        with pytest.raises(ValueError, match="may still learn"):
            memory(Mean().cached()).fit([1.0])
        h = memory(Mean().named("above").frozen() >> Add(1).cached())
        h.fit(np.array([1.0]))
        assert h.forward(np.array([3.0])) == [3.0]

    def test_what_has_no_identity_cannot_be_cached(self):
        found = []
        g = Graph(cache="memory")
        g.node("n", found.append, cached=True)
        with pytest.raises(Nameless, match="'n' is cached, and"):
            g.forward(1)
        assert found == []
        h = Graph(cache="memory")
        h.node("n", found.append)
        for _ in range(2):
            assert h.forward(1) is None
        assert found == [1, 1]
        assert [one.kind for one in h.last_run.notices] == ["NodeNotKept"]

    def test_what_must_not_be_kept_cannot_be_cached(self):
        class Never(Add):
            _cacheable = False

        with pytest.raises(GraphError, match="_cacheable = False"):
            memory(Never(1).cached()).forward(1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (np.zeros((3, 2)), np.zeros(4)),
            ([1, 2, 3], [1, 2]),
            (np.zeros(3), [1, 2]),
        ],
    )
    def test_x_and_y_have_one_length(self, x, y):
        ran = []
        g = memory(lambda x: ran.append(1) or x)
        with pytest.raises(InvalidInput, match=r"x has 3 rows and y has \d"):
            g.fit(x, y)
        assert ran == []

    def test_what_has_no_rows_is_not_compared(self):
        g = memory(Add(1))
        g.fit({"a": 1}, [1, 2])
        g.fit(np.zeros(3), (np.zeros(2), 1))
        g.fit(3.0, np.zeros(2))
        g.fit(np.array(1.0), np.zeros(2))

    def test_a_fit_that_needs_labels_is_not_called_without(self):
        class Needs(Counted):
            def fit(self, x, y):
                self._calls.append(1)
                return {}

            def forward(self, x, state):
                return x

        node = Needs()
        g = memory(Add(1) >> node)
        with pytest.raises(InvalidInput, match=r"'needs' .Needs. learns from labels"):
            g.fit(np.array([1.0]))
        assert node.calls == 0

    def test_none_is_not_learned_from(self):
        with pytest.raises(InvalidInput, match="learns from the input of the graph, and x is None"):
            memory(Mean()).fit(None)
        assert memory(lambda x: x is None).forward(None) is True
        g = memory((lambda _: np.array([1.0, 3.0])) >> Mean())
        g.fit(None)  # the first makes its own data
        assert g.state()["mean"]["mean"] == 2.0

    def test_a_none_that_somebody_stumbles_over_is_pointed_at(self):
        g = memory((lambda x: None) >> Add(1).named("add"))
        with pytest.raises(TypeError) as caught:
            g.forward(1)
        (note,) = caught.value.__notes__
        assert note.startswith("in node 'add' (Add), during forward; its input is None: did the")

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"epochs": 0}, "epochs must be a whole number from 1"),
            ({"epochs": 1.5}, "epochs must be"),
            ({"epochs": None}, "epochs must be"),
            ({"batch_size": 0}, "batch_size must be"),
            ({"batch_size": True}, "batch_size must be"),
            ({"shuffle": 1}, "shuffle must be True or False"),
        ],
    )
    def test_options_that_make_no_sense(self, options, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            memory(Mean()).fit([1.0], **options)

    def test_a_target_that_nobody_has(self):
        g = memory(Add(1).at("gpu-0"))
        with pytest.raises(GraphError, match="shall run at 'gpu-0', and this graph has no worker"):
            g.forward(1)
        assert memory(Add(1).at("local")).forward(1) == 2

    def test_caches_by_name(self):
        with pytest.raises(UnknownName, match=r"There is no cache 'memry'. Did you mean 'memory'"):
            Graph(cache="memry")
        with pytest.raises(InvalidInput, match="say cache='disk'"):
            Graph(cache_path="/somewhere")
        with pytest.raises(InvalidInput, match="cache must be one of"):
            Graph(cache=7)
        with pytest.raises(InvalidInput, match="cache='memory'"):
            Graph(cache="off", cache_max_bytes=10)
        for wrong in (0, -1, 1.5, "1G", True):
            with pytest.raises(InvalidInput, match="cache_max_bytes must be a whole number"):
                Graph(cache="memory", cache_max_bytes=wrong)

    def test_a_store_that_fails_costs_the_run_nothing(self, capsys):
        class Full(MemoryStore):
            def write(self, frame, digest=None):
                raise OSError(28, "No space left on device")

        class Broken(MemoryStore):
            def commit(self, record):
                raise OSError(5, "Input/output error")

            def lookup(self, key):
                raise OSError(5, "Input/output error")

        for cls in (Full, Broken):
            mean = Mean()
            g = Graph.somatize(mean >> Add(1), cache=cls())
            x = np.array([1.0, 3.0])
            g.fit(x)
            np.testing.assert_array_equal(g.forward(x), x - 1)
            assert {notice.kind for notice in g.last_run.notices} == {"NodeNotKept"}
        err = capsys.readouterr().err
        assert "No space left on device" in err
        assert "Input/output error" in err

    def test_a_value_larger_than_the_store_goes_on(self, capsys):
        g = Graph.somatize(Add(1), cache="memory", cache_max_bytes=1000)
        for _ in range(2):
            np.testing.assert_array_equal(g.forward(np.zeros(1000)), np.ones(1000))
        assert "more than the store holds (1000)" in capsys.readouterr().err


def test_two_calls_wait_for_one_computation():
    """Claims: the second of two that want the same waits, and then hits."""
    started, go_on = threading.Event(), threading.Event()

    class Waits(Counted):
        def forward(self, x, state):
            self._calls.append(x)
            self._started.set()
            assert self._go_on.wait(30)
            return x + 1

    node = Waits()
    node._started, node._go_on = started, go_on
    store = MemoryStore()
    results = []

    def call():
        results.append(Graph.somatize(node, cache=store).forward(1))

    threads = [threading.Thread(target=call) for _ in range(3)]
    threads[0].start()
    assert started.wait(30)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert results == [2, 2, 2]
    assert node.calls == 1


def test_a_graph_within_a_graph_that_wants_the_same_does_not_wait_for_itself():
    store = MemoryStore()

    class Inner(Counted):
        def forward(self, x, state):
            self._calls.append(x)
            if len(self._calls) == 1:
                return Graph.somatize(self, cache=self._store).forward(x)
            return x + 1

    node = Inner()
    node._store = store
    assert Graph.somatize(node, cache=store).forward(1) == 2


def test_sizes_are_bounded_and_memory_is_given_back():
    store = MemoryStore(max_bytes=10_000_000)
    g = Graph.somatize(lambda x: np.full(BIG, x), cache=store)
    for number in range(20):
        g.forward(float(number))
    stats = store.stats()
    assert stats["records"] == 20
    assert stats["bytes"] <= 10_000_000
    assert stats["blobs"] == 3  # of 3.2 MB each
    assert sys.getsizeof(store) < 10_000


class Table(Filter):
    """Goes on holding what it returns, in one way or another."""

    def __init__(self, how):
        self._table = np.arange(5.0)
        self._how = how

    def forward(self, x, state):
        table = self._table
        return {
            "itself": lambda: table,
            "a view": lambda: table[1:],
            "in a dict": lambda: {"a": table},
            "in a list": lambda: [table + 0, table[:2]],
            "fresh": lambda: table + 0,
            "fresh in a dict": lambda: {"a": table + 0},
            "fresh, another shape": lambda: (table + 0).reshape(1, 5),
            "its input": lambda: x,
            "a view of its input": lambda: x[1:],
        }[self._how]()


def scribble(x):
    """Write into whatever comes, and say where it lay."""
    array = x["a"] if isinstance(x, dict) else x[1] if isinstance(x, list) else x
    address = array.__array_interface__["data"][0]
    array.ravel()[:] = 99.0
    return address


@pytest.mark.parametrize("cache", ["memory", "off"])
@pytest.mark.parametrize("how", ["itself", "a view", "in a dict", "in a list"])
def test_what_a_producer_goes_on_holding_is_copied_for_the_next(cache, how):
    node = Table(how)
    g = Graph.somatize(node >> scribble, cache=cache)
    g.forward(np.arange(4.0))
    np.testing.assert_array_equal(node._table, np.arange(5.0))
    returned = Graph.somatize(node, cache=cache).forward(np.arange(4.0))
    scribble(returned)
    np.testing.assert_array_equal(node._table, np.arange(5.0))


@pytest.mark.parametrize("cache", ["memory", "off"])
@pytest.mark.parametrize(
    "how", ["fresh", "fresh in a dict", "fresh, another shape", "its input", "a view of its input"]
)
def test_what_nobody_else_holds_is_handed_on_uncopied(cache, how, monkeypatch):
    addresses = []

    class Tells(Table):
        _cacheable = False

        def forward(self, x, state):
            made = super().forward(x, state)
            array = made["a"] if isinstance(made, dict) else made
            addresses.append(array.__array_interface__["data"][0])
            return made

    node = Tells(how)
    got = Graph.somatize(node >> scribble, cache=cache).forward(np.arange(4.0))
    assert addresses == [got]
