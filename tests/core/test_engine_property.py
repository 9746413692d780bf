from __future__ import annotations

import copy
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, count, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from soma import Filter, Graph
from soma.dsl import Chain, Composable, Fork
from soma.engine import MemoryStore
from soma.plan import Composite, Execute, Parallel, Plan, Sequence
from support.forcing import (
    drop_blobs,
    drop_records,
    in_threads,
    kept_only_at_leaves_and_mapped,
    picked,
)


def checked(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# What the filters share. Every number is a whole one, so that no sum depends on its order.


def parts_of(value):
    """Return the values in a dict or tuple, or the value alone."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, tuple) else [value]


def total(value):
    """Return the sum of everything in a value; of one number or array, that object itself."""
    if not isinstance(value, dict | tuple):
        return value
    first, *others = map(total, parts_of(value))
    for one in others:
        first = first + one
    return first


def fold(value):
    """Return the value in a range in which nothing overflows or is rounded."""
    return value % 2003 - 1001


def number(value):
    """Return the sum over all items as a plain int."""
    return int(np.sum(total(value)))


def write_into(value, amount):
    """Add to every array in a value, in place."""
    for one in parts_of(value):
        if isinstance(one, np.ndarray):
            np.add(one, amount, out=one)
        elif isinstance(one, dict | tuple):
            write_into(one, amount)


class Add(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return total(x) + self.amount


class Times(Filter):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, x, state):
        return fold(total(x) * self.factor)


class Abs(Filter):
    def forward(self, x, state):
        return abs(total(x))


class Clip(Filter):
    def __init__(self, limit):
        self.limit = limit

    def forward(self, x, state):
        x = total(x)
        if isinstance(x, int):
            return max(-self.limit, min(self.limit, x))
        return np.clip(x, -self.limit, self.limit)


class Total(Filter):
    def forward(self, x, state):
        return fold(total(x))


class Weigh(Filter):
    """The sum of what it is given, by the names of those who give it."""

    def forward(self, x, state):
        if not isinstance(x, dict):
            return fold(total(x))
        return fold(
            total(tuple((1 + place) * total(x[id_]) for place, id_ in enumerate(sorted(x))))
        )


class InOrder(Filter):
    """The sum of what it is given, by its order."""

    def forward(self, x, state):
        return fold(total(tuple((1 + place) * total(one) for place, one in enumerate(parts_of(x)))))


class Same(Filter):
    def forward(self, x, state):
        return x


class Turned(Filter):
    """A view."""

    def forward(self, x, state):
        x = total(x)
        return x if isinstance(x, int) else x[::-1]


class Both(Filter):
    def forward(self, x, state):
        x = total(x)
        return (x, fold(x * 2))


class Mean(Filter):
    def fit(self, x, y=None):
        return float(np.floor(np.mean(total(x))))

    def forward(self, x, state):
        return fold(total(x) - int(state))


class Offset(Filter):
    """Learns how far y lies from x."""

    def fit(self, x, y):
        return {"offset": np.array([number(y) - number(x)])}

    def forward(self, x, state):
        return fold(total(x) + int(state["offset"][0]))


class Gather(Filter):
    """Goes on from what it has learned."""

    def fit(self, x, y=None, state=None):
        before = 0 if state is None else state["sum"]
        return {"sum": fold(before + number(x)), "fits": 1 if state is None else state["fits"] + 1}

    def forward(self, x, state):
        return fold(total(x) + state["sum"] * state["fits"])


class NothingLearned(Filter):
    def fit(self, x, y=None):
        return {}

    def forward(self, x, state):
        return fold(total(x) + len(state))


class Write(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        write_into(x, self.amount)
        return x


class WriteAndAdd(Filter):
    def forward(self, x, state):
        before = fold(total(x))
        write_into(x, 7)
        return fold(before + total(x))


class WriteIntoState(Filter):
    """Writes into x, y and what it has learned, wherever it sees them."""

    def fit(self, x, y):
        write_into((x, y), 3)
        return {"seen": np.array([number(x), number(y)])}

    def forward(self, x, state):
        write_into(x, 5)
        state["seen"] += 11
        return fold(total(x) + number(state["seen"]))


class Remember(Filter):
    """Learns the very object that it is given, and gives what it has learned."""

    def fit(self, x, y=None):
        return x

    def forward(self, x, state):
        write_into(x, 9)
        write_into(state, 1)
        return (total(x), state)


def some(cls, *options):
    return st.tuples(st.just(cls), st.tuples(*map(st.sampled_from, options)))


NUMBERS = (-3, -1, 1, 2)
PURE = st.one_of(
    some(Add, NUMBERS),
    some(Times, (-1, 2, 3)),
    some(Abs),
    some(Clip, (2, 20)),
    some(Total),
    some(Weigh),
    some(Same),
    some(Turned),
    some(Both),
)
LEARNING = st.one_of(some(Mean), some(Offset), some(Gather), some(NothingLearned))
WRITING = st.one_of(some(Write, NUMBERS), some(WriteAndAdd))
LEARNING_AND_WRITING = st.one_of(some(WriteIntoState), some(Remember), some(Offset))


# Graphs


@dataclass(frozen=True)
class Dag:
    """What a graph is declared from. Node i is fed by nodes of lower numbers alone."""

    filters: tuple[tuple[type, tuple], ...]
    edges: tuple[tuple[int, int], ...]
    """In the order in which they are declared."""
    declared: tuple[int, ...]
    """The nodes in the order in which they are declared."""

    def graph(self, cache):
        g = Graph(cache=cache)
        for one in self.declared:
            cls, arguments = self.filters[one]
            g.node(f"n{one}", cls(*arguments))
        for source, target in self.edges:
            g.edge(f"n{source}", f"n{target}")
        return g

    def first(self, size):
        """Return the part of this graph that the lower numbers are."""
        return Dag(
            self.filters[:size],
            tuple(pair for pair in self.edges if max(pair) < size),
            tuple(one for one in self.declared if one < size),
        )


@st.composite
def dags(draw, filters, most=12):
    size = draw(st.integers(2, most))
    chosen = draw(st.lists(filters, min_size=size, max_size=size))
    edges = []
    for target in range(1, size):
        feeding = st.sets(st.integers(0, target - 1), max_size=3)
        edges += [
            (one, target) for one in sorted(draw(st.just({target - 1}) | feeding), reverse=True)
        ]
    return Dag(
        tuple(chosen),
        tuple(draw(st.permutations(edges))),
        tuple(draw(st.permutations(range(size)))),
    )


def an_array(shape, dtype, order, seed):
    found = np.random.default_rng(seed).integers(-40, 40, shape).astype(dtype)
    return np.asfortranarray(found) if order == "F" else found


SHAPES = ((3,), (1,), (4, 2), (2, 3, 2))
ARRAYS = st.builds(
    an_array,
    st.sampled_from(SHAPES),
    st.sampled_from(("int64", "float64", "float32")),
    st.sampled_from("CF"),
    st.integers(0, 5),
)
VALUES = st.integers(-50, 50) | ARRAYS
LARGE = st.builds(
    an_array,
    st.sampled_from(((150_000,), (3, 50_000))),
    st.sampled_from(("int64", "float64")),
    st.sampled_from("CF"),
    st.integers(0, 5),
)
MASKS = st.just(-1) | st.integers(0, (1 << 40) - 1)
"""Which of many things: the bits of a number; -1 is all of them."""


# The same without an engine: every node gets a deep copy of its own.


def own(value):
    return copy.deepcopy(value)


@dataclass
class Evaluation:
    """A graph evaluated node by node, in the order of their numbers."""

    dag: Dag
    states: dict = field(default_factory=dict)

    def fit(self, x, y, *, warm_start=False):
        states = {}

        def learn(one, node, given):
            if not hasattr(node, "fit"):
                return None
            more = {}
            if isinstance(node, Gather):
                more["state"] = own(self.states.get(one)) if warm_start else None
            states[one] = own(node.fit(own(given), own(y), **more))
            return states[one]

        self._run(x, learn)
        self.states = states

    def forward(self, x):
        values = self._run(x, lambda one, _node, _given: self.states.get(one))
        feeding = {source for source, _ in self.dag.edges}
        leaves = {f"n{one}": values[one] for one in self.dag.declared if one not in feeding}
        return next(iter(leaves.values())) if len(leaves) == 1 else leaves

    def state(self):
        return {f"n{one}": state for one, state in self.states.items()}

    def _run(self, x, state_of):
        values = []
        for one, (cls, arguments) in enumerate(self.dag.filters):
            node = cls(*arguments)
            sources = [source for source, target in self.dag.edges if target == one]
            if not sources:
                given = x
            elif len(sources) == 1:
                given = values[sources[0]]
            else:
                by_id = sorted(sources, key=lambda source: f"n{source}")
                given = {f"n{source}": own(values[source]) for source in by_id}
            state = state_of(one, node, given)
            values.append(own(node.forward(own(given), own(state))))
        return values


def same(found, expected):
    """Say whether two values are equal, their types, dtypes and order included."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    return found == expected


# What is checked of any graph


def check_forward(dag, xs, store, *, blobs, records, first=0):
    if first:
        dag.first(first).graph(store).forward(xs[0])
    expected = [Evaluation(dag).forward(x) for x in xs]
    before = own(xs)
    g = dag.graph(store)

    def check():
        results = [g.forward(x) for x in xs]
        assert all(map(same, results, expected))
        assert all(map(same, xs, before))
        for one in results:  # they are the caller's
            write_into(one, 1000)

    check()
    check()
    if store is None or store == "off":
        return
    if store.max_bytes > 1 << 20:
        for x in xs:
            g.forward(own(x))
            assert g.last_run.computed == ()
    drop_blobs(store, blobs)
    check()
    drop_records(store, records)
    check()
    drop_records(store, ~records)
    drop_blobs(store, ~blobs)
    check()
    again = set(picked([f"n{one}" for one in dag.declared], blobs))
    for x, value in zip(xs, expected, strict=True):
        assert same(g.forward(x, refresh=again), value)
        assert again <= set(g.last_run.computed)
    assert store._bytes == sum(one.nbytes for one in store._blobs.values())
    assert store.verify() == []


def check_fit(dag, xs, ys, store, *, blobs, records, warm_starts=()):
    evaluation = Evaluation(dag)
    before = own((xs, ys))
    g = dag.graph(store)

    def check(which, labels=None, *, warm_start=False):
        x, y = xs[which], ys[which if labels is None else labels]
        g.fit(x, y, warm_start=warm_start)
        evaluation.fit(x, y, warm_start=warm_start)
        report = g.last_run
        for _ in range(2):
            assert same_states(g.state(), evaluation.state())
            for state in g.state().values():  # they are the caller's
                write_into(state, 1000)
            for one in xs:
                result = g.forward(one)
                assert same(result, evaluation.forward(one))
                write_into(result, 1000)
        assert all(map(same, (tuple(xs), tuple(ys)), map(tuple, before)))
        return report

    for which in (0, 1):
        check(which)
    check(0, 1)
    for which in (0, 1, 0):
        report = check(which)
        if isinstance(store, MemoryStore) and store.max_bytes > 1 << 20:
            assert report.computed == ()
    for which, warm_start in enumerate(warm_starts):
        check(which % 2, warm_start=warm_start)
    if not isinstance(store, MemoryStore):
        return
    drop_blobs(store, blobs)  # before anything else is asked of the graph
    check(0)
    check(1)
    drop_records(store, records)
    check(1)
    drop_blobs(store, ~blobs)
    drop_records(store, ~records)
    check(0)
    assert store.verify() == []


def same_states(found, expected):
    return set(found) == set(expected) and all(same(found[k], expected[k]) for k in found)


class TestForward:
    @checked(100)
    @given(dags(PURE), st.tuples(VALUES, VALUES), MASKS, MASKS)
    def test_is_the_evaluation_node_by_node_whatever_the_store_lost(self, dag, xs, blobs, records):
        check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records)

    @checked(40)
    @given(dags(PURE | WRITING, most=8), st.tuples(ARRAYS, ARRAYS), MASKS, MASKS, st.data())
    def test_is_the_same_where_only_leaves_are_kept(self, dag, xs, blobs, records, data):
        first = data.draw(st.integers(0, len(dag.filters) - 1))
        with kept_only_at_leaves_and_mapped():
            check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records, first=first)

    @checked(8)
    @given(dags(PURE | WRITING, most=6), LARGE, MASKS, MASKS, st.data())
    def test_is_the_same_for_values_that_are_mapped(self, dag, x, blobs, records, data):
        first = data.draw(st.integers(0, len(dag.filters) - 1))
        check_forward(dag, (x,), MemoryStore(), blobs=blobs, records=records, first=first)

    @checked(30)
    @given(
        dags(PURE | WRITING, most=8),
        st.tuples(VALUES, VALUES),
        st.integers(1, 3000) | st.just("off"),
        MASKS,
    )
    def test_is_the_same_in_a_store_that_holds_little_or_nothing(self, dag, xs, size, mask):
        store = size if size == "off" else MemoryStore(size)
        check_forward(dag, xs, store, blobs=mask, records=mask)

    @checked(30)
    @given(st.lists(some(Abs) | some(Clip, (20,)), min_size=2, max_size=12), VALUES, MASKS, MASKS)
    def test_goes_through_a_chain_that_repeats_itself(self, filters, x, blobs, records):
        places = range(len(filters))
        dag = Dag(tuple(filters), tuple(pairwise(places)), tuple(places))
        check_forward(dag, (x,), MemoryStore(), blobs=blobs, records=records)
        with kept_only_at_leaves_and_mapped():
            check_forward(dag, (x,), MemoryStore(), blobs=blobs, records=records, first=1)

    def test_a_fan_in_is_in_the_order_of_ids_however_its_edges_were_declared(self):
        g = Graph(cache="memory")
        for id_, node in (("a", Add(1)), ("b", Add(2)), ("ab", InOrder()), ("ba", InOrder())):
            g.node(id_, node)
        for source, target in (("a", "ab"), ("b", "ab"), ("b", "ba"), ("a", "ba")):
            g.edge(source, target)
        assert g.forward(0) == {"ab": fold(1 * 1 + 2 * 2), "ba": fold(1 * 1 + 2 * 2)}

    def test_a_fan_in_is_told_from_one_of_the_same_values_from_other_nodes(self):
        g = Graph(cache="memory")
        for id_, amount in (("a", 1), ("b", 2), ("c", 1), ("d", 2)):
            g.node(id_, Add(amount))
        for id_, sources in (("ab", "ab"), ("cd", "cd"), ("ad", "ad")):
            g.node(id_, Same())
            for source in sources:
                g.edge(source, id_)
        assert g.forward(0) == {
            "ab": {"a": 1, "b": 2},
            "cd": {"c": 1, "d": 2},
            "ad": {"a": 1, "d": 2},
        }

    @checked(40)
    @given(
        dags(some(Add, NUMBERS) | some(InOrder) | some(InOrder), most=8),
        st.tuples(VALUES, VALUES),
        MASKS,
        MASKS,
    )
    def test_is_the_same_where_the_order_of_a_fan_in_counts(self, dag, xs, blobs, records):
        check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records)

    def test_computes_no_value_again_for_each_of_the_ways_that_lead_to_it(self):
        store, rungs = MemoryStore(), 7
        feeding = [(0, 1)]
        for rung in range(rungs):  # each is fed by the two before it
            feeding += [(rung, rung + 2), (rung + 1, rung + 2)]
        filters = tuple((Add, (amount,)) for amount in range(rungs + 2))
        dag = Dag(
            (*filters, (Total, ())), (*feeding, (rungs + 1, rungs + 2)), tuple(range(rungs + 3))
        )
        x = np.arange(4)
        with kept_only_at_leaves_and_mapped():
            dag.first(rungs + 1).graph(store).forward(x)
            g = dag.graph(store)
            g.forward(x)
        counts = Counter(one.node for one in g.last_run.actions if one.outcome != "hit")
        assert max(counts.values()) <= 2


class TestFit:
    @checked(40)
    @given(
        dags(PURE | LEARNING | LEARNING, most=9),
        st.tuples(st.sampled_from(SHAPES), st.sampled_from(("int64", "float64"))),
        st.lists(st.booleans(), max_size=3),
        MASKS,
        MASKS,
    )
    def test_learns_what_the_evaluation_learns(self, dag, kind, warm_starts, blobs, records):
        shape, dtype = kind
        xs = tuple(an_array(shape, dtype, "C", seed) for seed in (0, 1))
        ys = tuple(an_array(shape[:1], "int64", "C", seed) for seed in (2, 3))
        check_fit(
            dag,
            xs,
            ys,
            MemoryStore(),
            blobs=blobs,
            records=records,
            warm_starts=warm_starts,
        )

    @checked(20)
    @given(dags(PURE | LEARNING, most=7), st.integers(-50, 50), st.integers(-50, 50), MASKS, MASKS)
    def test_learns_the_same_from_plain_numbers(self, dag, x, y, blobs, records):
        check_fit(dag, (x, x + 1), (y, y + 1), MemoryStore(), blobs=blobs, records=records)

    @checked(25)
    @given(dags(PURE | LEARNING | WRITING | LEARNING_AND_WRITING, most=7), MASKS, MASKS)
    def test_learns_the_same_where_only_leaves_are_kept(self, dag, blobs, records):
        xs = tuple(an_array((3,), "int64", "C", seed) for seed in (0, 1))
        with kept_only_at_leaves_and_mapped():
            check_fit(dag, xs, xs[::-1], MemoryStore(), blobs=blobs, records=records)

    @checked(3)
    @given(dags(PURE | LEARNING | WRITING | LEARNING_AND_WRITING, most=4), MASKS, MASKS)
    def test_learns_the_same_from_values_that_are_mapped(self, dag, blobs, records):
        xs = tuple(an_array((140_000,), "int64", "C", seed) for seed in (0, 1))
        check_fit(dag, xs, xs[::-1], MemoryStore(), blobs=blobs, records=records)


class TestWritersInPlace:
    @checked(50)
    @given(dags(PURE | WRITING | WRITING), st.tuples(ARRAYS, ARRAYS), MASKS, MASKS)
    def test_change_what_is_their_own_in_forward(self, dag, xs, blobs, records):
        check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records)

    @checked(30)
    @given(dags(PURE | WRITING | LEARNING_AND_WRITING | LEARNING_AND_WRITING, most=8), MASKS, MASKS)
    def test_change_what_is_their_own_in_fit(self, dag, blobs, records):
        xs = tuple(an_array((4, 2), "int64", "C", seed) for seed in (0, 1))
        check_fit(dag, xs, xs[::-1], MemoryStore(), blobs=blobs, records=records)

    @checked(20)
    @given(
        dags(PURE | WRITING | LEARNING_AND_WRITING | LEARNING_AND_WRITING, most=7),
        st.integers(1, 3000) | st.just("off"),
    )
    def test_change_what_is_their_own_where_little_or_nothing_is_kept(self, dag, size):
        xs = tuple(an_array((4, 2), "int64", "C", seed) for seed in (0, 1))
        store = size if size == "off" else MemoryStore(size)
        check_fit(dag, xs, xs[::-1], store, blobs=-1, records=0)


class Constant(Filter):
    """Gives an array of its own."""

    def __init__(self, value):
        self.value = value

    def forward(self, x, state):
        return self.value


class Twice(Filter):
    """Gives one object at two places."""

    def forward(self, x, state):
        return (x, x)


class WriteIntoFirst(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        x[0][:] += 1
        return x[0] + x[1] + self.amount


@pytest.mark.parametrize("cache", ["memory", "off"])
class TestObjectsInTwoHands:
    def test_a_writer_does_not_change_the_filter_whose_array_it_is_given(self, cache):
        constant = Constant(np.zeros(2))
        g = Graph.somatize(constant >> Write(1), cache=cache)
        assert g.forward(0).tolist() == [1, 1]
        assert constant.value.tolist() == [0, 0]
        assert g.forward(1).tolist() == [1, 1]

    def test_a_caller_does_not_change_the_filter_whose_array_is_the_result(self, cache):
        constant = Constant(np.zeros(2))
        g = Graph.somatize(constant, cache=cache)
        result = g.forward(0)
        result += 5
        assert constant.value.tolist() == [0, 0]
        assert g.forward(1).tolist() == [0, 0]

    def test_an_array_at_two_places_of_a_value_is_the_same_for_every_taker(self, cache):
        alone = Graph.somatize(Twice() >> WriteIntoFirst(0), cache=cache).forward(np.zeros(1))
        beside = Graph.somatize(
            Twice() >> (WriteIntoFirst(0) | WriteIntoFirst(100)), cache=cache
        ).forward(np.zeros(1))
        assert {id_: one.tolist() for id_, one in beside.items()} == {
            "write_into_first": alone.tolist(),
            "write_into_first_2": (alone + 100).tolist(),
        }


class NameThread(Filter):
    def forward(self, x, state):
        return threading.current_thread().name


SCHEDULES = st.sampled_from(((-1.0, 64), (3e-5, 1), (-1.0, 1)))
"""What counts as slow, and after how many quick nodes threads are given up."""


class TestThreads:
    def test_take_all_nodes_but_the_first(self):
        g = Graph(cache="off")
        for id_ in "abcd":
            g.node(id_, NameThread())
        with in_threads():
            first, *others = g.forward(0).values()
        assert first == threading.current_thread().name
        assert all(one.startswith("soma-") for one in others)

    @checked(35)
    @given(dags(PURE | WRITING), st.tuples(VALUES, VALUES), MASKS, MASKS, SCHEDULES)
    def test_forward_the_same(self, dag, xs, blobs, records, schedule):
        with in_threads(*schedule):
            check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records)

    @checked(15)
    @given(dags(PURE | WRITING | LEARNING | LEARNING_AND_WRITING, most=9), MASKS, MASKS, SCHEDULES)
    def test_fit_the_same(self, dag, blobs, records, schedule):
        xs = tuple(an_array((3,), "int64", "C", seed) for seed in (0, 1))
        with in_threads(*schedule):
            check_fit(dag, xs, xs[::-1], MemoryStore(), blobs=blobs, records=records)

    @checked(25)
    @given(dags(PURE | WRITING, most=8), st.tuples(ARRAYS, ARRAYS), MASKS, MASKS, st.data())
    def test_compute_the_same_again(self, dag, xs, blobs, records, data):
        first = data.draw(st.integers(0, len(dag.filters) - 1))
        with in_threads(), kept_only_at_leaves_and_mapped():
            check_forward(dag, xs, MemoryStore(), blobs=blobs, records=records, first=first)

    @checked(15)
    @given(dags(PURE | WRITING, most=8), st.tuples(VALUES, VALUES))
    def test_forward_the_same_with_nothing_kept(self, dag, xs):
        with in_threads():
            check_forward(dag, xs, "off", blobs=0, records=0)


# Expressions: a leaf is an object of POOL; a branch is (sign, part, part, ...).


class Plain:
    """Knows nothing of expressions."""

    def forward(self, x, state):
        return x


POOL = {"add": Add(1), "abs": Abs(), "plain": Plain()}
TREES = st.recursive(
    st.sampled_from(sorted(POOL)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from((">>", "|")), inner, inner),
        st.tuples(st.sampled_from((">>", "|")), inner, inner),
        st.tuples(st.just("to"), inner, inner, inner),
        st.tuples(st.just("frozen"), inner),
    ),
    max_leaves=14,
)


def written(tree):
    """Return the expression of a tree, written with its operators where Python allows it."""
    if isinstance(tree, str):
        return POOL[tree]
    sign, *parts = tree
    first, *others = map(written, parts)
    if sign == "frozen":
        return first.frozen() if isinstance(first, Composable) else first
    if sign == "to":
        return first.to(others) if isinstance(first, Composable) else Chain(first, Fork(*others))
    if not any(isinstance(one, Composable) for one in (first, *others)):
        return {">>": Chain, "|": Fork}[sign](first, *others)
    return first >> others[0] if sign == ">>" else first | others[0]


@dataclass
class Drawing:
    """Heads, tails and edges of a tree, by the definition. Leaves are numbered as written."""

    heads: list
    tails: list
    edges: list
    frozen: set

    @classmethod
    def of(cls, tree, numbers, *, frozen=False):
        if isinstance(tree, str):
            one = next(numbers), tree
            return cls([one], [one], [], {one} if frozen else set())
        sign, *parts = tree
        if sign == "frozen":
            markable = isinstance(written(parts[0]), Composable)
            return cls.of(parts[0], numbers, frozen=frozen or markable)
        first, *others = [cls.of(part, numbers, frozen=frozen) for part in parts]
        if sign == ">>":
            return first.before(others[0])
        if sign == "|":
            return first.beside(others[0])
        return first.before(others[0].beside(others[1]))

    def before(self, then):
        between = [(tail, head) for head in then.heads for tail in self.tails]
        edges = self.edges + then.edges + between
        return Drawing(self.heads, then.tails, edges, self.frozen | then.frozen)

    def beside(self, other):
        return Drawing(
            self.heads + other.heads,
            self.tails + other.tails,
            self.edges + other.edges,
            self.frozen | other.frozen,
        )


class TestExpressions:
    @checked(200)
    @given(TREES)
    def test_a_chain_joins_tails_to_heads_and_a_fork_puts_them_side_by_side(self, tree):
        numbers = count()
        drawing = Drawing.of(tree, numbers)
        g = Graph.somatize(written(tree), cache="off")
        seen, ids = Counter(), {}
        for number_, name in sorted(leaves_of(tree, count())):
            seen[name] += 1
            ids[number_] = name if seen[name] == 1 else f"{name}_{seen[name]}"
        expected = [(ids[source], ids[target]) for (source, _), (target, _) in drawing.edges]
        edges = g.edges()
        assert sorted(edges) == sorted(expected)
        assert len(g) == next(numbers) == len(ids)
        for id_ in ids.values():  # edges are in the order in which they were written
            assert sources_of(id_, edges) == sources_of(id_, expected)
        plan = g.compile()
        frozen = {one.node for one in plan.nodes if one.frozen}
        assert frozen == {ids[number_] for number_, _ in drawing.frozen}
        if not isinstance(tree, str):
            names = {ids[number_] for number_, _ in drawing.tails}
            assert set(plan.leaves) == names
            roots = {one.node for one in plan.nodes if not one.waits_for}
            assert roots == {ids[number_] for number_, _ in drawing.heads}


def sources_of(id_, edges):
    return [source for source, target in edges if target == id_]


def leaves_of(tree, numbers):
    if isinstance(tree, str):
        return [(next(numbers), tree)]
    return [leaf for part in tree[1:] for leaf in leaves_of(part, numbers)]


# Plans


class Smooth(Filter):
    _differentiable = True

    def forward(self, x, state):
        return x


class Stepwise(Filter):
    def forward(self, x, state):
        return x


class SmoothLearner(Mean):
    _differentiable = True


KINDS = st.sampled_from(
    ((Smooth, ()), (Smooth, ()), (Stepwise, ()), (SmoothLearner, ()), (Mean, ()))
)
ODD_IDS = st.text(min_size=1, max_size=4)


@dataclass(frozen=True)
class Declared:
    """A graph to compile, and what its plan is to be."""

    dag: Dag
    ids: tuple[str, ...]
    marks: tuple[tuple[bool, bool, str | None], ...]

    def graph(self, *, backwards=False):
        g = Graph(cache="off")
        step = -1 if backwards else 1
        for one in self.dag.declared[::step]:
            cls, arguments = self.dag.filters[one]
            cached, frozen, target = self.marks[one]
            g.node(self.ids[one], cls(*arguments), cached=cached, frozen=frozen, target=target)
        for source, target in self.dag.edges[::step]:
            g.edge(self.ids[source], self.ids[target])
        return g

    @property
    def smooth(self):
        return {
            id_
            for id_, (cls, _) in zip(self.ids, self.dag.filters, strict=True)
            if cls._differentiable
        }

    @property
    def edges(self):
        return [(self.ids[source], self.ids[target]) for source, target in self.dag.edges]

    def waits_for(self, id_):
        return tuple(source for source, target in self.edges if target == id_)

    def below(self):
        """Return id -> all ids that some way leads to."""
        found = {id_: set() for id_ in self.ids}
        for one in reversed(range(len(self.ids))):
            for source, target in self.dag.edges:
                if source == one:
                    found[self.ids[one]] |= {self.ids[target]} | found[self.ids[target]]
        return found

    def turns(self):
        """Return id -> how often the ways to it lead from one kind of node to the other, at most.

        Written out as the definition: all ways are walked.
        """
        smooth = self.smooth

        def ways(id_):
            sources = self.waits_for(id_)
            if not sources:
                return {(id_,)}
            return {(*way, id_) for source in sources for way in ways(source)}

        def count_turns(way):
            return sum((one in smooth) != (then in smooth) for one, then in pairwise(way))

        return {id_: max(map(count_turns, ways(id_))) for id_ in self.ids}


@st.composite
def declarations(draw):
    dag = draw(dags(KINDS, most=10))
    size = len(dag.filters)
    marks = st.tuples(st.booleans(), st.booleans(), st.sampled_from((None, "local", "gpu-0")))
    return Declared(
        dag,
        tuple(draw(st.lists(ODD_IDS, min_size=size, max_size=size, unique=True))),
        tuple(draw(st.lists(marks, min_size=size, max_size=size))),
    )


def blocks_of(plan):
    return [[one.node for one in entry.nodes] for entry in plan.entries]


class TestPlans:
    @checked(80)
    @given(declarations())
    def test_come_back_from_json_with_every_node_after_what_it_waits_for(self, declared):
        plan = declared.graph().compile()
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.to_json() == plan.to_json()
        assert sorted(one.node for one in plan.nodes) == sorted(declared.ids)
        done = set()
        for node in plan.nodes:
            place = declared.ids.index(node.node)
            cls = declared.dag.filters[place][0]
            cached, frozen, target = declared.marks[place]
            assert node == Execute(
                node=node.node,
                label=cls.__name__,
                kind="trainable" if hasattr(cls, "fit") else "stateless",
                waits_for=tuple(sorted(declared.waits_for(node.node))),
                target=target,
                cached=cached,
                frozen=frozen,
            )
            assert done.issuperset(node.waits_for)
            done.add(node.node)

    @checked(80)
    @given(declarations())
    def test_show_side_by_side_what_does_not_wait_for_each_other(self, declared):
        plan = declared.graph().compile()
        done = set()
        for entry in plan.entries:  # a block starts when all it waits for is done
            assert done.issuperset(entry.waits_for)
            done |= {one.node for one in entry.nodes}
        below = declared.below()
        for step in plan.root.steps:
            assert not isinstance(step, Sequence)
            if not isinstance(step, Parallel):
                continue
            branches = [set(nodes_in(branch)) for branch in step.branches]
            for one, other in combinations(branches, 2):
                assert not any(below[id_] & other for id_ in one)
                assert not any(below[id_] & one for id_ in other)

    @checked(100)
    @given(declarations())
    def test_have_blocks_that_hang_together_and_that_no_way_leaves_and_enters(self, declared):
        plan = declared.graph().compile()
        below, smooth = declared.below(), declared.smooth
        for entry in plan.entries:
            block = {one.node for one in entry.nodes}
            assert isinstance(entry, Composite) == (block <= smooth)
            assert block <= smooth or len(block) == 1
            for one in block:
                for between in below[one] - block:  # outside, and after a member:
                    assert not below[between] & block
            reached, grown = set(), {entry.nodes[0].node}
            while reached != grown:
                reached = set(grown)
                for source, target in declared.edges:
                    if block >= {source, target} and grown & {source, target}:
                        grown |= {source, target}
            assert reached == block

    @checked(150)
    @given(declarations())
    def test_part_neighbours_exactly_where_one_block_would_wait_for_itself(self, declared):
        """Differentiable neighbours are apart only if a way of blocks joins them too."""
        blocks = blocks_of(declared.graph().compile())
        block_of = {id_: place for place, ids in enumerate(blocks) for id_ in ids}
        for id_ in declared.ids:
            block_of.setdefault(id_, id_)
        after = {one: set() for one in block_of.values()}
        for source, target in declared.edges:
            if block_of[source] != block_of[target]:
                after[block_of[source]].add(block_of[target])
        for source, target in declared.edges:
            if not declared.smooth >= {source, target}:
                assert block_of[source] != block_of[target]
            elif block_of[source] != block_of[target]:
                ways_round = after[block_of[source]] - {block_of[target]}
                assert any(block_of[target] in below(one, after) for one in ways_round)


def below(start, after):
    """Return all that can be reached from a block."""
    seen, stack = set(), [start]
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack += after[one]
    return seen


def nodes_in(entry):
    if isinstance(entry, Execute):
        return [entry.node]
    inside = entry.steps if isinstance(entry, Sequence) else entry.nodes
    return [id_ for one in inside for id_ in nodes_in(one)]
