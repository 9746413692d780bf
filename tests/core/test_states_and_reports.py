from __future__ import annotations

import copy
import html.parser
import json
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import Filter, Graph, InvalidInput, NotFittedError
from soma._html import preformatted, safe, table
from soma.engine import Failure, RunReport
from soma.frame import decode, encode
from soma.identity import identify
from soma.values import States
from support.forcing import in_threads


class Mean(Filter):
    def fit(self, x, y=None):
        return sum(x) / len(x)

    def forward(self, x, state):
        return [value - state for value in x]


def learned():
    inner = Graph(cache="off")
    inner.node("mean", Mean())
    inner.fit([1.0, 2.0, 6.0])
    return inner


class Nested(Filter):
    """Learns what a graph of its own learns."""

    def __init__(self, deep=False):
        self.deep = deep

    def fit(self, x, y=None):
        inner = Graph(cache="off")
        inner.node("mean", Mean())
        inner.fit(x)
        return {"a": [inner.state()]} if self.deep else inner.state()

    def forward(self, x, state):
        found = state["a"][0] if self.deep else state
        return {"type": type(found).__name__, "mean": found["mean"]}


class TestStates:
    def test_it_is_a_dict(self):
        found = learned().state()
        assert found == {"mean": 3.0}
        assert isinstance(found, dict)
        assert repr(found) == "{'mean': 3.0}"
        assert json.dumps(found) == '{"mean": 3.0}'
        assert {**found} == {"mean": 3.0}

    @pytest.mark.parametrize(
        "through",
        [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy],  # noqa: S301  # our own
    )
    def test_copies(self, through):
        found = States(a=[1])
        made = through(found)
        assert type(made) is States
        assert made == {"a": [1]}
        assert made is not found

    def test_loaded_again(self):
        graph = Graph(cache="off")
        graph.node("mean", Mean())
        graph.load_state(learned().state())
        assert graph.forward([4.0]) == [1.0]
        assert type(graph.state()) is States

    @pytest.mark.parametrize(
        "value",
        [
            States(),
            States(a=1.5, b=np.arange(3)),
            {"x": [States(a=1), States()]},
            (States({"ü": States(b=b"x")}),),
        ],
    )
    def test_encoded_and_hashed_as_the_dict_that_it_is(self, value):
        def plain(one):
            if isinstance(one, dict):
                return {name: plain(inner) for name, inner in one.items()}
            return type(one)(map(plain, one)) if isinstance(one, list | tuple) else one

        written, wanted = encode(value), encode(plain(value))
        assert written.to_bytes() == wanted.to_bytes()
        assert written.digest == wanted.digest
        found = decode(written.to_bytes())
        assert repr(found) == repr(plain(value))

        def types(one):
            inside = one.values() if isinstance(one, dict) else one
            nested = isinstance(one, dict | list | tuple)
            return [type(one), *(t for i in inside for t in types(i))] if nested else [type(one)]

        assert types(found) == types(plain(value))

    def test_in_a_filter_it_counts_as_a_dict(self):
        class Holds(Filter):
            def __init__(self):
                self.states = None

            def forward(self, x, state):
                return x

        one, other, third = Holds(), Holds(), Holds()
        one.states, other.states, third.states = States(a=1, b=2), {"b": 2, "a": 1}, {"a": 1}
        assert identify(one) == identify(other) != identify(third)

    @pytest.mark.parametrize("deep", [False, True])
    @pytest.mark.parametrize("cache", ["off", "memory"])
    def test_warm_is_cold(self, cache, deep):
        store = Graph(cache=cache)._cache.store
        found = []
        for _ in range(3):
            graph = Graph(cache=store) if store is not None else Graph(cache="off")
            graph.node("nested", Nested(deep))
            graph.fit([1.0, 2.0, 6.0])
            hits = graph.last_run.hits
            found.append(graph.forward([0.0]))
            state = graph.state()["nested"]
            assert type(state["a"][0] if deep else state) is dict
        assert found == [{"type": "dict", "mean": 3.0}] * 3
        assert hits == (1 if cache == "memory" else 0)

    def test_as_an_input_it_has_the_key_of_the_dict(self):
        class Looks(Filter):
            def forward(self, x, state):
                return x["mean"]

        graph = Graph(cache="memory")
        graph.node("looks", Looks())
        for hits, x in enumerate((learned().state(), {"mean": 3.0}, States(mean=3.0))):
            assert graph.forward(x) == 3.0
            assert graph.last_run.hits == bool(hits)


class Text(html.parser.HTMLParser):
    """What a page shows, and what it is made of."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.shown, self.attributes = set(), [], set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.shown.append(data)


TABLE = {"table", "caption", "thead", "tbody", "tr", "th", "td"}
NASTY = "<script>alert('x')</script><img src=x onerror=\"y\">&amp;\0\x1b\ud800\x85"


class TestHtml:
    def test_states(self):
        class Odd:
            shape = ("<b>",)

            def __len__(self):
                raise RuntimeError

        page = States(
            {
                NASTY: NASTY,
                "numbers": {"lr": 0.5, NASTY: np.float64(1.5), "zero": np.array(2.5)},
                "array": np.zeros((2, 3), "f4"),
                "flag": True,
                "none": None,
                "text": "the value is not shown",
                "huge": 10**5000,
                "large": {str(number): 1 for number in range(21)},
                "odd": Odd(),
                "empty": {},
                "inner": States(a=1),
            }
        )._repr_html_()
        found = Text(page)
        assert found.tags == TABLE
        assert found.attributes == {"style"}
        shown = " ".join(found.shown)
        assert found.shown[0] == "11 states"
        for text in (
            "lr: 0.5",
            "zero: 2.5",
            "ndarray float32 (2, 3)",
            "True",
            "NoneType",
            "str of 22",
            "int",
            "dict of 21",
            "Odd ('<b>',)",
            "dict of 0",
            "States of 1",
        ):
            assert text in shown, text
        assert "not shown" not in page
        assert "<script" not in page
        assert "<img" not in page
        page.encode()

    def test_empty(self):
        assert "0 states" in Text(States()._repr_html_()).shown

    @given(st.text(st.characters(codec=None)))
    @settings(max_examples=100, deadline=None)
    def test_a_page_may_hold_it_anywhere(self, text):
        made = safe(text)
        assert not set("<>\"'") & set(made)
        page = f'<p title="{made}">{made}</p>'
        page.encode()
        found = Text(page)
        assert (found.tags, found.attributes) == ({"p"}, {"title"})
        kept = "".join(found.shown)
        assert len(kept) == len(text)
        wanted = "".join(char if char.isprintable() else "?" for char in text)
        if wanted == text:
            assert kept == text

    def test_tables_and_texts(self):
        page = table(("a", NASTY), [(1, NASTY)], title=NASTY, texts=1)
        assert Text(page).tags == TABLE
        assert "text-align:right" in page
        assert "caption" not in table(("a",), [("b",)])
        assert Text(preformatted(f"{NASTY}\n  x")).tags == {"pre"}
        assert preformatted("a\n  b") == "<pre>a\n  b</pre>"
        with pytest.raises(ValueError, match="argument 2"):
            table(("a", "b"), [("c",)])


class Bad(Filter):
    def __init__(self, at="forward", message="no <b>good</b>"):
        self.at = at
        self.message = message

    def fit(self, x, y=None):
        if self.at == "fit":
            raise ValueError(self.message)
        return {"m": 1}

    def forward(self, x, state):
        if self.at == "forward":
            raise ValueError(self.message)
        return x


def add_one(x):
    return x + 1


def graph_with(node, cache="off"):
    graph = Graph(cache=cache)
    graph.node("first", add_one)
    graph.node("bad", node)
    graph.edge("first", "bad")
    return graph


class TestReports:
    def test_nothing_failed(self):
        graph = graph_with(Bad(at="never"))
        graph.fit(1)
        run = graph.last_run
        assert (run.failures, run.error) == ([], "")
        assert str(run) == "fit: 0 hits, 2 computed: first, bad"
        assert "failed" not in run.to_text()

    @pytest.mark.parametrize("cache", ["off", "memory"])
    @pytest.mark.parametrize(("at", "what"), [("fit", "state"), ("forward", "output")])
    def test_where_it_failed(self, cache, at, what):
        graph = graph_with(Bad(at="never" if at == "forward" else at), cache)
        if at == "forward":
            graph.fit(1)
            graph.filter("bad").at = at
        with pytest.raises(ValueError, match="good"):
            getattr(graph, at)(2)
        run = graph.last_run
        said = "ValueError: no <b>good</b>"
        assert run.failures == [Failure("bad", what, said, ())]
        assert run.error == said
        assert str(run) == f"{at}: 0 hits, 1 computed: first; failed at bad"
        assert run.to_text().splitlines()[-1] == f"bad failed in {at}: {said}"
        page = run._repr_html_()
        assert Text(page).tags == {"pre"}
        assert "".join(Text(page).shown) == run.to_text()
        assert run.duration_ms > 0

    def test_the_next_run_knows_nothing_of_it(self):
        graph = graph_with(Bad(at="fit"))
        with pytest.raises(ValueError, match="good"):
            graph.fit(1)
        graph.filter("bad").at = "never"
        graph.fit(1)
        assert (graph.last_run.failures, graph.last_run.error) == ([], "")

    def test_in_a_loop(self):
        def third(x):
            if x == 3:
                raise RuntimeError("three")
            return x + 1

        graph = Graph(cache="off")
        graph.loop("inner", third, False, 2)
        graph.loop("outer", "inner", False, 5)
        with pytest.raises(RuntimeError, match="three"):
            graph.forward(0)
        run = graph.last_run
        assert run.failures == [Failure("third", "output", "RuntimeError: three", (2, 2))]
        assert run.to_text().splitlines()[-1] == (
            "third failed in forward (pass 2.2): RuntimeError: three"
        )
        assert "failed at third" in str(run)

    def test_on_threads(self):
        barrier = threading.Barrier(2)

        def breaks(number):
            def broken(x):
                barrier.wait(60)
                raise ValueError(f"number {number}")

            return broken

        graph = Graph(cache="off")
        for number in range(2):
            graph.node(f"slow{number}", lambda x: time.sleep(0.01) or x)
            graph.node(f"bad{number}", breaks(number))
            graph.edge(f"slow{number}", f"bad{number}")
        with in_threads(), pytest.raises(ValueError, match="number"):
            graph.forward(1)
        run = graph.last_run
        assert sorted(run.failures) == [
            Failure(f"bad{number}", "output", f"ValueError: number {number}") for number in range(2)
        ]
        assert run.error in {one.error for one in run.failures}
        assert all(name in str(run) for name in ("bad0", "bad1"))
        assert sum("failed in forward" in line for line in run.to_text().splitlines()) == 2

    def test_ctrl_c(self):
        def stopped(x):
            signal.raise_signal(signal.SIGINT)
            time.sleep(60)

        graph = graph_with(stopped)
        with pytest.raises(KeyboardInterrupt):
            graph.forward(1)
        run = graph.last_run
        assert run.failures == [Failure("bad", "output", "KeyboardInterrupt")]
        assert run.error == "KeyboardInterrupt"
        assert str(run) == "forward: 0 hits, 1 computed: first; failed at bad"
        assert run.to_text().splitlines()[-1] == "bad failed in forward: KeyboardInterrupt"

    def test_what_no_node_raised(self):
        graph = Graph(cache="off")
        graph.branch("b", lambda x: "nowhere", {"a": add_one})
        with pytest.raises(Exception, match="nowhere"):
            graph.forward(1)
        run = graph.last_run
        assert run.failures == []
        assert "nowhere" in run.error
        assert str(run).endswith("; failed")
        assert run.to_text().splitlines()[-1].startswith("failed: ")

    def test_what_is_refused_before_anything_runs(self):
        graph = graph_with(Bad(at="never"))
        for call, error in (
            (lambda: graph.forward(1), NotFittedError),
            (lambda: graph.fit(1, seed=1.5), InvalidInput),
            (lambda: graph.fit(1, refresh=["nobody"]), KeyError),
        ):
            with pytest.raises(error):
                call()
            assert graph.last_run.failures == []

    @pytest.mark.parametrize(
        ("message", "said"),
        [
            ("two\nlines \t here", "ValueError: two lines here"),
            ("x" * 500, "ValueError: " + "x" * 187 + "…"),
            ("\x1b[31m", r"ValueError: \x1b[31m"),
            ("half \ud800", r"ValueError: half \ud800"),
            ("", "ValueError"),
        ],
    )
    def test_a_message_is_one_line(self, message, said):
        graph = graph_with(Bad(message=message, at="fit"))
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # messages of all kinds
            graph.fit(1)
        assert str(caught.value) == message
        text = graph.last_run.to_text()
        assert text.splitlines()[-1] == f"bad failed in fit: {said}"
        text.encode()

    def test_an_id_with_lines(self):
        graph = Graph(cache="off")
        graph.node("a\nb", Bad(at="fit"))
        with pytest.raises(ValueError, match="good"):
            graph.fit(1)
        run = graph.last_run
        assert str(run) == "fit: 0 hits, 0 computed; failed at 'a\\nb'"
        assert run.to_text().splitlines()[-1].startswith("'a\\nb' failed in fit: ")

    def test_one_that_is_made_by_hand(self):
        run = RunReport("fit", failures=[Failure("a", "state", "E: x", (1, 2))] * 2, error="E: x")
        assert str(run) == "fit: 0 hits, 0 computed; failed at a"
        assert run.to_text().splitlines()[1:] == ["a failed in fit (pass 1.2): E: x"] * 2
        other = RunReport("fit", error="E: x")
        assert str(other) == "fit: 0 hits, 0 computed; failed"
        assert other.to_text().splitlines()[-1] == "failed: E: x"


class TestStatesOfAConstructor:
    """A filter made from ``g.state()`` is the one that is made from the same dict."""

    class Starts(Filter):
        def __init__(self, init):
            self._init = init

        def forward(self, x, state):
            return x + self._init["mean"]["m"]

    @staticmethod
    def learned(values):
        class Mean(Filter):
            def fit(self, x, y=None):
                return {"m": sum(x) / len(x)}

            def forward(self, x, state):
                return x

        g = Graph(cache="off")
        g.node("mean", Mean())
        g.fit(values)
        return g.state()

    def test_two_states_are_two_filters(self):
        one, five = (self.Starts(self.learned([number])) for number in (1.0, 5.0))
        g = Graph(cache="memory")
        g.node("starts", one)
        assert g.forward(10) == 11.0
        h = Graph(cache=g._cache.store)
        h.node("starts", five)
        assert h.forward(10) == 15.0

    def test_kwargs_and_identity_are_those_of_a_dict(self):
        states = self.learned([1.0])
        given, plain = self.Starts(states), self.Starts(dict(states))
        assert given.kwargs() == {"init": {"mean": {"m": 1.0}}}
        assert type(given.kwargs()["init"]) is dict
        assert identify(given) == identify(plain)


@pytest.mark.parametrize("verb", ["fit", "forward"])
def test_a_call_that_is_refused_says_so_in_its_report(verb):
    g = Graph(cache="off")
    g.node("mean", TestStatesOfAConstructor.Starts({"mean": {"m": 1}}))
    with pytest.raises(KeyError):
        getattr(g, verb)([1.0], refresh=["meen"])
    assert g.last_run.error.startswith("UnknownNode: refresh: 'meen' is not in this graph.")
    assert str(g.last_run) == f"{verb}: 0 hits, 0 computed; failed"
    assert g.last_run.actions == g.last_run.failures == []
