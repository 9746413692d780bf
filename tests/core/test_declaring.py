from __future__ import annotations

import copy
import functools
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from soma import (
    CacheConfigError,
    Filter,
    Graph,
    GraphError,
    InvalidFilter,
    InvalidInput,
    SourceWarning,
    UnknownName,
    UnknownNode,
    search,
)
from soma.identity import identify


class Add(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return x + self.amount


class Total(Filter):
    def forward(self, x, state):
        return sum(x.values())


def double(x):
    return 2 * x


class Tuned(Filter):
    lr: float = search(1e-4, 1e-1, scale="log", default=1e-3)
    layers: int = search(1, 4, default=2)
    kind: str = search(choices=["a", "b"])
    bias: bool = search()

    def forward(self, x, state):
        return x * self.lr


class TunedMore(Tuned):
    layers = 3  # no dimension any more
    width: int = search(8, 64)


@pytest.mark.filterwarnings("ignore::soma.IdentityWarning")  # numpy's functions are written in C
class TestFunctions:
    def test_a_function_is_a_node_without_state(self):
        g = Graph()
        assert g.node(double) == "double"
        assert g.node(lambda x: x + 1) == "lambda"
        assert g.node(np.log1p) == "log1p"
        assert g.node(functools.partial(np.clip, a_min=0, a_max=1)) == "clip"
        assert g.node("named", double) == "named"
        for source, target in (("double", "lambda"), ("lambda", "named")):
            g.edge(source, target)
        assert g.forward(3)["named"] == 2 * (2 * 3 + 1)

    def test_a_function_stands_in_an_expression(self):
        g = Graph.somatize(Add(1) >> double >> Add(2))
        assert g.forward(1) == 2 * (1 + 1) + 2
        assert Graph.somatize(double >> Add(1)).forward(4) == 9
        assert Graph.somatize(double).forward(4) == 8

    def test_functions_that_differ_do_not_share_a_result(self):
        g = Graph.somatize((Add(0) >> np.sqrt) | (Add(0) >> np.square), cache="memory")
        for _ in range(2):
            assert g.forward(np.float64(16.0)) == {"sqrt": 4.0, "square": 256.0}

    def test_a_function_of_two_values_is_refused(self):
        def scale(x, by):
            return x * by

        with pytest.raises(InvalidFilter, match=r"The function scale takes \(x, by\)"):
            Graph().node(scale)
        assert Graph.somatize(functools.partial(scale, by=3)).forward(2) == 6

    def test_an_object_with_fit_alone_says_what_is_missing(self):
        class Estimator:
            def fit(self, x, y):
                return self

        with pytest.raises(InvalidFilter, match="has no forward"):
            Graph().node(Estimator())


class TestExpressions:
    def test_a_fork_is_joined_by_what_follows(self):
        g = Graph.somatize(Add(1) >> (Add(10) | Add(100)) >> Total())
        assert g.edges() == [
            ("add", "add_2"),
            ("add", "add_3"),
            ("add_2", "total"),
            ("add_3", "total"),
        ]
        assert g.forward(0) == (0 + 1 + 10) + (0 + 1 + 100)

    def test_arrows_bind_tighter_than_bars(self):
        g = Graph.somatize(Add(1) >> Add(2) | Add(3) >> Add(4))
        assert g.edges() == [("add", "add_2"), ("add_3", "add_4")]
        assert g.forward(0) == {"add_2": 3, "add_4": 7}

    def test_a_fork_after_a_fork_connects_every_end_to_every_head(self):
        g = Graph.somatize((Add(1) | Add(2)) >> (Total() | Total()))
        assert g.edges() == [
            ("add", "total"),
            ("add", "total_2"),
            ("add_2", "total"),
            ("add_2", "total_2"),
        ]
        assert g.forward(0) == {"total": 3, "total_2": 3}

    def test_forks_of_forks_of_chains(self):
        inner = Add(1) >> (Add(2) | (Add(3) >> Add(4)))
        g = Graph.somatize((inner | double) >> Total())
        assert g.forward(1) == (1 + 1 + 2) + (1 + 1 + 3 + 4) + 2 * 1

    def test_to_and_collect_are_the_same_in_words(self):
        g = Graph.somatize(Add(1).to([Add(10), double]).collect(Total()))
        assert g.forward(1) == (1 + 1 + 10) + 2 * 2
        assert Graph.somatize(Add(1).to(Add(2))).forward(0) == 3
        with pytest.raises(InvalidFilter, match="leads nowhere"):
            Add(1).to([])

    def test_an_objects_own_to_wins(self):
        class Movable(Add):
            def to(self, device):
                return f"on {device}"

        assert Movable(1).to("cpu") == "on cpu"
        assert Graph.somatize(Movable(1) >> Movable(2)).forward(0) == 3

    def test_a_name_is_the_id(self):
        g = Graph.somatize(Add(1).named("first") >> Add(2).named("second"))
        assert g.edges() == [("first", "second")]
        with pytest.raises(InvalidFilter, match="cannot all be called 'x'"):
            (Add(1) >> Add(2)).named("x")
        with pytest.raises(GraphError, match="There is a node 'a' already"):
            Graph.somatize(Add(1).named("a") >> Add(2).named("a"))
        h = Graph()
        assert h.node(Add(1).named("b")) == "b"
        assert h.node("c", Add(1).named("b")) == "c"

    def test_marks_spread_to_those_who_were_not_told(self):
        expression = (Add(1).at("gpu") >> (Add(2) | Add(3).named("c"))).at("cpu").cached().frozen()
        plan = Graph.somatize(expression).compile()
        assert [(node.node, node.target, node.cached, node.frozen) for node in plan.nodes] == [
            ("add", "gpu", True, True),
            ("add_2", "cpu", True, True),
            ("c", "cpu", True, True),
        ]

    def test_marks_are_given_with_the_node_as_well(self):
        g = Graph()
        g.node("a", Add(1), target="local", cached=True, frozen=True)
        (node,) = g.compile().nodes
        assert (node.target, node.cached, node.frozen) == ("local", True, True)
        with pytest.raises(GraphError, match="A target is the name or a tag"):
            g.node("b", Add(1), target=3)
        assert len(g) == 1

    def test_an_expression_says_what_was_written(self):
        expression = Add(1) >> (double | Total().named("t").cached()) >> Add(2)
        assert repr(expression) == "Add >> (double | Total.named('t').cached()) >> Add"

    def test_a_fork_of_ten_thousand(self):
        fork = Add(0)
        for amount in range(1, 10_000):
            fork = fork | Add(amount)
        g = Graph.somatize(fork >> Total(), cache="off")
        assert g.forward(0) == sum(range(10_000))


class TestOptionalEdges:
    def graph(self):
        g = Graph(cache="memory")
        for id_, amount in (("a", 1), ("b", 10), ("c", 100)):
            g.node(id_, Add(amount))
        g.node("sum", lambda x: list(x) if isinstance(x, dict) else x)
        for id_ in "abc":
            g.edge(id_, "sum")
        return g

    def test_an_edge_is_cut_and_put_back_at_its_place(self):
        g = self.graph()
        g.optional("b", "sum")
        assert g.optional_edges() == [("b", "sum")]
        assert g.forward(0) == ["a", "b", "c"]
        g.set_edge("b", "sum", False)
        assert g.edges() == [("a", "sum"), ("c", "sum")]
        assert g.forward(0) == {"b": 10, "sum": ["a", "c"]}
        g.set_edge("b", "sum", True)
        assert g.forward(0) == ["a", "b", "c"]

    def test_only_what_is_there_and_optional_can_be_cut(self):
        g = self.graph()
        with pytest.raises(GraphError, match="there is no edge 'a' -> 'b'"):
            g.optional("a", "b")
        with pytest.raises(GraphError, match="is not optional"):
            g.set_edge("a", "sum", False)
        with pytest.raises(UnknownNode, match=r"'zum' is not in this graph\. Did you mean 'sum'"):
            g.optional("a", "zum")
        assert g.forward(0) == ["a", "b", "c"]

    def test_an_optional_edge_is_a_dimension(self):
        g = self.graph()
        g.optional("a", "sum")
        assert g.search_space() == [
            {"type": "categorical", "name": "a -> sum", "choices": [True, False]}
        ]
        g.apply_params({"a -> sum": False})
        assert g.forward(0)["sum"] == ["b", "c"]


class TestSearch:
    def test_dimensions_are_inherited_and_taken_away(self):
        g = Graph()
        g.node("m", TunedMore())
        by_name = {one["name"]: one for one in g.search_space()}
        assert by_name == {
            "m.lr": {
                "type": "float",
                "name": "m.lr",
                "low": 1e-4,
                "high": 1e-1,
                "scale": "log",
                "default": 1e-3,
            },
            "m.kind": {"type": "categorical", "name": "m.kind", "choices": ["a", "b"]},
            "m.bias": {"type": "categorical", "name": "m.bias", "choices": [True, False]},
            "m.width": {
                "type": "int",
                "name": "m.width",
                "low": 8,
                "high": 64,
                "scale": "linear",
            },
        }

    def test_a_dimension_reads_as_its_value(self):
        node = Tuned()
        assert (node.lr, node.layers, node.kind, node.bias) == (1e-3, 2, None, None)
        assert Tuned(lr=0.05).lr == 0.05
        node.layers = 4
        assert node.layers == 4
        assert Tuned().layers == 2

    def test_a_value_counts_and_its_bounds_do_not(self):
        plain, same = Tuned(), Tuned(lr=1e-3)
        assert identify(plain).config == identify(same).config
        assert identify(Tuned(lr=0.01)).config != identify(plain).config

        def made(low):
            class Made(Filter):
                lr = search(low, 1.0, default=0.5)

                def forward(self, x, state):
                    return x * self.lr

            return identify(Made())

        assert made(0.1).code == made(0.2).code
        assert made(0.1).config == made(0.2).config

    def test_parameters_are_applied_and_hit_again(self):
        g = Graph(cache="memory")
        g.node("m", Tuned())
        assert g.forward(10.0) == 10.0 * 1e-3
        g.apply_params({"m.lr": 0.1, "m.kind": "b"})
        assert g.forward(10.0) == 1.0
        assert g.filter("m").kind == "b"
        g.apply_params({"m.lr": 1e-3})
        g.filter("m").kind = None
        assert g.forward(10.0) == 10.0 * 1e-3
        assert g.last_run.computed == ()

    @pytest.mark.parametrize(
        ("params", "kind", "sentence"),
        [
            ({"m.lrr": 0.1}, UnknownName, "Did you mean 'm.lr'"),
            ({"m.lr": 5.0}, InvalidInput, "m.lr must lie between 0.0001 and 0.1, and it is 5.0"),
            ({"m.lr": "x"}, InvalidInput, "m.lr must be a number"),
            ({"m.lr": float("nan")}, InvalidInput, "must lie between"),
            ({"m.layers": 2.0}, InvalidInput, "m.layers must be a whole number"),
            ({"m.layers": True}, InvalidInput, "m.layers must be a whole number"),
            ({"m.kind": "c"}, InvalidInput, r"m.kind must be one of \('a', 'b'\)"),
            ({"m.bias": 1}, InvalidInput, "m.bias must be one of"),
            ([("m.lr", 1)], InvalidInput, "takes a dict"),
        ],
    )
    def test_a_wrong_parameter_is_refused_and_nothing_is_set(self, params, kind, sentence):
        g = Graph()
        g.node("m", Tuned())
        both = (
            {"m.layers": 4, **params}
            if isinstance(params, dict) and "m.layers" not in params
            else params
        )
        with pytest.raises(kind, match=sentence):
            g.apply_params(both)
        assert vars(g.filter("m")).keys().isdisjoint({"lr", "layers", "kind", "bias"})

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({"low": 1}, "high must be a finite number"),
            ({"low": 2, "high": 1}, "must be less than high"),
            ({"low": 0.0, "high": 1.0, "scale": "log"}, "needs low above 0"),
            ({"low": 1, "high": 2, "scale": "lgo"}, "Did you mean 'log'"),
            ({"low": 1, "high": 2, "choices": [1]}, "not both"),
            ({"choices": []}, "nothing to choose from"),
            ({"choices": "abc"}, "not a text"),
            ({"choices": 7}, "is a list of values"),
            ({"scale": "log"}, "goes with low and high"),
            ({"low": 1, "high": 2, "default": 7}, "the default must lie between 1 and 2"),
            ({"low": float("nan"), "high": 2}, "low must be a finite number"),
        ],
    )
    def test_a_dimension_that_makes_no_sense_is_refused(self, arguments, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            search(**arguments)


class TestArguments:
    def test_what_super_init_was_given_is_what_kwargs_returns(self):
        class Encoder(Filter):
            def __init__(self, hidden, lr=1e-3):
                super().__init__(hidden=hidden, lr=lr)

            def forward(self, x, state):
                return x * self.hidden

        node = Encoder(3)
        assert node.kwargs() == {"hidden": 3, "lr": 1e-3}
        assert Graph.somatize(node).forward(2) == 6

    def test_arguments_are_known_without_super_init(self):
        class Quiet(Filter):
            def __init__(self, a, b=2, *rest, c, **more):
                self._sum = a + b

            def forward(self, x, state):
                return x + self._sum

        assert Quiet(1, c="c", d=4).kwargs() == {"a": 1, "b": 2, "c": "c", "d": 4}
        assert Quiet(1, 5, 6, 7, c=None).kwargs() == {"a": 1, "b": 5, "rest": (6, 7), "c": None}

    def test_arguments_kept_under_another_name_count(self):
        class Shift(Filter):
            def __init__(self, by, label="x"):
                self._by = by

            def forward(self, x, state):
                return x + self._by

        g = Graph(cache="memory")
        g.node("one", Shift(1))
        g.node("two", Shift(2))
        assert g.forward(0) == {"one": 1, "two": 2}
        assert identify(Shift(1)).config == identify(Shift(by=1)).config
        assert identify(Shift(1)).config == identify(Shift(1, "x")).config
        assert identify(Shift(1)).config != identify(Shift(1, "y")).config
        assert identify(Shift(1)).config != identify(Shift(1.0)).config

    def test_an_argument_with_an_attribute_of_its_name_counts_as_that(self):
        changed = Add(1)
        changed.amount = 5
        assert identify(changed).config == identify(Add(5)).config

    def test_what_is_not_plain_is_neither_kept_nor_counted(self):
        class WithCallback(Filter):
            def __init__(self, amount, on_event):
                self.amount = amount

            def forward(self, x, state):
                return x + self.amount

        first, second = WithCallback(1, lambda: 1), WithCallback(1, lambda: 2)
        assert identify(first).config == identify(second).config
        assert first.kwargs() == {"amount": 1}
        assert vars(_pickled(_Plain(1, print)))["amount"] == 1

    def test_an_override_of_kwargs_says_what_counts(self):
        class Chosen(Filter):
            def __init__(self, hidden, verbose):
                self._hidden = hidden

            def kwargs(self):
                return {"hidden": self._hidden}

            def forward(self, x, state):
                return x

        assert identify(Chosen(1, True)).config == identify(Chosen(1, False)).config
        assert identify(Chosen(1, True)).config != identify(Chosen(2, True)).config

    def test_copies_and_dataclasses_know_theirs(self):
        @dataclass
        class Window(Filter):
            size: int
            step: int = 1

            def forward(self, x, state):
                return x

        assert Window(3).kwargs() == {"size": 3, "step": 1}
        assert copy.deepcopy(_Plain(4, None)).kwargs() == {"amount": 4, "on_event": None}
        assert _pickled(Add(7)).kwargs() == {"amount": 7}


def _pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own bytes


class _Plain(Filter):
    def __init__(self, amount, on_event):
        self.amount = amount

    def forward(self, x, state):
        return x


class TestSources:
    def test_the_source_is_that_of_the_class(self):
        g = Graph()
        g.node("total", Total())
        g.node(double)
        assert g.filter_source("total") == (
            "class Total(Filter):\n    def forward(self, x, state):\n"
            "        return sum(x.values())\n"
        )
        assert g.filter_sources_dict()["double"] == "def double(x):\n    return 2 * x\n"
        with pytest.raises(UnknownNode, match="'totl' is not in this graph"):
            g.filter_source("totl")

    def test_without_a_source_there_is_a_warning(self):
        scope = {"Filter": Filter}
        exec("class Typed(Filter):\n    def forward(self, x, state):\n        return x", scope)  # noqa: S102  # as typed at a prompt
        g = Graph()
        g.node(scope["Typed"]())
        with pytest.warns(SourceWarning, match="The source of node 'typed'"):
            assert g.filter_source("typed") == ""
        with pytest.warns(SourceWarning):
            assert g.filter_sources_dict() == {"typed": ""}


class TestClassAttributes:
    @pytest.mark.parametrize(
        ("attributes", "sentence"),
        [
            ({"_kind": "both"}, "Odd._kind is 'both'"),
            ({"_stream_mode": "fixd"}, "Did you mean 'fixed'"),
            ({"_input_schema": "txt"}, "there is no schema 'txt'. Did you mean 'text'"),
            ({"_output_schema": {"shapes": (1,)}}, "must be one of 'text'"),
            ({"_output_schema": {"shape": 3}}, "shape is a tuple of lengths"),
            ({"_output_schema": {"shape": (-1,)}}, "shape is a tuple of lengths"),
            ({"_output_schema": {"dtype": float}}, "dtype is a text"),
        ],
    )
    def test_a_value_that_means_nothing_is_refused(self, attributes, sentence):
        with pytest.raises(InvalidFilter, match=sentence):
            Graph().node(type("Odd", (Add,), attributes)(1))

    def test_what_only_says_what_is_kept_is_no_part_of_the_code(self):
        def made(**attributes):
            return identify(type("Made", (Total,), attributes)()).code

        assert made() == made(_cacheable=False) == made(_deterministic=False, _uses_seed=False)
        assert made() == made(_output_schema="text")
        assert made() != made(class_version=2)

    def test_an_attribute_without_a_hash_is_named_before_anything_runs(self):
        ran = []

        class Watched(Add):
            def forward(self, x, state):
                ran.append(1)
                return x

        bad = Add(1)
        bad.lock = object()
        g = Graph.somatize(Watched(1) >> bad, cache="memory")
        with pytest.raises(CacheConfigError, match="Node 'add': the attribute 'lock'"):
            g.forward(1)
        assert ran == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Graph.somatize(bad, cache="off").forward(1) == 2
