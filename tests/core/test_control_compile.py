from __future__ import annotations

import copy
import json
import re
import sys
from collections import Counter
from enum import Enum
from itertools import pairwise, product
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import soma
from soma import (
    CycleError,
    Filter,
    Graph,
    GraphError,
    InvalidFilter,
    InvalidInput,
    PlanError,
    SchemaMismatch,
    UnknownName,
    UnknownNode,
    Unsettled,
    search,
)
from soma.compiler.text import plan_text
from soma.engine.checks import check_cached
from soma.identity import identify
from soma.plan import (
    MAX_NESTED,
    Arm,
    Branch,
    Composite,
    Diagnostic,
    Execute,
    Loop,
    Plan,
    Sequence,
    units_of,
)


class Pass(Filter):
    def forward(self, x, state):
        return x


class Learns(Filter):
    def fit(self, x, y=None):
        return {}

    def forward(self, x, state):
        return x


class Smooth(Pass):
    _differentiable = True


class Tuned(Pass):
    rate: float = search(0.0, 1.0, default=0.5)


def same(x):
    return x


def graph(nodes="", edges="", **kinds):
    """``graph("a b", "a>b b>c", b=Smooth)``: all named nodes, Pass but for those in kinds."""
    g = Graph(cache="off")
    named = [*nodes.split(), *edges.replace(">", " ").split()]
    for id_ in dict.fromkeys(named):
        g.node(id_, kinds.get(id_, Pass)())
    return link(g, edges)


def link(g, edges):
    for edge in edges.split():
        g.edge(*edge.split(">"))
    return g


def shape(body):
    """Return ids in order; a branch as ``{id: {label: [...]}}``, a loop as ``{id: [...]}``."""
    found = []
    for unit in units_of(body):
        if isinstance(unit, Branch):
            found.append({unit.node: {arm.label: shape(arm.body) for arm in unit.arms}})
        elif isinstance(unit, Loop):
            found.append({unit.node: shape(unit.body)})
        else:
            found += unit.ids
    return found


def everything(body):
    """Yield every unit, those in bodies as well."""
    for unit in units_of(body):
        yield unit
        if isinstance(unit, Branch | Loop):
            for inner in unit.bodies:
                yield from everything(inner)


def entry(g, id_):
    return next(one for one in everything(g.compile().root) if id_ in one.ids)


def node(g, id_):
    return next(one for one in g.compile().nodes if one.node == id_)


def declared(g):
    """Return all that a declaration consists of."""
    kept = g._declared
    return (
        list(kept.nodes.items()),
        kept.edges,
        kept.optional,
        dict(kept._last_number),
        len(g),
        repr(g),
    )


def refused(g, kind=GraphError):
    with pytest.raises(kind) as caught:
        g.compile()
    return str(caught.value)


class TestDeclaringBranches:
    def test_a_branch_is_a_node_with_its_id(self):
        g = graph("s")
        assert g.branch("b", Pass(), {"x": Pass(), "y": Learns()}) == "b"
        g.edge("s", "b")
        assert len(g) == 5
        assert repr(g) == "<Graph: nodes=5, edges=1>"
        assert g.edges() == [("s", "b")]

    def test_ids_are_found_as_for_nodes_in_the_order_of_writing(self):
        g = Graph()
        g.node(Pass())
        g.branch("b", Pass(), {"x": Pass() >> Learns(), "y": same, "z": lambda x: x})
        assert list(g._declared.nodes) == [
            "pass",
            "b",
            "pass_2",
            "pass_3",
            "learns",
            "same",
            "lambda",
        ]
        assert g.edges() == [("pass_3", "learns")]
        assert g.node(Pass()) == "pass_4"

    def test_an_id_found_is_not_that_of_the_branch(self):
        g = Graph()
        g.branch("pass", Pass(), {"x": Pass()})
        assert list(g._declared.nodes) == ["pass", "pass_2", "pass_3"]

    @pytest.mark.parametrize("make", ["branch", "loop"])
    @pytest.mark.parametrize(
        ("id_", "sentence"),
        [
            ("s", "There is a node 's' already. Choose another id"),
            ("", "A node id is a text of at least one character, not ''"),
            (7, "A node id is a text of at least one character, not 7"),
            (None, "A node id is a text of at least one character, not None"),
        ],
    )
    def test_an_id_that_cannot_be(self, make, id_, sentence):
        g = graph("s")
        with pytest.raises(GraphError, match=re.escape(sentence)):
            g.branch(id_, Pass(), {"x": Pass()}) if make == "branch" else g.loop(id_, Pass())
        assert len(g) == 1

    def test_an_id_taken_by_a_branch_is_taken(self):
        g = Graph()
        g.branch("b", Pass(), {"x": Pass()})
        for again in (
            lambda: g.node("b", Pass()),
            lambda: g.loop("b", Pass()),
            lambda: g.branch("b", Pass(), {"x": Pass()}),
            lambda: g.node(Pass().named("b")),
        ):
            with pytest.raises(GraphError, match="There is a node 'b' already"):
                again()
        assert len(g) == 3

    def test_the_id_that_is_returned_is_that_of_the_node(self):
        class Name(str, Enum):  # noqa: UP042  # these are the ones that str() calls otherwise
            B = "b"

        g = graph("s")
        g.edge("s", g.branch(Name.B, Pass(), {"x": Pass()}))
        assert g.edges() == [("s", "b")]

    def test_a_name_that_is_a_text_becomes_a_plain_one(self):
        class Name(str, Enum):  # noqa: UP042  # these are the ones that str() calls otherwise
            A = "a"
            B = "b"
            C = "c"
            L = "l"
            X = "x"

        g = Graph(cache="off")
        made = [g.node(Name.A, Pass()), g.node(Pass().named(Name.C))]
        made += [g.branch(Name.B, Name.C, {Name.X: Name.A, "y": [Pass().named(Name.X)]})]
        made += [g.loop(Name.L, [Name.B, Name.C])]
        assert made == ["a", "c", "b", "l"]
        s = g.node("s", Pass())
        g.edge(s, Name.L)
        kept = g._declared
        branch, loop = kept.nodes["b"], kept.nodes["l"]
        texts = [
            *made,
            *kept.nodes,
            branch.condition,
            *branch.arms,
            *(id_ for arm in branch.arms.values() for id_ in arm),
            *loop.body,
            *(id_ for edge in g.edges() for id_ in edge),
        ]
        assert {type(one) for one in texts} == {str}
        assert shape(g.compile().root) == ["s", {"l": ["c", {"b": {"x": ["a"], "y": ["x"]}}]}]
        assert g.to_text().splitlines() == [
            "├── s (Pass)",
            "└── l: loop, until b, at most 100 times ← s",
            "    ├── c (Pass)",
            "    └── b: branch on c",
            "        ├── x:",
            "        │   └── a (Pass)",
            "        └── y:",
            "            └── x (Pass)",
        ]

    def test_a_name_in_an_arm_may_not_be_that_of_the_branch(self):
        g = Graph()
        with pytest.raises(GraphError, match="There is a node 'b' already"):
            g.branch("b", Pass(), {"x": Pass().named("b")})
        assert len(g) == 0

    @pytest.mark.parametrize(
        ("arms", "labels"),
        [
            ({True: Pass(), False: Pass()}, ["true", "false"]),
            ({"true": Pass(), False: Pass()}, ["true", "false"]),
            ({"x": Pass(), "default": Pass()}, ["x", "default"]),
            ({"else": Pass(), True: Pass()}, ["else", "true"]),
            ({"": Pass(), " ": Pass()}, ["", " "]),
            ({"True": Pass(), True: Pass()}, ["True", "true"]),
            (MappingProxyType({"x": Pass()}), ["x"]),
        ],
    )
    def test_labels(self, arms, labels):
        g = Graph()
        g.branch("b", Pass(), arms)
        assert [arm.label for arm in entry(g, "b").arms] == labels

    @pytest.mark.parametrize(
        ("arms", "sentence"),
        [
            ({1: Pass()}, "an arm is called by a text, True or False, not 1: these are what"),
            ({0: Pass()}, "an arm is called by a text, True or False, not 0"),
            ({None: Pass()}, "an arm is called by a text, True or False, not None"),
            ({1.5: Pass()}, "an arm is called by a text, True or False, not 1.5"),
            ({("x",): Pass()}, "an arm is called by a text, True or False, not ('x',)"),
            ({b"x": Pass()}, "an arm is called by a text, True or False, not b'x'"),
            (
                {True: Pass(), "true": Pass()},
                "there are two arms 'true'; True and 'true' are one",
            ),
            ({"false": Pass(), False: Pass()}, "there are two arms 'false'"),
            (
                {"default": Pass(), "else": Pass()},
                "'default' and 'else' mean the same. Take one of them away",
            ),
            ({}, "arms is a dict of label and filter or node id with at least one, not {}"),
            ([], "arms is a dict of label and filter or node id with at least one, not []"),
            ([("x", Pass)], "arms is a dict of label and filter"),
            (None, "arms is a dict of label and filter or node id with at least one, not None"),
            ("x", "arms is a dict of label and filter or node id with at least one, not 'x'"),
            ({"x"}, "arms is a dict of label and filter or node id with at least one, not {'x'}"),
        ],
    )
    def test_arms_that_make_no_sense(self, arms, sentence):
        g = graph("s")
        before = declared(g)
        with pytest.raises(GraphError, match=re.escape(f"branch('b'): {sentence}")):
            g.branch("b", Pass(), arms)
        assert declared(g) == before

    def test_what_an_arm_may_be(self):
        g = graph("a b e", "c>d")
        g.branch(
            "br",
            same,
            {
                "filter": Learns(),
                "function": same,
                "row": Pass() >> same,
                "fork": Pass() >> (Smooth() | same) >> Learns(),
                "id": "a",
                "list": ["b"],
                "nested": [["c", ["d"]], "c"],
                "mixed": ("e", [Tuned().named("t")]),
            },
        )
        assert {label: set(ids) for label, ids in g._declared.nodes["br"].arms.items()} == {
            "filter": {"learns"},
            "function": {"same_2"},
            "row": {"pass", "same_3"},
            "fork": {"pass_2", "smooth", "same_4", "learns_2"},
            "id": {"a"},
            "list": {"b"},
            "nested": {"c", "d"},
            "mixed": {"e", "t"},
        }
        assert g._declared.nodes["br"].arms["nested"] == ("c", "d")
        g.edge("e", "t")
        assert [arm.terminal for arm in entry(g, "br").arms] == [
            "learns",
            "same_2",
            "same_3",
            "learns_2",
            "a",
            "b",
            "d",
            "t",
        ]

    def test_a_list_holds_ids_and_filters(self):
        g = graph("a")
        g.branch("b", same, {"x": ["a", Pass().named("p"), Smooth().named("q") >> same]})
        link(g, "a>p p>q")
        assert shape(g.compile().root) == ["same", {"b": {"x": ["a", "p", "q", "same_2"]}}]

    @pytest.mark.parametrize("empty", [[], (), [[]], [(), []]])
    def test_an_empty_list_is_refused(self, empty):
        g = Graph()
        with pytest.raises(
            GraphError, match=re.escape("branch('b'), arm 'x' is empty: give a node, a filter")
        ):
            g.branch("b", Pass(), {"x": empty})
        with pytest.raises(GraphError, match=re.escape("loop('l'), its body is empty: give")):
            g.loop("l", empty)
        assert len(g) == 0

    def test_an_object_written_twice_is_two_nodes(self):
        g, one = Graph(), Pass()
        g.branch("b", one, {"x": one, "y": one})
        assert shape(g.compile().root) == ["pass", {"b": {"x": ["pass_2"], "y": ["pass_3"]}}]

    def test_marks_hold_inside(self):
        g = Graph()
        g.branch(
            "b",
            Pass().named("c").at("w0"),
            {
                "x": (Learns().named("l").at("w1") >> Pass().named("p").cached()).frozen().at("w2"),
                "y": Learns().named("m").frozen(),
            },
        )
        assert [(n.node, n.target, n.cached, n.frozen) for n in g.compile().nodes] == [
            ("c", "w0", False, False),
            ("l", "w1", False, True),
            ("p", "w2", True, True),
            ("m", None, False, True),
        ]

    @pytest.mark.parametrize(
        ("make", "sentence"),
        [
            (
                lambda g: g.branch("b", "scalr", {"x": Pass()}),
                "branch('b'): its condition: 'scalr' is not in this graph. Did you mean 'scaler'?",
            ),
            (
                lambda g: g.branch("b", Pass(), {"x": "scaller"}),
                "branch('b'), arm 'x': 'scaller' is not in this graph. Did you mean 'scaler'?",
            ),
            (
                lambda g: g.branch("b", Pass(), {True: ["scaler", ["sclaer"]]}),
                "branch('b'), arm 'true': 'sclaer' is not in this graph. Did you mean 'scaler'?",
            ),
            (
                lambda g: g.loop("l", "scaer"),
                "loop('l'), its body: 'scaer' is not in this graph. Did you mean 'scaler'?",
            ),
            (
                lambda g: g.loop("l", "scaler", until="scale"),
                "loop('l'): until: 'scale' is not in this graph. Did you mean 'scaler'?",
            ),
            (lambda g: g.loop("l", ""), "loop('l'), its body: '' is not in this graph."),
        ],
    )
    def test_an_id_of_no_node_names_the_nearest(self, make, sentence):
        g = graph("scaler")
        before = declared(g)
        with pytest.raises(UnknownNode) as caught:
            make(g)
        assert str(caught.value).startswith(sentence)
        assert declared(g) == before

    @pytest.mark.parametrize("make", [lambda: Pass() >> same, lambda: Pass() | same])
    def test_a_condition_is_no_expression(self, make):
        g, one = Graph(), make()
        text = re.escape(
            f"is one node, not an expression of several ({one!r}). Add them first, and give the id "
            "of the last"
        )
        with pytest.raises(GraphError, match=re.escape("branch('b'): its condition ") + text):
            g.branch("b", one, {"x": Pass()})
        with pytest.raises(GraphError, match=re.escape("loop('l'): until ") + text):
            g.loop("l", Pass(), until=one)
        assert len(g) == 0

    def test_an_expression_with_marks_is_no_condition_either(self):
        with pytest.raises(GraphError, match="is one node, not an expression of several"):
            Graph().branch("b", (Pass() >> same).frozen(), {"x": Pass()})

    @pytest.mark.parametrize(
        "make",
        [
            lambda g: g.branch("b", Pass, {"x": Pass()}),
            lambda g: g.branch("b", Pass(), {"x": Pass}),
            lambda g: g.branch("b", Pass(), {"x": [Pass(), Pass]}),
            lambda g: g.branch("b", Pass(), {"x": same, "y": Pass() >> Pass}),
            lambda g: g.loop("l", Pass),
            lambda g: g.loop("l", [Pass(), Pass]),
            lambda g: g.loop("l", Pass(), until=Pass),
        ],
    )
    def test_a_class_is_no_object(self, make):
        g = Graph()
        with pytest.raises(InvalidFilter, match="Pass is a class; a node is an object of it"):
            make(g)
        assert len(g) == 0

    @pytest.mark.parametrize("odd", [None, 3, {}, {"x"}, object()])
    def test_what_is_no_filter_is_refused(self, odd):
        g = Graph()
        for make in (
            lambda: g.branch("b", Pass(), {"x": odd}),
            lambda: g.branch("b", odd, {"x": Pass()}),
            lambda: g.loop("l", odd),
        ):
            with pytest.raises(InvalidFilter, match="cannot be a node: it has no forward"):
                make()
        assert len(g) == 0

    def test_a_target_is_a_text(self):
        g = Graph()
        for target in (3, "", b"gpu", ["gpu"], True):
            for make in (
                lambda one: g.branch("b", Pass(), {"x": Pass()}, target=one),
                lambda one: g.loop("l", Pass(), target=one),
            ):
                with pytest.raises(GraphError, match="A target is the name or a tag of a worker"):
                    make(target)
        assert len(g) == 0

    @pytest.mark.parametrize(
        ("make", "what"),
        [
            (lambda g: g.branch("b", "b", {"x": Pass()}), "branch('b'): its condition is 'b'"),
            (lambda g: g.branch("b", Pass(), {"x": "b"}), "branch('b'), arm 'x' is 'b'"),
            (
                lambda g: g.branch("b", Pass(), {"x": Pass(), "y": [Pass(), ["b"]]}),
                "branch('b'), arm 'y' is 'b'",
            ),
            (lambda g: g.loop("l", "l"), "loop('l'), its body is 'l'"),
            (lambda g: g.loop("l", [Pass(), "l"]), "loop('l'), its body is 'l'"),
            (lambda g: g.loop("l", Pass(), until="l"), "loop('l'): until is 'l'"),
        ],
    )
    def test_nothing_is_named_for_itself(self, make, what):
        g = Graph()
        with pytest.raises(GraphError) as caught:
            make(g)
        assert str(caught.value) == f"{what} itself, which cannot lie in itself"
        assert len(g) == 0


class TestDeclaringLoops:
    def test_what_a_loop_is_told(self):
        g = Graph()
        assert g.loop("l", Pass()) == "l"
        assert g.loop("m", "l", until=False, max_iterations=3) == "m"
        assert entry(g, "l") == Loop(
            node="l",
            body=Sequence(steps=(Execute(node="pass", label="Pass", kind="stateless"),)),
            terminal="pass",
            until="pass",
            max_iterations=100,
        )
        assert (entry(g, "m").terminal, entry(g, "m").until, entry(g, "m").max_iterations) == (
            "l",
            None,
            3,
        )

    @pytest.mark.parametrize(
        ("until", "said", "ids"),
        [
            (None, "a", ["a"]),
            (False, None, ["a"]),
            (same, "same", ["a", "same"]),
            (Pass(), "pass", ["a", "pass"]),
            (Pass().named("u").at("w"), "u", ["a", "u"]),
        ],
    )
    def test_until(self, until, said, ids):
        g = graph("a")
        g.loop("l", "a", until=until)
        assert (entry(g, "l").until, entry(g, "l").terminal) == (said, "a")
        assert shape(entry(g, "l").body) == ids

    def test_until_true_says_nothing(self):
        g = Graph()
        with pytest.raises(GraphError, match=re.escape("loop('l'): until=True says nothing. Give")):
            g.loop("l", Pass(), until=True)
        assert len(g) == 0

    @pytest.mark.parametrize("count", [0, -1, True, False, 1.5, 1.0, None, "3", [3], np.uint8(0)])
    def test_a_count_that_is_none(self, count):
        g = graph("a")
        before = declared(g)
        with pytest.raises(GraphError) as caught:
            g.loop("l", ["a", Pass()], until=same, max_iterations=count)
        assert str(caught.value) == (
            f"loop('l'): max_iterations is a whole number from 1, not {count!r}: without an end a "
            "loop might never come back"
        )
        assert declared(g) == before

    @pytest.mark.parametrize("count", [1, 10**30, np.int64(7), np.uint8(200), np.int32(1)])
    def test_a_whole_number_is_one_whoever_made_it(self, count):
        g = Graph()
        g.loop("l", Pass(), max_iterations=count)
        found = entry(g, "l").max_iterations
        assert (found, type(found)) == (int(count), int)
        assert Plan.from_json(g.compile().to_json()) == g.compile()

    def test_several_numbers_are_no_count(self):
        g = Graph()
        with pytest.raises(GraphError) as caught:
            g.loop("l", Pass(), max_iterations=np.array([1, 2]))
        assert str(caught.value) == (
            "loop('l'): max_iterations is a whole number from 1, not array([1, 2]): without an end "
            "a loop might never come back"
        )
        assert len(g) == 0

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("seed", "seed must be a whole number, not array([1, 2])"),
            ("epochs", "epochs must be a whole number from 1, not array([1, 2])"),
            ("batch_size", "batch_size must be a whole number from 1, not array([1, 2])"),
        ],
    )
    def test_several_numbers_are_no_option_of_a_fit(self, name, sentence):
        fitted = []

        class Told(Pass):
            def fit(self, x, y=None):
                fitted.append(x)
                return {}

        g = Graph(cache="off")
        g.loop("l", Told(), until=False, max_iterations=2)
        with pytest.raises(InvalidInput) as caught:
            g.fit([1.0], **{name: np.array([1, 2])})
        assert str(caught.value) == sentence
        assert fitted == []
        g.fit([1.0], **{name: np.array(1)})  # of no axis: it is one number
        assert fitted != []

    def test_whatever_can_be_counted_with_counts(self):
        class Three:
            def __index__(self):
                return 3

        g = Graph()
        g.loop("l", Pass(), max_iterations=Three())
        assert entry(g, "l").max_iterations == 3


class TestWhatCannotBeANode:
    NO_FORWARD = (
        "An object of class int cannot be a node: it has no forward(x, state) method. Define one, "
        "or wrap it in a class that does"
    )
    A_CLASS = "Pass is a class; a node is an object of it: Pass(...)"

    @pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [Pass(), one]])
    @pytest.mark.parametrize(("wrong", "why"), [(3, NO_FORWARD), (Pass, A_CLASS)])
    def test_says_where_in_an_arm_or_a_body(self, wrap, wrong, why):
        for declare, where in (
            (lambda g, one: g.branch("b", same, {True: one}), "branch('b'), arm 'true'"),
            (lambda g, one: g.branch("b", same, {"x": Pass(), "y": one}), "branch('b'), arm 'y'"),
            (lambda g, one: g.loop("l", one), "loop('l'), its body"),
        ):
            g = graph("s")
            before = declared(g)
            with pytest.raises(InvalidFilter) as caught:
                declare(g, wrap(wrong))
            assert str(caught.value) == f"{where}: {why}"
            assert type(caught.value) is InvalidFilter
            assert declared(g) == before

    @pytest.mark.parametrize(("wrong", "why"), [(3, NO_FORWARD), (Pass, A_CLASS)])
    def test_says_that_it_is_a_condition_or_an_until(self, wrong, why):
        for declare, where in (
            (lambda g, one: g.branch("b", one, {True: Pass()}), "branch('b'): its condition"),
            (lambda g, one: g.loop("l", Pass(), until=one), "loop('l'): until"),
        ):
            g = graph("s")
            before = declared(g)
            with pytest.raises(InvalidFilter) as caught:
                declare(g, wrong)
            assert str(caught.value) == f"{where}: {why}"
            assert declared(g) == before

    def test_in_an_expression(self):
        g = graph()
        with pytest.raises(InvalidFilter) as caught:
            g.branch("b", same, {True: Pass() >> (Pass() | 3)})
        assert str(caught.value) == f"branch('b'), arm 'true': {self.NO_FORWARD}"

    def test_a_node_of_the_graph_itself_is_named_for_nothing(self):
        with pytest.raises(InvalidFilter) as caught:
            graph().node("n", 3)
        assert str(caught.value) == self.NO_FORWARD


class Refuses(dict):
    """Arms whose last value cannot be had."""

    def values(self):
        yield Pass() >> Learns()
        raise KeyboardInterrupt


class NoIndex:
    def __index__(self):
        raise OSError("no number")


FAILURES = {
    "condition unknown": lambda g: g.branch("b", "nope", {"x": Pass()}),
    "arm unknown": lambda g: g.branch("b", Pass(), {"x": Pass() >> Pass(), "y": "nope"}),
    "arm a class": lambda g: g.branch("b", Pass(), {"x": Pass() >> Pass(), "y": Learns}),
    "late in an expression": lambda g: g.branch("b", same, {"x": Pass() >> same >> Pass() >> 3}),
    "arm empty": lambda g: g.branch("b", Pass(), {"x": [Pass() >> Learns()], "y": []}),
    "name taken": lambda g: g.branch("b", Pass(), {"x": Pass() >> Pass().named("first")}),
    "name twice": lambda g: g.branch("b", same, {"x": same, "y": same >> Pass().named("same")}),
    "own name": lambda g: g.branch("b", Learns(), {"x": Pass() >> Pass().named("b")}),
    "label": lambda g: g.branch("b", Pass(), {"x": Pass(), 3: Pass()}),
    "arms": lambda g: g.branch("b", Pass(), [Pass()]),
    "mark": lambda g: g.branch("b", Pass(), {"x": Pass() >> Pass().at("")}),
    "in itself": lambda g: g.branch("b", Pass(), {"x": [Pass() >> Pass(), "b"]}),
    "target": lambda g: g.branch("b", Pass(), {"x": Pass() >> Pass()}, target=3),
    "interrupted": lambda g: g.branch("b", Pass(), Refuses(x=1, y=2)),
    "id taken": lambda g: g.branch("first", Pass(), {"x": Pass()}),
    "id no text": lambda g: g.branch(3, Pass(), {"x": Pass()}),
    "id not hashable": lambda g: g.branch([], Pass(), {"x": Pass()}),
    "body unknown": lambda g: g.loop("l", [Pass() >> Learns(), "nope"]),
    "until unknown": lambda g: g.loop("l", Pass() >> Pass(), until="nope"),
    "until True": lambda g: g.loop("l", Pass() >> Pass(), until=True),
    "until several": lambda g: g.loop("l", Pass(), until=Pass() >> Pass()),
    "count": lambda g: g.loop("l", Pass() >> Pass(), until=Pass(), max_iterations=0),
    "count raises": lambda g: g.loop("l", Pass() >> Pass(), max_iterations=NoIndex()),
    "loop in itself": lambda g: g.loop("l", [Pass(), "l"], until=same),
    "loop target": lambda g: g.loop("l", Pass() >> Pass(), target=""),
    "loop id taken": lambda g: g.loop("first", Pass() >> Pass()),
}


class TestAllOrNone:
    def begun(self):
        g = Graph(cache="off")
        g.node("first", Pass())
        g.node(Pass())
        g.node(Pass())
        link(g, "first>pass pass>pass_2")
        g.optional("first", "pass")
        return g

    @pytest.mark.parametrize("name", FAILURES)
    def test_what_fails_leaves_all_as_it_was(self, name):
        g = self.begun()
        before, text, plan = declared(g), g.to_text(), g.compile()
        with pytest.raises((soma.SomaError, OSError, KeyboardInterrupt)):
            FAILURES[name](g)
        assert declared(g) == before
        assert (g.to_text(), g.compile()) == (text, plan)
        assert g.node(Pass()) == "pass_3"
        assert [g.node(Learns()), g.node(same)] == ["learns", "same"]
        g.branch("b", Pass(), {"x": Pass()})
        g.loop("l", Pass())
        assert list(g._declared.nodes)[-5:] == ["b", "pass_4", "pass_5", "l", "pass_6"]

    @pytest.mark.parametrize("name", FAILURES)
    def test_what_fails_leaves_the_compiled_plan(self, name):
        g = self.begun()
        version, plan = g._declared.version, g.compile()
        assert g.compile() is plan
        with pytest.raises((soma.SomaError, OSError, KeyboardInterrupt)):
            FAILURES[name](g)
        assert g._declared.version == version
        assert g.compile() is plan
        g.branch("b", Pass(), {"x": Pass()})
        assert g._declared.version > version
        assert g.compile() is not plan

    @given(names=st.lists(st.sampled_from([*FAILURES, "good branch", "good loop", "good node"])))
    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_failures_between_leave_no_trace(self, names):
        def good(g, name, number):
            if name == "good branch":
                g.branch(f"br{number}", same, {True: Pass() >> Learns(), "else": Pass()})
            elif name == "good loop":
                g.loop(f"lo{number}", Pass() >> Pass(), until=same)
            elif name == "good node":
                g.node(Pass())

        g, clean = self.begun(), self.begun()
        for number, name in enumerate(names):
            good(g, name, number)
            good(clean, name, number)
            if name in FAILURES:
                with pytest.raises((soma.SomaError, OSError, KeyboardInterrupt)):
                    FAILURES[name](g)
        assert list(g._declared.nodes) == list(clean._declared.nodes)
        assert declared(g)[1:] == declared(clean)[1:]
        assert g.compile() == clean.compile()


class TestLooking:
    def graph(self):
        g = graph("s")
        g.branch("b", same, {"x": Tuned().named("t"), "y": Pass() >> Learns()})
        g.loop("l", Tuned().named("u") >> Pass().named("v"), max_iterations=2)
        return link(g, "s>b b>l")

    def test_a_branch_and_a_loop_have_no_filter(self):
        g = self.graph()
        with pytest.raises(GraphError) as caught:
            g.filter("b")
        assert str(caught.value) == "'b' is a branch: it has no filter; the nodes in it have"
        with pytest.raises(GraphError, match="'l' is a loop: it has no filter"):
            g.filter("l")
        with pytest.raises(GraphError, match="'l' is a loop: it has no filter"):
            g.filter_source("l")
        assert isinstance(g.filter("t"), Tuned)
        with pytest.raises(UnknownNode, match=re.escape("filter('bb'): 'bb' is not in this")):
            g.filter("bb")

    def test_sources_are_those_of_nodes(self):
        found = self.graph().filter_sources_dict()
        assert list(found) == ["s", "same", "t", "pass", "learns", "u", "v"]
        assert found["same"] == "def same(x):\n    return x\n"
        assert found["u"] == found["t"] != ""

    def test_a_search_reaches_nodes_in_bodies(self):
        g = self.graph()
        assert [one["name"] for one in g.search_space()] == ["t.rate", "u.rate"]
        g.apply_params({"u.rate": 0.25})
        assert (g.filter("t").rate, g.filter("u").rate) == (0.5, 0.25)
        with pytest.raises(UnknownName, match=r"there is no parameter 'b\.rate'"):
            g.apply_params({"b.rate": 0.1})

    def test_an_edge_in_a_body_may_be_cut(self):
        g = graph("", "a>b b>c")
        g.loop("l", ["a", "b", "c"])
        g.optional("b", "c")
        assert g.search_space() == [
            {"type": "categorical", "name": "b -> c", "choices": [True, False]}
        ]
        assert shape(g.compile().root) == [{"l": ["a", "b", "c"]}]
        g.apply_params({"b -> c": False})
        assert refused(g) == (
            "the body of loop 'l' ends in several nodes: 'b', 'c'. The next pass gets the output "
            "of one: join them in a node after them (filters in a row are written a >> b). A node "
            "that says when to stop is named by until="
        )
        g.set_edge("b", "c", True)
        assert shape(g.compile().root) == [{"l": ["a", "b", "c"]}]

    def test_what_only_a_cut_edge_led_to_lies_outside(self):
        g = graph("", "a>b")
        g.loop("l", "a")
        g.optional("a", "b")
        assert shape(g.compile().root) == [{"l": ["a", "b"]}]
        g.set_edge("a", "b", False)
        assert shape(g.compile().root) == ["b", {"l": ["a"]}]

    def test_an_edge_to_a_branch_may_be_cut(self):
        g = self.graph()
        g.optional("s", "b")
        g.set_edge("s", "b", False)
        assert entry(g, "b").waits_for == ()

    def test_a_copy_grows_on_its_own_with_the_same_filters(self):
        g = self.graph()
        text = g.to_text()
        copied = copy.copy(g)
        copied.branch("more", Pass(), {"x": Pass()})
        copied.edge("l", "more")
        assert (len(copied), len(g), g.to_text()) == (len(g) + 3, 9, text)
        assert copied.filter("t") is g.filter("t")
        assert copied.compile().root != g.compile().root

    def test_a_deep_copy_has_filters_of_its_own(self):
        g = self.graph()
        copied = copy.deepcopy(g)
        assert (copied.compile(), copied.to_text()) == (g.compile(), g.to_text())
        assert copied.filter("t") is not g.filter("t")
        copied.apply_params({"t.rate": 0.75})
        assert g.filter("t").rate == 0.5
        copied.loop("more", Pass())
        assert "more" not in g._declared.nodes

    def test_a_graph_held_by_a_filter_counts_by_its_arms_and_loops(self):
        class Holds(Pass):
            def __init__(self, held):
                self.held = held

        def hashed(declare):
            g = graph("a b c")
            declare(g)
            return identify(Holds(g)).config

        made = [
            lambda g: None,
            lambda g: g.branch("d", "a", {"x": "b", "y": "c"}),
            lambda g: g.branch("d", "a", {"x": "c", "y": "b"}),
            lambda g: g.branch("d", "a", {"x": "b", "z": "c"}),
            lambda g: g.branch("d", "a", {"x": "b"}),
            lambda g: g.branch("d", "b", {"x": "a", "y": "c"}),
            lambda g: g.branch("e", "a", {"x": "b", "y": "c"}),
            lambda g: g.loop("d", "a"),
            lambda g: g.loop("d", "b"),
            lambda g: g.loop("d", "a", until=False),
            lambda g: g.loop("d", "a", until="b"),
            lambda g: g.loop("d", "a", max_iterations=99),
            lambda g: g.node("d", Pass()),
        ]
        hashes = [hashed(one) for one in made]
        assert len(set(hashes)) == len(made)
        assert hashes == [hashed(one) for one in made]


class TestRegions:
    def test_arms_hold_what_was_named_and_what_edges_lead_to(self):
        g = graph("s", "x>x1 x>x2 x1>x3 x2>x3")
        g.branch("b", same, {"x": "x", "y": Pass().named("y")})
        g.node("z", Pass())
        link(g, "s>b b>z")
        assert shape(g.compile().root) == [
            "s",
            "same",
            {"b": {"x": ["x", "x1", "x2", "x3"], "y": ["y"]}},
            "z",
        ]
        found = entry(g, "b")
        assert (found.condition, found.waits_for, found.needs) == ("same", ("s",), ("s", "same"))
        assert [(arm.label, arm.terminal) for arm in found.arms] == [("x", "x3"), ("y", "y")]
        assert node(g, "same").waits_for == ("s",)
        assert [node(g, one).waits_for for one in ("x", "x3", "z")] == [(), ("x1", "x2"), ("b",)]
        assert g.compile().leaves == ("z",)

    def test_entries_are_frozen_values(self):
        g = graph("c x")
        g.branch("b", "c", {True: "x"})
        made = Branch(
            node="b",
            condition="c",
            arms=(
                Arm(
                    label="true",
                    body=Sequence(steps=(Execute(node="x", label="Pass", kind="stateless"),)),
                    terminal="x",
                ),
            ),
        )
        assert g.compile().entries == (Execute(node="c", label="Pass", kind="stateless"), made)
        with pytest.raises(AttributeError):
            made.node = "c"
        assert hash(made) == hash(entry(g, "b"))

    def test_loops_hold_what_was_named_and_what_edges_lead_to(self):
        g = graph("s z", "h>i i>j")
        g.loop("l", "h", max_iterations=5)
        link(g, "s>l l>z")
        assert shape(g.compile().root) == ["s", {"l": ["h", "i", "j"]}, "z"]
        found = entry(g, "l")
        assert (found.terminal, found.until, found.waits_for) == ("j", "j", ("s",))
        assert node(g, "h").waits_for == ()
        assert node(g, "z").waits_for == ("l",)

    def test_a_loop_in_an_arm_and_a_branch_in_a_loop(self):
        g = graph("s c", "h>t", x=Learns)
        g.loop("l", "h", until=False, max_iterations=3)
        g.branch("b", "c", {True: "l", False: Pass().named("n")})
        g.loop("m", "b", until=same)
        g.branch("o", Pass().named("oc"), {"default": "m"})
        g.edge("s", "o")
        assert shape(g.compile().root) == [
            "s",
            "oc",
            {
                "o": {
                    "default": [
                        {
                            "m": [
                                "c",
                                {"b": {"true": [{"l": ["h", "t"]}], "false": ["n"]}},
                                "same",
                            ]
                        }
                    ]
                }
            },
        ]
        terminals = [entry(g, "o").arms[0].terminal, entry(g, "m").terminal, entry(g, "l").terminal]
        assert terminals == ["m", "b", "t"]
        assert [arm.terminal for arm in entry(g, "b").arms] == ["l", "n"]
        assert (entry(g, "m").until, entry(g, "l").until) == ("same", None)
        assert [one.node for one in g.compile().nodes] == ["s", "oc", "c", "h", "t", "n", "same"]
        assert g.compile().leaves == ("o",)

    def test_what_follows_a_control_in_a_body_lies_in_that_body(self):
        g = graph("c x z")
        g.branch("b", "c", {"default": "x"})
        g.edge("b", "z")
        g.loop("l", "b")
        assert shape(g.compile().root) == [{"l": ["c", {"b": {"default": ["x"]}}, "z"]}]
        assert entry(g, "l").terminal == "z"

    def test_a_condition_without_edges_is_fed_what_its_branch_is(self):
        g = graph("s t c x")
        g.branch("b", "c", {"default": "x"})
        assert (node(g, "c").waits_for, entry(g, "b").waits_for) == ((), ())
        link(g, "t>b s>b")
        assert (node(g, "c").waits_for, entry(g, "b").waits_for) == (("s", "t"), ("s", "t"))
        assert entry(g, "b").needs == ("s", "t", "c")

    def test_a_condition_with_edges_is_fed_by_them_alone(self):
        g = graph("", "s>c r>s", x=Pass)
        g.node("x", Pass())
        g.branch("b", "c", {"default": "x"})
        g.edge("r", "b")
        assert (node(g, "c").waits_for, entry(g, "b").waits_for) == (("s",), ("r",))
        assert entry(g, "b").needs == ("r", "c")

    def test_a_condition_that_only_feeds_gets_the_input(self):
        g = graph("s x", "c>d")
        g.branch("b", "c", {"default": "x"})
        g.edge("s", "b")
        assert node(g, "c").waits_for == ()

    def test_a_condition_may_feed_its_branch(self):
        g = graph("c x")
        g.branch("b", "c", {"default": "x"})
        g.edge("c", "b")
        assert (entry(g, "b").waits_for, entry(g, "b").needs) == (("c",), ("c",))

    def test_a_loop_may_be_a_condition(self):
        g = graph("s h x")
        g.loop("l", "h")
        g.branch("b", "l", {"default": "x"})
        g.edge("s", "b")
        assert shape(g.compile().root) == ["s", {"l": ["h"]}, {"b": {"default": ["x"]}}]
        assert entry(g, "l").waits_for == ("s",)

    def test_until_without_edges_gets_what_the_body_gave(self):
        g = graph("u", "h>i")
        g.loop("l", "h", until="u")
        assert shape(g.compile().root) == [{"l": ["h", "i", "u"]}]
        assert (node(g, "u").waits_for, entry(g, "l").terminal) == (("i",), "i")

    def test_until_with_edges_is_fed_by_them(self):
        g = graph("", "h>u h>i i>j")
        g.loop("l", "h", until="u")
        found = entry(g, "l")
        assert (node(g, "u").waits_for, found.terminal, found.until) == (("h",), "j", "u")

    def test_until_at_the_end_of_a_row_is_not_the_terminal(self):
        g = graph("", "h>i i>u")
        g.loop("l", "h", until="u")
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("i", "u")

    def test_until_that_feeds_others_is_a_node_like_others(self):
        g = graph("", "u>i i>j")
        g.loop("l", "u", until="u")
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("j", "u")

    def test_until_may_stand_in_the_middle_of_a_row(self):
        g = graph("", "h>u u>t")
        g.loop("l", "h", until="u")
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("t", "u")

    def test_the_one_node_of_a_body_may_be_until(self):
        g = graph("a")
        g.loop("l", "a", until="a")
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("a", "a")
        assert node(g, "a").waits_for == ()

    def test_until_named_with_the_body_is_until(self):
        g = graph("a u")
        g.loop("l", ["a", "u"], until="u")
        assert (entry(g, "l").terminal, node(g, "u").waits_for) == ("a", ("a",))

    def test_until_may_be_a_loop(self):
        g = graph("a i")
        g.loop("u", "i")
        g.loop("l", "a", until="u")
        assert shape(g.compile().root) == [{"l": ["a", {"u": ["i"]}]}]
        assert entry(g, "u").waits_for == ("a",)

    @pytest.mark.parametrize("until", [None, False])
    def test_without_until_there_is_one_end(self, until):
        g = graph("", "h>i")
        g.loop("l", "h", until=until)
        assert (entry(g, "l").terminal, entry(g, "l").until) == (
            "i",
            None if until is False else "i",
        )

    def test_one_condition_for_two_branches_that_are_fed_alike(self):
        g = graph("s t c w x y z")
        g.branch("a", "c", {"default": "x"})
        g.branch("b", "c", {"default": "y"})
        link(g, "s>a t>a t>b s>b")
        assert node(g, "c").waits_for == ("s", "t")
        assert {id_: entry(g, id_).condition for id_ in "ab"} == {"a": "c", "b": "c"}

    @pytest.mark.parametrize("edges", ["s>a t>b", "s>a", "s>a s>b t>b"])
    def test_one_condition_for_two_branches_that_are_not(self, edges):
        g = graph("s t c x y")
        g.branch("a", "c", {"default": "x"})
        g.branch("b", "c", {"default": "y"})
        link(g, edges)
        assert refused(g) == (
            "'c' is the condition of 'a' and of 'b', which are fed differently, and it has no "
            "edges of its own. Give it an edge, or each branch its own"
        )
        g.edge("s", "c")
        assert node(g, "c").waits_for == ("s",)

    def test_a_condition_of_a_condition_is_fed_what_that_is(self):
        g = graph("s c x y")
        g.branch("inner", "c", {"default": "x"})
        g.branch("outer", "inner", {"default": "y"})
        g.edge("s", "outer")
        assert entry(g, "inner").waits_for == ("s",)
        assert node(g, "c").waits_for == ("s",)

    def chain(self, edges):
        """Return a graph in which c is the condition of b0, b0 of b1, and b1 of b2."""
        g = graph("s t c")
        asked = "c"
        for number in range(3):
            asked = g.branch(f"b{number}", asked, {"default": Pass().named(f"x{number}")})
        return link(g, edges)

    @pytest.mark.parametrize(
        ("edges", "fed"),
        [
            ("", {"c": (), "b0": (), "b1": (), "b2": ()}),
            ("s>b2", {"c": ("s",), "b0": ("s",), "b1": ("s",), "b2": ("s",)}),
            ("t>b2 s>b2", dict.fromkeys(("c", "b0", "b1", "b2"), ("s", "t"))),
            ("s>b2 t>b1", {"c": ("t",), "b0": ("t",), "b1": ("t",), "b2": ("s",)}),
            ("s>b2 t>b0", {"c": ("t",), "b0": ("t",), "b1": ("s",), "b2": ("s",)}),
            ("s>b2 t>c", {"c": ("t",), "b0": ("s",), "b1": ("s",), "b2": ("s",)}),
        ],
    )
    def test_conditions_of_conditions_of_conditions(self, edges, fed):
        g = self.chain(edges)
        assert {id_: entry(g, id_).waits_for for id_ in fed} == fed
        order = [one for one in g.compile().entries if one.node in fed]
        assert [one.node for one in order] == ["c", "b0", "b1", "b2"]
        assert [one.condition for one in order[1:]] == ["c", "b0", "b1"]
        assert Plan.from_json(g.compile().to_json()) == g.compile()

    def test_conditions_of_conditions_in_a_body(self):
        g = self.chain("")
        g.loop("l", "b2")
        link(g, "s>l l>t")
        inside = ["c", *({f"b{one}": {"default": [f"x{one}"]}} for one in range(3))]
        assert shape(g.compile().root) == ["s", {"l": inside}, "t"]
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("b2", "b2")
        assert [entry(g, one).waits_for for one in ("c", "b0", "b1", "b2")] == 4 * [()]

    def test_conditions_of_conditions_run(self):
        g = Graph(cache="off")
        seen = []
        g.node("s", lambda x: x + 1)
        g.node("c", lambda x: seen.append(x) or "go")
        g.branch("b0", "c", {"go": lambda x: x == 2})
        g.branch("b1", "b0", {True: lambda x: f"was {x}"})
        g.branch("b2", "b1", {"was 2": lambda x: x * 10})
        g.edge("s", "b2")
        assert g.forward(1) == 20
        assert seen == [2]

    def test_conditions_of_until_are_fed_what_it_is(self):
        g = self.chain("")
        g.loop("l", "t", until="b2")
        link(g, "s>l")
        inside = ["t", "c", *({f"b{one}": {"default": [f"x{one}"]}} for one in range(3))]
        assert shape(g.compile().root) == ["s", {"l": inside}]
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("t", "b2")
        assert [entry(g, one).waits_for for one in ("c", "b0", "b1", "b2")] == 4 * [("t",)]

    def test_until_with_edges_may_be_a_branch_whose_condition_has_none(self):
        g = graph("c x", "h>i i>j")
        g.branch("u", "c", {"default": "x"})
        g.loop("l", "h", until="u")
        link(g, "h>u")
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("j", "u")
        assert (entry(g, "u").waits_for, node(g, "c").waits_for) == (("h",), ("h",))

    @pytest.mark.parametrize(
        ("edges", "terminal"), [("h>c h>i", "i"), ("h>c h>i i>j", "j"), ("h>c", "c")]
    )
    def test_what_prepares_for_until_is_an_end_where_nothing_else_is(self, edges, terminal):
        g = graph("", edges)
        g.branch("u", "c", {"default": Pass().named("x")})
        g.loop("l", ["h", "u"], until="u")
        assert (entry(g, "l").terminal, entry(g, "l").until) == (terminal, "u")
        assert (node(g, "c").waits_for, entry(g, "u").waits_for) == (("h",), (terminal,))

    def test_a_body_of_until_and_its_condition(self):
        g = graph("c x")
        g.branch("u", "c", {"default": "x"})
        g.loop("l", "u", until="u")
        assert shape(g.compile().root) == [{"l": ["c", {"u": {"default": ["x"]}}]}]
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("u", "u")
        assert (entry(g, "u").waits_for, node(g, "c").waits_for) == ((), ())

    def test_a_branch_as_until_stops_a_loop(self):
        g = Graph(cache="off")
        g.branch(
            "u",
            lambda x: "big" if x > 10 else "small",
            {"big": lambda x: True, "small": lambda x: x == 7},
        )
        g.loop("l", lambda x: x + 2, until="u")
        assert [g.forward(one) for one in (0, 1, 10, 5)] == [12, 7, 12, 7]

    def test_until_may_be_a_branch(self):
        g = graph("h c x")
        g.branch("u", "c", {"default": "x"})
        g.loop("l", "h", until="u")
        assert shape(g.compile().root) == [{"l": ["h", "c", {"u": {"default": ["x"]}}]}]
        assert (entry(g, "l").terminal, node(g, "c").waits_for) == ("h", ("h",))


class TestRegionsRefused:
    def test_a_node_reached_from_two_arms(self):
        g = graph("z", "x>z y>z")
        g.branch("b", same, {"x": "x", "y": "y"})
        assert refused(g) == (
            "'z' would lie in arm 'x' of branch 'b' and in arm 'y' of branch 'b'. What comes after "
            "a branch is fed by the branch itself, whichever arm was taken: g.edge('b', 'z')"
        )

    def test_a_node_named_for_two_arms(self):
        g = graph("n")
        g.branch("b", same, {"x": "n", "y": "n"})
        assert refused(g).startswith(
            "'n' would lie in arm 'x' of branch 'b' and in arm 'y' of branch 'b'."
        )

    def test_a_node_of_two_loops(self):
        g = graph("n")
        g.loop("l", "n")
        g.loop("m", "n")
        assert refused(g) == (
            "'n' would lie in the body of loop 'l' and in the body of loop 'm'. A node lies in one "
            "of them: declare another, or take an edge away"
        )

    def test_a_node_reached_from_a_loop_and_from_an_arm(self):
        g = graph("", "x>n y>n")
        g.branch("b", same, {"p": "x"})
        g.loop("l", "y")
        assert refused(g).startswith(
            "'n' would lie in arm 'p' of branch 'b' and in the body of loop 'l'. A node lies in"
        )

    def test_an_until_of_two_loops(self):
        g = graph("u")
        g.loop("l", Pass(), until="u")
        g.loop("m", Pass(), until="u")
        assert refused(g).startswith(
            "'u' would lie in the body of loop 'l' and in the body of loop 'm'."
        )

    def test_a_condition_of_branches_in_two_bodies(self):
        g = graph("c")
        for id_ in "ab":
            g.branch(id_, "c", {"default": Pass()})
            g.loop(f"l{id_}", id_)
        assert refused(g).startswith(
            "'c' would lie in the body of loop 'la' and in the body of loop 'lb'."
        )

    @pytest.mark.parametrize("edges", ["x>z b>z", "b>z x>z"])
    def test_a_node_fed_by_a_branch_and_by_its_arm(self, edges):
        g = graph("x z")
        g.branch("b", same, {"p": "x", "q": Pass()})
        assert refused(link(g, edges)) == (
            "'z' is fed by 'b' and by 'x', which lies in arm 'p' of branch 'b'. What 'b' gives is "
            "what that ends in: take the edge 'x' -> 'z' away"
        )

    @pytest.mark.parametrize("edges", ["x>y y>z l>z", "l>z x>y y>z"])
    def test_a_node_fed_by_a_loop_and_by_its_body(self, edges):
        g = graph("x y z")
        g.loop("l", "x", until=False)
        assert refused(link(g, edges)) == (
            "'z' is fed by 'l' and by 'y', which lies in the body of loop 'l'. What 'l' gives is "
            "what that ends in: take the edge 'y' -> 'z' away"
        )

    def test_a_node_of_a_body_fed_by_what_it_is_the_body_of(self):
        g = graph("x")
        g.loop("l", "x", until=False)
        assert "'x'" in refused(link(g, "l>x"))
        g = graph("x")
        g.branch("b", same, {"p": "x"})
        assert "'x'" in refused(link(g, "b>x"))

    def test_a_node_fed_from_outside(self):
        g = graph("s", "x>y s>y")
        g.branch("b", same, {"p": "x"})
        assert refused(g) == (
            "'s' feeds 'y', which lies in arm 'p' of branch 'b', from outside. Into a body goes "
            "only what its branch or loop is given: g.edge('s', 'b'), and let what 'y' needs be "
            "part of that"
        )
        g = graph("", "s>h")
        g.loop("l", "h")
        assert refused(g) == (
            "'s' feeds 'h', which lies in the body of loop 'l', from outside. Into a body goes "
            "only what its branch or loop is given: g.edge('s', 'l'), and let what 'h' needs be "
            "part of that"
        )

    def test_a_node_fed_from_the_body_around(self):
        g = graph("", "h>x")
        g.branch("b", same, {"p": "x"})
        g.loop("l", ["h", "b"])
        assert refused(g).startswith(
            "'x' would lie in arm 'p' of branch 'b' and in the body of loop 'l'."
        )

    def test_a_loop_that_its_own_body_leads_to(self):
        g = graph("a")
        g.loop("l", "a")
        g.edge("a", "l")
        assert refused(g) == "'l' lies in itself: it is reached from the body of loop 'l'"

    def test_a_branch_that_its_own_arm_leads_to(self):
        g = graph("a")
        g.branch("b", same, {"x": "a"})
        g.edge("a", "b")
        assert refused(g) == "'b' lies in itself: it is reached from arm 'x' of branch 'b'"

    def test_a_ring_of_two(self):
        g = graph("a")
        g.loop("l", "a")
        g.loop("m", "l")
        g.edge("a", "m")
        assert refused(g) in (
            "'l' lies in itself: it is reached from the body of loop 'l'",
            "'l' lies in itself: it is reached from the body of loop 'm'",
            "'m' lies in itself: it is reached from the body of loop 'l'",
        )

    def test_what_only_lies_in_a_ring_is_not_nested_too_deep(self):
        g = graph("n")
        g.loop("a", "n")
        g.loop("b", "a")
        g.loop("c", "b")
        g.edge("a", "c")  # b lies in c, and c in b
        assert refused(g) == "'b' lies in itself: it is reached from the body of loop 'b'"

    def test_a_loop_that_its_own_body_leads_to_and_something_else(self):
        g = graph("s a")
        g.loop("l", "a")
        link(g, "s>l a>l")
        assert refused(g) == "'l' lies in itself: it is reached from the body of loop 'l'"

    def nested(self, depth, kind):
        g = graph("n")
        inner = "n"
        for number in range(depth):
            id_ = f"c{number}"
            if kind == "loop" or (kind == "both" and number % 2):
                inner = g.loop(id_, inner, until=False, max_iterations=1)
            else:
                inner = g.branch(id_, same, {"default": inner})
        return g

    @pytest.mark.parametrize("kind", ["loop", "branch", "both"])
    def test_nesting_ends_somewhere(self, kind):
        g = self.nested(MAX_NESTED, kind)
        plan = g.compile()
        assert Plan.from_json(plan.to_json()) == plan
        depth = 0
        body = plan.root
        while inner := [one for one in units_of(body) if isinstance(one, Branch | Loop)]:
            body, depth = inner[0].bodies[0], depth + 1
        assert depth == MAX_NESTED == 30
        assert refused(self.nested(MAX_NESTED + 1, kind)) == (
            "'c0' lies deeper in branches and loops than 30"
        )

    def test_a_circle_in_a_body(self):
        g = graph("", "a>b b>c c>b")
        g.loop("l", "a")
        told = refused(g, CycleError)
        assert re.fullmatch(
            r"The edges go round in a circle: (b -> c -> b|c -> b -> c)\. Take one away: a loop "
            "leads its last node back to its first by itself",
            told,
        )

    def test_a_circle_in_an_arm(self):
        g = graph("", "a>b b>a")
        g.branch("br", same, {"x": "a"})
        told = refused(g, CycleError)
        assert re.fullmatch(
            r"The edges go round in a circle: (a -> b -> a|b -> a -> b)\. Take one away", told
        )

    def test_a_circle_through_a_control(self):
        g = graph("a z")
        g.loop("l", "a")
        link(g, "l>z z>l")
        assert re.search("(l -> z -> l|z -> l -> z)", refused(g, CycleError))

    def test_a_condition_below_its_branch(self):
        g = graph("c")
        g.branch("b", "c", {"x": Pass()})
        g.edge("b", "c")
        assert re.search("(b -> c -> b|c -> b -> c)", refused(g, CycleError))

    def test_an_arm_that_ends_in_several(self):
        g = graph("", "h>i h>j")
        g.branch("b", same, {"x": Pass(), True: "h"})
        assert refused(g) == (
            "arm 'true' of branch 'b' ends in several nodes: 'i', 'j'. A branch gives one value: "
            "join them in a node after them"
        )

    def test_a_loop_that_ends_in_several(self):
        g = graph("h i j")
        g.loop("l", ["h", "i", "j"], until=same)
        assert refused(g) == (
            "the body of loop 'l' ends in several nodes: 'h', 'i', 'j'. The next pass gets the "
            "output of one: join them in a node after them (filters in a row are written a >> b). "
            "A node that says when to stop is named by until="
        )

    def test_a_check_that_is_not_named_is_an_end(self):
        g = graph("", "h>i h>u")
        g.loop("l", "h")
        assert "ends in several nodes: 'i', 'u'" in refused(g)
        g = graph("", "h>i h>u")
        g.loop("l", "h", until="u")
        assert entry(g, "l").terminal == "i"

    def test_a_condition_in_another_body(self):
        g = graph("c x", "s>c")
        g.branch("b", "c", {"p": "x"})
        g.loop("l", "b")
        assert refused(g) == (
            "'c', the condition of 'b', lies in the graph itself, and the branch in the body of "
            "loop 'l'. A condition lies beside its branch"
        )
        g = graph("c x")
        g.branch("b", "c", {"p": ["c", "x"]})
        assert refused(g).startswith(
            "'c', the condition of 'b', lies in arm 'p' of branch 'b', and"
        )

    def test_an_until_outside_of_the_body(self):
        g = graph("h", "s>u")
        g.loop("l", "h", until="u")
        assert refused(g).startswith(
            "'u', the until of 'l', lies in the graph itself and must lie in the body of loop 'l'"
        )

    def test_an_until_in_a_body_of_the_body(self):
        g = graph("", "u>v")
        g.loop("m", "u")
        g.loop("l", "m", until="u")
        assert refused(g).startswith(
            "'u', the until of 'l', lies in the body of loop 'm' and must lie in the body of loop "
            "'l'"
        )


class TestSchemas:
    def says(self, gives=None, takes=None, name="Says"):
        return type(name, (Pass,), {"_output_schema": gives, "_input_schema": takes})

    def clash(self, g, giver, taker, when=""):
        told = refused(g, SchemaMismatch)
        start = f"'{giver}' (Says) does not fit '{taker}' (Says){when}: it gives "
        assert told.startswith(start), told
        assert told.endswith(
            ". Put a node between them that converts, or mend _output_schema or _input_schema"
        )
        return told

    def test_into_an_arm(self):
        def made(takes):
            g = graph("s", s=self.says("text"))
            g.branch("b", same, {"x": Pass(), "y": self.says(takes=takes)().named("t") >> Pass()})
            return link(g, "s>b")

        assert len(made("text").compile().nodes) == 5
        assert "it gives 'text' and 'json' is taken" in self.clash(made("json"), "s", "t")

    @pytest.mark.parametrize("bad", ["x", "y"])
    def test_out_of_each_arm(self, bad):
        def made(**gives):
            g = graph("x y z", x=self.says(gives["x"]), y=self.says(gives["y"]))
            g.node("t", self.says(takes="text")())
            g.branch("b", same, {"x": "x", "y": "y"})
            return link(g, "b>t")

        assert len(made(x="text", y=None).compile().nodes) == 5
        self.clash(made(**{"x": "text", "y": "text", bad: "json"}), bad, "t")

    def test_what_lies_before_the_end_of_an_arm_is_not_compared_with_what_follows(self):
        g = graph("x t", "x>e", x=self.says("json"), e=self.says("text"), t=self.says(takes="text"))
        g.branch("b", same, {"x": "x"})
        assert len(link(g, "b>t").compile().nodes) == 4

    def test_into_a_loop(self):
        g = graph("s", "h>i", s=self.says("json"), h=self.says(takes="text"))
        g.loop("l", "h")
        self.clash(link(g, "s>l"), "s", "h")

    def test_every_first_node_of_a_body_is_compared(self):
        g = graph("s", "h>j i>j", s=self.says("json"), i=self.says(takes="text"))
        g.loop("l", ["h", "i"])
        self.clash(link(g, "s>l"), "s", "i")

    def test_back_from_the_end_to_the_head(self):
        def made(gives):
            g = graph("", "h>t", h=self.says(takes="text"), t=self.says(gives))
            g.loop("l", "h")
            return g

        assert len(made("text").compile().nodes) == 2
        self.clash(made("json"), "t", "h", " in the next pass of loop 'l'")

    def test_one_pass_leads_nowhere_back(self):
        def made(count):
            g = graph("s", "h>t", h=self.says(takes="text"), t=self.says("json"))
            g.loop("l", "h", until=False, max_iterations=count)
            return link(g, "s>l")

        assert len(made(1).compile().nodes) == 3
        self.clash(made(2), "t", "h", " in the next pass of loop 'l'")
        g = graph("s h t", "h>t", h=self.says(takes="text"), t=self.says("json"))
        g.branch("b", same, {"x": "h"})
        g.loop("l", "b", until=False, max_iterations=1)
        assert len(link(g, "s>l").compile().nodes) == 4

    def test_out_of_a_loop(self):
        g = graph("z", "h>t", h=self.says("text"), t=self.says("json"), z=self.says(takes="text"))
        g.loop("l", "h")
        self.clash(link(g, "l>z"), "t", "z")

    def test_until_is_no_end_and_is_compared_itself(self):
        g = graph("h u z", u=self.says("json", "text"), z=self.says(takes="text"))
        g.loop("l", "h", until="u")
        assert len(link(g, "l>z").compile().nodes) == 3
        g = graph("h u", h=self.says("json"), u=self.says(takes="text"))
        g.loop("l", "h", until="u")
        self.clash(g, "h", "u")

    def test_a_condition_is_compared(self):
        g = graph("s c", s=self.says("json"), c=self.says(takes="text"))
        g.branch("b", "c", {"x": Pass()})
        self.clash(link(g, "s>b"), "s", "c")

    def test_across_several_borders(self):
        def made(**kinds):
            g = graph("s c x y z", **kinds)
            g.branch("b", "c", {"x": "x", "y": "y"})
            g.loop("l", "b")
            g.branch("o", same, {"default": "l"})
            return link(g, "s>o o>z")

        says = self.says
        assert len(
            made(s=says("text"), x=says("text", "text"), z=says(None, "text")).compile().nodes
        )
        self.clash(made(s=says("json"), x=says(takes="text")), "s", "x")
        self.clash(made(y=says("json"), z=says(takes="text")), "y", "z")
        self.clash(made(y=says("json"), x=says(takes="text")), "y", "x")

    def test_from_branch_to_branch(self):
        g = graph("x y p q", y=self.says("json"), p=self.says(takes="text"))
        g.branch("a", same, {"x": "x", "y": "y"})
        g.branch("b", same, {"p": "p", "q": "q"})
        self.clash(link(g, "a>b"), "y", "p")

    def test_free_axes_fit(self):
        def made(gives, takes):
            g = graph("x t", x=self.says(gives), t=self.says(takes=takes))
            g.branch("b", same, {"x": "x"})
            return link(g, "b>t")

        shaped = [{"shape": (None, 3)}, {"shape": (5, 3), "dtype": "int8"}, {"dtype": "int8"}]
        for gives, takes in product(shaped, shaped):
            assert len(made(gives, takes).compile().nodes) == 3
        told = refused(made({"shape": (None, 3)}, {"shape": (None, 4)}), SchemaMismatch)
        assert "axis 1 has length 3 in (None, 3) and 4 is taken in (None, 4)" in told

    def test_a_fan_in_is_not_compared(self):
        g = graph("r s", r=self.says("json"), s=self.says("json"))
        g.branch("b", same, {"x": self.says(takes="text")()})
        g.loop("l", self.says(takes="text")())
        link(g, "r>b s>b r>l s>l")
        assert len(g.compile().nodes) == 5
        g = graph("x t s", x=self.says("json"), t=self.says(takes="text"))
        g.branch("b", same, {"x": "x"})
        assert len(link(g, "b>t s>t").compile().nodes) == 4

    def test_a_fan_in_into_a_loop_leaves_the_way_back(self):
        g = graph("r s h", h=self.says("json", "text"))
        g.loop("l", "h")
        self.clash(link(g, "r>l s>l"), "h", "h", " in the next pass of loop 'l'")


class TestBlocks:
    def blocks(self, g):
        return [
            "".join(one.ids) for one in everything(g.compile().root) if isinstance(one, Composite)
        ]

    def smooth(self, ids):
        return dict.fromkeys(ids, Smooth)

    def test_a_block_lies_in_a_body(self):
        g = graph("s", "x>y y>p p>z", **self.smooth("xyz"))
        g.branch("b", same, {"default": "x"})
        link(g, "s>b")
        assert self.blocks(g) == ["xy", "z"]
        (arm,) = entry(g, "b").arms
        assert arm.body.steps == (
            Composite(
                nodes=(
                    Execute(node="x", label="Smooth", kind="stateless"),
                    Execute(node="y", label="Smooth", kind="stateless", waits_for=("x",)),
                )
            ),
            Execute(node="p", label="Pass", kind="stateless", waits_for=("y",)),
            Composite(
                nodes=(Execute(node="z", label="Smooth", kind="stateless", waits_for=("p",)),)
            ),
        )

    def test_a_block_ends_at_the_border_of_an_arm(self):
        g = graph("a c d", "x>y", **self.smooth("adxy"))
        g.branch("b", "c", {"p": "x", "q": Smooth().named("z")})
        link(g, "a>b b>d")
        assert self.blocks(g) == ["a", "xy", "z", "d"]

    def test_a_block_ends_at_the_border_of_a_loop(self):
        g = graph("a d", "h>i", **self.smooth("adhi"))
        g.loop("l", "h")
        link(g, "a>l l>d")
        assert self.blocks(g) == ["a", "hi", "d"]

    def test_until_and_condition_train_with_what_lies_beside_them(self):
        g = graph("u", "h>i", **self.smooth("hiu"))
        g.loop("l", "h", until="u")
        assert self.blocks(g) == ["hiu"]
        assert (entry(g, "l").terminal, entry(g, "l").until) == ("i", "u")
        g = graph("a c x", **self.smooth("acx"))
        g.branch("b", "c", {"default": "x"})
        assert self.blocks(link(g, "a>b")) == ["ac", "x"]

    def test_a_way_around_a_loop_is_one_block_with_a_loop_between_two(self):
        g = graph("h", "a>d", **self.smooth("adh"))
        g.loop("l", "h")
        link(g, "a>l l>d")  # a -> l -> d beside a -> d
        assert self.blocks(g) == ["a", "h", "d"]
        assert shape(g.compile().root) == ["a", {"l": ["h"]}, "d"]


class TestPlacement:
    def placed(self, g):
        return {one.node: one.target for one in g.compile().nodes}

    def test_a_target_reaches_what_lies_inside(self):
        g = graph("s z")
        g.branch(
            "b",
            Pass().named("c"),
            {"x": Pass().named("x") >> Smooth().named("x2"), "y": Pass().named("y").at("own")},
            target="gpu",
        )
        g.loop("l", Pass().named("h"), until=Pass().named("u"), target="cpu")
        link(g, "s>b b>l l>z")
        assert self.placed(g) == {
            "s": None,
            "c": None,
            "x": "gpu",
            "x2": "gpu",
            "y": "own",
            "h": "cpu",
            "u": "cpu",
            "z": None,
        }

    def test_the_innermost_wins(self):
        g = graph("a b")
        g.loop("in", "a", target="inner")
        g.loop("mid", "in")
        g.branch("out", Pass().named("c"), {"x": "mid", "y": "b"}, target="outer")
        g.loop("all", "out", target="all")
        assert self.placed(g) == {"a": "inner", "b": "outer", "c": "all"}

    def test_a_target_nobody_has_is_refused_before_anything_runs(self):
        ran = []
        g = Graph(cache="off")
        g.node("s", ran.append)
        g.branch("b", lambda x: "x", {"x": Pass(), "y": Pass().named("far")})
        g.edge("s", "b")
        g.branch("e", lambda x: "x", {"x": Pass(), "y": Pass().named("far2").at("gpu-7")})
        with pytest.raises(GraphError) as caught:
            g.forward(1)
        assert str(caught.value) == (
            "Node 'far2' shall run at 'gpu-7', and this graph has no worker of that name or tag. "
            "There is: 'local'"
        )
        assert ran == []

    def test_local_is_there(self):
        g = Graph(cache="off")
        g.loop("l", lambda x: x + 1, until=False, max_iterations=3, target="local")
        assert g.forward(1) == 4


class TestDangling:
    def dangling(self, g):
        return [one.node for one in g.compile().diagnostics if "has no edges" in one.message]

    def test_what_hangs_on_nothing(self):
        g = graph("alone h x u", "s>t")
        g.loop("l", "h", until="u")
        g.branch("b", same, {"default": "x"})
        assert self.dangling(link(g, "s>b")) == ["alone", "l"]
        assert g.compile().diagnostics[0] == Diagnostic(
            node="alone",
            level="warning",
            message="'alone' has no edges: it gets the input of the graph, and its output is one "
            "of the graph's. In an expression, a | b >> c means a | (b >> c)",
        )

    def test_a_graph_of_one_loop_or_one_branch_hangs_together(self):
        g = Graph()
        g.loop("l", Pass() >> Pass(), until=same)
        assert g.compile().diagnostics == ()
        g = Graph()
        g.branch("b", same, {"x": Pass(), "y": Pass()})
        assert g.compile().diagnostics == ()

    def test_a_loop_and_a_branch_are_not_told_of_expressions(self):
        g = graph("h x")
        g.loop("l", "h")
        g.branch("b", same, {"default": "x"})
        assert g.compile().diagnostics == tuple(
            Diagnostic(
                node=id_,
                level="warning",
                message=f"'{id_}' has no edges: it gets the input of the graph, and its output is "
                "one of the graph's",
            )
            for id_ in ("l", "b")
        )

    def test_a_condition_is_no_edge(self):
        g = graph("c x", "s>t")
        g.branch("b", "c", {"default": "x"})
        assert self.dangling(g) == ["b"]
        assert self.dangling(link(g, "t>b")) == []
        g = graph("x", "s>c")
        g.branch("b", "c", {"default": "x"})
        assert self.dangling(g) == ["b"]

    def test_conditions_and_what_lies_in_bodies_do_not_dangle(self):
        g = graph("s c x h u z")
        g.branch("b", "c", {"x": "x"})
        g.loop("l", "h", until="u")
        link(g, "s>b b>l l>z")
        assert g.compile().diagnostics == ()


def warned(g):
    """Return (node, message) of every diagnostic."""
    found = g.compile().diagnostics
    assert {one.level for one in found} <= {"warning"}
    return [(one.node, one.message) for one in found]


class TestFedByCondition:
    def message(self, branch, condition):
        return (
            branch,
            (
                f"'{branch}' is fed by its own condition '{condition}' alone, so that its arms get "
                "what that says. Right if it is a dict with the data beside 'branch'; else feed "
                "the branch what the arms are to get"
            ),
        )

    def test_a_branch_that_only_its_condition_feeds(self):
        g = graph("", "s>c")
        g.branch("b", "c", {"default": Pass()})
        assert warned(link(g, "c>b")) == [self.message("b", "c")]

    def test_a_branch_that_others_feed_as_well(self):
        g = graph("", "s>c s>t")
        g.branch("b", "c", {"default": Pass()})
        assert warned(link(g, "c>b t>b")) == []

    def test_a_branch_that_what_feeds_its_condition_feeds(self):
        g = graph("", "s>c")
        g.branch("b", "c", {"default": Pass()})
        assert warned(link(g, "s>b")) == []

    def test_a_branch_that_the_condition_of_another_feeds(self):
        g = graph("", "s>c")
        g.branch("a", "c", {"default": Pass()})
        g.branch("b", same, {"default": Pass()})
        assert warned(link(g, "s>a c>b")) == []

    def test_in_a_body(self):
        g = graph("", "h>c")
        g.branch("b", "c", {"default": Pass()})
        g.loop("l", "h", until=False)
        assert warned(link(g, "c>b")) == [self.message("b", "c")]
        g = graph("", "h>c")
        g.branch("b", "c", {"default": Pass()})
        g.branch("a", same, {"x": "h"})
        assert warned(link(g, "c>b")) == [self.message("b", "c")]

    def test_a_branch_or_a_loop_as_the_condition(self):
        g = graph()
        g.loop("c", Pass(), until=False)
        g.branch("b", "c", {"default": Pass()})
        assert warned(link(g, "c>b")) == [self.message("b", "c")]


class TestJoined:
    def message(self, late, control, place, source):
        return (
            late,
            (
                f"'{late}' was declared after '{control}' and lies in {place}, since '{source}' "
                f"feeds it. If it shall come after '{control}', feed it from there instead: "
                f"g.edge('{control}', '{late}') in place of g.edge('{source}', '{late}')"
            ),
        )

    def test_a_node_after_a_loop(self):
        g = graph("a")
        g.loop("l", "a", until=False)
        g.node("z", Pass())
        assert warned(link(g, "a>z")) == [self.message("z", "l", "the body of loop 'l'", "a")]

    def test_a_node_after_a_branch(self):
        g = graph("x y")
        g.branch("b", same, {"x": "x", "y": "y"})
        g.node("z", Pass())
        assert warned(link(g, "y>z")) == [self.message("z", "b", "arm 'y' of branch 'b'", "y")]

    def test_as_it_says(self):
        g = graph("a")
        g.loop("l", "a", until=False)
        g.node("z", Pass())
        assert warned(link(g, "l>z")) == []
        assert shape(g.compile().root) == [{"l": ["a"]}, "z"]

    def test_a_node_that_was_there_before(self):
        g = graph("a z")
        g.loop("l", "a", until=False)
        g.branch("b", same, {"default": Pass()})
        assert warned(link(g, "a>z l>b")) == []

    def test_a_node_that_was_there_before_with_its_edge(self):
        g = graph("", "a>z")
        g.loop("l", "a", until=False)
        assert warned(g) == []

    @pytest.mark.parametrize(
        ("edges", "told"),
        [("a>m m>n n>o", "m"), ("a>o o>n n>m", "o"), ("a>m a>n m>o n>o", "mn")],
    )
    def test_those_that_others_hang_on(self, edges, told):
        g = graph("a")
        g.loop("l", "a", until=False)
        for id_ in "mno":
            g.node(id_, Pass())
        assert warned(link(g, edges)) == [
            self.message(id_, "l", "the body of loop 'l'", "a") for id_ in told
        ]

    def test_one_of_each_body(self):
        g = graph("x y a")
        g.branch("b", same, {"x": "x", "y": "y"})
        g.loop("l", "a", until=False)
        for id_ in "mnop":
            g.node(id_, Pass())
        assert warned(link(g, "b>l x>m m>n y>o a>p")) == [
            self.message("m", "b", "arm 'x' of branch 'b'", "x"),
            self.message("o", "b", "arm 'y' of branch 'b'", "y"),
            self.message("p", "l", "the body of loop 'l'", "a"),
        ]

    def test_a_branch_and_a_loop_that_come_late(self):
        g = graph("a")
        g.loop("l", "a", until=False)
        g.branch("b", same, {"default": Pass()})
        assert warned(link(g, "a>b")) == [self.message("b", "l", "the body of loop 'l'", "a")]
        g = graph("a")
        g.branch("b", same, {"x": "a"})
        g.loop("l", Pass(), until=False)
        assert warned(link(g, "a>l")) == [self.message("l", "b", "arm 'x' of branch 'b'", "a")]

    def test_in_the_innermost(self):
        g = graph("a")
        g.loop("l", "a", until=False)
        g.branch("b", same, {"x": "l"})
        g.node("z", Pass())
        assert warned(link(g, "a>z")) == [self.message("z", "l", "the body of loop 'l'", "a")]

    def test_nodes_of_expressions(self):
        g = graph()
        g.branch("b", same, {"x": Pass() >> (Pass() | Pass()) >> Pass(), "y": [Pass() >> Pass()]})
        g.loop("l", Pass() >> Pass(), until=Pass())
        assert warned(link(g, "b>l")) == []

    def test_nodes_that_were_named_beside_an_expression(self):
        g = graph("a")
        g.loop("l", ["a", Pass().named("z")], until=False)
        assert warned(link(g, "a>z")) == []

    def test_a_lone_condition_or_until(self):
        g = graph("h")
        g.branch("b", Pass(), {"default": Pass()})
        g.loop("l", ["h", "b"], until=Pass())
        assert warned(link(g, "h>b")) == []
        assert shape(g.compile().root) == [
            {"l": ["h", "pass", {"b": {"default": ["pass_2"]}}, "pass_3"]}
        ]

    def test_an_until_that_was_declared_with_its_loop(self):
        """It is named for the body, whether or not it has edges."""
        g = graph("a")
        g.loop("l", "a", until=Pass().named("u"))
        assert warned(link(g, "a>u")) == []

    def test_a_condition_with_edges_beside_its_branch(self):
        g = graph("a")
        g.branch("b", Pass().named("c"), {"default": Pass()})
        g.loop("l", "a", until=False)
        assert warned(link(g, "a>b a>c")) == []


def breaks(g):
    """Return (what breaks, what learns nothing, where it restarts) of each warning."""
    found = []
    for one in g.compile().diagnostics:
        told = re.fullmatch(
            r"'(\w+)' (?:\(\w+\) is not differentiable|is a branch or a loop, at whose borders "
            r"gradients end): '(\w+)' above it learns nothing from '(\w+)' below it, where "
            "gradients start anew",
            one.message,
        )
        if told:
            assert (one.node, one.level) == (told[1], "warning")
            found.append((told[1], told[2], told[3]))
    return sorted(found)


class TestGradients:
    def smooth(self, ids):
        return dict.fromkeys(ids.split(), Smooth)

    def test_nothing_to_say_where_nothing_breaks(self):
        assert breaks(graph("", "p>q q>r")) == []
        assert breaks(graph("", "p>a a>b b>q", **self.smooth("a b"))) == []
        assert breaks(graph("", "a>b a>c b>d c>d", **self.smooth("a b c d"))) == []
        assert graph("", "p>a q>a a>r", **self.smooth("a")).compile().diagnostics == ()

    def test_one_node_between_two(self):
        g = graph("", "a>n n>b", **self.smooth("a b"))
        assert breaks(g) == [("n", "a", "b")]
        assert g.compile().diagnostics[0].message == (
            "'n' (Pass) is not differentiable: 'a' above it learns nothing from 'b' below it, "
            "where gradients start anew"
        )

    def test_the_first_of_a_row_breaks(self):
        g = graph("", "a>l l>m m>n n>b b>c c>o o>d", **self.smooth("a b c d"))
        assert breaks(g) == [("l", "a", "b"), ("o", "c", "d")]

    def test_each_restart_is_told(self):
        g = graph("", "a>n n>b n>m m>c m>d", **self.smooth("a b c d"))
        assert breaks(g) == [("n", "a", "b"), ("n", "a", "c"), ("n", "a", "d")]

    def test_a_fan_in_of_several_is_told_once_each(self):
        g = graph("", "a>n b>n n>c", **self.smooth("a b c"))
        assert breaks(g) == [("n", "a", "c")]
        g = graph("", "a>m b>n m>c n>c", **self.smooth("a b c"))
        assert breaks(g) == [("m", "a", "c"), ("n", "b", "c")]
        g = graph("", "a>n n>b a>b", **self.smooth("a b"))
        assert breaks(g) == [("n", "a", "b")]
        g = graph("", "p>n a>n n>b", **self.smooth("a b"))
        assert breaks(g) == [("n", "a", "b")]

    def test_a_diamond_of_breaks_is_told_once(self):
        g = graph("", "a>n n>p n>q p>r q>r r>b", **self.smooth("a b"))
        assert breaks(g) == [("n", "a", "b")]

    def test_into_and_out_of_a_branch(self):
        g = graph("a x y d", **self.smooth("a x y d"))
        g.branch("b", same, {"x": "x", "y": "y"})
        assert breaks(link(g, "a>b b>d")) == [("b", "a", "x"), ("b", "x", "d")]
        assert g.compile().diagnostics[0].message == (
            "'b' is a branch or a loop, at whose borders gradients end: 'a' above it learns "
            "nothing from 'x' below it, where gradients start anew"
        )

    def test_through_a_loop_in_which_nothing_flows(self):
        g = graph("a h d", **self.smooth("a d"))
        g.loop("l", "h")
        assert breaks(link(g, "a>l l>d")) == [("l", "a", "d")]

    def test_what_breaks_before_a_border_is_named(self):
        g = graph("h", "a>n", **self.smooth("a h"))
        g.loop("l", "h")
        assert breaks(link(g, "n>l")) == [("n", "a", "h")]

    def test_what_breaks_after_a_border_is_the_border(self):
        g = graph("h", "n>d", **self.smooth("h d"))
        g.loop("l", "h")
        assert breaks(link(g, "l>n")) == [("l", "h", "d")]

    def test_between_two_borders(self):
        g = graph("h i", **self.smooth("h i"))
        g.loop("l", "h")
        g.loop("m", "i")
        assert breaks(link(g, "l>m")) == [("l", "h", "i")]

    def test_inside_of_a_body(self):
        g = graph("s", "a>n n>b", **self.smooth("a b"))
        g.branch("o", same, {"x": "a"})
        assert breaks(link(g, "s>o")) == [("n", "a", "b")]

    def test_deep_inside(self):
        g = graph("a x d", **self.smooth("a x d"))
        g.branch("b", same, {"x": "x"})
        g.loop("l", "b", until=False)
        assert breaks(link(g, "a>l l>d")) == [("l", "a", "x"), ("l", "x", "d")]

    def test_a_border_alone_breaks_nothing(self):
        g = graph("s x z", **self.smooth("x"))
        g.branch("b", same, {"x": "x", "y": Pass()})
        assert breaks(link(g, "s>b b>z")) == []

    @given(data=st.data())
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_against_a_search_of_all_ways(self, data):
        count = data.draw(st.integers(2, 8))
        flows = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        pairs = [(one, two) for two in range(count) for one in range(two)]
        edges = data.draw(st.lists(st.sampled_from(pairs), unique=True))
        ids = [f"n{number}" for number in range(count)]
        smooth = {id_: Smooth for id_, one in zip(ids, flows, strict=True) if one}
        g = graph(" ".join(ids), " ".join(f"n{one}>n{two}" for one, two in edges), **smooth)

        def restarts(place):
            """Return where gradients start anew below a node through which none flow."""
            below = [two for one, two in edges if one == place]
            return {two for two in below if flows[two]}.union(
                *(restarts(two) for two in below if not flows[two])
            )

        broken = {
            (f"n{two}", f"n{one}", f"n{end}")
            for one, two in edges
            if flows[one] and not flows[two]
            for end in restarts(two)
        }
        told = breaks(g)
        assert set(told) <= broken
        assert {end for _, _, end in told} == {end for _, _, end in broken}
        assert max(Counter((node_, end) for node_, _, end in told).values(), default=1) == 1

    def test_three_thousand_nodes_in_a_row(self):
        g = Graph(cache="off")
        ids = [g.node((Smooth, Pass)[number % 2]()) for number in range(3000)]
        for one, two in pairwise(ids):
            g.edge(one, two)
        found = breaks(g)
        assert len(found) == len(g.compile().diagnostics) == 1499
        assert Counter(one for one, _, _ in found) == Counter(ids[1:-1:2])

    def test_many_above_and_many_below_one_break(self):
        g = graph("n")
        for number in range(1500):
            g.node(f"a{number}", Smooth())
            g.node(f"b{number}", Smooth())
            g.edge(f"a{number}", "n")
            g.edge("n", f"b{number}")
        assert Counter(breaks(g)) == Counter(("n", "a0", f"b{one}") for one in range(1500))

    def test_many_borders(self):
        g = Graph(cache="off")
        last = g.node(Smooth())
        for number in range(750):
            new = g.loop(f"l{number}", Smooth().named(f"s{number}"))
            g.edge(last, new)
            last = new
        found = breaks(g)
        assert len(found) == 750
        assert ("l0", "smooth", "s0") in found
        assert set(found[1:]) >= {(f"l{one}", f"s{one}", f"s{one + 1}") for one in range(5, 749)}


def everywhere():
    """Return a graph of all that there is."""
    g = graph("s c", "s>c s>d", d=Smooth)
    g.loop("l", Learns().named("h") >> Smooth().named("i"), until=Pass().named("u"))
    g.branch("b", "c", {True: "l", "default": Pass().named("y").at("local")})
    g.loop("o", Smooth().named("p") >> (Smooth().named("q") | same) >> Pass(), until=False)
    g.branch("n", same, {"": Pass().named("ünï <&> 😀")}, target="local")
    return link(g, "s>b b>o d>n o>n")


class TestJson:
    @pytest.mark.parametrize(
        "make",
        [
            everywhere,
            lambda: graph("a"),
            lambda: TestRegionsRefused().nested(MAX_NESTED, "both"),
            lambda: link(TestLooking().graph(), ""),
        ],
    )
    def test_a_plan_comes_back(self, make):
        plan = make().compile()
        text = plan.to_json()
        again = Plan.from_json(text)
        assert again == plan
        assert (again.to_json(), again.nodes, again.entries) == (text, plan.nodes, plan.entries)
        assert (again.leaves, repr(again)) == (plan.leaves, repr(plan))
        assert plan_text(again) == plan_text(plan)
        assert Plan.from_json(text.encode()) == plan

    def test_what_a_branch_and_a_loop_look_like(self):
        g = graph("c h")
        g.loop("l", "h", until=False, max_iterations=4)
        g.branch("b", "c", {True: "l"})
        step = {
            "type": "Execute",
            "node": "c",
            "label": "Pass",
            "kind": "stateless",
            "waits_for": [],
            "target": None,
            "cached": False,
            "frozen": False,
        }
        loop = {
            "type": "Loop",
            "node": "l",
            "body": {"type": "Sequence", "steps": [{**step, "node": "h"}]},
            "terminal": "h",
            "until": None,
            "max_iterations": 4,
            "waits_for": [],
        }
        branch = {
            "type": "Branch",
            "node": "b",
            "condition": "c",
            "arms": [
                {
                    "label": "true",
                    "body": {"type": "Sequence", "steps": [loop]},
                    "terminal": "l",
                }
            ],
            "waits_for": [],
        }
        assert json.loads(g.compile().to_json()) == {
            "soma_plan_format": 1,
            "root": {"type": "Sequence", "steps": [step, branch]},
            "diagnostics": [],
        }

    def test_depth_and_breadth(self):
        """Bodies that each hold rows side by side, as deep as they may lie in each other."""
        g = graph("n")
        inner = "n"
        for number in range(MAX_NESTED):
            link(
                graph_into(g, number),
                f"h{number}>{inner} h{number}>i{number} i{number}>k{number} "
                f"{inner}>j{number} k{number}>j{number}",
            )
            inner = g.branch(f"b{number}", same, {"x": f"h{number}"})
        plan = g.compile()
        assert Plan.from_json(plan.to_json()) == plan
        assert len(plan.nodes) == 1 + MAX_NESTED * 5


def graph_into(g, number):
    for id_ in "hikj":
        g.node(f"{id_}{number}", Pass())
    return g


def valid():
    """Return a plan as data: s -> c, s -> b, and in b the arms x and y, and in y the loop l."""
    g = graph("", "s>c", c=Pass)
    g.loop("l", Pass().named("h"), until=Pass().named("u"), max_iterations=5)
    g.branch("b", "c", {"x": Pass().named("x"), "y": "l"})
    return json.loads(link(g, "s>b").compile().to_json())


WHERE = {
    "Branch": "root.steps[2]",
    "Arm": "root.steps[2].arms[1]",
    "Loop": "root.steps[2].arms[1].body.steps[0]",
}
FIELDS = {
    "Branch": ["node", "condition", "arms", "waits_for"],
    "Arm": ["label", "body", "terminal"],
    "Loop": ["node", "body", "terminal", "until", "max_iterations", "waits_for"],
}
EXECUTE = {
    "type": "Execute",
    "node": "new",
    "label": "Pass",
    "kind": "stateless",
    "waits_for": [],
    "target": None,
    "cached": False,
    "frozen": False,
}
NO_TEXT = (1, None, True, [], {}, 1.5)
NO_TEXTS = (None, "s", {}, 3, [1], [None], [["s"]], True)
WRONG = [
    *(
        (kind, field, value, "must be a text")
        for kind, field in [
            ("Branch", "node"),
            ("Branch", "condition"),
            ("Arm", "terminal"),
            ("Loop", "node"),
            ("Loop", "terminal"),
        ]
        for value in (*NO_TEXT, "")
    ),
    *(("Arm", "label", value, "must be a text") for value in NO_TEXT),
    *(
        ("Loop", "until", value, "must be a text or null")
        for value in (1, True, False, [], {}, 0, "")
    ),
    *(
        ("Loop", "max_iterations", value, "must be a whole number from 1")
        for value in (0, -1, 1.0, 1.5, True, False, None, "3", [3], {})
    ),
    *(
        (kind, "waits_for", value, "must be a list of texts")
        for kind in ("Branch", "Loop")
        for value in NO_TEXTS
    ),
    *(
        (kind, "body", value, "must be an entry")
        for kind in ("Arm", "Loop")
        for value in (None, [], "h", 3, True, [EXECUTE])
    ),
    *(
        (kind, "body", value, "must be a Sequence")
        for kind in ("Arm", "Loop")
        for value in (
            EXECUTE,
            {"type": "Parallel", "branches": [EXECUTE]},
            {"type": "Composite", "nodes": [EXECUTE]},
        )
    ),
    *(
        (kind, "body", {"type": value}, ": there is no entry of type")
        for kind in ("Arm", "Loop")
        for value in ("Arm", "Plan", None, 3, [], "")
    ),
    *(("Branch", "arms", value, "must be a list") for value in (None, {}, "x", 3, True)),
    ("Branch", "arms", [], "must be a list of at least one arm, not []"),
]


def part(data, kind):
    branch = data["root"]["steps"][2]
    arm = branch["arms"][1]
    return {"Branch": branch, "Arm": arm, "Loop": arm["body"]["steps"][0]}[kind]


def spoiled(data):
    with pytest.raises(PlanError) as caught:
        Plan.from_json(json.dumps(data))
    return str(caught.value)


class TestSpoiledJson:
    def test_what_is_spoiled_below_is_whole(self):
        plan = Plan.from_json(json.dumps(valid()))
        assert shape(plan.root) == ["s", "c", {"b": {"x": ["x"], "y": [{"l": ["h", "u"]}]}}]
        for kind, fields in FIELDS.items():
            assert set(part(valid(), kind)) - {"type"} == set(fields)

    @pytest.mark.parametrize(
        ("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields]
    )
    def test_a_field_that_is_missing(self, kind, field):
        data = valid()
        del part(data, kind)[field]
        told = spoiled(data)
        assert told.startswith(f"{WHERE[kind]}: ")
        assert told.endswith(f" {kind} has {', '.join(FIELDS[kind])}, and nothing else")

    @pytest.mark.parametrize("kind", FIELDS)
    @pytest.mark.parametrize("field", ["more", "steps", "target", "Type", ""])
    def test_a_field_too_many(self, kind, field):
        data = valid()
        part(data, kind)[field] = None
        assert spoiled(data).startswith(f"{WHERE[kind]}: ")
        assert "and nothing else" in spoiled(data)

    @pytest.mark.parametrize(("kind", "field", "value", "sentence"), WRONG)
    def test_a_field_of_a_wrong_type(self, kind, field, value, sentence):
        data = valid()
        part(data, kind)[field] = value
        told = spoiled(data)
        assert told.startswith(f"{WHERE[kind]}.{field}")
        assert sentence in told

    @pytest.mark.parametrize("value", ["branch", "Arm", None, 3, [], {}, True, ""])
    @pytest.mark.parametrize("kind", ["Branch", "Loop"])
    def test_a_type_that_is_none(self, kind, value):
        data = valid()
        part(data, kind)["type"] = value
        assert spoiled(data).startswith(f"{WHERE[kind]}: there is no entry of type")

    def test_a_type_of_another(self):
        data = valid()
        part(data, "Branch")["type"] = "Loop"
        assert spoiled(data).startswith("root.steps[2]: a Loop has node, body")
        data = valid()
        part(data, "Arm")["type"] = "Arm"
        assert spoiled(data).startswith("root.steps[2].arms[1]: ")

    @pytest.mark.parametrize("value", [None, "x", 3, [], EXECUTE])
    def test_an_arm_that_is_none(self, value):
        data = valid()
        part(data, "Branch")["arms"][0] = value
        told = spoiled(data)
        assert told.startswith("root.steps[2].arms[0]: ")
        assert told.endswith(" Arm has label, body, terminal, and nothing else")

    @pytest.mark.parametrize(
        ("spoil", "sentence"),
        [
            (
                lambda data: part(data, "Arm").update(terminal="h"),
                "The node 'b' names 'h', which does not lie in its body",
            ),
            (
                lambda data: part(data, "Arm").update(terminal="x"),
                "The node 'b' names 'x', which does not lie in its body",
            ),
            (
                lambda data: part(data, "Loop").update(terminal="s"),
                "The node 'l' names 's', which does not lie in its body",
            ),
            (
                lambda data: part(data, "Loop").update(terminal="l"),
                "The node 'l' names 'l', which does not lie in its body",
            ),
            (
                lambda data: part(data, "Loop").update(until="c"),
                "The node 'l' names 'c', which does not lie in its body",
            ),
            (
                lambda data: part(data, "Branch").update(condition="x"),
                "The node 'b' comes before 'x', which is its condition",
            ),
            (
                lambda data: part(data, "Branch").update(condition="b"),
                "The node 'b' comes before 'b', which is its condition",
            ),
            (
                lambda data: part(data, "Branch").update(condition="nope"),
                "The node 'b' comes before 'nope', which is its condition",
            ),
            (
                lambda data: data["root"]["steps"].insert(1, data["root"]["steps"].pop()),
                "The node 'b' comes before 'c', which is its condition",
            ),
            (
                lambda data: part(data, "Branch").update(waits_for=["nope"]),
                "The node 'b' comes before 'nope', which feeds it",
            ),
            (
                lambda data: part(data, "Loop").update(waits_for=["s"]),
                "The node 'l' comes before 's', which feeds it",
            ),
            (
                lambda data: part(data, "Loop").update(waits_for=["x"]),
                "The node 'l' comes before 'x', which feeds it",
            ),
            (
                lambda data: part(data, "Loop")["body"]["steps"][0].update(waits_for=["s"]),
                "The node 'h' comes before 's', which feeds it",
            ),
            (
                lambda data: part(data, "Loop")["body"]["steps"].reverse(),
                "The node 'u' comes before 'h', which feeds it",
            ),
            (
                lambda data: data["root"]["steps"].append({**EXECUTE, "waits_for": ["x"]}),
                "The node 'new' comes before 'x', which feeds it",
            ),
            (
                lambda data: part(data, "Arm").update(label="x"),
                "The branch 'b' has two arms of one label",
            ),
            (
                lambda data: part(data, "Branch")["arms"].append(part(data, "Branch")["arms"][0]),
                "The branch 'b' has two arms of one label",
            ),
            (
                lambda data: (
                    part(data, "Branch")["arms"][0]["body"]["steps"][0].update(node="h")
                    or part(data, "Branch")["arms"][0].update(terminal="h")
                ),
                "The node 'h' stands in the plan twice",
            ),
            (
                lambda data: (
                    part(data, "Loop").update(node="b") or part(data, "Arm").update(terminal="b")
                ),
                "The node 'b' stands in the plan twice",
            ),
            (
                lambda data: data["root"]["steps"].append({**EXECUTE, "node": "u"}),
                "The node 'u' stands in the plan twice",
            ),
            (
                lambda data: part(data, "Arm")["body"].update(steps=[]),
                "The node 'b' names 'l', which does not lie in its body",
            ),
        ],
    )
    def test_names_that_do_not_hang_together(self, spoil, sentence):
        data = valid()
        spoil(data)
        assert spoiled(data) == sentence

    @pytest.mark.parametrize(
        "kind",
        ["Branch", "Loop"],
    )
    def test_a_composite_holds_nodes_alone(self, kind):
        data = valid()
        held = part(data, kind)
        data["root"]["steps"][2] = {"type": "Composite", "nodes": [held]}
        assert spoiled(data) == (
            "root.steps[2]: a Composite holds nodes, at least one, and nothing else"
        )

    def test_a_composite_holds_at_least_one_node(self):
        data = valid()
        part(data, "Loop")["body"]["steps"].append({"type": "Composite", "nodes": []})
        assert spoiled(data) == (
            f"{WHERE['Loop']}.body.steps[2]: a Composite holds nodes, at least one, and nothing "
            "else"
        )

    def test_an_empty_text_is_no_node_and_no_target(self):
        data = valid()
        part(data, "Loop").update(until="")
        assert spoiled(data) == f"{WHERE['Loop']}.until must be a text or null, not ''"
        data = valid()
        part(data, "Loop")["body"]["steps"][0].update(target="")
        assert spoiled(data) == (
            f"{WHERE['Loop']}.body.steps[0].target must be a text or null, not ''"
        )

    def test_bodies_that_nest_too_deep(self):
        def nested(depth):
            body = {"type": "Sequence", "steps": [EXECUTE]}
            last = "new"
            for number in range(depth):
                loop = {
                    "type": "Loop",
                    "node": f"l{number}",
                    "body": body,
                    "terminal": last,
                    "until": None,
                    "max_iterations": 1,
                    "waits_for": [],
                }
                body, last = {"type": "Sequence", "steps": [loop]}, f"l{number}"
            return {"soma_plan_format": 1, "root": body, "diagnostics": []}

        assert len(Plan.from_json(json.dumps(nested(MAX_NESTED))).nodes) == 1
        told = spoiled(nested(MAX_NESTED + 1))
        assert told == (
            f"root{'.steps[0].body' * 31}: branches and loops lie deeper in each other than 30"
        )
        with pytest.raises(PlanError):
            Plan.from_json(json.dumps(nested(200)))

    @pytest.mark.parametrize("brackets", ["[]", ('{"a":', "}")])
    def test_json_that_nests_deeper_than_python_goes(self, brackets):
        opening, closing = brackets
        text = opening * 200_000 + "1" + closing * 200_000
        whole = json.dumps(valid())
        for deep in (text, whole.replace('"diagnostics": []', f'"diagnostics": {text}')):
            assert len(deep) > 400_000
            with pytest.raises(PlanError) as caught:
                Plan.from_json(deep)
            # How it calls the limit differs from one Python to the next.
            assert re.fullmatch(
                r"This is no plan: it is not JSON \(.+ while decoding a JSON (array|object) from a "
                r"unicode string\)",
                str(caught.value),
            )

    def test_rows_in_a_body_that_nest_too_deep(self):
        data = valid()
        body = part(data, "Loop")["body"]
        for _ in range(20):
            body = {"type": "Sequence", "steps": [body]}
        part(data, "Loop")["body"] = body
        told = spoiled(data)
        assert told.startswith(f"{WHERE['Loop']}.body.steps[0]")
        assert told.endswith("lies deeper than a plan does")


VALUES = [
    *(None, True, False, 0, 1, -1, 1.5, "", "s", "b", "x", "h", "nope", [], {}, ["s"], [None]),
    *(EXECUTE, {"type": "Sequence", "steps": []}, {"type": "Parallel", "branches": []}),
    {"type": "Composite", "nodes": []},
]


def places(data):
    """Return every (container, key) of JSON data."""
    found, stack = [], [data]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        found += [(one, key) for key in keys]
        stack += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found


class TestFuzzedJson:
    made: list = []  # noqa: RUF012  # filled once

    def plans(self):
        if not self.made:
            self.made += [valid(), json.loads(everywhere().compile().to_json())]
        return self.made

    def edit(self, plan, draw):
        """Spoil one place of JSON data, or leave it where the edit means nothing there."""
        spots = places(plan)
        where, key = spots[draw(len(spots))]
        what = ("value", "delete", "move", "twice", "more", "node")[draw(6)]
        if what == "value":
            where[key] = copy.deepcopy(VALUES[draw(len(VALUES))])
        elif what == "delete":
            del where[key]
        elif what == "move":
            other, from_ = spots[draw(len(spots))]
            where[key] = copy.deepcopy(other[from_])
        elif isinstance(where, dict):
            where[what] = where[key]
        else:
            where.insert(key, copy.deepcopy(where[key]))

    @given(data=st.data())
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_random_edits_give_a_plan_or_an_error(self, data):
        def draw(limit):
            return data.draw(st.integers(0, limit - 1))

        plan = copy.deepcopy(self.plans()[draw(2)])
        for _ in range(1 + draw(3)):
            if plan:
                self.edit(plan, draw)
        try:
            found = Plan.from_json(json.dumps(plan))
        except PlanError as error:
            assert str(error)  # noqa: PT017  # either is right
            return
        assert Plan.from_json(found.to_json()) == found
        assert set(found.leaves) <= {id_ for one in found.entries for id_ in one.ids}
        assert found.parallel_branches >= 1
        assert len(plan_text(found).splitlines()) >= len(found.nodes)


@st.composite
def rows(draw, depth=0):
    """Draw a row of nodes, branches and loops, which hold rows."""
    kinds = ("node", "node", "branch", "loop") if depth < 4 else ("node",)
    found = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3)):
        if kind == "branch":
            labels = draw(st.lists(st.sampled_from("xyz"), unique=True, min_size=1))
            found.append({label: draw(rows(depth + 1)) for label in labels})
        else:
            found.append(draw(rows(depth + 1)) if kind == "loop" else kind)
    return found


def build(g, row):
    """Declare a row; return the id of its first node, and what ``shape`` has to find."""
    ids, found = [], []
    for one in row:
        new = f"n{len(g)}"
        if one == "node":
            g.node(new, (Pass, Smooth, Learns)[len(g) % 3]())
            found.append(new)
        elif isinstance(one, dict):
            inner = {label: build(g, below) for label, below in one.items()}
            new = f"b{len(g)}"
            condition = f"c{len(g)}"
            g.branch(new, Pass().named(condition), {k: first for k, (first, _) in inner.items()})
            found += [condition, {new: {label: told for label, (_, told) in inner.items()}}]
        else:
            first, told = build(g, one)
            new = f"l{len(g)}"
            g.loop(new, first, until=False, max_iterations=len(g))
            found.append({new: told})
        ids.append(new)
    for source, target in pairwise(ids):
        g.edge(source, target)
    return ids[0], found


class TestAnyNesting:
    @given(row=rows())
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_was_nested_is_found_and_comes_back(self, row):
        g = Graph(cache="off")
        _, expected = build(g, row)
        plan = g.compile()
        assert shape(plan.root) == expected
        assert Plan.from_json(plan.to_json()) == plan
        assert [one.node for one in plan.diagnostics if "has no edges" in one.message] == []
        program = g._program()
        assert sorted(program.ids) == sorted(g._declared.nodes)
        assert all(one < place for place, at in enumerate(program.before) for one in at)
        assert len(program.scopes) == 1 + sum(
            len(one.bodies) for one in everything(plan.root) if isinstance(one, Branch | Loop)
        )


class TestText:
    def test_a_nested_graph_is_drawn(self):
        g = graph("s", "s>c s>d", d=Learns)
        g.loop(
            "l",
            Learns().named("h") >> (Smooth().named("i") | Pass().named("j")) >> same,
            until=Pass().named("u"),
            max_iterations=7,
        )
        g.branch(
            "b",
            "c",
            {True: "l", "default": Pass().named("y").cached().frozen()},
            target="gpu",
        )
        g.loop("once", Pass().named("o"), until=False, max_iterations=1)
        link(g, "s>b b>once d>once")
        assert g.to_text().splitlines() == [
            "├── s (Pass)",
            "├── parallel",
            "│   ├── c (Pass) ← s",
            "│   └── d (Learns) learns ← s",
            "├── b: branch on c ← s",
            "│   ├── true:",
            "│   │   └── l: loop, until u, at most 7 times",
            "│   │       ├── h (Learns) learns at gpu",
            "│   │       ├── parallel",
            "│   │       │   ├── block that trains as one",
            "│   │       │   │   └── i (Smooth) at gpu ← h",
            "│   │       │   └── j (Pass) at gpu ← h",
            "│   │       ├── same (same) at gpu ← i, j",
            "│   │       └── u (Pass) at gpu ← same",
            "│   └── default:",
            "│       └── y (Pass) cached frozen at gpu",
            "└── once: loop, 1 time ← b, d",
            "    └── o (Pass)",
        ]
        assert str(g) == g.to_text()

    def test_controls_side_by_side(self):
        g = graph("s t")
        g.branch("b", "s", {"x": Pass().named("x")})
        g.loop("l", Pass().named("h"), until=False)
        g.edge("t", "l")
        assert g.to_text().splitlines() == [
            "└── parallel",
            "    ├── in a row",
            "    │   ├── s (Pass)",
            "    │   └── b: branch on s",
            "    │       └── x:",
            "    │           └── x (Pass)",
            "    └── in a row",
            "        ├── t (Pass)",
            "        └── l: loop, 100 times ← t",
            "            └── h (Pass)",
            (
                "warning: 'b' has no edges: it gets the input of the graph, and its output is one "
                "of the graph's"
            ),
        ]

    def test_what_cannot_be_printed_stays_on_its_line(self):
        g = Graph()
        g.node("c\n", Pass())
        g.branch("b\t", "c\n", {"x\ny": Pass().named("\x1b[0m"), "ünï": Pass().named("ü")})
        g.loop("l\r", Pass().named("h\u2028"))
        g.edge("b\t", "l\r")
        assert g.to_text().split("\n") == [
            "├── 'c\\n' (Pass)",
            "├── 'b\\t': branch on 'c\\n'",
            "│   ├── 'x\\ny':",
            "│   │   └── '\\x1b[0m' (Pass)",
            "│   └── ünï:",
            "│       └── ü (Pass)",
            "└── 'l\\r': loop, until 'h\\u2028', at most 100 times ← 'b\\t'",
            "    └── 'h\\u2028' (Pass)",
        ]

    def test_warnings_are_below(self):
        g = graph("a h d", a=Smooth, d=Smooth)
        g.loop("l", "h")
        assert link(g, "a>l l>d").to_text().splitlines()[-1] == (
            "warning: 'l' is a branch or a loop, at whose borders gradients end: 'a' above it "
            "learns nothing from 'd' below it, where gradients start anew"
        )

    def test_what_cannot_be_compiled_is_shown_as_declared(self):
        g = graph("", "x>z y>z")
        g.node("n\n", Pass())
        g.branch("b", same, {"p": ["x"], "q\n": ["y", "n\n"]})
        g.loop("l", ["b", "n\n"])
        g.edge("l", "z")
        lines = g.to_text().split("\n")
        assert lines[:-1] == [
            "x",
            "z",
            "y",
            "'n\\n'",
            "b: branch on same (p: x; 'q\\n': y, 'n\\n')",
            "same",
            "l: loop of b, 'n\\n'",
            "x -> z",
            "y -> z",
            "l -> z",
        ]
        assert lines[-1].startswith("error: 'z' would lie in arm 'p' of branch 'b' and in arm ")

    def test_the_widest_place_may_lie_in_a_body(self):
        g = graph("s")
        g.loop("l", Pass() >> (Pass() | Pass() | Pass()) >> same)
        assert link(g, "s>l").compile().parallel_branches == 3
        g = graph("s")
        g.branch("b", same, {"x": Pass(), "y": Pass(), "z": Pass()})
        assert link(g, "s>b").compile().parallel_branches == 1
        assert repr(g.compile()) == "<Plan: nodes=5, parallel_branches=1>"


class TestProgram:
    """Positions in all of these: s 0, l 1, z 2; h 3, c 4, b 5, u 6; x 7; y 8."""

    def program(self):
        g = graph("s z", "h>c", h=Learns)
        g.branch("b", "c", {"x": Learns().named("x"), "default": Pass().named("y")})
        g.edge("h", "b")
        g.loop("l", "h", until=Pass().named("u"), max_iterations=3)
        return link(g, "s>l l>z")._program()

    def test_positions_go_body_by_body(self):
        program = self.program()
        assert program.ids == ("s", "l", "z", "h", "c", "b", "u", "x", "y")
        assert program.places == {id_: place for place, id_ in enumerate(program.ids)}
        assert program.scope_of == (0, 0, 0, 1, 1, 1, 1, 2, 3)
        assert [
            (one.start, one.stop, one.control, one.arm, one.terminal) for one in program.scopes
        ] == [(0, 3, -1, None, -1), (3, 7, 1, None, 5), (7, 8, 5, "x", 7), (8, 9, 5, "default", 8)]
        assert program.size == 3
        assert [program.filters[place] for place in (1, 5)] == [None, None]
        assert [program.loops_around(place) for place in (0, 3, 7)] == [(), ("l",), ("l",)]

    def test_what_feeds_what(self):
        program = self.program()
        assert program.before == ((), (0,), (1,), (), (3,), (3,), (5,), (), ())
        assert program.names[5] == ("h",)
        assert program.after == ((1,), (2,), (), (4, 5), (5,), (6,), (), (), ())
        assert program.waiting == (0, 1, 1, 0, 1, 2, 1, 0, 0)
        assert program.fed_by_control == {2, 6}
        assert program.leaves == (2,)

    def test_what_there_is_to_decide(self):
        program = self.program()
        assert sorted(program.controls) == [1, 5]
        loop, branch = program.controls[1], program.controls[5]
        assert (loop.body, loop.until, loop.max_iterations, loop.bodies) == (1, 6, 3, (1,))
        assert (branch.condition, branch.arms, branch.bodies) == (4, {"x": 2, "default": 3}, (2, 3))

    def test_who_needs_what(self):
        needs = self.program().needs
        # A fit needs no output of the loop, nor of z. In it all is needed: the next pass gets b.
        assert needs.forwards == (True, False, False, True, True, True, True, True, True)
        assert needs.active == (False, True, False, False, False, True, False, False, False)
        # h learns in every fit; x only where its arm is taken.
        assert needs.learners == ((3,), (3,), (7,), ())
        assert needs.settled == (True,) + 8 * (False,)
        assert needs.kept == (False, False, True) + 6 * (False,)
        assert needs.spared == ((), (), (), ())  # u must be known in every pass

    def test_who_takes_what(self):
        needs = self.program().needs
        # s: the loop. h: c and b. c: b. b: u and the loop. u: the loop. x, y: the branch.
        assert needs.in_forward.uses == (1, 1, 1, 2, 1, 2, 1, 1, 1, 1)
        assert needs.in_forward.entering == (1, 1, 1, 1)
        # In a fit z takes nothing, and h and x take what they get twice: to fit and to forward.
        assert needs.in_fit.uses == (1, 0, 0, 2, 1, 2, 1, 1, 1, 1)
        assert needs.in_fit.entering == (1, 2, 2, 1)

    def test_a_last_pass_is_spared_what_nobody_needs(self):
        g = graph("", "h>t", h=Learns)
        g.loop("l", "h", until=False, max_iterations=3)
        needs = g._program().needs  # l 0; h 1, t 2
        assert needs.forwards == (False, True, True)
        assert [set(one) for one in needs.spared] == [set(), {1, 2}]
        g.node("after", Learns())
        g.edge("l", "after")
        assert [set(one) for one in g._program().needs.spared] == [set(), set()]

    def test_a_loop_in_which_nothing_learns_does_nothing_in_a_fit(self):
        g = graph("s h x", s=Learns)
        g.loop("l", "h", until=False)
        g.branch("b", same, {"default": "x"})
        link(g, "s>l l>b")  # s 0, l 1, same 2, b 3; x 4; h 5
        program = g._program()
        assert program.ids[:4] == ("s", "l", "same", "b")
        assert program.needs.active == 6 * (False,)
        assert program.needs.forwards == 6 * (False,)
        assert program.needs.in_fit.uses == (0, 0, 0, 0, 1, 1, 1)
        # The outputs of the graph are those of the leaf, and so of what stands for it.
        kept = {id_ for id_, one in zip(program.ids, program.needs.kept, strict=True) if one}
        assert kept == {"b", "x"}

    def test_what_follows_decides(self):
        g = graph("s h z", z=Learns)
        g.loop("l", "h", until=False)
        link(g, "s>l l>z")  # s 0, l 1, z 2; h 3
        needs = g._program().needs
        assert needs.forwards == (True, True, False, True)
        assert needs.active == (False, True, False, False)
        assert needs.settled == (True, True, False, True)


class TestCached:
    def loop(self, *, until=False, after=Pass, mark=lambda one: one):
        g = Graph(cache="memory")
        g.loop(
            "l",
            Pass().named("c").cached() >> mark(after().named("a")),
            until=until,
            max_iterations=2,
        )
        return g

    def test_in_a_loop_whose_body_learns(self):
        g = self.loop(after=Learns)
        with pytest.raises(Unsettled) as caught:
            g.fit([1.0])
        assert str(caught.value).startswith("Node 'c' is cached, and 'a' may still learn")

    def test_in_a_loop_whose_body_does_not(self):
        g = self.loop()
        g.fit([1.0])
        assert g.forward([1.0]) == [1.0]
        g = self.loop(after=Learns, mark=lambda one: one.frozen())
        check_cached(g._program())

    def test_in_a_loop_that_is_fed_by_what_learns(self):
        g = self.loop()
        g.node("first", Learns())
        g.edge("first", "l")
        with pytest.raises(Unsettled, match="Node 'c' is cached, and 'first' may still learn"):
            g.fit([1.0])

    def test_in_an_arm(self):
        g = Graph(cache="memory")
        g.branch("b", Learns(), {"x": Pass().named("c").cached() >> Learns(), "y": Learns()})
        check_cached(g._program())
        g.node("after", Pass(), cached=True)
        g.edge("b", "after")
        with pytest.raises(Unsettled, match=r"Node 'after' is cached, and 'learns(_[23])?' may"):
            check_cached(g._program())

    def test_in_a_loop_in_an_arm_in_a_loop(self):
        def made(last):
            g = Graph(cache="memory")
            g.loop("in", Pass().named("c").cached(), until=False)
            g.branch("b", Pass(), {"x": "in", "y": last().named("y")})
            g.loop("out", "b", until=False)
            return g

        check_cached(made(Pass)._program())
        with pytest.raises(Unsettled, match=r"Node 'c' is cached, and '[cy]' may still learn"):
            check_cached(made(Learns)._program())

    def test_what_learns_may_lie_far_out(self):
        g = Graph(cache="memory")
        g.loop("in", Pass().named("c").cached(), until=False)
        g.branch("b", Pass(), {"x": "in"})
        g.edge(g.node("first", Learns()), "b")
        with pytest.raises(Unsettled, match="Node 'c' is cached, and 'first' may still learn"):
            check_cached(g._program())

    def test_below_a_loop_that_learns(self):
        g = Graph(cache="memory")
        g.loop("l", Learns().named("h"), until=False)
        g.node("after", Pass(), cached=True)
        g.edge("l", "after")
        with pytest.raises(Unsettled, match="Node 'after' is cached, and 'h' may still learn"):
            g.fit([1.0])

    def test_what_does_not_learn_is_not_said_to(self):
        g = self.loop(until=Learns().named("u"))
        told = ""
        try:
            check_cached(g._program())
        except Unsettled as error:
            told = str(error)
        assert "'c' may still learn" not in told


def work(make):
    """Return how many lines of soma are run by a call of ``make``."""
    found, before = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal found
        if not frame.f_globals.get("__name__", "").startswith("soma."):
            return None
        found += event == "line"
        return trace

    sys.settrace(trace)
    try:
        make()
    finally:
        sys.settrace(before)
    return found


def row(count, add):
    g = Graph(cache="off")
    last = g.node("first", Smooth())
    for number in range(count):
        new = add(g, number)
        g.edge(last, new)
        last = new
    return g


class TestGrowth:
    SHAPES = {  # noqa: RUF012  # read only
        "branches in a row": lambda count: row(
            count, lambda g, one: g.branch(f"b{one}", same, {"x": Pass(), "y": Smooth()})
        ),
        "loops in a row": lambda count: row(
            count, lambda g, one: g.loop(f"l{one}", Learns() >> Smooth(), until=same)
        ),
        "branches in a loop": lambda count: in_a_loop(
            row(count, lambda g, one: g.branch(f"b{one}", same, {"x": Smooth()}))
        ),
        "loops in a loop": lambda count: in_a_loop(
            row(count, lambda g, one: g.loop(f"l{one}", Smooth(), until=False))
        ),
        "a long body": lambda count: in_a_loop(
            row(count, lambda g, one: g.node((Pass, Smooth)[one % 2]()))
        ),
        "one condition": lambda count: asked_together(count),  # noqa: PLW0108  # it comes below
    }

    @pytest.mark.parametrize("name", SHAPES)
    def test_work_grows_with_the_graph(self, name):
        def counted(count):
            return work(lambda: self.SHAPES[name](count).compile())

        once, twice, fourfold = map(counted, (50, 100, 200))
        assert 0 < once < twice
        # What is done for each further node is the same, but for what only a first one needs.
        assert fourfold - twice <= 2.1 * (twice - once)

    @pytest.mark.parametrize("name", ["branches in a row", "loops in a row"])
    def test_two_thousand_of_them(self, name):
        plan = self.SHAPES[name](2000).compile()
        controls = [one for one in plan.entries if isinstance(one, Branch | Loop)]
        assert len(controls) == 2000
        assert len(plan.nodes) == (1 + 2000 * 3)
        assert Plan.from_json(plan.to_json()) == plan

    def test_ten_thousand_nodes_in_one_body(self):
        g = self.SHAPES["a long body"](10_000)
        (loop,) = g.compile().entries
        assert (loop.node, loop.terminal, loop.until) == ("all", "smooth_5000", None)
        assert len(g.compile().nodes) == 10_001
        assert Plan.from_json(g.compile().to_json()) == g.compile()

    def test_labels_are_looked_at_once(self):
        compared = []

        class Label(str):
            __slots__ = ()
            __hash__ = str.__hash__

            def __eq__(self, other):
                compared.append(other)
                return str(self) == str(other)

        Graph().branch("b", same, {Label(number): Pass() for number in range(200)})
        assert len(compared) <= 10 * 200

    def test_a_thousand_arms(self):
        g = Graph(cache="off")
        g.branch("b", same, {f"arm {number}": Pass() for number in range(1000)})
        (_, branch) = g.compile().entries
        assert [arm.label for arm in branch.arms] == [f"arm {number}" for number in range(1000)]
        assert len({arm.terminal for arm in branch.arms}) == 1000


def in_a_loop(g):
    g.loop("all", "first", until=False)
    return g


def asked_together(count):
    """Return a graph in which all branches ask one node."""
    g = graph("s c")
    for number in range(count):
        g.branch(f"b{number}", "c", {"x": Pass()})
        g.edge("s", f"b{number}")
    return g


class TestConditionsOfConditions:
    def graph(self, *edges):
        g = Graph(cache="off")
        for id_ in "stc":
            g.node(id_, Pass())
        for inner, outer in (("i1", "o1"), ("i2", "o2")):
            g.branch(inner, "c", {"default": Pass()})
            g.branch(outer, inner, {"default": Pass()})
        for source, target in edges:
            g.edge(source, target)
        return g

    def test_one_that_two_ask_is_fed_what_both_are(self):
        g = self.graph(("s", "o1"), ("s", "i2"), ("s", "o2"))
        waits = {unit.node: unit.waits_for for unit in g.compile().entries}
        assert [waits[id_] for id_ in ("c", "i1", "i2", "o1")] == [("s",)] * 4

    def test_one_that_two_ask_who_are_fed_differently_is_refused(self):
        with pytest.raises(GraphError, match="'c' is the condition of 'i1' and of 'i2'"):
            self.graph(("s", "o1"), ("t", "o2")).compile()


def test_what_is_no_id_is_no_id_of_a_branch_either():
    with pytest.raises(GraphError, match="A node id is a text"):
        Graph().branch(np.array([1, 2]), Pass(), {"a": Pass()})


def test_a_list_that_holds_itself_is_no_body():
    endless = []
    endless.append(endless)
    with pytest.raises(GraphError, match="holds one list twice, or itself"):
        Graph().loop("l", endless)
