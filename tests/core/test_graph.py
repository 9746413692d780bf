from __future__ import annotations

import copy
import pickle
import traceback
from dataclasses import dataclass
from itertools import pairwise

import pytest

from soma import CycleError, Filter, Graph, GraphError, InvalidFilter, NotFittedError, UnknownNode
from soma.dsl import Composable


class Add(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return x + self.amount


class Mean(Filter):
    """Learns the mean of x; subtracts it."""

    def fit(self, x, y=None):
        return sum(x) / len(x)

    def forward(self, x, state):
        return [value - state for value in x]


class Ratio(Filter):
    """Learns sum(y) / sum(x)."""

    def fit(self, x, y):
        return sum(y) / sum(x)

    def forward(self, x, state):
        return [value * state for value in x]


class Fails(Filter):
    def __init__(self, phase):
        self.phase = phase

    def fit(self, x, y=None):
        if self.phase == "fit":
            raise ZeroDivisionError("learned too much")
        return {}

    def forward(self, x, state):
        raise LookupError("lost it")


class TestDeclaring:
    def test_ids_are_the_class_names_in_snake_case_made_unique(self):
        class HTTPServerFilter2(Add):
            pass

        g = Graph()
        assert g.node(Add(1)) == "add"
        assert g.node(Add(1)) == "add_2"
        assert g.node("add_3", Add(1)) == "add_3"
        assert g.node(Add(1)) == "add_4"
        assert g.node(HTTPServerFilter2(1)) == "http_server_filter2"
        assert len(g) == 5

    def test_any_object_with_forward_is_a_node(self):
        class Twice:
            def forward(self, x, state):
                return 2 * x

        g = Graph()
        g.node("twice", Twice())
        assert g.forward(21) == 42

    def test_a_taken_id_is_refused_and_nothing_is_added(self):
        g = Graph()
        g.node("a", Add(1))
        with pytest.raises(GraphError, match="There is a node 'a' already"):
            g.node("a", Add(100))
        assert len(g) == 1
        assert g.forward(0) == 1

    @pytest.mark.parametrize("id_", ["", 7, None])
    def test_an_id_is_a_text(self, id_):
        with pytest.raises(GraphError, match="A node id is a text"):
            Graph().node(id_, Add(1))

    @pytest.mark.parametrize(
        ("thing", "sentence"),
        [
            (Add, "Add is a class; a node is an object of it"),
            (object(), "An object of class object cannot be a node: it has no forward"),
            (None, "An object of class NoneType cannot be a node"),
            ([Add(1), Add(2)], r"A list is no node.*a.to\(\[b, c\]\), or b \| c"),
            (Add(1) >> Add(2), "Add >> Add is an expression of several nodes"),
            (Graph.somatize(Add(1)), r"Graph.forward takes \(x: 'Any', \*, seed"),
            (
                type("No", (), {"forward": lambda self, x: x})(),
                "No.forward takes .x., and a node",
            ),
            (
                type("No", (), {"forward": lambda self, x, s: x, "fit": lambda self, x: {}})(),
                "No.fit takes .x., and a node's fit is called with .x, y.",
            ),
            (type("Step", (Add,), {"poll": len})(1), "effectful step, and steps cannot run"),
            (type("Odd", (Add,), {"_kind": "both"})(1), "Odd._kind is 'both'"),
            (type("Tpyo", (Add,), {"_stream_mode": "barier"})(1), "Did you mean 'barrier'"),
        ],
    )
    def test_what_cannot_be_a_node_is_refused_by_its_class(self, thing, sentence):
        with pytest.raises(InvalidFilter, match=sentence):
            Graph().node(thing)
        with pytest.raises(TypeError, match=sentence):
            Graph().node("id", thing)
        if not isinstance(thing, Composable) or isinstance(thing, Filter):
            with pytest.raises(TypeError, match=sentence):
                Graph.somatize(Add(1) >> thing)

    @pytest.mark.parametrize("arguments", [(), ("a", Add(1), 3)])
    def test_node_takes_one_or_two_arguments(self, arguments):
        with pytest.raises(TypeError, match=f"not {len(arguments)} arguments"):
            Graph().node(*arguments)

    def test_an_edge_to_an_unknown_node_names_the_nearest(self):
        g = Graph()
        g.node("scaler", Add(1))
        g.node("model", Add(1))
        with pytest.raises(UnknownNode) as caught:
            g.edge("scalar", "model")
        assert str(caught.value) == (
            "edge('scalar', 'model'): 'scalar' is not in this graph. Did you mean 'scaler'?"
        )
        with pytest.raises(
            KeyError, match=r"'zzz' is not in this graph\. Known: 'model', 'scaler'\."
        ):
            g.connect("scaler", "zzz")
        with pytest.raises(UnknownNode, match="takes the ids of nodes, not a int"):
            g.edge(3, "model")

    def test_an_object_is_no_id_even_if_it_has_no_hash(self):
        @dataclass
        class Plain(Filter):
            amount: int

            def forward(self, x, state):
                return x

        g = Graph()
        g.node("a", node := Plain(1))
        with pytest.raises(UnknownNode, match="takes the ids of nodes, not a Plain"):
            g.edge(node, "a")

    def test_an_empty_graph_is_not_false(self):
        assert Graph()
        assert len(Graph()) == 0

    def test_an_edge_declared_twice_is_one_edge(self):
        g = Graph()
        for id_ in "ab":
            g.node(id_, Add(1))
        g.edge("a", "b")
        g.edge("a", "b")
        assert g.forward(0) == 2
        assert repr(g) == "<Graph: nodes=2, edges=1>"

    def test_a_chain_is_written_with_arrows(self):
        g = Graph.somatize(Add(1) >> Add(10) >> Add(100))
        assert g.forward(0) == 111
        assert repr(Add(1) >> Mean()) == "Add >> Mean"
        assert Graph.somatize(Add(5)).forward(0) == 5

    def test_chains_join_and_any_object_may_stand_left(self):
        class Twice:
            def forward(self, x, state):
                return 2 * x

        assert Graph.somatize((Add(1) >> Add(2)) >> (Add(3) >> Add(4))).forward(0) == 10
        assert Graph.somatize(Twice() >> Add(1)).forward(5) == 11
        assert Graph.somatize(Add(1) >> Twice()).forward(5) == 12

    def test_the_same_object_written_twice_is_two_nodes(self):
        one = Add(1)
        g = Graph.somatize(one >> one)
        assert len(g) == 2
        assert g.forward(0) == 2


class TestRunning:
    def test_fit_by_hand(self):
        g = Graph()
        g.node("ratio", Ratio())
        g.node("mean", Mean())
        g.edge("ratio", "mean")
        g.fit([1.0, 3.0], [4.0, 8.0])  # ratio 12 / 4 = 3, so mean sees [3, 9] and learns 6
        assert g.forward([1.0, 2.0, 5.0]) == [3 - 6, 6 - 6, 15 - 6]

    def test_every_fit_starts_fresh(self):
        g = Graph.somatize(Mean())
        g.fit([1.0, 3.0])
        g.fit([10.0, 20.0])
        assert g.forward([15.0]) == [0.0]

    def test_the_leaf_does_not_forward_during_a_fit(self):
        g = Graph.somatize(Mean() >> Fails("forward"))
        g.fit([1.0])

    def test_several_predecessors_give_a_dict_by_id_and_several_leaves_too(self):
        class Sum:
            def forward(self, x, state):
                assert list(x) == ["one", "ten"]
                return sum(x.values())

        g = Graph()
        for id_, node in (("sum", Sum()), ("one", Add(1)), ("ten", Add(10)), ("alone", Add(0))):
            g.node(id_, node)
        g.edge("one", "sum")
        g.edge("ten", "sum")
        assert g.forward(5) == {"sum": (5 + 1) + (5 + 10), "alone": 5}

    def test_a_stateless_graph_needs_no_fit(self):
        assert Graph.somatize(Add(1)).forward(1) == 2

    def test_forward_before_fit_names_the_nodes(self):
        g = Graph.somatize(Add(1) >> Mean() >> Ratio())
        with pytest.raises(NotFittedError) as caught:
            g.forward([1.0])
        assert str(caught.value) == (
            "forward before fit: 'mean', 'ratio' learned nothing yet. Call g.fit(x, y) first"
        )
        with pytest.raises(RuntimeError):
            g.forward([1.0])

    def test_a_node_added_after_the_fit_is_not_fitted(self):
        g = Graph.somatize(Mean())
        g.fit([1.0])
        g.node("late", Ratio())
        with pytest.raises(NotFittedError, match="'late' learned nothing yet"):
            g.forward([1.0])

    def test_kind_overrides_what_the_methods_say(self):
        class Quiet(Mean):
            _kind = "stateless"

            def forward(self, x, state):
                return (x, state)

        assert Graph.somatize(Quiet()).forward([1.0]) == ([1.0], None)

    @pytest.mark.parametrize("run", ["fit", "forward"])
    def test_an_empty_graph_says_what_to_do(self, run):
        with pytest.raises(GraphError, match=r"The graph is empty. Add a node first"):
            getattr(Graph(), run)([1.0])

    @pytest.mark.parametrize("run", ["fit", "forward"])
    def test_a_cycle_is_refused_with_its_path(self, run):
        g = Graph()
        for id_ in "abcde":
            g.node(id_, Add(1))
        for pair in ("ab", "bc", "cd", "db", "de"):
            g.edge(*pair)
        with pytest.raises(CycleError) as caught:
            getattr(g, run)(1)
        path = str(caught.value).partition(": ")[2].partition(".")[0]
        assert path in ("b -> c -> d -> b", "c -> d -> b -> c", "d -> b -> c -> d")
        assert "learned nothing" not in str(caught.value)
        loop = Graph()
        loop.node("a", Add(1))
        loop.edge("a", "a")
        with pytest.raises(ValueError, match="a -> a"):
            getattr(loop, run)(1)

    @pytest.mark.parametrize(
        ("phase", "kind"), [("fit", ZeroDivisionError), ("forward", LookupError)]
    )
    def test_a_filters_own_error_keeps_its_type_and_gains_one_note(self, phase, kind):
        g = Graph()
        g.node("bad", Fails(phase))
        g.node("after", Mean())
        g.edge("bad", "after")
        with pytest.raises(kind) as caught:
            g.fit([1.0])
        assert caught.value.__notes__ == [f"in node 'bad' (Fails), during {phase}"]
        assert "in node 'bad'" in "".join(traceback.format_exception(caught.value))

    def test_an_exception_that_takes_no_note_or_has_it_stays_what_it_is(self):
        @dataclass(frozen=True)
        class Frozen(Exception):
            code: int

        class Raises(Filter):
            def __init__(self, error):
                self._error = error

            def forward(self, x, state):
                raise self._error

        with pytest.raises(Frozen) as caught:
            Graph.somatize(Raises(Frozen(7))).forward(1)
        assert caught.value.code == 7

        g = Graph.somatize(Raises(error := ValueError("always the same")))
        for _ in range(3):
            with pytest.raises(ValueError, match="always the same"):
                g.forward(1)
        assert error.__notes__ == ["in node 'raises' (Raises), during forward"]

    def test_a_fit_that_fails_leaves_the_states_of_the_last_one(self):
        class Picky(Filter):
            def fit(self, x, y=None):
                if x[0] < 0:
                    raise ValueError("negative")
                return x[0]

            def forward(self, x, state):
                return state

        g = Graph.somatize(Mean() >> Picky())
        g.fit([5.0, 1.0])  # mean 3: Picky learns 2
        with pytest.raises(ValueError, match="negative"):
            g.fit([1.0, 5.0])
        assert g.forward([0.0]) == 2.0

    def test_a_long_cycle_is_shown_without_its_middle(self):
        g = Graph()
        ids = [g.node(Mean()) for _ in range(3000)]
        for source, target in pairwise([*ids, ids[0]]):
            g.edge(source, target)
        with pytest.raises(CycleError, match=r"-> \.\.\. 2981 more \.\.\. ->") as caught:
            g.forward(1)
        assert len(str(caught.value)) < 500

    def test_ten_thousand_nodes_in_a_row(self):
        expression = Add(1)
        for _ in range(9_999):
            expression = expression >> Add(1)
        g = Graph.somatize(expression)
        assert len(g) == 10_000
        assert g.forward(0) == 10_000

    def test_an_array_does_not_take_the_arrow_for_a_shift(self):
        array = pytest.importorskip("numpy").array([1, 2])
        with pytest.raises(InvalidFilter, match="class ndarray cannot be a node"):
            Graph.somatize(array >> Add(1))


class TestCopies:
    def test_a_deep_copy_has_filters_of_its_own_and_knows_what_was_learned(self):
        g = Graph.somatize(Mean() >> Add2(1), cache="memory")
        g.fit([1.0, 3.0])
        other = copy.deepcopy(g)
        other.filter("add2").amount = 10
        other.node("more", Mean())
        assert g.forward([2.0]) == [1.0]
        assert len(g) == 2
        with pytest.raises(NotFittedError, match="'more' learned nothing yet"):
            other.forward([2.0])
        other.fit([1.0, 3.0])
        assert other.forward([2.0])["add2"] == [10.0]

    def test_a_graph_is_not_pickled(self):
        with pytest.raises(TypeError, match="A Graph is not pickled"):
            pickle.dumps(Graph())


class Add2(Add):
    def forward(self, x, state):
        return [value + self.amount for value in x]
