"""Why a node was computed: which part of its key differs from the nearest record."""

from __future__ import annotations

import types
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from blake3 import blake3

from soma import Filter, Graph
from soma.contracts import ActionRecord
from soma.engine import MemoryStore
from soma.engine.misses import Miss, MissReport, PartDiffers, explain_record
from soma.errors import GraphError, InvalidInput, UnknownNode
from soma.frame import content_hash
from soma.values import Opaque

X = np.arange(6.0).reshape(3, 2)
Y = np.ones(3)


class Scale(Filter):
    def __init__(self, factor=2.0):
        self.factor = factor

    def forward(self, x, state):
        return x * self.factor


class Wrap(Filter):
    def forward(self, x, state):
        return Opaque(x)


class Learn(Filter):
    def __init__(self, alpha=0.5):
        self.alpha = alpha

    def fit(self, x, y, state=None, epochs=1):
        return float(np.sum(x)) * epochs + (state or 0.0)

    def forward(self, x, state):
        return x + state


class Add(Filter):
    def forward(self, x, state):
        return sum(x.values())


def line(store, factor=2.0, alpha=0.5):
    g = Graph(cache=store)
    g.node("scale", Scale(factor))
    g.node("learn", Learn(alpha))
    g.edge("scale", "learn")
    return g


@pytest.fixture
def store():
    return MemoryStore()


def parts_that_differ(report):
    return [[str(one) for one in miss.differs] for miss in report.misses]


class TestNames:
    @pytest.mark.parametrize(
        ("factor", "settings", "expected"),
        [
            (3.0, {"x": X}, "the attribute 'factor' is another"),
            (2.0, {"x": X + 1}, "its input is another"),
            (2.0, {"x": X, "seed": 7}, "the seed is new"),
        ],
        ids=["attribute", "input", "seed"],
    )
    def test_of_a_forward(self, store, factor, settings, expected):
        Graph.somatize(Scale(2.0), cache=store).forward(X)
        g = Graph.somatize(Scale(factor), cache=store)
        g.forward(**settings)
        assert parts_that_differ(g.explain_miss("scale")) == [[expected]]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"y": Y + 1}, ["y is another"]),
            ({"epochs": 3}, ["the option 'epochs' is another"]),
            ({"seed": 1}, ["the seed is new"]),
            ({"x": X * 2}, ["its input is another"]),
            ({"x": X * 2, "seed": 1}, ["its input is another", "the seed is new"]),
            ({"warm_start": True}, ["the state that it went on from is new"]),
        ],
        ids="-".join,
    )
    def test_of_a_fit(self, store, settings, expected):
        g = line(store)
        g.fit(X, Y)
        g.fit(**({"x": X, "y": Y} | settings))
        found = g.explain_miss("learn")
        assert parts_that_differ(found) == [expected]
        (miss,) = found.misses
        assert (miss.node, miss.what) == ("learn", "state")
        assert miss.key == g.last_run.actions[-1].key
        assert miss.nearest.origin["node"] == "learn"

    def test_of_what_a_fit_has_changed(self, store):
        g = line(store)
        g.fit(X, Y)
        g.forward(X)
        g.fit(X, Y, epochs=2)
        g.forward(X)
        (miss,) = g.explain_miss("learn").misses
        assert (miss.what, miss.reason) == ("output", "what it has learned is another")

    def test_of_a_fan_in(self, store):
        def build(factor, other):
            g = Graph(cache=store)
            for name in ("left", other):
                g.node(name, Scale(factor if name == "left" else 1.0))
            g.node("both", Add())
            g.edge("left", "both")
            g.edge(other, "both")
            return g

        build(2.0, "right").forward(X)
        g = build(3.0, "right")
        g.forward(X)
        assert parts_that_differ(g.explain_miss("both")) == [
            ["what it was given by node 'left' is another"]
        ]
        g = build(3.0, "centre")
        g.forward(X)
        assert parts_that_differ(g.explain_miss("both")) == [
            [
                "what it was given by node 'centre' is new",
                "what it was given by node 'right' is gone",
            ]
        ]

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ("return x + K", "return x - K", "the method 'forward' is another"),
            ("K = 1", "K = 2", "the global 'K' is another"),
            ("    limit = 1", "    limit = 2", "the class attribute 'limit' is another"),
            ("return 7", "return 8", "the global 'helper' is another"),
        ],
        ids=["method", "global", "class attribute", "function"],
    )
    def test_of_code(self, store, before, after, expected):
        text = (
            "from soma import Filter\nK = 1\ndef helper():\n    return 7\n"
            "class Plus(Filter):\n    limit = 1\n"
            "    def forward(self, x, state):\n        helper()\n        return x + K\n"
        )
        assert before in text

        def build(source):
            module = types.ModuleType("edited")
            exec(source, vars(module))  # noqa: S102  # ours
            return Graph.somatize(module.Plus(), cache=store)

        build(text).forward(1)
        g = build(text.replace(before, after))
        g.forward(1)
        assert parts_that_differ(g.explain_miss("plus")) == [[expected]]

    def test_of_where_an_input_comes_from(self, store):
        g = line(store)
        g.fit(X, Y)
        g.fit(X + 1, Y)
        assert (
            g.explain_miss("scale").misses[0].reason == "its input is another (the x of the graph)"
        )
        assert (
            g.explain_miss("learn").misses[0].reason
            == "its input is another (what node 'scale' gave)"
        )

    def test_of_what_is_secret(self, store):
        class Asks(Filter):
            _secret = ("token",)

            def __init__(self, token):
                self.token = token

            def forward(self, x, state):
                return x

        Graph.somatize(Asks("one"), cache=store).forward(1)
        g = Graph.somatize(Asks("two"), cache=store)
        g.forward(1)
        (miss,) = g.explain_miss("asks").misses
        assert miss.differs == ()
        assert "what is secret is in none" in miss.reason


class TestNearest:
    def record(self, numbers=count(), *, node="a", run="r", at=0.0, what="output", **parts):  # noqa: B008  # one for all
        return ActionRecord(
            key=content_hash(next(numbers)),
            outputs={what: content_hash("o")},
            bytes={what: 1},
            compute_ms=1.0,
            name="m.C",
            parts={"input": b"same"} | {name: bytes([one] * 4) for name, one in parts.items()},
            origin={"node": node, "run": run},
            created_at=at,
        )

    def test_is_the_one_with_the_fewest_differences(self):
        asked = self.record(run="now", at=10.0, a=1, b=1, c=1)
        near, far = self.record(at=1.0, a=1, b=1, c=2), self.record(at=9.0, a=1, b=2, c=2)
        for others in ([near, far], [far, near]):
            found = explain_record(asked, others)
            assert found.nearest is near
            assert found.differs == (PartDiffers("c", "changed"),)

    def test_is_of_the_same_node_then_the_newest(self):
        asked = self.record(run="now", at=10.0, a=1)
        others = [
            self.record(at=1.0, a=2),
            self.record(at=2.0, a=2),
            self.record(at=3.0, a=2, node="b"),
        ]
        assert explain_record(asked, others).nearest is others[1]

    def test_is_as_it_is_now_of_several_with_one_difference(self):
        def made(**parts):
            digests = {name: bytes([value] * 4) for name, value in parts.items()}
            return replace(self.record(at=1.0), key=content_hash(repr(parts)), parts=digests)

        asked = replace(made(**{"attribute a": 1, "input": 2}), created_at=10.0)
        same, other = made(**{"attribute a": 1, "input": 1}), made(**{"attribute a": 2, "input": 2})
        for others in ([same, other], [other, replace(same, created_at=0.5)]):
            assert [str(one) for one in explain_record(asked, others).differs] == [
                "its input is another"
            ]

    def test_of_an_early_one_that_tells_no_more_only_the_node_is_compared(self):
        asked = replace(
            self.record(run="now", at=10.0),
            parts={"method forward": b"1111", "input": b"2222", "seed": b"3333"},
        )
        early = replace(self.record(at=1.0), parts={"method forward": b"0000"})
        found = explain_record(asked, [early])
        assert [str(one) for one in found.differs] == ["the method 'forward' is another"]
        early = replace(early, parts={"method forward": b"1111"})
        assert "an early one" in explain_record(asked, [early]).reason

    def test_is_of_another_call_if_there_is_one(self):
        asked = self.record(run="now", at=10.0, a=1, b=1)
        beside, before = self.record(run="now", at=9.0, a=1, b=2), self.record(at=1.0, a=2, b=2)
        assert explain_record(asked, [beside, before]).nearest is before
        assert explain_record(asked, [beside]).nearest is beside

    def test_was_there_before_it(self):
        asked = self.record(run="now", at=10.0, a=1)
        found = explain_record(asked, [asked, self.record(at=11.0, a=1)])
        assert found.nearest is None
        assert found.reason == "the cache had no output of m.C yet: it is new, or had another name"

    def test_is_the_same_of_fit_and_forward(self):
        asked = self.record(run="now", at=10.0, a=1)
        assert explain_record(asked, [self.record(a=2, what="state")]).nearest is None


class TestNotLookedUp:
    def why(self, g, node):
        return [one.reason for one in g.explain_miss(node).misses]

    def test_without_a_cache(self):
        g = line("off")
        g.fit(X, Y)
        assert self.why(g, "learn") == ["the graph has no cache"]

    @pytest.mark.parametrize(
        ("mark", "expected"), [("_cacheable", "never kept"), ("_deterministic", "only with a seed")]
    )
    def test_by_choice(self, store, mark, expected):
        cls = type("Chosen", (Scale,), {mark: False})
        g = Graph.somatize(cls(), cache=store)
        g.forward(X)
        (reason,) = self.why(g, "chosen")
        assert expected in reason
        assert mark in reason

    def test_what_has_no_hash(self, store):
        g = Graph(cache=store)
        g.node("wrap", Wrap())
        g.node("use", Scale())
        g.edge("wrap", "use")
        g.forward(X)
        assert "Ask the nodes above it" in self.why(g, "use")[0]

    def test_refreshed(self, store):
        g = line(store)
        g.fit(X, Y)
        g.fit(X, Y, refresh="learn")
        assert self.why(g, "learn") == ["refresh= asked for it to be computed anew"]

    def test_known_and_gone(self, store):
        g = line(store)
        g.fit(X, Y)
        g.forward(X)
        store.gc(max_bytes=0)
        g.forward(X)
        assert all("it was known" in one for one in self.why(g, "learn"))
        assert self.why(g, "learn")

    def test_lost(self, store):
        g = line(store)
        g.fit(X, Y)
        g._cache = line(MemoryStore())._cache
        (reason,) = self.why(g, "learn")
        assert "is gone by now" in reason

    def test_what_the_input_has_not_comes_before_a_missing_seed(self, store):
        cls = type("Chosen", (Scale,), {"_deterministic": False})
        g = Graph(cache=store)
        g.node("wrap", Wrap())
        g.node("chosen", cls())
        g.edge("wrap", "chosen")
        g.forward(Opaque(X), seed=1)
        assert "codec" in self.why(g, "chosen")[0]

    def test_a_fit_that_shows_nothing(self, store, capsys):
        class Quiet(Filter):
            def fit(self, x, y=None):
                self._mean = x.mean()

            def forward(self, x, state):
                return x

        g = Graph.somatize(Quiet(), cache=store)
        g.fit(X)
        g.forward(X)
        assert "returned None" in self.why(g, "quiet")[0]
        assert "returned None" in capsys.readouterr().err

    def test_a_state_that_nobody_can_write_down(self, store):
        class Odd(Learn):
            def fit(self, x, y):
                return Opaque(object())

            def forward(self, x, state):
                return x

        g = Graph.somatize(Odd(), cache=store)
        g.fit(X, Y)
        g.forward(X)
        assert "nothing says how to write down what it has learned" in self.why(g, "odd")[0]

    def test_what_failed(self, store):
        class Fails(Filter):
            def forward(self, x, state):
                raise ValueError("no\nmore")

        g = Graph.somatize(Fails(), cache=store)
        with pytest.raises(ValueError, match="no"):
            g.forward(X)
        assert self.why(g, "fails") == ["it had to be computed, and raised ValueError: no more"]

    @pytest.mark.parametrize("broken", ["lookup", "records"])
    def test_a_store_that_cannot_be_asked(self, store, broken):
        g = line(store)
        g.fit(X, Y)

        def fail(*args):
            raise OSError("the disk is gone")

        setattr(store, broken, fail)
        assert self.why(g, "learn") == ["the cache cannot be asked: OSError: the disk is gone"]

    def test_of_very_many_passes_the_first_are_compared(self, store):
        g = Graph(cache=store)
        g.loop("again", Scale(1.5), until=False, max_iterations=230)
        g.forward(X)
        found = self.why(g, "scale")
        assert len(found) == 230
        assert ["not compared one by one" in one for one in found] == [False] * 200 + [True] * 30


class TestReport:
    def test_hits_are_no_misses(self, store):
        g = line(store)
        g.fit(X, Y)
        g.fit(X, Y)
        found = g.explain_miss("learn")
        assert (found.misses, found.hits) == ((), 1)
        assert str(found) == "learn did not miss: all of it was known"

    def test_what_did_not_run(self, store):
        g = line(store)
        g.node("more", Scale())
        g.edge("learn", "more")
        g.fit(X, Y)
        assert str(g.explain_miss("more")) == "more did not run"

    def test_of_an_earlier_call(self, store):
        g = line(store)
        g.fit(X, Y)
        g.fit(X, Y + 1)
        earlier = g.last_run
        g.forward(X)
        assert parts_that_differ(g.explain_miss("learn", earlier)) == [["y is another"]]

    def test_passes_of_a_loop_are_told_together(self, store):
        g = Graph(cache=store)
        g.loop("again", Scale(), until=False, max_iterations=4)
        g.forward(X)
        found = g.explain_miss("scale")
        assert [one.passes for one in found.misses] == [(1,), (2,), (3,), (4,)]
        text = found.to_text()
        assert "scale: 4 computed" in text
        assert text.count("its input is another") == 1
        assert "(3 times)" in text

    def test_in_a_notebook_it_is_text(self, store):
        g = line(store)
        g.fit(X, Y)
        assert "learn: 1 computed" in g.explain_miss("learn")._repr_html_()

    def test_any_id_stays_on_its_line(self, store):
        g = Graph(cache=store)
        g.node('a "quoted"\nid\x1b', Scale())
        g.forward(X)
        g.forward(X + 1)
        lines = str(g.explain_miss('a "quoted"\nid\x1b')).splitlines()
        assert len(lines) == 3
        assert "\x1b" not in "".join(lines)

    @pytest.mark.parametrize("at", [0.0, 1e12, 1e300])
    def test_any_time_of_a_record_can_be_told(self, at):
        nearest = ActionRecord(
            key="0" * 64, outputs={}, bytes={}, compute_ms=1.0, name="m.C", created_at=at
        )
        miss = Miss(node="a", what="output", reason="so", nearest=nearest)
        lines = MissReport(node="a", misses=(miss,)).to_text().splitlines()
        assert lines[1:2] == ["  output: so"]
        assert lines[2].startswith("    compared with")

    def test_bad_questions(self, store):
        g = line(store)
        with pytest.raises(InvalidInput, match="call fit or forward"):
            g.explain_miss("learn")
        with pytest.raises(UnknownNode, match="'learn'"):
            g.explain_miss("learm")
        g.loop("again", Scale(), until=False, max_iterations=1)
        with pytest.raises(GraphError, match="ask the nodes in it"):
            g.explain_miss("again")


class TestParts:
    """What records say of their key, computed here by hand."""

    def short(self, text):
        return blake3(text.encode()).digest()[:4]

    def test_of_a_fit_and_a_forward(self, store):
        g = line(store)
        g.fit(X, Y, seed=5, epochs=2)
        g.forward(X)
        found = {(one.origin["node"], *one.outputs): one.parts for one in store.records()}
        given, learned = content_hash(X * 2.0), content_hash(float(np.sum(X * 2.0)) * 2)
        fit, forward = found["learn", "state"], found["learn", "output"]
        assert fit["input"] == forward["input"] == self.short(given)
        assert fit["labels"] == self.short(content_hash(Y))
        assert fit["seed"] == forward["seed"] == self.short("seed 5")
        assert fit["option epochs"] == self.short(content_hash(2))
        assert forward["state"] == self.short(learned)
        assert "initial state" not in fit
        assert fit["attribute alpha"] == forward["attribute alpha"]
        assert found["scale", "output"]["input"] == self.short(content_hash(X))

    def test_of_a_fan_in_are_one_for_each(self, store):
        g = Graph(cache=store)
        g.node("a", Scale(1.0))
        g.node("b", Scale(3.0))
        g.node("both", Add())
        g.edge("b", "both")
        g.edge("a", "both")
        g.forward(X)
        (parts,) = [one.parts for one in store.records() if one.origin["node"] == "both"]
        assert parts["input from a"] == self.short(content_hash(X * 1.0))
        assert parts["input from b"] == self.short(content_hash(X * 3.0))
        assert "input" not in parts


class TestSecrets:
    """Four bytes of a hash are enough to find a short text by trying."""

    def parts_with(self, store, made):
        g = Graph(cache=store)
        g.node("asks", made)
        g.forward(1)
        (record,) = store.records()
        return record.parts

    def of_class(self, secret):
        class Asks(Filter):
            _secret = ("token",)
            token = secret

            def forward(self, x, state):
                return x

        return Asks()

    def of_base(self, secret):
        cls = type(self.of_class(secret))
        return type("Asks", (cls,), {})()

    def of_partial(self, secret):
        def ask(x, token):
            return x

        ask._secret = ("token",)
        return partial(ask, token=secret)

    def of_private(self, secret):
        class Asks(Filter):
            _secret = ("token",)

            def __init__(self, token):
                self._token = token

            def forward(self, x, state):
                return x

        return Asks(secret)

    def of_what_it_holds(self, secret):
        class Inner:
            _secret = ("token",)

            def __init__(self, token):
                self.token = token

            def __call__(self, x):
                return x

        class Outer(Filter):
            def __init__(self, inner):
                self.inner = {"by": [inner]}

            def forward(self, x, state):
                return x

        return Outer(Inner(secret))

    @pytest.mark.parametrize(
        "made", ["of_class", "of_base", "of_partial", "of_private", "of_what_it_holds"]
    )
    def test_have_no_part(self, made):
        one, other = (
            self.parts_with(MemoryStore(), getattr(self, made)(text)) for text in ("one", "two")
        )
        assert one == other
        assert "input" in one
