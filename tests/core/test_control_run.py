"""Branches and loops at run time: what they give, what they learn, what is computed again."""

from __future__ import annotations

import itertools
import re
import threading

import numpy as np
import pytest

from soma import (
    Filter,
    Graph,
    InvalidInput,
    InvalidOutput,
    NotFittedError,
    Opaque,
    UnknownNode,
    Unsettled,
    _notices,
    codec,
    codecs,
)
from soma.engine import Decision, MemoryStore, Notice, schedule, unfolding
from soma.engine import run as run_room
from soma.engine.keys import options_hash, output_key, rng_for, state_key
from soma.errors import shown
from soma.frame import content_hash
from soma.identity import identify

BIG = 200_000  # float64 items: 1.6 MB, more than is kept of what is quickly made


@pytest.fixture(params=["calling thread", "threads"])
def threads(request, monkeypatch):
    """Runs a test twice; the second time everything counts as slow."""
    if request.param == "threads":
        monkeypatch.setattr(schedule, "SLOW_S", -1.0)


class Spy(Filter):
    """Does what a function does, and counts its calls where the config does not see it."""

    def __init__(self, work):
        self.work = work
        self._calls = []

    @property
    def calls(self):
        return len(self._calls)

    def forward(self, x, state):
        self._calls.append(x)
        return self.work(x)


class Add(Spy):
    def __init__(self, amount):
        self.amount = amount
        self._calls = []

    def forward(self, x, state):
        self._calls.append(x)
        return x + self.amount


class Says(Spy):
    """Says what it was told to say."""

    def __init__(self, said):
        self._said = said
        self._calls = []

    def forward(self, x, state):
        self._calls.append(x)
        return self._said


class Learns(Spy):
    """Learns what it is given, and adds it."""

    def __init__(self):
        self._calls = []

    def fit(self, x, y=None):
        self._calls.append(("fit", x))
        return {"seen": x}

    def forward(self, x, state):
        self._calls.append(x)
        return x + state["seen"]


class Labelled(Learns):
    """Cannot learn without labels."""

    def fit(self, x, y):
        self._calls.append(("fit", x))
        return {"seen": y}


class Chronicle(Learns):
    """Goes on from what it knew, and adds how much that is."""

    def fit(self, x, y=None, state=None):
        self._calls.append(("fit", x))
        return [*(state or []), x]

    def forward(self, x, state):
        self._calls.append(x)
        return x + len(state)


class Writes(Spy):
    """Writes into what it is given."""

    def __init__(self):
        self._calls = []

    def forward(self, x, state):
        self._calls.append(None)
        x[0] += 100
        return x


class Unwritable:
    """A value that nothing says how to write down."""

    def __init__(self, items):
        self.items = items

    def __eq__(self, other):
        return type(other) is Unwritable and self.items == other.items

    __hash__ = None


def calls(g):
    filters = (g.filter(id_) for id_ in g._declared.filters)
    return sum(one.calls for one in filters if isinstance(one, Spy))


def same(found, expected):
    if isinstance(expected, np.ndarray):
        assert type(found) is np.ndarray
    np.testing.assert_equal(found, expected)


def check(declare, x, expected, *, states=None, fit=None, kept=True):
    """Forward, after a fit where one is given: without a cache, cold and warm.

    With ``kept``, what is asked a second time calls nothing.
    """
    for cache in ("off", "memory"):
        g = Graph(cache=cache)
        declare(g)
        before = None
        for _ in range(3):
            if fit is not None:
                g.fit(*fit)
            if states is not None:
                same(g.state(), states)
            same(g.forward(x), expected)
            if before is not None and cache == "memory" and kept:
                assert calls(g) == before
                assert g.last_run.computed == ()
            before = calls(g)


def arms(condition, **of):
    return lambda g: g.branch("b", condition, of or {"a": Add(1), "b": Add(10)})


# ---------------------------------------------------------------- branches


@pytest.mark.usefixtures("threads")
class TestBranch:
    @pytest.mark.parametrize(
        "condition", [Spy(lambda x: "a" if x < 5 else "b"), lambda x: "ab"[x > 5]]
    )
    def test_the_arm_gets_what_the_branch_gets(self, condition):
        check(arms(condition), 1, 2)
        check(arms(condition), 7, 17)

    def test_an_arm_gets_a_fan_in_in_the_order_of_ids(self):
        def declare(g):
            g.node("z", Add(1))
            g.node("y", Add(2))
            g.branch("b", Spy(lambda x: x["y"] > 0), {True: Spy(list), False: Spy(len)})
            g.edge("z", "b")
            g.edge("y", "b")

        check(declare, 1, ["y", "z"])
        check(declare, -5, 2)

    @pytest.mark.parametrize(
        "said",
        [
            "a",
            np.str_("a"),
            np.array("a"),
            {"branch": "a"},
            {"branch": np.str_("a"), "why": [1, 2]},
            {"branch": np.array("a")},
            Opaque("a"),
        ],
    )
    def test_texts(self, said):
        check(arms(Says(said)), 1, 2, kept=not isinstance(said, Opaque))

    @pytest.mark.parametrize(
        "wrap",
        [bool, np.bool_, np.array, lambda one: {"branch": one}, lambda one: str(one).lower()],
    )
    @pytest.mark.parametrize("labels", [(True, False), ("true", "false")])
    def test_true_and_false(self, wrap, labels):
        yes, no = labels
        for x, expected in ((1, 2), (-1, 9)):
            check(
                lambda g: g.branch("b", Spy(lambda n: wrap(n > 0)), {yes: Add(1), no: Add(10)}),
                x,
                expected,
            )

    @pytest.mark.parametrize("label", ["default", "else"])
    @pytest.mark.parametrize("said", ["other", True, "", {"branch": "c"}, "A", "default", "else"])
    def test_the_arm_for_the_rest(self, label, said):
        check(lambda g: g.branch("b", Spy(lambda _: said), {"a": Add(1), label: Add(10)}), 1, 11)
        check(lambda g: g.branch("b", Spy(lambda _: "a"), {"a": Add(1), label: Add(10)}), 1, 2)

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("hihg", "names arm 'hihg', which is not there. The arms are: 'high', 'low'."),
            ({"branch": "lo"}, "names arm 'lo', which is not there. The arms are: 'high', 'low'."),
            (True, "names arm 'true', which is not there. The arms are: 'high', 'low'."),
        ],
    )
    def test_no_such_arm(self, said, told):
        for cache in ("off", "memory"):
            g = Graph(cache=cache)
            g.branch("b", Spy(lambda _: said), {"high": Add(1), "low": Learns()})
            for call in (lambda g=g: g.fit(1), lambda g=g: g.forward(1)):
                with pytest.raises(InvalidOutput) as caught:
                    call()
                text = str(caught.value)
                assert text.startswith(f"Branch 'b': its condition 'spy' {told}")
                assert "The arms are: 'high', 'low'." in text
                assert getattr(caught.value, "__notes__", []) == []

    def test_the_arms_are_listed_once(self):
        g = Graph(cache="off")
        g.branch("b", lambda _: "zzzz", {"high": Add(1), "low": Add(2)})
        with pytest.raises(InvalidOutput) as caught:
            g.forward(1)
        assert str(caught.value).count("'high'") == 1

    @pytest.mark.parametrize(
        "said",
        [
            None,
            3,
            1,
            0,
            1.0,
            [True],
            np.array([True]),
            np.int64(1),
            Unwritable(1),
            b"a",
            {},
            {"arm": "a"},
            {"branch": None},
            {"branch": {"branch": "a"}},
            ("a",),
        ],
    )
    def test_what_names_no_arm_is_an_error_also_where_one_takes_the_rest(self, said):
        for cache in ("off", "memory"):
            g = Graph(cache=cache)
            g.branch("b", Says(said), {"a": Add(1), "default": Learns()})
            for call in (lambda g=g: g.fit(1), lambda g=g: g.forward(1)) * 2:
                with pytest.raises(
                    InvalidOutput, match="Branch 'b': its condition 'says' "
                ) as caught:
                    call()
                text = str(caught.value)
                assert "which names no arm. Return a text, True or False" in text
                assert text.endswith("The arms are: 'a', 'default'")
            assert g.state() == {}
            assert g.last_run.decisions == []

    def test_the_condition_may_be_trainable(self):
        class Above(Learns):
            def forward(self, x, state):
                self._calls.append(x)
                return bool(x > state["seen"])

        def declare(g):
            g.branch("b", Above(), {True: Add(1), False: Add(10)})

        check(declare, 6, 7, fit=(5,), states={"above": {"seen": 5}})
        check(declare, 4, 14, fit=(5,), states={"above": {"seen": 5}})

    def test_the_condition_may_have_edges(self):
        def declare(g):
            g.node("head", Add(1))
            g.node("asked", Spy(lambda x: "a" if x < 10 else "b"))
            g.node("also", Spy(lambda x: x + "!"))
            g.branch("b", "asked", {"a": Add(100), "b": Add(1000)})
            g.edge("head", "asked")
            g.edge("asked", "also")

        check(declare, 1, {"also": "a!", "b": 101})  # the branch gets the input, not the selector
        check(declare, 20, {"also": "b!", "b": 1020})

    def test_the_condition_may_be_what_feeds_the_branch(self):
        def declare(g):
            g.node("word", Spy(lambda x: "a" if x < 10 else "b"))
            g.branch("b", "word", {"a": Spy(str.upper), "b": Spy(len)})
            g.edge("word", "b")

        check(declare, 1, "A")
        check(declare, 11, 1)

    def test_the_condition_may_be_a_branch_or_a_loop(self):
        def declare(g):
            g.branch(
                "ask", Spy(lambda x: x > 0), {True: Spy(lambda _: "a"), False: Spy(lambda _: "b")}
            )
            g.branch("b", "ask", {"a": Add(1), "b": Add(10)})
            g.loop("go", Add(5), Spy(lambda x: x > 10))
            g.node("big", Spy(lambda x: x > 12))
            g.edge("go", "big")
            g.branch("c", "big", {True: Add(2), False: Add(20)})

        check(declare, 1, {"b": 2, "c": 21})
        check(declare, -1, {"b": 9, "c": 1})

    def test_two_branches_may_share_a_condition(self):
        def declare(g):
            g.node("head", Add(0))
            g.node("asked", Spy(lambda x: x > 0))
            g.branch("b", "asked", {True: Add(1), False: Add(2)})
            g.branch("c", "asked", {True: Add(10), False: Add(20)})
            g.edge("head", "b")
            g.edge("head", "c")

        check(declare, 5, {"b": 6, "c": 15})
        check(declare, -5, {"b": -3, "c": 15})
        g = Graph(cache="off")
        declare(g)
        g.forward(5)
        assert g.filter("asked").calls == 1

    def test_an_arm_may_be_a_graph_of_its_own(self):
        def declare(g):
            g.node("head", Add(1))
            ends = Add(1) >> (Add(10) | Learns()) >> Spy(lambda x: sorted(x.values()))
            g.branch("b", Spy(lambda x: x > 0), {True: ends, False: Add(5)})
            g.node("after", Spy(lambda x: x))
            g.edge("head", "b")
            g.edge("b", "after")

        check(declare, 1, [8, 13], fit=(3,), states={"learns": {"seen": 5}})

    def test_a_branch_feeds_a_fan_in_under_its_own_id(self):
        def declare(g):
            g.branch("b", Spy(lambda x: x > 0), {True: Add(1), False: Add(2)})
            g.branch("a", Spy(lambda x: x > 10), {True: Add(3), False: Add(4)})
            g.node("n", Add(5))
            g.node("join", Spy(lambda x: list(x.items())))
            for one in ("n", "b", "a"):
                g.edge(one, "join")

        check(declare, 5, [("a", 9), ("b", 6), ("n", 10)])
        check(declare, -5, [("a", -1), ("b", -3), ("n", 0)])

    def test_arms_that_hand_on_what_they_get(self):
        def declare(g):
            g.branch("b", Spy(lambda x: len(x) > 2), {True: Spy(lambda x: x), False: Writes()})
            g.node("w", Writes())
            g.node("r", Spy(lambda x: x))
            g.edge("b", "w")
            g.edge("b", "r")

        for x in ([1, 2, 3], np.arange(3.0)):
            before = x.copy()
            check(declare, x, {"w": _plus(x, 100), "r": x.copy()})
            same(x, before)
        check(declare, [1, 2], {"w": [201, 2], "r": [101, 2]})

    def test_a_branch_that_nobody_needs_does_nothing_in_a_fit(self):
        g = Graph(cache="off")
        asked = Spy(lambda _: True)
        g.node("learns", Learns())
        g.branch("b", asked, {True: Add(1), False: Add(2)})
        g.edge("learns", "b")
        g.fit(1)
        assert asked.calls == 0
        assert g.last_run.decisions == []
        assert g.forward(1) == 3


def _plus(x, amount):
    copied = x.copy()
    copied[0] += amount
    return copied


class TestBranchFit:
    def graph(self, cache="memory", **of):
        g = Graph(cache=cache)
        g.branch(
            "b",
            Spy(lambda x: "low" if x < 10 else "high"),
            of or {"low": Learns(), "high": Learns()},
        )
        return g

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_only_the_arm_that_is_taken_fits(self, cache):
        g = self.graph(cache)
        g.fit(3)
        assert g.state() == {"learns": {"seen": 3}}
        assert g.filter("learns_2").calls == 0
        assert g.forward(4) == 7
        assert g.last_run.decisions == [Decision("b", "took arm 'low'", arm="low")]

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_an_arm_that_was_never_fitted_is_refused_when_it_is_taken(self, cache):
        g = self.graph(cache, low=Learns(), high=Learns() >> Learns() >> Add(1))
        with pytest.raises(
            NotFittedError,
            match=re.escape(
                "Branch 'b' takes arm 'low', which was never fitted: 'learns' learned nothing yet. "
                "A fit fits the arm that its data take: call g.fit with data that take this one, "
                "or load a state"
            ),
        ):
            g.forward(3)
        g.fit(3)
        with pytest.raises(
            NotFittedError, match=r"'b' takes arm 'high'.*: 'learns_2', 'learns_3' "
        ):
            g.forward(30)
        assert g.forward(3) == 6
        g.load_state({"learns_2": {"seen": 1}, "learns_3": {"seen": 2}})
        assert g.forward(30) == 34

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_the_state_of_an_arm_that_is_not_taken_any_more_is_gone(self, cache):
        g = self.graph(cache)
        g.fit(3)
        g.fit(30)
        assert g.state() == {"learns_2": {"seen": 30}}
        with pytest.raises(NotFittedError, match="arm 'low'"):
            g.forward(3)
        g.fit(3)
        assert g.state() == {"learns": {"seen": 3}}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_warm_start_keeps_the_states_of_other_arms(self, cache):
        g = self.graph(cache)
        g.fit(3)
        g.fit(30, warm_start=True)
        assert g.state() == {"learns": {"seen": 3}, "learns_2": {"seen": 30}}
        assert [g.forward(1), g.forward(10)] == [4, 40]

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_loaded_state_stays_until_its_arm_is_taken(self, cache):
        g = self.graph(cache, low=Chronicle(), high=Learns())
        g.load_state({"chronicle": [7]})
        for _ in range(2):
            g.fit(30)
            assert g.state() == {"chronicle": [7], "learns": {"seen": 30}}
        g.fit(3)
        assert g.state() == {"chronicle": [7, 3]}  # which was not loaded, but fitted
        g.fit(30)
        assert g.state() == {"learns": {"seen": 30}}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_frozen_node_of_an_arm_keeps_what_was_loaded(self, cache):
        g = self.graph(cache, low=Learns().frozen(), high=Learns())
        g.load_state({"learns": {"seen": 100}})
        g.fit(3)
        assert g.state() == {"learns": {"seen": 100}}
        g.fit(30)
        assert g.state() == {"learns": {"seen": 100}, "learns_2": {"seen": 30}}
        assert g.filter("learns").calls == 0

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_labels_are_missed_only_in_the_arm_that_is_taken(self, cache):
        g = self.graph(cache, low=Labelled(), high=Learns())
        g.fit(30)
        with pytest.raises(InvalidInput, match=r"Node 'labelled' \(Labelled\) learns from labels"):
            g.fit(3)
        assert g.state() == {"learns": {"seen": 30}}
        assert g.filter("labelled").calls == 0
        g.fit(3, 8)
        assert g.state() == {"labelled": {"seen": 8}}

    def test_labels_are_missed_in_the_loop_of_an_arm(self):
        g = Graph(cache="off")
        g.loop("l", Labelled(), until=False, max_iterations=2)
        g.branch("b", Spy(lambda x: x > 10), {True: "l", False: Learns()})
        g.fit(1)
        with pytest.raises(InvalidInput, match="'labelled'"):
            g.fit(20)
        g = Graph(cache="off")
        g.loop("l", Labelled(), until=False, max_iterations=2)
        with pytest.raises(InvalidInput, match="'labelled'"):
            g.fit(20)
        assert g.filter("labelled").calls == 0

    def test_labels_of_an_inner_branch_are_missed_when_its_arm_is_taken(self):
        g = Graph(cache="off")
        g.branch("in", Spy(lambda x: x > 20), {True: Labelled(), False: Learns()})
        g.branch("out", Spy(lambda x: x > 10), {True: "in", False: Learns()})
        g.fit(1)
        g.fit(15)
        with pytest.raises(InvalidInput, match="'labelled'"):
            g.fit(25)
        g.fit(25, 1)
        assert g.state() == {"labelled": {"seen": 1}}

    @pytest.mark.parametrize(
        "declare",
        [
            lambda g: g.branch("b", Spy(lambda _: True), {True: Learns()}),
            lambda g: g.loop("l", Learns(), until=False, max_iterations=2),
        ],
    )
    def test_learning_from_none_is_refused_as_it_is_outside(self, declare):
        g = Graph(cache="off")
        declare(g)
        with pytest.raises(InvalidInput, match="learns from the input of the graph, and x is None"):
            g.fit(None)

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_what_follows_learns_from_the_arm(self, cache):
        g = self.graph(cache)
        g.node("after", Learns())
        g.edge("b", "after")
        g.fit(3)
        assert g.state() == {"learns": {"seen": 3}, "after": {"seen": 6}}
        assert g.forward(1) == 1 + 3 + 6


# ---------------------------------------------------------------- loops


@pytest.mark.usefixtures("threads")
class TestLoop:
    @pytest.mark.parametrize(
        "until", [Spy(lambda x: x >= 8), lambda x: bool(x >= 8), Spy(lambda x: {"done": x >= 8})]
    )
    def test_each_pass_gets_what_the_last_gave(self, until):
        check(lambda g: g.loop("l", Spy(lambda x: 2 * x), until), 1, 8)
        check(lambda g: g.loop("l", Spy(lambda x: 2 * x), until), 50, 100)

    @pytest.mark.parametrize(
        ("go_on", "stop"),
        [
            (False, True),
            ("continue", "done"),
            (np.bool_(False), "stop"),
            (np.array(False), np.array(True)),
            ({"done": False}, {"done": True}),
            ({"done": np.bool_(False), "why": "x"}, {"done": np.array(True), "loss": [1.0]}),
            ({"done": "continue"}, {"done": "done"}),
            (np.str_("continue"), np.array("stop")),
        ],
    )
    def test_words(self, go_on, stop):
        check(
            lambda g: g.loop("l", Add(1), Spy(lambda x: stop if x > 3 else go_on), 10),
            1,
            4,
        )

    @pytest.mark.parametrize(
        "said",
        [
            None,
            0,
            1,
            1.0,
            "yes",
            "Done",
            "",
            [],
            [True],
            {},
            {"stop": True},
            {"done": None},
            {"done": 1},
            np.array([True]),
            np.int64(1),
            Unwritable(1),
        ],
    )
    def test_what_says_neither(self, said):
        for cache in ("off", "memory"):
            g = Graph(cache=cache)
            g.loop("l", Add(1), Passes(said))
            for _ in range(2):
                with pytest.raises(InvalidOutput) as caught:
                    g.forward(1)
                assert str(caught.value) == (
                    f"Loop 'l': 'passes' returned {shown(said)} in pass 3, which says neither stop "
                    f"nor go on. {HOW_TO_STOP}"
                )
                assert getattr(caught.value, "__notes__", []) == []

    def test_what_the_body_gives_may_say_it(self):
        def declare(g):
            g.loop("l", Spy(lambda x: {"n": x["n"] + 1, "done": x["n"] >= 3}))

        check(declare, {"n": 1}, {"n": 4, "done": True})
        g = Graph(cache="off")
        g.loop("l", Add(1))
        with pytest.raises(InvalidOutput) as caught:
            g.forward(1)
        assert str(caught.value) == (
            "Loop 'l': it has no until=, and its last node 'add' returned 2 in pass 1, which says "
            f"neither stop nor go on. {HOW_TO_STOP}"
        )

    def test_what_says_neither_in_a_loop_in_a_loop(self):
        for until, asked in (
            (Passes("maybe"), "'passes'"),
            (None, "it has no until=, and its last node 'turns'"),
        ):
            g = Graph(cache="off")
            g.loop("in", Turns() if until is None else Add(1), until, 2)
            g.loop("out", "in", False, 4)
            with pytest.raises(InvalidOutput) as caught:
                g.forward(1 if until is not None else {"done": False, "n": 0})
            assert str(caught.value) == (
                f"Loop 'in': {asked} returned 'maybe' in pass 2.1, which says neither stop nor go "
                f"on. {HOW_TO_STOP}"
            )

    def test_until_false_is_a_count(self):
        for count in (1, 2, 7, np.int64(3)):
            check(lambda g, n=count: g.loop("l", Add(1), False, n), 0, int(count))
        g = Graph(cache="off")
        g.loop("l", Add(1), until=False)
        assert g.forward(0) == 100
        assert g.last_run.decisions == [Decision("l", "100 passes", iterations=100)]
        assert g.last_run.notices == []

    def test_one_pass(self):
        check(lambda g: g.loop("l", Add(1), Spy(lambda _: True)), 0, 1)
        check(lambda g: g.loop("l", Add(1), Spy(lambda _: False), 1), 0, 1)

    def test_the_most_there_may_be(self):
        check(lambda g: g.loop("l", Add(1), Spy(lambda _: "continue"), 5), 0, 5)

    def test_the_first_pass_may_get_a_fan_in(self):
        def declare(g):
            g.node("z", Add(1))
            g.node("a", Add(2))
            g.loop("l", Spy(lambda x: sum(x.values()) if isinstance(x, dict) else x * 2), False, 3)
            g.edge("z", "l")
            g.edge("a", "l")

        check(declare, 1, 20)

    def test_until_may_have_edges_inside_the_body(self):
        def declare(g):
            g.node("step", Add(1))
            g.node("stop", Spy(lambda x: x > 3))
            g.node("end", Spy(lambda x: x))
            g.edge("step", "stop")
            g.edge("step", "end")
            g.loop("l", "step", "stop")

        check(declare, 0, 4)

    def test_until_may_feed_others_in_the_body(self):
        def declare(g):
            g.node("step", Add(1))
            g.node("stop", Spy(lambda x: x > 3))
            g.node("end", Spy(lambda x: x["step"] + 10 * x["stop"]))
            for source, target in (("step", "stop"), ("step", "end"), ("stop", "end")):
                g.edge(source, target)
            g.loop("l", "step", "stop")

        check(declare, 0, 14)

    def test_until_may_be_trainable(self):
        class Far(Learns):
            def forward(self, x, state):
                self._calls.append(x)
                return bool(x > 10 or state["seen"] > 6)

        def declare(g):
            g.loop("l", Add(2), Far())

        g = Graph(cache="memory")
        declare(g)
        g.fit(1)
        assert g.state() == {"far": {"seen": 7}}  # 3, 5, 7: fitted at every pass
        assert g.forward(1) == 3  # by the last state, the first pass is enough
        before = calls(g)
        g.fit(1)
        assert g.forward(1) == 3
        assert calls(g) == before

    def test_a_body_of_several(self):
        def declare(g):
            body = Add(1) >> (Add(10) | Add(100)) >> Spy(lambda x: sum(x.values()))
            g.loop("l", body, Spy(lambda x: x > 1000))

        check(declare, 0, 1680)  # 0 -> 112 -> 336 -> 784 -> 1680

    def test_a_loop_feeds_a_fan_in_and_several_leaves(self):
        def declare(g):
            g.loop("l", Add(1), False, 3)
            g.loop("a", Add(2), False, 3)
            g.node("join", Spy(lambda x: list(x.items())))
            g.edge("l", "join")
            g.edge("a", "join")
            g.loop("m", Add(3), False, 3)

        check(declare, 0, {"join": [("a", 6), ("l", 3)], "m": 9})

    def test_a_body_that_writes_into_what_it_gets(self):
        def declare(g):
            g.node("head", Spy(lambda x: x))
            g.loop("l", Writes(), Spy(lambda x: bool(x[0] > 250)))
            g.node("beside", Spy(lambda x: x))
            g.node("w", Writes())
            g.node("r", Spy(lambda x: x))
            for source, target in (("head", "l"), ("head", "beside"), ("l", "w"), ("l", "r")):
                g.edge(source, target)

        for x in ([0, 1], np.arange(3.0), np.arange(12.0).reshape(3, 4)[:, 1]):
            before = x.copy()
            expected = {"beside": x.copy(), "w": _plus(x, 400), "r": _plus(x, 300)}
            for _ in range(2):
                check(declare, x, expected)
            same(x, before)

    def test_an_until_that_writes_into_what_it_gets(self):
        class Spoils(Spy):
            def forward(self, x, state):
                self._calls.append(None)
                x[0] += 1000
                return bool(x[0] > 1003)

        for x in ([0], np.zeros(1), {0: 0}):
            check(lambda g: g.loop("l", Spy(_one_more), Spoils(None)), x, _plus(x, 4))

    def test_a_filter_that_returns_what_it_gets(self):
        for x in (5, [1, 2], np.arange(3.0), {"a": [1]}):
            check(lambda g: g.loop("l", Spy(lambda one: one), False, 3), x, x)

    @pytest.mark.parametrize("wrap", [Unwritable, lambda items: Opaque(Unwritable(items))])
    def test_values_that_cannot_be_written_down(self, wrap):
        def declare(g):
            g.node("make", Spy(lambda x: wrap([x])))
            g.loop("l", Spy(lambda u: wrap([*u.items, 0])), Spy(lambda u: len(u.items) > 3))
            g.branch(
                "b", Spy(lambda u: "a"), {"a": Spy(lambda u: wrap([*u.items, 1])), "b": Add(1)}
            )
            g.node("size", Spy(lambda u: u.items))
            g.edge("make", "l")
            g.edge("l", "b")
            g.edge("b", "size")

        check(declare, 7, [7, 0, 0, 0, 1], kept=False)


HOW_TO_STOP = (
    "To stop: True, 'done', 'stop' or {'done': True}. To go on: False, 'continue' or "
    "{'done': False}. until= takes a node, a filter or a function that says so, or False for "
    "max_iterations passes"
)


class Turns(Spy):
    """Says in its third pass what nobody can read."""

    def __init__(self):
        self._calls = []

    def forward(self, x, state):
        self._calls.append(None)
        number = x["n"] + 1
        return "maybe" if number == 3 else {"done": False, "n": number}


class Passes(Says):
    """Says it in pass 3, and False before."""

    def forward(self, x, state):
        self._calls.append(x)
        return self._said if x > 3 else False


def _one_more(x):
    x[0] += 1
    return x


class TestLoopFit:
    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_node_fits_at_every_pass_and_keeps_the_last_state(self, cache):
        g = Graph(cache=cache)
        g.loop("l", Learns(), False, 4)
        g.node("after", Learns())
        g.edge("l", "after")
        for _ in range(2):
            g.fit(1)
            assert g.state() == {"learns": {"seen": 8}, "after": {"seen": 16}}
        fits = [one[1] for one in g.filter("learns")._calls if isinstance(one, tuple)]
        assert fits == [1, 2, 4, 8] * (2 if cache == "off" else 1)
        assert g.forward(1) == 1 + 4 * 8 + 16

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_the_output_of_the_last_pass_is_made_only_if_it_is_needed(self, cache):
        g = Graph(cache=cache)
        g.loop("l", Learns(), False, 3)
        g.fit(1)
        assert g.filter("learns")._calls == [("fit", 1), 1, ("fit", 2), 2, ("fit", 4)]

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_fit_that_names_state_goes_on_from_the_pass_before(self, cache):
        g = Graph(cache=cache)
        g.loop("l", Chronicle(), False, 3)
        for _ in range(2):  # from scratch each time
            g.fit(1)
            assert g.state() == {"chronicle": [1, 2, 4]}
        g.fit(1, warm_start=True)
        assert g.state() == {"chronicle": [1, 2, 4, 1, 5, 10]}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_loaded_state_is_where_the_first_pass_begins(self, cache):
        g = Graph(cache=cache)
        g.loop("l", Chronicle(), False, 3)
        g.load_state({"chronicle": [0, 0]})
        g.fit(1)
        assert g.state() == {"chronicle": [0, 0, 1, 4, 8]}
        g.fit(1)
        assert g.state() == {"chronicle": [1, 2, 4]}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_frozen_node_fits_once(self, cache):
        g = Graph(cache=cache)
        g.node("f", Learns(), frozen=True)
        g.loop("l", "f", False, 4)
        g.node("after", Learns())
        g.edge("l", "after")
        g.fit(1)
        assert g.state() == {"f": {"seen": 1}, "after": {"seen": 5}}
        g.load_state({"f": {"seen": 10}})
        g.fit(1)
        assert g.state() == {"f": {"seen": 10}, "after": {"seen": 41}}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_failed_pass_leaves_the_states_as_they_were(self, cache):
        class Tires(Learns):
            def fit(self, x, y=None):
                if x > 20:
                    raise ArithmeticError("too far")
                return {"seen": x}

        g = Graph(cache=cache)
        g.loop("l", Tires(), False, 3)
        g.fit(1)
        assert g.state() == {"tires": {"seen": 4}}
        with pytest.raises(ArithmeticError):
            g.fit(8)
        assert g.state() == {"tires": {"seen": 4}}

    def test_states_do_not_share_what_a_body_writes_into(self):
        class Keeps(Learns):
            def fit(self, x, y=None, state=None):
                past = state if state is not None else []
                past.append(x)
                return past

            def forward(self, x, state):
                state.append("spoiled")
                return x + 1

        for cache in ("off", "memory"):
            g = Graph(cache=cache)
            g.loop("l", Keeps(), False, 3)
            g.fit(1)
            assert g.state() == {"keeps": [1, 2, 3]}
            g.forward(1)
            g.forward(1)
            assert g.state() == {"keeps": [1, 2, 3]}

    def test_labels_reach_every_pass_whole(self):
        class Spends(Filter):
            def fit(self, x, y=None):
                total = float(y.sum())
                y[:] = 0
                return total

            def forward(self, x, state):
                return x + state

        for cache in ("off", "memory"):
            g = Graph(cache=cache)
            g.loop("l", Spends() >> Spends(), False, 3)
            g.node("after", Spends())
            g.edge("l", "after")
            y = np.array([1.0, 2.0])
            g.fit(np.zeros(2), y)
            assert g.state() == {"spends": 3.0, "spends_2": 3.0, "after": 3.0}
            assert y.tolist() == [1.0, 2.0]


# ---------------------------------------------------------------- one in the other


@pytest.mark.usefixtures("threads")
class TestNested:
    def test_a_loop_in_an_arm(self):
        def declare(g):
            g.loop("l", Add(1), Spy(lambda x: x >= 5))
            g.branch("b", Spy(lambda x: x < 5), {True: "l", False: Add(100)})

        check(declare, 1, 5)
        check(declare, 7, 107)

    def test_different_arms_in_different_passes(self):
        def declare(g):
            g.branch("b", Spy(lambda x: x % 2 == 1), {True: Learns(), False: Chronicle()})
            g.loop("l", "b", False, 4)
            g.node("after", Learns())
            g.edge("l", "after")

        # 1 -learns-> 2 -chronicle-> 3 -learns-> 6 -chronicle-> 8
        states = {"learns": {"seen": 3}, "chronicle": [2, 6], "after": {"seen": 8}}
        # 1 -learns-> 4 -chronicle-> 6 -> 8 -> 10
        check(declare, 1, 18, fit=(1,), states=states)

    def test_the_decisions_of_a_branch_in_a_loop(self):
        g = Graph(cache="memory")
        g.branch("b", Spy(lambda x: x % 3 != 0), {True: Add(1), False: Add(2)})
        g.loop("l", "b", Spy(lambda x: x > 6))
        for _ in range(2):
            assert g.forward(1) == 8
            assert g.last_run.decisions == [
                Decision("b", "took arm 'true'", (1,), "true"),
                Decision("b", "took arm 'true'", (2,), "true"),
                Decision("b", "took arm 'false'", (3,), "false"),
                Decision("b", "took arm 'true'", (4,), "true"),
                Decision("b", "took arm 'false'", (5,), "false"),
                Decision("l", "5 passes, stopped", (), None, 5, True),
            ]

    def test_a_loop_in_a_loop(self):
        def declare(g):
            g.loop("in", Add(1), False, 3)
            g.node("double", Spy(lambda x: 2 * x))
            g.edge("in", "double")
            g.loop("out", ["in", "double"], Spy(lambda x: x > 20))

        check(declare, 0, 42)  # 6, 18, 42

    def test_a_loop_as_the_end_of_a_loop(self):
        def declare(g):
            g.loop("in", Add(1), Spy(lambda x: x % 4 == 0))
            g.node("step", Add(1))
            g.edge("step", "in")
            g.loop("out", "step", Spy(lambda x: x >= 12), 10)

        check(declare, 0, 12)

    def test_a_learner_in_a_loop_in_a_loop(self):
        def declare(g):
            g.loop("in", Chronicle(), False, 2)
            g.loop("out", "in", False, 2)

        states = {"chronicle": [1, 2, 4, 7]}
        check(declare, 0, 16, fit=(1,), states=states)

    def test_a_branch_as_until(self):
        def declare(g):
            g.node("step", Add(1))
            g.node("end", Spy(lambda x: x))
            g.branch(
                "stop",
                Spy(lambda x: x < 3),
                {True: Spy(lambda _: "continue"), False: Spy(lambda x: {"done": x > 4})},
            )
            g.edge("step", "end")
            g.edge("step", "stop")
            g.loop("l", "step", "stop")

        check(declare, 0, 5)

    def test_a_branch_without_edges_as_until(self):
        def declare(g):
            g.branch(
                "stop",
                Spy(lambda x: x < 3),
                {True: Spy(lambda _: False), False: Spy(lambda x: x > 4)},
            )
            g.loop("l", Add(1), "stop")

        check(declare, 0, 5)

    def test_a_branch_that_ends_a_body_and_says_when_to_stop(self):
        def declare(g):
            g.branch(
                "b",
                Spy(lambda x: x["n"] < 3),
                {
                    True: Spy(lambda x: {"n": x["n"] + 1, "done": False}),
                    False: Spy(lambda x: {"n": x["n"] + 10, "done": True}),
                },
            )
            g.loop("l", "b")

        check(declare, {"n": 0}, {"n": 13, "done": True})

    def test_a_branch_in_an_arm_as_its_end(self):
        def declare(g):
            g.branch("in", Spy(lambda x: x > 10), {True: Writes2(1), False: Writes2(2)})
            g.branch("out", Spy(lambda x: x > 0), {True: "in", False: Add(1000)})
            g.node("w", Spy(_one_more))
            g.node("r", Spy(lambda x: x))
            g.edge("out", "w")
            g.edge("out", "r")

        check(declare, 11, {"w": [13, 0], "r": [12, 0]})
        check(declare, 5, {"w": [8, 0], "r": [7, 0]})

    def test_leaves_of_all_kinds(self):
        def declare(g):
            g.node("head", Add(1))
            g.branch("b", Spy(lambda x: x > 0), {True: Learns(), False: Add(2)})
            g.loop("l", Chronicle(), False, 2)
            g.node("n", Spy(lambda x: x))
            for one in ("b", "l", "n"):
                g.edge("head", one)

        check(
            declare,
            1,
            {"b": 4, "l": 6, "n": 2},
            fit=(1,),
            states={"learns": {"seen": 2}, "chronicle": [2, 3]},
        )

    def test_branch_after_loop_after_branch(self):
        def declare(g):
            g.branch("b", Spy(lambda x: x > 0), {True: Add(1), False: Add(2)})
            g.loop("l", Add(1), Spy(lambda x: x > 5))
            g.branch("c", Spy(lambda x: x > 6), {True: Add(100), False: Learns()})
            g.edge("b", "l")
            g.edge("l", "c")

        check(declare, 1, 12, fit=(1,), states={"learns": {"seen": 6}})

    def test_deep(self):
        def declare(g):
            inner = g.node("core", Add(1))
            for depth in range(10):
                inner = (
                    g.branch(f"b{depth}", Spy(lambda _: "a"), {"a": inner})
                    if depth % 2
                    else g.loop(f"l{depth}", inner, False, 2)
                )

        check(declare, 0, 32)


class Writes2(Spy):
    """Makes a list."""

    def __init__(self, amount):
        self.amount = amount
        self._calls = []

    def forward(self, x, state):
        self._calls.append(x)
        return [x + self.amount, 0]


@pytest.mark.usefixtures("threads")
class TestOwnership:
    @pytest.mark.parametrize("cache", ["off", "memory"])
    @pytest.mark.parametrize(
        "value",
        [[0, 1], np.arange(3.0), np.asfortranarray(np.ones((3, 2))), np.arange(8.0)[::2], {0: 0}],
        ids=["list", "array", "fortran", "strided", "dict"],
    )
    def test_writers_beside_readers(self, cache, value):
        """Of what a branch, a loop, and what feeds them give."""
        g = Graph(cache=cache)
        g.node("head", Spy(lambda x: x))
        g.branch("b", Spy(lambda _: True), {True: Writes() >> Writes(), False: Add(1)})
        g.loop("l", Writes() >> Spy(lambda x: x), False, 2)
        g.branch("c", Spy(lambda _: "a"), {"a": Spy(lambda x: x)})
        for control in ("b", "l", "c"):
            g.edge("head", control)
            for number in range(2):
                for one in (Spy(lambda x: x), Writes()):
                    name = f"{control}-{type(one).__name__}-{number}"
                    g.node(name, one)
                    g.edge(control, name)
        given = value.copy()
        for _ in range(2):
            found = g.forward(value)
            same(value, given)
            for control, amount in (("b", 200), ("l", 200), ("c", 0)):
                for number in range(2):
                    same(found[f"{control}-Spy-{number}"], _plus(given, amount))
                    same(found[f"{control}-Writes-{number}"], _plus(given, amount + 100))
            shared = [one for one in found.values() if isinstance(one, np.ndarray)]
            assert not any(np.shares_memory(*two) for two in itertools.combinations(shared, 2))

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_writers_in_an_arm_beside_readers_of_the_same_input(self, cache):
        g = Graph(cache=cache)
        g.node("head", Spy(lambda x: x))
        both = (Writes() | Spy(lambda x: x)) >> Spy(lambda x: [x["writes"], x["spy_2"]])
        g.branch("b", Spy(lambda x: len(x) > 0), {True: both})
        g.node("beside", Spy(lambda x: x))
        g.edge("head", "b")
        g.edge("head", "beside")
        for _ in range(2):
            assert g.forward([1, 2]) == {"b": [[101, 2], [1, 2]], "beside": [1, 2]}

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_writers_in_a_body_beside_readers_of_the_same_input(self, cache):
        g = Graph(cache=cache)
        both = (Writes() | Spy(lambda x: x)) >> Spy(lambda x: x["writes"] + x["spy"])
        g.loop("l", both, Spy(lambda x: len(x) >= 4))
        g.node("keeps", Learns())
        g.edge("l", "keeps")
        for _ in range(2):
            g.fit([1])
            assert g.state() == {"keeps": {"seen": [201, 1, 101, 1]}}


# ---------------------------------------------------------------- what is computed again


class TestKeys:
    def test_a_key_does_not_tell_where_a_node_lies(self):
        store = MemoryStore()
        made = [Add(1) for _ in range(4)]

        def graph(number):
            g = Graph(cache=store)
            g.node("n", made[number])
            return g

        g = graph(0)
        assert g.forward(5) == 6
        g = graph(1)
        g.branch("b", lambda _: True, {True: "n"})
        assert g.forward(5) == 6
        g = graph(2)
        g.loop("l", "n", False, 1)
        assert g.forward(5) == 6
        g = graph(3)
        g.loop("l", "n", False, 2)
        assert g.forward(5) == 7
        assert [one.calls for one in made] == [1, 0, 0, 1]

    def test_states_are_found_in_arms_and_passes(self):
        store = MemoryStore()
        chain = Graph.somatize(Learns() >> Learns(), cache=store)
        chain.fit(1)
        g = Graph(cache=store)
        g.loop("l", Learns(), False, 2)
        g.branch("b", Spy(lambda _: "a"), {"a": "l"})
        g.fit(1)
        assert g.filter("learns").calls == 0
        assert g.state() == {"learns": {"seen": 2}}

    def test_a_node_in_two_loops(self):
        """Passes of one loop answer for those of another."""
        store, one, other = MemoryStore(), Add(1), Add(1)
        g = Graph(cache=store)
        g.loop("l", one, False, 5)
        assert g.forward(0) == 5
        h = Graph(cache=store)
        h.loop("another", other, False, 8)
        assert h.forward(0) == 8
        assert (one.calls, other.calls) == (5, 3)

    def test_a_name_is_in_no_key(self):
        store = MemoryStore()
        for name in ("b", "another"):
            g = Graph(cache=store)
            g.branch(name, Spy(lambda _: "a"), {"a": Learns(), "c": Add(1)})
            g.loop(f"{name} loop", Add(1), Spy(lambda x: x > 5))
            g.node(f"{name} end", Add(7))
            g.edge(name, f"{name} loop")
            g.edge(f"{name} loop", f"{name} end")
            g.fit(1)
            found = g.forward(1)
            assert found == 13
        assert calls(g) == 0

    def test_a_parameter_of_until_recomputes_only_what_is_new(self):
        class Above(Spy):
            def __init__(self, limit):
                self.limit = limit
                self._calls = []

            def forward(self, x, state):
                self._calls.append(x)
                return x > self.limit

        step, until = Add(1), Above(3)
        g = Graph(cache="memory")
        g.loop("l", step, until)
        assert g.forward(0) == 4
        until.limit = 6
        assert g.forward(0) == 7
        assert step._calls == [0, 1, 2, 3, 4, 5, 6]
        assert len(until._calls) == 4 + 7
        until.limit = 2
        assert g.forward(0) == 3
        assert step.calls == 7
        until.limit = 6
        assert g.forward(0) == 7
        assert (step.calls, until.calls) == (7, 4 + 7 + 3)

    def test_a_parameter_of_one_arm_is_nothing_to_the_other(self):
        low, high = Add(1), Add(10)
        g = Graph(cache="memory")
        g.branch("b", Spy(lambda x: x > 5), {False: low, True: high})
        assert [g.forward(1), g.forward(7)] == [2, 17]
        high.amount = 20
        assert [g.forward(1), g.forward(7)] == [2, 27]
        assert (low.calls, high.calls) == (1, 2)

    def test_early_cutoff_at_a_branch(self):
        after = Add(5)
        low, high = Spy(lambda x: x + 1), Spy(lambda x: x + 2)
        g = Graph(cache="memory")
        g.branch("b", Spy(lambda x: x > 5), {False: low, True: high})
        g.node("after", after)
        g.edge("b", "after")
        assert [g.forward(5), g.forward(6)] == [11, 13]
        assert after.calls == 2
        high.work = lambda x: x
        assert g.forward(6) == 11
        assert after.calls == 2

    def test_a_seed_counts_in_every_pass(self):
        class Noise(Spy):
            def __init__(self):
                self._calls = []

            def forward(self, x, state, *, rng):
                self._calls.append(x)
                return x + float(rng.normal())

        def run(cache, seed):
            g = Graph(cache=cache)
            g.loop("l", Noise(), False, 3)
            found = g.forward(0.0, seed=seed)
            steps = g.filter("noise")._calls
            assert g.forward(0.0, seed=seed) == found
            return found, steps[:3]

        found, steps = run("memory", 1)
        assert run("off", 1)[0] == found == run("memory", 1)[0]
        assert run("memory", 2)[0] != found != run("memory", None)[0]
        differences = np.diff([*steps, found])
        assert len(set(differences)) == 3  # another number at every pass

    def test_rng_in_the_fit_of_every_pass(self):
        class Draws(Learns):
            def fit(self, x, y=None, *, rng):
                self._calls.append(("fit", x))
                return {"seen": float(rng.normal())}

        def drawn(cache, seed):
            g = Graph(cache=cache)
            g.loop("l", Draws(), False, 3)
            g.fit(0.0, seed=seed)
            xs = [one[1] for one in g.filter("draws")._calls if isinstance(one, tuple)]
            return [*xs, g.state()["draws"]["seen"]]

        assert drawn("memory", 1) == drawn("off", 1)
        assert len(set(drawn("memory", 1))) == 4
        assert drawn("memory", 1) != drawn("memory", 2)

    def test_refresh(self):
        step, until, arm = Add(1), Spy(lambda x: x > 2), Add(10)
        g = Graph(cache="memory")
        g.loop("l", step, until)
        g.branch("b", Spy(lambda _: "a"), {"a": arm})
        g.edge("l", "b")
        assert g.forward(0) == 13
        for refresh, counts in (
            (["add"], (6, 3, 1)),
            (["spy"], (6, 6, 1)),
            (["add_2"], (6, 6, 2)),
            (True, (9, 9, 3)),
            (["l", "b"], (12, 12, 4)),  # what lies in them
            ((), (12, 12, 4)),
        ):
            assert g.forward(0, refresh=refresh) == 13
            assert (step.calls, until.calls, arm.calls) == counts

    def test_refresh_of_a_branch_is_that_of_its_arm_and_its_condition(self):
        asked, taken, other = Spy(lambda _: "a"), Add(1), Add(2)
        g = Graph(cache="memory")
        g.branch("b", asked, {"a": taken, "b": other})
        for refresh, counts in (((), (1, 1)), ((), (1, 1)), (["b"], (2, 2)), (["spy"], (3, 2))):
            assert g.forward(0, refresh=refresh) == 1
            assert (asked.calls, taken.calls, other.calls) == (*counts, 0)

    def test_refresh_of_a_branch_reaches_what_lies_deep_in_it(self):
        names = ("ask_out", "ask_in", "step", "until", "after")
        spies = {
            "ask_out": Spy(lambda x: x >= 0),
            "ask_in": Spy(lambda x: x > 0),
            "step": Add(1),
            "until": Spy(lambda x: x > 2),
            "after": Add(10),
        }
        g = Graph(cache="memory")
        for name in names:
            g.node(name, spies[name])
        g.loop("l", "step", "until")
        g.branch("in", "ask_in", {True: "l", False: Add(100)})
        g.branch("out", "ask_out", {True: "in", False: Add(1000)})
        g.edge("out", "after")

        def counts():
            return tuple(spies[name].calls for name in names)

        for refresh, expected in (
            ((), (1, 1, 2, 2, 1)),
            ((), (1, 1, 2, 2, 1)),
            (["out"], (2, 2, 4, 4, 1)),
            (["in"], (2, 3, 6, 6, 1)),
            (["l"], (2, 3, 8, 8, 1)),
            (["after"], (2, 3, 8, 8, 2)),
        ):
            assert g.forward(1, refresh=refresh) == 13
            assert counts() == expected

    def test_refresh_of_a_branch_in_a_fit(self):
        g = Graph(cache="memory")
        g.node("ask", Says("a"))
        g.branch("b", "ask", {"a": Learns(), "b": Add(1)})
        for refresh, counts in (((), (1, 1)), ((), (1, 1)), (["b"], (2, 2))):
            g.fit(1, refresh=refresh)
            assert (g.filter("ask").calls, g.filter("learns").calls) == counts

    def test_refresh_of_a_body_that_stands_still_computes_every_pass(self):
        still = Spy(lambda _: 1)
        g = Graph(cache="memory")
        g.loop("l", still, False, 4)
        assert g.forward(1) == 1
        assert still.calls == 1
        assert g.forward(1, refresh=True) == 1
        assert still.calls == 5

    def test_refresh_in_a_fit(self):
        g = Graph(cache="memory")
        g.loop("l", Chronicle(), False, 3)
        for refresh, count in (((), 5), ((), 5), (["chronicle"], 10)):
            g.fit(1, refresh=refresh)
            assert g.state() == {"chronicle": [1, 2, 4]}
            assert g.filter("chronicle").calls == count

    @pytest.mark.parametrize("mark", [{"_cacheable": False}, {"_deterministic": False}])
    def test_nodes_in_bodies_that_are_not_kept(self, mark):
        step = type("Marked", (Add,), mark)(1)
        until, after = Spy(lambda x: x > 2), Spy(lambda x: [x])
        g = Graph(cache="memory")
        g.loop("l", step, until)
        g.node("after", after)
        g.edge("l", "after")
        for number in range(1, 4):
            assert g.forward(0) == [3]
            assert step.calls == 3 * number
            assert (until.calls, after.calls) == (3, 1)
        if "_deterministic" in mark:
            assert [g.forward(0, seed=5) for _ in range(2)] == [[3], [3]]
            assert step.calls == 12

    def test_a_cached_node_below_one_that_learns_in_the_same_body(self):
        g = Graph(cache="memory")
        g.node("c", Add(1), cached=True)
        g.node("t", Learns())
        g.edge("c", "t")
        g.loop("l", "c", False, 2)
        with pytest.raises(Unsettled, match="Node 'c' is cached, and 't' may still learn"):
            g.fit(1)
        assert calls(g) == 0


# ---------------------------------------------------------------- numbers that are drawn


class Climbs(Spy):
    """Tries a step and takes it where that is better: nearer to 3."""

    def __init__(self):
        self._calls = []

    def forward(self, x, state, *, rng):
        tried = x + float(rng.normal())
        self._calls.append((x, tried))
        return tried if abs(tried - 3) < abs(x - 3) else x


class Rejects(Spy):
    """Draws a number, and gives what it was given."""

    def __init__(self):
        self._calls = []

    def forward(self, x, state, *, rng):
        self._calls.append(float(rng.normal()))
        return x


class Seedless(Rejects):
    _uses_seed = False


class DrawsInFit(Spy):
    def __init__(self):
        self._calls = []

    def fit(self, x, y=None, *, rng):
        self._calls.append(float(rng.normal()))
        return {"drew": self._calls[-1]}

    def forward(self, x, state):
        return x


def drawn(node, x, seed):
    """Return what a forward draws first; ``seed`` is what stands in its key."""
    key = output_key(identify(node), state=None, x=content_hash(x), seed=seed)
    return float(rng_for(key).normal())


def drawn_in_fit(node, x, seed):
    key = state_key(
        identify(node),
        init=None,
        x=content_hash(x),
        y=content_hash(None),
        options=options_hash({}),
        seed=seed,
    )
    return float(rng_for(key).normal())


def one_loop(passes):
    """Return what stands in keys: without a seed in pass 1, "no seed pass 2", ..."""
    return lambda g, node: g.loop("l", node, False, passes)


def in_a_loop_in_a_loop(g, node):
    g.loop("in", node, False, 2)
    g.loop("out", "in", False, 2)


@pytest.mark.parametrize("cache", ["off", "memory"])
class TestDraws:
    @pytest.mark.usefixtures("threads")
    @pytest.mark.parametrize(("seed", "text"), [(None, "no seed"), (7, "seed 7"), (31, "seed 1f")])
    def test_hill_climbing_does_not_freeze(self, cache, seed, text):
        node = Climbs()
        g = Graph(cache=cache)
        g.loop("l", node, False, 40)
        at, expected = 0.0, []
        for number in range(1, 41):
            first = None if seed is None else text
            tried = at + drawn(node, at, first if number == 1 else f"{text} pass {number}")
            expected.append((at, tried))
            at = tried if abs(tried - 3) < abs(at - 3) else at
        rejected = sum(x == then for (x, _), (then, _) in itertools.pairwise(expected))
        assert 10 < rejected < 39  # so that there is something to see
        assert len({tried - x for x, tried in expected}) == 40
        assert g.forward(0.0, seed=seed) == at
        assert node._calls == expected
        assert g.forward(0.0, seed=seed) == at
        assert node._calls == expected * (2 if cache == "off" else 1)
        if cache == "memory":
            assert (g.last_run.hits, g.last_run.computed) == (40, ())

    @pytest.mark.parametrize(
        ("declare", "texts"),
        [
            (lambda g, node: g.node("n", node), [""]),
            (lambda g, node: g.branch("b", lambda _: "a", {"a": node}), [""]),
            (one_loop(1), [""]),
            (one_loop(3), ["", " pass 2", " pass 3"]),
            (in_a_loop_in_a_loop, ["", " pass 1.2", " pass 2.1", " pass 2.2"]),
        ],
        ids=["no loop", "arm", "one pass", "loop", "nested"],
    )
    @pytest.mark.parametrize("seed", [None, 0, 5, -3, 1 << 70])
    @pytest.mark.parametrize("fits", [False, True])
    def test_by_hand(self, cache, declare, texts, seed, fits):
        node = DrawsInFit() if fits else Rejects()
        by_hand = drawn_in_fit if fits else drawn
        alone = None if seed is None else f"seed {seed:x}"
        expected = [
            by_hand(node, 1.0, f"{alone or 'no seed'}{text}" if text else alone) for text in texts
        ]
        assert len(set(expected)) == len(texts)
        g = Graph(cache=cache)
        declare(g, node)
        for times in (1, 2):
            if fits:
                g.fit(1.0, seed=seed)
                assert list(g.state().values()) == [{"drew": expected[-1]}]
            else:
                assert g.forward(1.0, seed=seed) == 1.0
            assert node._calls == expected * (times if cache == "off" else 1)
            if cache == "memory" and times == 2:
                assert g.last_run.computed == ()

    @pytest.mark.parametrize("fits", [False, True])
    def test_the_first_pass_is_what_it_is_outside_of_a_loop(self, cache, fits):
        """Of loops in loops the first of all; of the others each draws its own."""
        store = MemoryStore() if cache == "memory" else None

        def drawn_by(declare):
            node = DrawsInFit() if fits else Rejects()
            g = Graph(cache=store if store is not None else "off")
            declare(g, node)
            (g.fit if fits else g.forward)(1.0, seed=2)
            return node._calls

        (alone,) = drawn_by(lambda g, node: g.node("n", node))
        if store is not None:
            second, third = drawn_by(one_loop(3))
            in_12, in_21, in_22 = drawn_by(in_a_loop_in_a_loop)
            assert drawn_by(in_a_loop_in_a_loop) == drawn_by(one_loop(3)) == []
            assert len(drawn_by(one_loop(5))) == 2
        else:
            first, second, third = drawn_by(one_loop(3))
            in_11, in_12, in_21, in_22 = drawn_by(in_a_loop_in_a_loop)
            assert first == in_11 == alone
        assert len({alone, second, third, in_12, in_21, in_22}) == 6

    def test_a_node_that_does_not_heed_the_seed_draws_in_every_pass_all_the_same(self, cache):
        node = Seedless()
        expected = [drawn(node, 1.0, text) for text in (None, "no seed pass 2", "no seed pass 3")]
        g = Graph(cache=cache)
        g.loop("l", node, False, 3)
        for count, seed in enumerate((4, 5, None), 1):
            g.forward(1.0, seed=seed)
            assert node._calls == expected * (count if cache == "off" else 1)

    def test_an_until_and_an_arm_draw_in_every_pass(self, cache):
        class Tosses(Rejects):
            def forward(self, x, state, *, rng):
                super().forward(x, state, rng=rng)
                return self._calls[-1] > 1.5

        arm, until = Rejects(), Tosses()
        g = Graph(cache=cache)
        g.branch("b", lambda _: "a", {"a": arm})
        g.loop("l", "b", until, 500)
        numbers = [
            drawn(until, 1.0, "seed 3" if number == 1 else f"seed 3 pass {number}")
            for number in range(1, 501)
        ]
        count = next(number for number, one in enumerate(numbers, 1) if one > 1.5)
        assert count > 3
        assert g.forward(1.0, seed=3) == 1.0
        assert g.last_run.decisions[-1] == Decision(
            "l", f"{count} passes, stopped", iterations=count, stopped=True
        )
        assert until._calls == numbers[:count]
        assert arm._calls == [
            drawn(arm, 1.0, "seed 3" if number == 1 else f"seed 3 pass {number}")
            for number in range(1, count + 1)
        ]

    def test_what_is_given_has_no_hash(self, cache, capsys):
        node = Rejects()
        key = [
            output_key(identify(node), state=None, x="", seed=text)
            for text in ("seed 9", "seed 9 pass 2", "seed 9 pass 3")
        ]
        g = Graph(cache=cache)
        g.loop("l", node, False, 3)
        for count in (1, 2):
            g.forward(Unwritable(1), seed=9)
            assert node._calls == [float(rng_for(one).normal()) for one in key] * count
        capsys.readouterr()

    def test_a_node_that_nothing_names(self, cache, monkeypatch):
        monkeypatch.setattr("soma.engine.run.Run.identity_of", lambda run, place: None)
        node = Rejects()
        expected = [
            float(rng_for(content_hash(text)).normal())
            for text in ("seed 9", "seed 9 pass 2", "seed 9 pass 3")
        ]
        g = Graph(cache=cache)
        g.loop("l", node, False, 3)
        for count in (1, 2):
            g.forward(1.0, seed=9)
            assert node._calls == expected * count

    def test_who_draws_nothing_is_known_from_the_first_pass(self, cache):
        g = Graph(cache=cache)
        g.loop("l", Learns() >> Spy(lambda _: 1.0), False, 6)
        for seed in (None, 4):
            before = calls(g)
            g.fit(1.0, seed=seed)
            g.forward(1.0, seed=seed)
            # fit: 6 fits, 5 and 5 forwards; forward: 6 and 6. With a cache one of each.
            assert calls(g) - before == (6 + 5 + 5 + 6 + 6 if cache == "off" else 1 + 1 + 1)

    def test_a_forward_that_draws_beside_a_fit_that_does_not(self, cache):
        class Noisy(Learns):
            def forward(self, x, state, *, rng):
                self._calls.append(float(rng.normal()))
                return x

        node = Noisy()
        g = Graph(cache=cache)
        g.loop("l", node, False, 4)
        g.fit(1.0)
        fits = [one for one in node._calls if isinstance(one, tuple)]
        assert fits == [("fit", 1.0)] * (4 if cache == "off" else 1)
        assert len({one for one in node._calls if not isinstance(one, tuple)}) == 3
        node._calls.clear()
        assert g.forward(1.0) == 1.0
        known = output_key(
            identify(node),
            state=content_hash({"seen": 1.0}),
            x=content_hash(1.0),
            seed="no seed pass 4",
        )
        assert len(node._calls) == (4 if cache == "off" else 1)  # the fit has made the first three
        assert node._calls[-1] == float(rng_for(known).normal())


# ---------------------------------------------------------------- what is only looked at


class Carry:
    """What says how many copies of it were made: each is written, and read."""

    def __init__(self, number):
        self.number = number


@pytest.fixture
def carries(monkeypatch):
    """Counts what is read."""
    for table in ("_by_kind", "_by_type"):
        monkeypatch.setattr(codecs, table, dict(getattr(codecs, table)))
    monkeypatch.setattr(codecs, "_resolved", type(codecs._resolved)())
    reads = []

    def load(raw):
        reads.append(raw[0])
        return Carry(raw[0])

    codec("tests.Carry", Carry, dump=lambda one: bytes([one.number]), load=load)
    return reads


class Carries(Filter):
    def forward(self, x, state):
        number = x["carry"].number + 1
        return {"carry": Carry(number), "done": number > 3}


class AsksCarry(Filter):
    def forward(self, x, state):
        return {"branch": "a", "carry": Carry(x)}


@pytest.mark.parametrize("cache", ["off", "memory"])
class TestLookedAt:
    @pytest.mark.usefixtures("threads")
    @pytest.mark.parametrize("until", [None, False])
    def test_what_a_body_gives_is_not_copied_to_be_asked(self, cache, until, carries):
        """What is copied once is the caller's."""
        g = Graph(cache=cache)
        g.loop("l", Carries(), until, 4)
        g.node("end", lambda x: x["carry"].number)
        g.edge("l", "end")
        given = {"carry": Carry(0)}
        assert g.forward(given) == 4
        assert carries == [0]
        if cache == "memory":
            carries.clear()
            assert g.forward(given) == 4
            assert g.last_run.computed == ()
            # Each pass is read to be asked, as far as it is.
            assert carries == ([1, 2, 3, 4] if until is None else [])

    @pytest.mark.usefixtures("threads")
    @pytest.mark.parametrize("also", [False, True])
    def test_what_a_condition_says_is_not_copied(self, cache, also, carries):
        g = Graph(cache=cache)
        g.node("ask", AsksCarry())
        g.branch("b", "ask", {"a": Add(1)})
        if also:
            g.node("also", lambda x: x["carry"].number)
            g.edge("ask", "also")
        assert g.forward(5) == ({"also": 5, "b": 6} if also else 6)
        assert carries == []

    def test_who_writes_into_what_a_condition_said_changes_no_decision(
        self, cache, threads_always, monkeypatch
    ):
        """The branch reads it while another is handed the same object."""
        asked, written = threading.Event(), threading.Event()

        def arm_of(*args):
            asked.set()
            written.wait(1)
            return real(*args)

        real = unfolding.arm_of
        monkeypatch.setattr(unfolding, "arm_of", arm_of)

        def write(x):
            x["ask"]["branch"] = "b"
            written.set()
            return x["ask"]["branch"]

        g = Graph(cache=cache)
        g.node("ask", Says({"branch": "a"}))
        g.node("gate", Waits(asked))
        g.branch("b", "ask", {"a": Spy(lambda _: "took a"), "b": Spy(lambda _: "took b")})
        g.node("write", Does(write))
        for source, target in (("ask", "gate"), ("ask", "write"), ("gate", "write")):
            g.edge(source, target)
        assert g.forward(0) == {"b": "took a", "write": "b"}


class Waits(Filter):
    def __init__(self, event):
        self._event = event

    def forward(self, x, state):
        return self._event.wait(10)


class Does(Filter):
    """Does what a function does that nothing could hash."""

    def __init__(self, work):
        self._work = work

    def forward(self, x, state):
        return self._work(x)


@pytest.fixture
def threads_always(monkeypatch):
    monkeypatch.setattr(schedule, "SLOW_S", -1.0)


@pytest.fixture
def quick(monkeypatch):
    """Whatever is large is quickly made, and not kept."""
    monkeypatch.setattr("soma.engine.run._BYTES_PER_MS", 1e-9)


class Large(Learns):
    """Gives more than is kept."""

    def fit(self, x, y=None, state=None):
        self._calls.append(("fit", None))
        return {"seen": float(np.ravel(x)[0]), "past": 0 if state is None else state["past"] + 1}

    def forward(self, x, state):
        self._calls.append(None)
        return np.full(BIG, np.ravel(x)[0] * 2 + state["past"])


class Pick(Spy):
    def __init__(self, place):
        self.place = place
        self._calls = []

    def forward(self, x, state):
        self._calls.append(None)
        return float(x[self.place])


class PickLearns(Pick):
    def fit(self, x, y=None):
        self._calls.append(None)
        return {"seen": float(x[self.place]), "place": self.place}

    def forward(self, x, state):
        return float(x[self.place]) + state["seen"]


@pytest.mark.usefixtures("threads", "quick")
class TestLarge:
    def value(self, x, passes):
        for number in range(passes):
            x = 2 * x + number
        return x

    def test_passes_are_made_again_with_their_own_states(self):
        node = Large()
        g = Graph(cache="memory")
        g.loop("l", node, False, 5)
        below = PickLearns(0)
        g.node("below", below)
        g.edge("l", "below")
        g.fit(np.array([1.0]))
        expected = self.value(1.0, 5)
        assert g.state()["below"] == {"seen": expected, "place": 0}
        assert len(node._calls) == 10
        g.fit(np.array([1.0]))
        assert len(node._calls) == 10  # nobody needs what was not kept
        below.place = 7
        g.fit(np.array([1.0]))
        assert g.state()["below"] == {"seen": expected, "place": 7}
        assert g.state()["large"] == {"seen": self.value(1.0, 4), "past": 4}
        assert len(node._calls) == 15  # five forwards and no fit
        assert [one.node for one in g.last_run.notices] == ["large"] * 5
        assert {one.kind for one in g.last_run.notices} == {"NodeRecomputed"}
        assert [one.outcome for one in g.last_run.actions].count("recomputed") == 5

    def test_in_the_middle_of_a_loop(self):
        """The first passes are hits that were not kept; a later one misses and needs them."""

        class Limit(Pick):
            def __init__(self, limit):
                super().__init__(3)
                self.limit = limit

            def forward(self, x, state):
                self._calls.append(None)
                return bool(x[self.place] > self.limit)

        step, until = Spy(lambda x: np.full(BIG, np.ravel(x)[0] + 1)), Limit(3)
        g = Graph(cache="memory")
        g.loop("l", step, until)
        g.node("pick", Pick(0))
        g.edge("l", "pick")
        assert g.forward(np.zeros(1)) == 4.0
        assert step.calls == 4
        assert g.forward(np.zeros(1)) == 4.0
        assert (step.calls, until.calls) == (4, 4)
        until.limit = 6
        assert g.forward(np.zeros(1)) == 7.0
        assert until.calls == 4 + 7
        assert step.calls == 4 + 4 + 3  # those that were known once more, and what is new
        until.limit = 1
        assert g.forward(np.zeros(1)) == 2.0
        assert g.forward(np.zeros(1)) == 2.0

    def test_evicted_in_the_middle(self):
        store = MemoryStore()
        g = Graph(cache=store)
        g.node("head", Spy(lambda x: x + 1.0))
        g.branch(
            "b",
            Spy(lambda x: bool(x[0] % 2)),
            {True: Spy(lambda x: x * 2), False: Spy(lambda x: x - 1)},
        )
        g.loop("l", "b", Spy(lambda x: bool(x[0] > 40)), 9)
        g.node("pick", Pick(0))
        g.edge("head", "l")
        g.edge("l", "pick")
        x = np.array([6.0, 1.0])
        expected = [6.0 + 1.0, 1.0 + 1.0]
        for _ in range(9):
            odd = expected[0] % 2
            expected = [2 * one if odd else one - 1 for one in expected]
            if expected[0] > 40:
                break
        assert g.forward(x) == expected[0]
        for place in (1, 0, 1, 0):
            store.gc(max_bytes=0)
            g.filter("pick").place = place
            assert g.forward(x) == expected[place]

    def test_states_that_were_evicted_are_fitted_again_in_their_passes(self):
        store = MemoryStore()
        g = Graph(cache=store)
        g.loop("l", Chronicle(), False, 4)
        g.fit(1)
        expected = g.state()
        store.gc(max_bytes=0)
        h = Graph(cache=store)
        h.loop("l", Chronicle(), False, 4)
        h.fit(1)
        assert h.state() == expected == {"chronicle": [1, 2, 4, 7]}


@pytest.mark.usefixtures("quick")
class TestNotDeterministic:
    def test_a_run_starts_over_with_what_a_body_gave_now(self):
        """Old and new values of one pass are never mixed."""
        store = MemoryStore()

        class Drifts(Spy):
            def __init__(self):
                self._calls = []

            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, np.ravel(x)[0] + len(self._calls))

        node = Drifts()
        g = Graph(cache=store)
        g.loop("l", node, False, 3)
        ends = [Pick(0), Pick(-1)]
        for number, one in enumerate(ends):
            g.node(f"end{number}", one)
            g.edge("l", f"end{number}")
        first = g.forward(np.zeros(1))
        assert first == {"end0": 6.0, "end1": 6.0}
        assert g.forward(np.zeros(1)) == first
        store.gc(max_bytes=0)
        ends[0].place = 5
        again = g.forward(np.zeros(1))
        assert again["end0"] == again["end1"] != 6.0
        assert {one.kind for one in g.last_run.notices} == {
            "NodeRecomputed",
            "NodeNotDeterministic",
        }
        made = [step for step in node._calls if np.shape(step) == (1,)]
        assert again["end0"] in {
            float(np.sum(list(numbers)))
            for numbers in itertools.combinations(range(1, node.calls + 1), 3)
        }
        assert len(made) == 2
        assert g.last_run.decisions == [Decision("l", "3 passes", iterations=3)]
        assert g.forward(np.zeros(1)) == again

    def test_a_fit_that_starts_over_fits_what_it_forwards(self):
        store = MemoryStore()

        class Drifts(Learns):
            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, state["seen"] + len(self._calls))

            def fit(self, x, y=None):
                return {"seen": float(np.ravel(x)[0])}

        g = Graph(cache=store)
        g.loop("l", Drifts(), False, 3)
        last = PickLearns(0)
        g.node("last", last)
        g.edge("l", "last")
        g.fit(np.zeros(1))
        assert g.state() == {"drifts": {"seen": 3.0}, "last": {"seen": 6.0, "place": 0}}
        store.gc(max_bytes=0)
        last.place = 2
        g.fit(np.zeros(1))
        state = g.state()
        seen = state["last"]["seen"] - state["drifts"]["seen"]
        assert seen == int(seen)
        assert 3 < seen <= g.filter("drifts").calls
        g.fit(np.zeros(1))
        assert g.state() == state

    @pytest.fixture(autouse=True)
    def _nothing_is_slow(self, monkeypatch):
        """However long a node takes on this machine, it is not worth keeping for that."""
        monkeypatch.setattr(run_room, "_BYTES_PER_MS", 1)

    def graph_that_turns(self):
        """Takes arm low at first, and arm high when its head is made again."""

        class Turns(Spy):
            def __init__(self):
                self._calls = []

            def forward(self, x, state):
                self._calls.append(x)
                return np.full(BIG, 10.0 * len(self._calls))

        g = Graph(cache=MemoryStore())
        g.node("head", Turns())
        g.branch("b", IsHigh(), {True: PickLearns(0), False: PickLearns(1)})
        g.node("last", PickLearns(0))
        g.edge("head", "b")
        g.edge("head", "last")
        return g

    def test_a_run_that_starts_over_may_take_another_arm(self):
        g = self.graph_that_turns()
        g.fit(0)
        assert g.state() == {
            "pick_learns_2": {"seen": 10.0, "place": 1},
            "last": {"seen": 10.0, "place": 0},
        }
        g.filter("last").place = 3
        g.fit(0)
        assert g.state() == {
            "pick_learns": {"seen": 20.0, "place": 0},
            "last": {"seen": 20.0, "place": 3},
        }
        assert g.last_run.decisions == [Decision("b", "took arm 'true'", arm="true")]
        assert "pick_learns_2" not in g.last_run.reused + g.last_run.computed
        assert g.filter("head").calls == 2

    def test_a_run_that_starts_over_may_take_an_arm_that_was_never_fitted(self):
        g = self.graph_that_turns()
        g.fit(0)
        with pytest.raises(NotFittedError, match="Branch 'b' takes arm 'true'"):
            g.forward(0)  # where the head is made again
        g.load_state({"pick_learns": {"seen": 1.0}})
        assert g.forward(0) == {"b": 31.0, "last": 40.0}


class IsHigh(Spy):
    def __init__(self):
        self._calls = []

    def forward(self, x, state):
        self._calls.append(None)
        return bool(x[0] > 15)


class Alive:
    """Counts how many there are, and cannot be written down."""

    count = 0

    def __init__(self):
        Alive.count += 1

    def __del__(self):
        Alive.count -= 1


class Makes(Filter):
    def __init__(self, seen):
        self._seen = seen

    def forward(self, x, state):
        self._seen.append(Alive.count)
        return Alive()


class TestMany:
    @pytest.mark.parametrize("cache", ["off", "memory"])
    @pytest.mark.parametrize("asks", [False, True])
    @pytest.mark.parametrize("inside", ["nothing", "a branch", "a loop"])
    def test_a_loop_holds_no_more_than_its_last_passes(self, cache, asks, inside):
        seen, g = [], Graph(cache=cache)
        body = Makes(seen) >> Spy(lambda x: x)
        if inside == "a branch":
            g.branch("b", Never(), {False: body})
            body = "b"
        elif inside == "a loop":
            g.loop("in", body, False, 2)
            body = "in"
        g.loop("l", body, Never() if asks else False, 30)
        for id_ in g._declared.filters:
            if isinstance(g.filter(id_), Spy):
                g.filter(id_)._calls = Forgets()
        g.forward(Alive())
        assert max(seen) <= 3
        assert Alive.count == 0

    @pytest.mark.usefixtures("quick")
    def test_thousands_of_passes_are_made_again_without_recursion(self, monkeypatch):
        monkeypatch.setattr("soma.engine.run.KEEP_BELOW", 0)
        g = Graph(cache="memory")
        step, end = Add(1), Add(1)
        g.loop("l", step, False, 3000)
        g.node("end", end)
        g.edge("l", "end")
        assert g.forward(0) == 3001
        end.amount = 2
        assert g.forward(0) == 3002
        assert step.calls == 6000
        assert len(g.last_run.notices) == 3000


class Never(Filter):
    def forward(self, x, state):
        return False


class Forgets(list):
    """Keeps nothing."""

    def append(self, one):
        pass


# ---------------------------------------------------------------- what users are told


class TestTold:
    class Fails(Filter):
        def __init__(self, at):
            self.at = at

        def fit(self, x, y=None):
            if x >= self.at:
                raise LookupError("in fit")
            return {}

        def forward(self, x, state):
            if x >= self.at - 10:
                raise ZeroDivisionError("in forward")
            return x + 1

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_note_names_node_phase_pass_and_loop(self, cache):
        g = Graph(cache=cache)
        g.node("n", self.Fails(3))
        g.loop("in", "n", False, 2)
        g.loop("out", "in", False, 5)
        g.load_state({"n": {}})
        with pytest.raises(LookupError) as caught:
            g.fit(3)
        assert caught.value.__notes__ == [
            "in node 'n' (Fails), during fit, in pass 1 of loop 'in', in pass 1 of loop 'out'"
        ]
        g.filter("n").at = 13
        with pytest.raises(ZeroDivisionError) as caught:
            g.forward(0)
        assert caught.value.__notes__ == [
            "in node 'n' (Fails), during forward, in pass 2 of loop 'in', in pass 2 of loop 'out'"
        ]

    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_note_of_an_arm(self, cache):
        g = Graph(cache=cache)
        g.branch("b", lambda _: "a", {"a": self.Fails(3)})
        with pytest.raises(LookupError) as caught:
            g.fit(3)
        assert caught.value.__notes__ == ["in node 'fails' (Fails), during fit"]

    def test_an_error_in_a_condition_or_until(self):
        def broken(x):
            raise KeyError("missing")

        g = Graph(cache="off")
        g.branch("b", broken, {"a": Add(1)})
        with pytest.raises(KeyError) as caught:
            g.forward(1)
        assert caught.value.__notes__ == ["in node 'broken' (broken), during forward"]
        g = Graph(cache="off")
        g.loop("l", Add(1), broken)
        with pytest.raises(KeyError) as caught:
            g.forward(1)
        assert caught.value.__notes__ == [
            "in node 'broken' (broken), during forward, in pass 1 of loop 'l'"
        ]

    def test_one_exception_that_is_raised_twice_has_each_note_once(self):
        error = RuntimeError("the same")

        class Raises(Filter):
            def __init__(self):
                self._error = error

            def forward(self, x, state):
                raise self._error

        g = Graph(cache="off")
        g.loop("l", Raises(), False, 2)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                g.forward(1)
        assert error.__notes__ == [
            "in node 'raises' (Raises), during forward, in pass 1 of loop 'l'"
        ]

    def test_the_report(self):
        g = Graph(cache="memory")
        g.loop("l", Add(1), Spy(lambda x: x > 2))
        g.branch("b", Spy(lambda _: "a"), {"a": Add(10)})
        g.loop("m", "b", False, 2)
        g.loop("n", Add(1), Spy(lambda _: False), 1)
        g.edge("l", "m")
        g.edge("m", "n")
        assert g.forward(0) == 24
        decisions = [
            Decision("l", "3 passes, stopped", (), None, 3, True),
            Decision("b", "took arm 'a'", (1,), "a"),
            Decision("b", "took arm 'a'", (2,), "a"),
            Decision("m", "2 passes", (), None, 2, None),
            Decision("n", "1 pass, max_iterations reached", (), None, 1, False),
        ]
        assert g.last_run.decisions == decisions
        lines = g.last_run.to_text().splitlines()
        assert lines[0].startswith("forward, ")
        assert re.match(r"add    3 computed +3 ", lines[2])
        assert lines[-4:] == [
            "l: 3 passes, stopped",
            "b: took arm 'a', 2 times",
            "m: 2 passes",
            "n: 1 pass, max_iterations reached",
        ]
        g.forward(0)
        assert g.last_run.decisions == decisions
        text = g.last_run.to_text()
        assert "add    3 hits" in text
        assert "computed" not in text
        assert str(g.last_run) == "forward: 12 hits, 0 computed"

    def test_decisions_in_loops_in_loops(self):
        """What is told as data: in which pass, which arm, how many passes, and what ended them."""
        g = Graph(cache="memory")
        g.branch("b", Spy(lambda x: x % 2 == 0), {True: Add(1), False: Add(3)})
        g.loop("inner", "b", Spy(lambda x: x % 4 == 0), 3)
        g.loop("outer", "inner", False, 2)
        decisions = [
            Decision("b", "took arm 'true'", (1, 1), "true", None, None),
            Decision("b", "took arm 'false'", (1, 2), "false", None, None),
            Decision("inner", "2 passes, stopped", (1,), None, 2, True),
            Decision("b", "took arm 'true'", (2, 1), "true", None, None),
            Decision("b", "took arm 'false'", (2, 2), "false", None, None),
            Decision("inner", "2 passes, stopped", (2,), None, 2, True),
            Decision("outer", "2 passes", (), None, 2, None),
        ]
        for _ in range(2):
            assert g.forward(0) == 8
            assert g.last_run.decisions == decisions
            assert g.last_run.notices == []
            assert g.last_run.to_text().splitlines()[-4:] == [
                "b: took arm 'true', 2 times",
                "b: took arm 'false', 2 times",
                "inner: 2 passes, stopped, 2 times",
                "outer: 2 passes",
            ]

    def test_the_report_tells_the_same_once(self):
        g = Graph(cache="off")
        g.loop("inner", Add(1), Spy(lambda x: x % 3 == 0), 9)
        g.loop("outer", "inner", Spy(lambda x: x > 5), 9)
        assert g.forward(0) == 6
        assert g.last_run.decisions == [
            Decision("inner", "3 passes, stopped", (1,), None, 3, True),
            Decision("inner", "3 passes, stopped", (2,), None, 3, True),
            Decision("outer", "2 passes, stopped", (), None, 2, True),
        ]
        assert g.last_run.to_text().splitlines()[-2:] == [
            "inner: 3 passes, stopped, 2 times",
            "outer: 2 passes, stopped",
        ]

    def test_what_an_arm_of_a_loop_refuses_names_the_pass(self):
        g = Graph(cache="off")
        g.branch("b", Spy(lambda x: "a" if x < 3 else "c"), {"a": Add(1), "b": Learns()})
        g.loop("l", "b", False, 5)
        g.loop("m", "l", False, 2)
        with pytest.raises(InvalidOutput) as caught:
            g.forward(1)
        assert str(caught.value) == (
            "Branch 'b' in pass 1.3: its condition 'spy' names arm 'c', which is not there. The "
            "arms are: 'a', 'b'. An arm 'default' would take the rest"
        )
        g.filter("spy").work = lambda x: 3 if x > 1 else "a"
        with pytest.raises(InvalidOutput) as caught:
            g.forward(1)
        assert str(caught.value) == (
            "Branch 'b' in pass 1.2: its condition 'spy' returned 3, which names no arm. Return a "
            "text, True or False, or {'branch': label}. The arms are: 'a', 'b'"
        )
        g.filter("spy").work = lambda x: "a" if x < 7 else "b"
        with pytest.raises(NotFittedError) as caught:
            g.forward(1)
        assert str(caught.value) == (
            "Branch 'b' in pass 2.2 takes arm 'b', which was never fitted: 'learns' learned "
            "nothing yet. A fit fits the arm that its data take: call g.fit with data that take "
            "this one, or load a state"
        )

    @pytest.mark.usefixtures("nothing_told")
    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_a_loop_that_was_never_told_to_stop(self, cache, capsys):
        g = Graph(cache=cache)
        g.loop("l", Add(1), Never(), 7)
        for x, count in ((0, 7), (5, 7), (0, 7)):
            assert g.forward(x) == x + count
            assert g.last_run.notices == [not_stopped("l", "7 passes")]
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"soma: {not_stopped('l', '7 passes').message}\n")
        h = Graph(cache=cache)
        h.loop("l", Add(1), Never(), 1)
        h.forward(0)
        assert h.last_run.notices == [not_stopped("l", "1 pass")]
        assert capsys.readouterr().err == f"soma: {not_stopped('l', '1 pass').message}\n"
        h.node("learns", Learns())
        h.edge("l", "learns")
        h.fit(0)
        assert h.last_run.notices == [not_stopped("l", "1 pass")]
        assert capsys.readouterr().err == ""

    @pytest.mark.usefixtures("nothing_told")
    @pytest.mark.parametrize("until", [Spy(lambda x: x >= 3), False, None])
    def test_a_loop_that_stops_in_its_last_pass_or_is_a_count(self, until, capsys):
        g = Graph(cache="off")
        g.loop("l", Spy(lambda x: x >= 0) if until is None else Add(1), until, 3)
        g.forward(0)
        assert g.last_run.notices == []
        assert capsys.readouterr().err == ""

    @pytest.mark.usefixtures("nothing_told")
    def test_a_loop_whose_last_node_never_says_stop(self, capsys):
        g = Graph(cache="off")
        g.loop("l", Spy(lambda _: False), max_iterations=2)
        assert g.forward(0) is False
        assert g.last_run.notices == [not_stopped("l", "2 passes")]
        assert capsys.readouterr().err.count("\n") == 1

    @pytest.mark.usefixtures("nothing_told")
    def test_a_loop_in_a_loop_that_was_never_told_to_stop_is_told_of_once(self, capsys):
        g = Graph(cache="off")
        g.loop("in", Add(1), Never(), 2)
        g.loop("out", "in", False, 50)
        assert g.forward(0) == 100
        assert g.last_run.notices == [not_stopped("in", "2 passes")]
        assert capsys.readouterr().err.count("\n") == 1
        assert len(g.last_run.decisions) == 51

    @pytest.mark.usefixtures("quick", "nothing_told")
    @pytest.mark.parametrize("stops_then", [False, True])
    def test_a_run_that_starts_over_tells_how_its_loops_ended_in_the_end(self, stops_then, capsys):
        class Drifts(Spy):
            def __init__(self):
                self._calls = []

            def forward(self, x, state):
                self._calls.append(None)
                return np.full(BIG, np.ravel(x)[0] + len(self._calls))

        g = Graph(cache="memory")
        g.loop("l", Drifts(), Spy(lambda x: bool(stops_then and x[0] > 4)), 2)
        g.node("pick", Pick(0))
        g.edge("l", "pick")
        assert g.forward(np.zeros(1)) == 3.0
        assert g.last_run.notices == [not_stopped("l", "2 passes")]
        g.filter("pick").place = 3
        assert g.forward(np.zeros(1)) == 7.0
        found = [one for one in g.last_run.notices if one.kind == "LoopNotStopped"]
        assert found == ([] if stops_then else [not_stopped("l", "2 passes")])
        (decision,) = g.last_run.decisions
        assert (decision.iterations, decision.stopped) == (2, stops_then)
        capsys.readouterr()

    @pytest.mark.usefixtures("nothing_told")
    def test_what_cannot_be_kept_is_told_once_in_a_run(self, capsys):
        g = Graph(cache="memory")
        g.loop(
            "l",
            Spy(_wrapped) >> Spy(lambda u: u.items + 1),
            False,
            50,
        )
        for _ in range(2):
            assert g.forward(0) == 50
            (notice,) = g.last_run.notices
            assert (notice.kind, notice.node) == ("NodeNotKept", "spy")
            assert notice.message.startswith(
                "what 'spy' (Spy) made could not be kept and is computed every time: "
            )
        assert capsys.readouterr().err == f"soma: {notice.message}\n"

    @pytest.mark.usefixtures("nothing_told")
    def test_each_node_that_cannot_be_kept_is_told_of(self, capsys):
        g = Graph(cache="memory")
        g.loop("l", Spy(_wrapped) >> Spy(_wrapped_again), False, 5)
        g.forward(0)
        assert [(one.kind, one.node) for one in g.last_run.notices] == [
            ("NodeNotKept", "spy"),
            ("NodeNotKept", "spy_2"),
        ]
        capsys.readouterr()

    def test_the_report_of_a_failed_run_tells_what_was_decided(self):
        g = Graph(cache="off")
        g.branch("b", lambda _: "a", {"a": self.Fails(0)})
        g.load_state({"fails": {}})
        with pytest.raises(ZeroDivisionError):
            g.forward(1)
        assert g.last_run.decisions == [Decision("b", "took arm 'a'", arm="a")]


def _wrapped(x):
    return Unwritable(x)


def _wrapped_again(x):
    return Unwritable(x.items)


@pytest.fixture
def nothing_told(monkeypatch):
    """Nothing has been said on stderr yet."""
    monkeypatch.setattr(_notices, "_told", set())


def not_stopped(loop, passes):
    return Notice(
        "LoopNotStopped",
        loop,
        f"loop {loop!r} came to its end after {passes} (max_iterations), and its until never said "
        "stop",
    )


def test_until_may_name_a_node_that_the_body_makes():
    g = Graph(cache="off")
    g.loop("l", Add(1).named("a") >> Spy(lambda x: x > 3).named("enough"), until="enough")
    assert g.forward(0) == 4
    with pytest.raises(UnknownNode, match="until: 'enuogh' is not in this graph"):
        g.loop("m", Add(1), until="enuogh")
    assert len(g) == 3
