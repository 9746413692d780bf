"""What a fit and a forward would do, said before they do it; and then they do exactly that."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import Filter, Graph, Opaque
from soma.contracts import ActionRecord
from soma.engine import MemoryStore
from soma.errors import GraphError, InvalidInput, NotFittedError, UnknownNode, Unsettled
from soma.identity import identify
from support.forcing import drop_blobs, drop_records, kept_only_at_leaves_and_mapped, patched
from support.notes import CALLS, note

X = np.arange(12.0).reshape(4, 3)
Y = np.array([1.0, 2.0, 3.0, 5.0])
LARGE = np.arange(3000.0).reshape(1000, 3)
"""Larger than what lies in a record."""


class Center(Filter):
    def fit(self, x, y=None):
        note("center fit")
        return x.mean(axis=0)

    def forward(self, x, mean):
        note("center forward")
        return x - mean


class Scale(Filter):
    def __init__(self, factor=2.0):
        self.factor = factor

    def forward(self, x, state):
        note("scale forward")
        return x * self.factor


class Sum(Filter):
    """Learns from y, and goes on from what it has learned."""

    def fit(self, x, y, state=None, epochs=1):
        note("sum fit")
        return float(np.sum(x) + np.sum(y)) * epochs + (state or 0.0)

    def forward(self, x, state):
        note("sum forward")
        return float(np.sum(x)) + state


def line(store, factor=2.0):
    g = Graph(cache=store)
    g.node("center", Center())
    g.node("scale", Scale(factor))
    g.node("sum", Sum())
    g.edge("center", "scale")
    g.edge("scale", "sum")
    return g


def told(estimate):
    """Return the rows as texts: phase, node, what, outcome."""
    return [f"{one.phase} {one.node} {one.what}: {one.outcome}" for one in estimate.rows]


def outcomes(estimate, phase="forward"):
    return {
        (one.node, one.what, *one.passes): one.outcome
        for one in estimate.rows
        if one.phase == phase
    }


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def known(store):
    """A graph that has run, and its store."""
    g = line(store)
    g.fit(X, Y)
    g.forward(X)
    return g


class TestWhatIsKnown:
    def test_nothing_yet(self, store):
        found = line(store).estimate(X, Y)
        assert found.phases == ("fit", "forward")
        assert told(found) == [
            "fit center state: computed",
            "fit center output: unknown",
            "fit scale output: unknown",
            "fit sum state: unknown",
            "forward center output: reused",  # from what the fit makes
            "forward scale output: reused",
            "forward sum output: unknown",
        ]
        assert [one.ms for one in found.rows] == [None] * 4 + [0.0, 0.0] + [None]
        assert len(found.never) == 5
        assert found.known_ms == found.unknown_ms == 0.0

    def test_everything(self, known):
        found = known.estimate(X, Y)
        assert found.counts == {"reused": 7}
        assert found.known_ms == found.unknown_ms == 0.0
        assert found.never == ()

    def test_rows_say_key_size_and_when(self, known, store):
        records = {(one.origin["node"], *one.outputs): one for one in store.records()}
        for row in known.estimate(X, Y).rows:
            record = records[row.node, row.what]
            assert (row.key, row.nbytes) == (record.key, record.bytes[row.what])
            assert row.since == record.created_at

    def test_what_follows_an_edit_is_computed_and_below_it_nothing_is_known(self, known, store):
        found = line(store, factor=3.0).estimate(X, Y, phase="fit")
        assert told(found) == [
            "fit center state: reused",
            "fit center output: reused",
            "fit scale output: computed",
            "fit sum state: unknown",
        ]

    def test_an_input_that_nothing_has_seen(self, known):
        found = known.estimate(X + 1, phase="forward")
        assert list(outcomes(found).values()) == ["computed", "unknown", "unknown"]

    def test_labels_an_option_and_a_seed(self, known):
        assert outcomes(known.estimate(X, Y + 1), "fit")["center", "state"] == "computed"
        assert outcomes(known.estimate(X, Y, epochs=2), "fit")["sum", "state"] == "computed"
        assert outcomes(known.estimate(X, Y, seed=1), "fit")["center", "state"] == "computed"
        assert outcomes(known.estimate(X, Y, batch_size=2), "fit")["sum", "state"] == "reused"

    def test_a_forward_uses_what_was_learned(self, known):
        known.fit(X + 1, Y)
        found = known.estimate(X, phase="forward")
        assert outcomes(found)["center", "output"] == "computed"
        known.fit(X, Y)
        assert known.estimate(X, phase="forward").counts == {"reused": 3}

    def test_what_the_same_call_makes_twice_is_computed_once(self, store):
        g = Graph(cache=store)
        for id_ in ("a", "b"):
            g.node(id_, Scale())
        assert sorted(outcomes(g.estimate(X)).values()) == ["computed", "reused"]
        g.forward(X)
        assert g.last_run.hits == 1

    def test_states_that_were_loaded_warm_and_frozen(self, known, store):
        known.fit(X, Y, warm_start=True)
        again = known.estimate(X, Y, warm_start=True)
        assert outcomes(again, "fit")["sum", "state"] == "computed"  # it goes on from another
        assert outcomes(again, "fit")["center", "state"] == "reused"
        g = Graph(cache=store)
        g.node("sum", Sum(), frozen=True)
        g.load_state({"sum": 4.0})
        assert told(g.estimate(X, Y)) == ["forward sum output: computed"]
        g.fit(X, Y)
        assert g.last_run.actions == []

    def test_refresh(self, known):
        found = known.estimate(X, Y, refresh="scale")
        assert told(found) == [
            "fit center state: reused",
            "fit center output: reused",
            "fit scale output: computed",
            "fit sum state: unknown",
            "forward center output: reused",
            "forward scale output: reused",
            "forward sum output: unknown",
        ]
        alone = known.estimate(X, phase="forward", refresh=True)
        assert set(outcomes(alone).values()) == {"computed"}

    def test_without_a_cache(self):
        found = line("off").estimate(X, Y)
        assert set(found.counts) == {"computed"}
        assert {one.ms for one in found.rows} == {None}
        assert found.notices == ()

    def test_without_data(self, known):
        found = known.estimate()
        assert found.counts == {"unknown": 7}
        assert found.never == ()
        assert not any(one.key for one in found.rows)


class TestWhatIsNeeded:
    def test_the_last_output_is_read_and_takes_a_gigabyte_a_second(self, store):
        g = Graph.somatize(Scale(2.0) >> Scale(3.0), cache=store)
        g.forward(LARGE)
        first, last = g.estimate(LARGE).rows
        assert (first.outcome, first.ms) == ("reused", 0.0)
        nbytes = first.nbytes
        assert nbytes > 3000 * 8
        assert (last.outcome, last.ms) == ("read", nbytes / 1e6)

    def test_what_something_new_is_made_from_is_read(self, store):
        Graph.somatize(Scale(2.0), cache=store).forward(LARGE)
        found = Graph.somatize(Scale(2.0) >> Scale(5.0), cache=store).estimate(LARGE)
        assert [one.outcome for one in found.rows] == ["read", "computed"]

    def test_a_state_is_read_where_something_is_computed_with_it(self, store):
        class Keep(Filter):
            def fit(self, x, y=None):
                return x

            def forward(self, x, state):
                return x + state

        g = Graph.somatize(Keep(), cache=store)
        g.fit(LARGE)
        assert outcomes(g.estimate(LARGE), "fit")["keep", "state"] == "read"
        assert outcomes(g.estimate(LARGE, phase="fit"), "fit")["keep", "state"] == "reused"
        g.forward(LARGE)
        assert outcomes(g.estimate(LARGE), "fit")["keep", "state"] == "reused"

    def test_what_was_not_kept_is_made_again_and_what_it_is_made_from(self, store):
        g = Graph.somatize(Scale(2.0) >> Scale(3.0) >> Scale(4.0), cache=store)
        g.forward(X)
        drop_blobs(store, -1)
        found = g.estimate(X)
        assert [one.outcome for one in found.rows] == ["recomputed"] * 3
        took = {one.key: one.compute_ms for one in store.records()}
        assert [one.ms for one in found.rows] == [took[one.key] for one in found.rows]
        assert found.known_ms == pytest.approx(sum(took.values()))
        g.forward(X)
        assert [one.outcome for one in g.last_run.actions] == ["hit"] * 3 + ["recomputed"] * 3

    @pytest.mark.parametrize(("factors", "again"), [((2.0, 2.0), 1), ((2.0, 7.0), 2)])
    def test_of_two_that_give_the_same_the_first_makes_it_again(self, store, factors, again):
        def build(last):
            g = Graph(cache=store)
            for number, factor in enumerate(factors):
                g.node(f"from{number}", Scale(factor))
                g.node(f"to{number}", Scale(last + number))
                g.edge(f"from{number}", f"to{number}")
            return g

        build(3.0).forward(LARGE)
        drop_blobs(store, -1)
        g = build(30.0)
        counts = g.estimate(LARGE).counts
        assert counts["recomputed"] == again
        assert counts.get("read", 0) == 2 - again
        g.forward(LARGE)
        made = [one for one in g.last_run.actions if one.outcome == "recomputed"]
        assert len(made) == again

    def test_what_the_fit_makes_again_the_forward_reads_if_it_is_kept(self, store):
        g = Graph.somatize(Scale(2.0) >> Center(), cache=store)
        g.fit(LARGE)
        drop_blobs(store, -1)
        found = g.estimate(LARGE)
        assert outcomes(found, "fit")["scale", "output"] == "recomputed"
        assert outcomes(found)["scale", "output"] == "read"
        with kept_only_at_leaves_and_mapped():
            found = g.estimate(LARGE)
            assert outcomes(found)["scale", "output"] == "recomputed"

    def test_what_was_not_kept_and_nobody_needs(self, store):
        with kept_only_at_leaves_and_mapped():
            g = Graph.somatize(Scale(2.0) >> Scale(3.0), cache=store)
            g.forward(X)
        assert g.estimate(X).counts == {"reused": 2}

    def test_a_state_whose_blob_is_gone(self, known, store):
        drop_blobs(store, -1)
        found = outcomes(known.estimate(X, Y, phase="fit"), "fit")
        assert found == {
            ("center", "state"): "recomputed",
            ("center", "output"): "recomputed",
            ("scale", "output"): "recomputed",
            ("sum", "state"): "recomputed",
        }
        known.fit(X, Y)
        made = {(one.node, one.what) for one in known.last_run.actions if one.outcome != "hit"}
        assert made == set(found)


class TestWhatIsNeverLookedUp:
    def test_a_class_that_says_so(self, store):
        class Drawn(Filter):
            _deterministic = False

            def forward(self, x, state):
                return x

        g = Graph.somatize(Drawn() >> Scale(), cache=store)
        g.forward(X)
        found = g.estimate(X)
        assert list(outcomes(found).values()) == ["always", "unknown"]
        assert list(outcomes(g.estimate(X, seed=1)).values()) == ["computed", "unknown"]
        g.forward(X, seed=1)
        assert list(outcomes(g.estimate(X, seed=1)).values()) == ["reused", "reused"]
        assert found.rows[0].key == ""

    def test_what_it_gives_is_the_same_in_a_fit_and_the_forward_after_it(self, store):
        class Unkept(Filter):
            _cacheable = False

            def forward(self, x, state):
                return x

        g = Graph.somatize(Unkept() >> Center() >> Scale() >> Center(), cache=store)
        found = g.estimate(X)
        assert outcomes(found)["unkept", "output"] == "always"
        assert outcomes(found)["scale", "output"] == "reused"

    def test_an_input_without_a_hash(self, store, capsys):
        g = Graph.somatize(Scale() >> Scale(), cache=store)
        found = g.estimate(Opaque(X))
        assert list(outcomes(found).values()) == ["always", "unknown"]
        assert found.notices[0].startswith("the input of the graph is, or holds, something that")
        assert found.to_text().endswith(found.notices[0])
        assert capsys.readouterr().err == ""  # the run says it

    @pytest.mark.parametrize(
        ("marks", "learned", "says"),
        [
            ({"_cacheable": False}, "number", "its outputs are never kept (_cacheable = False)"),
            ({"_deterministic": False}, "number", "kept only with a seed (_deterministic = False)"),
            ({}, "nothing", "its fit has not returned what it learned"),
            ({}, "opaque", "nothing says how to write down what it has learned"),
        ],
    )
    def test_the_table_says_why(self, store, capsys, marks, learned, says):
        class Odd(Filter):
            def fit(self, x, y=None):
                return {"number": 1.0, "nothing": None, "opaque": Opaque(3)}[learned]

            def forward(self, x, state):
                return x

        for name, value in marks.items():
            setattr(Odd, name, value)
        g = Graph.somatize(Odd(), cache=store)
        g.fit(X)
        found = g.estimate(X, phase="forward")
        (row,) = found.rows
        assert row.outcome == "always"
        assert says in row.why
        assert found.to_text().splitlines()[-1] == f"computed every time: odd: {row.why}"
        assert found.to_dict()["rows"][0]["why"] == row.why

    def test_the_table_says_why_of_a_fit(self, store, capsys):
        found = line(store).estimate(X, Opaque(Y), phase="fit")
        assert {one.why for one in found.rows if one.what == "state"} == {"y has no hash"}
        assert {one.why for one in found.rows if one.what == "output"} == {""}
        g = Graph.somatize(Sum(), cache=store)
        g.load_state({"sum": Opaque(1.0)})
        (row,) = g.estimate(X, Y, phase="fit").rows
        assert (row.outcome, "before, and goes on from" in row.why) == ("always", True)


def record(store, id_, node, what, *, ms, at):
    name = f"{__name__}.{type(node).__qualname__}"
    key = f"{len(list(store.records())):064x}"
    store.commit(
        ActionRecord(
            key=key,
            outputs={what: "0" * 64},
            bytes={what: 8},
            compute_ms=ms,
            name=name,
            origin={"node": id_, "run": "r"},
            created_at=at,
        )
    )


class TestLastTimes:
    def test_that_of_the_same_node_comes_before_a_newer_one_of_the_class(self, store):
        record(store, "a", Scale(), "output", ms=5.0, at=100.0)
        record(store, "a", Scale(), "output", ms=7.0, at=200.0)
        record(store, "b", Scale(), "output", ms=9.0, at=300.0)
        record(store, "a", Center(), "output", ms=1.0, at=400.0)  # another class of that name
        g = Graph(cache=store)
        g.node("a", Scale())
        g.node("c", Scale())
        g.edge("a", "c")
        found = {one.node: (one.outcome, one.ms, one.since) for one in g.estimate(X).rows}
        assert found == {"a": ("computed", 7.0, 200.0), "c": ("unknown", 9.0, 300.0)}

    def test_a_fit_takes_what_a_fit_took(self, store):
        record(store, "center", Center(), "state", ms=40.0, at=1.0)
        record(store, "center", Center(), "output", ms=2.0, at=2.0)
        found = Graph.somatize(Center(), cache=store).estimate(X)
        assert [one.ms for one in found.rows] == [40.0, 2.0]
        assert (found.known_ms, found.unknown_ms) == (40.0, 2.0)
        assert str(found) == (
            "fit and forward: 1 computed, 1 unknown until run; "
            "about 40.0 ms, up to 2.0 ms more for what is unknown"
        )

    def test_what_a_script_took_is_told_as_such(self, store):
        g = Graph(cache=store)
        g.node("a", Center())
        name = identify(Center()).name
        other = ActionRecord(
            key="12" * 32,
            outputs={"state": "34" * 32},
            bytes={"state": 8},
            compute_ms=7.0,
            name=f"__main__.{Center.__qualname__}",
            origin={"node": "a", "run": "r"},
            created_at=100.0,
        )
        store.commit(other)
        found = g.estimate(np.arange(3.0), phase="fit")
        assert [one.ms for one in found.rows] == [7.0]
        (notice,) = found.notices
        assert f"the cache knows __main__.{Center.__qualname__}, of a script" in notice
        store.commit(replace(other, key="56" * 32, name=name, compute_ms=3.0))
        found = g.estimate(np.arange(3.0), phase="fit")
        assert ([one.ms for one in found.rows], found.notices) == ([3.0], ())

    def test_the_records_of_a_class_are_asked_for_once_and_only_where_they_are_needed(self, store):
        class Recent(MemoryStore):
            asked = ()

            def recent(self, name, limit):
                self.asked = (*self.asked, name)
                rows = [one for one in self.records() if one.name == name]
                return iter(sorted(rows, key=lambda one: -one.created_at)[:limit])

            def records(self):
                assert self.asked  # not without
                return super().records()

        store = Recent()
        g = line(store)
        g.fit(X, Y)
        assert store.asked == ()
        g.estimate(X, Y, phase="fit")
        assert store.asked == ()
        found = line(store, factor=5.0).estimate(X, Y, phase="fit")
        assert sorted(name.rpartition(".")[2] for name in store.asked) == ["Scale", "Sum"]
        assert found.never == ()


def halve(x):
    note("halve")
    return x / 2


def is_small(x):
    note("is_small")
    return bool(np.abs(x).max() < 1)


def is_large(x):
    note("is_large")
    return bool(np.abs(x).max() > 10)


def looped(store, until=is_small):
    g = Graph(cache=store)
    g.node("scale", Scale())
    g.loop("shrink", halve, until=until, max_iterations=5)
    g.node("last", Scale(3.0))
    g.edge("scale", "shrink")
    g.edge("shrink", "last")
    return g


def branched(store, scale=2.0):
    g = Graph(cache=store)
    g.node("scale", Scale(scale))
    g.branch("pick", is_large, {True: Center(), False: Sum()})
    g.edge("scale", "pick")
    return g


class TestBranchesAndLoops:
    def test_a_loop_that_is_known_has_a_row_for_each_pass(self, store):
        g, x = looped(store), np.full(3, 2.0)
        g.forward(x)  # 4 is halved to 2, 1 and 0.5
        found = g.estimate(x)
        assert found.counts == {"reused": 8}
        assert [one.passes for one in found.rows if one.node == "halve"] == [(1,), (2,), (3,)]

    def test_below_a_condition_that_is_not_known_there_is_a_row_for_all_that_may_come(self, store):
        x = np.full(3, 2.0)
        looped(store).forward(x)
        took = [one.compute_ms for one in store.records() if one.origin["node"] == "halve"]
        found = looped(store).estimate(x + 1)
        rows = [(one.node, one.outcome, one.passes) for one in found.rows]
        assert rows == [
            ("scale", "computed", ()),
            ("halve", "unknown", (1,)),
            ("is_small", "unknown", (1,)),
            ("halve", "unknown", ()),
            ("is_small", "unknown", ()),
            ("last", "unknown", ()),
        ]
        assert len(took) == 3
        assert found.rows[3].ms == pytest.approx(sum(took))  # of all passes of that run

    def test_a_loop_that_nobody_stops_has_all_its_passes(self, store):
        found = looped(store, until=False).estimate(X)
        assert [one.passes for one in found.rows if one.node == "halve"] == [
            (number,) for number in range(1, 6)
        ]

    @pytest.mark.parametrize(("x", "taken"), [(X, "center"), (X / 100, "sum")])
    def test_of_a_branch_that_is_known_the_arm_that_is_taken(self, store, x, taken):
        g = branched(store)
        g.fit(x, Y)
        g.forward(x)
        found = g.estimate(x, Y)
        assert {one.node for one in found.rows} == {"scale", "is_large", taken}
        assert set(found.counts) == {"reused"}

    def test_of_one_that_is_not_known_every_arm(self, store):
        found = branched(store).estimate(X, Y)
        assert outcomes(found, "fit") == {
            ("scale", "output"): "computed",
            ("is_large", "output"): "unknown",
            ("center", "state"): "unknown",
            ("sum", "state"): "unknown",
        }
        assert outcomes(found) == {
            ("scale", "output"): "reused",
            ("is_large", "output"): "reused",
            ("center", "output"): "unknown",
            ("sum", "output"): "unknown",
        }

    def test_a_condition_that_is_known_and_not_there_is_not_known(self, store):
        g = branched(store)
        g.fit(X, Y)
        drop_blobs(store, -1)
        found = outcomes(g.estimate(X, Y, phase="fit"), "fit")
        assert found["is_large", "output"] == "recomputed"
        assert found["scale", "output"] == "recomputed"
        assert found["center", "state"] == found["sum", "state"] == "unknown"

    def test_a_branch_that_learns_nothing_does_nothing_in_a_fit(self, store):
        g = Graph(cache=store)
        g.node("center", Center())
        g.branch("pick", is_large, {True: Scale(1.0), False: Scale(2.0)})
        g.edge("center", "pick")
        assert told(g.estimate(X, phase="fit")) == ["fit center state: computed"]

    def test_bodies_in_bodies(self, store):
        g = Graph(cache=store)
        g.branch("pick", is_large, {True: Scale(0.1) >> Center(), False: Sum()}, target=None)
        g.loop("again", "pick", until=False, max_iterations=2)
        found = g.estimate(X, Y, phase="fit")
        assert outcomes(found, "fit")["is_large", "output", 1] == "computed"
        assert outcomes(found, "fit")["sum", "state", 1] == "unknown"
        assert outcomes(found, "fit")["center", "state", 2] == "unknown"
        g.fit(X, Y)
        rows = [
            (one.node, one.what, *one.passes)
            for one in g.last_run.actions
            if one.outcome != "recomputed"
        ]
        assert list(outcomes(g.estimate(X, Y, phase="fit"), "fit")) == rows


class TestWhatIsRefused:
    def test_what_a_fit_or_forward_refuses(self, store):
        g = line(store)
        with pytest.raises(NotFittedError, match="'center', 'sum' learned nothing yet"):
            g.estimate(X, phase="forward")
        with pytest.raises(InvalidInput, match="learns from labels"):
            g.estimate(X)
        with pytest.raises(InvalidInput, match="x has 4 rows and y has 2"):
            g.estimate(X, Y[:2])
        with pytest.raises(InvalidInput, match="x is a generator"):
            g.estimate((one for one in X), Y)
        with pytest.raises(InvalidInput, match="epochs must be a whole number from 1"):
            g.estimate(X, Y, epochs=0)
        with pytest.raises(InvalidInput, match="seed must be a whole number"):
            g.estimate(X, Y, seed=0.5)
        with pytest.raises(UnknownNode, match="Did you mean 'center'"):
            g.estimate(X, Y, refresh="centre")
        with pytest.raises(GraphError, match="empty"):
            Graph(cache=store).estimate(X)
        assert list(store.records()) == []

    @pytest.mark.parametrize("phase", ["fitt", "both", 3, ["fit"], ""])
    def test_a_phase_that_is_none(self, store, phase):
        with pytest.raises(InvalidInput, match="phase is 'fit', 'forward', or None"):
            line(store).estimate(X, Y, phase=phase)

    def test_a_graph_that_cannot_run(self, store):
        g = line(store)
        g.node("kept", Scale(), cached=True)
        g.edge("center", "kept")
        with pytest.raises(Unsettled):
            g.estimate(X, Y)
        g = line(store)
        g.node("far", Scale(), target="nowhere")
        with pytest.raises(GraphError, match="'far' shall run at 'nowhere'"):
            g.estimate(X, Y)


class TestNothingIsTouched:
    def test_what_a_store_holds_is_as_it_was_and_nothing_is_called(self, known, store):
        records, blobs, called = dict(store._records), dict(store._blobs), list(CALLS)
        known.estimate(X, Y)
        known.estimate(X + 1, Y)
        known.estimate()
        assert (store._records, store._blobs, CALLS) == (records, blobs, called)

    def test_the_graph_and_its_listeners_know_nothing_of_it(self, known):
        heard = []
        known.on_event(heard.append)
        report, state = known.last_run, known.state()
        known.estimate(X + 1, Y, seed=5, refresh=True)
        assert (known.last_run, heard) == (report, [])
        assert known.state().keys() == state.keys()
        known.fit(X, Y)
        assert known.last_run.computed == ()  # the seed is what it was

    def test_a_cache_that_fails_knows_nothing(self):
        class Broken(MemoryStore):
            def lookup(self, key):
                raise OSError("the disk is on fire")

            def records(self):
                raise OSError("the disk is on fire")

        found = line(Broken()).estimate(X, Y)
        assert found.rows[0].outcome == "computed"
        assert any("the disk is on fire" in one for one in found.notices)
        assert len(found.never) == 5

    @pytest.mark.parametrize("method", ["records", "recent"])
    def test_times_that_cannot_be_read_are_not_called_never_recorded(self, store, method):
        def broken(*arguments):
            raise OSError("the index is on fire")

        setattr(store, method, broken)
        found = line(store).estimate(X, Y)
        (notice,) = found.notices
        assert notice == (
            "the last times cannot be read from the cache: OSError: the index is on fire"
        )
        assert found.to_text().splitlines()[-1] == notice


def test_a_long_chain_is_looked_up_once_a_node():
    class Counting(MemoryStore):
        lookups = 0

        def lookup(self, key):
            self.lookups += 1
            return super().lookup(key)

    store = Counting()
    g = Graph(cache=store)
    ids = [g.node(f"n{number}", Scale(1.0)) for number in range(300)]
    for pair in pairwise(ids):
        g.edge(*pair)
    g.forward(X)
    store.lookups = 0
    assert g.estimate(X).counts == {"reused": 300}
    assert store.lookups == 300
    assert g.estimate(X + 1).counts["unknown"] == 299
    assert store.lookups == 301  # nobody asks for what is made of promises


# It is exactly what is done then


class Add(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return (sum(x.values()) if isinstance(x, dict) else x) + self.amount


class Learn(Filter):
    def __init__(self, amount):
        self.amount = amount

    def fit(self, x, y=None):
        return (sum(x.values()) if isinstance(x, dict) else x) * self.amount

    def forward(self, x, state):
        return (sum(x.values()) if isinstance(x, dict) else x) + state


@st.composite
def dags(draw):
    size = draw(st.integers(2, 7))
    nodes = draw(
        st.lists(st.tuples(st.sampled_from((Add, Learn)), st.integers(1, 3)), min_size=size)
    )
    edges = [
        (source, target)
        for target in range(1, len(nodes))
        for source in draw(st.sets(st.integers(0, target - 1), max_size=2))
    ]
    return nodes, edges


def declared(dag, store, changed=-1):
    g = Graph(cache=store)
    for number, (cls, amount) in enumerate(dag[0]):
        g.node(f"n{number}", cls(amount + 10 * (number == changed)))
    for source, target in dag[1]:
        g.edge(f"n{source}", f"n{target}")
    return g


def digests(store):
    """Return key -> what is recorded under it."""
    return {one.key: next(iter(one.outputs.values())) for one in store.records()}


def check(estimate, reports, known):
    guesses = {"computed", "unknown"} & estimate.counts.keys()
    again = {known[one.key] for one in estimate.rows if one.outcome == "recomputed"}
    for report in reports:
        done, keys = {}, set()
        for one in report.actions:
            done.setdefault((one.node, one.what), []).append(one.outcome)
            keys |= {one.key} if one.outcome == "computed" else set()
        rows = [one for one in estimate.rows if one.phase == report.phase]
        assert {(one.node, one.what) for one in rows} == set(done)
        for row in rows:
            found = done[row.node, row.what]
            made_again = ["hit", "recomputed"][row.what == "state" :]
            if row.outcome == "computed":
                assert row.key in keys  # of two that have one key, either is the first
            elif row.outcome == "unknown" or row.since is None:
                pass  # it may be found all the same; or what this very call makes is found
            elif guesses and known[row.key] in again:  # what was unknown did not need it after all,
                assert found in (made_again, ["hit"])  # or what was computed was the same
            else:
                assert found == (made_again if row.outcome == "recomputed" else ["hit"])


MASKS = st.just(0) | st.just(-1) | st.integers(0, (1 << 20) - 1)


def done_then(dag, store, x, changed=-1):
    """Return what was estimated of a fit and a forward, and the reports of both.

    On one thread: who is the first to make something again depends on the order.
    """
    g = declared(dag, store, changed)
    found = g.estimate(x)
    with patched(("soma.engine.schedule.SLOW_S", 1e9)):
        g.fit(x)
        reports = [g.last_run] if "fit" in found.phases else []
        g.forward(x)
    return found, [*reports, g.last_run]


@settings(max_examples=30, deadline=None)
@given(dags(), MASKS, MASKS, st.integers(-1, 6), st.booleans())
def test_it_is_what_is_done_then(dag, records, blobs, changed, leaves):
    store, x = MemoryStore(), 5
    g = declared(dag, store)
    with kept_only_at_leaves_and_mapped() if leaves else nullcontext():
        g.fit(x)
        g.forward(x)
    drop_records(store, records)
    drop_blobs(store, blobs)
    known = digests(store)
    found, reports = done_then(dag, store, x, changed)
    check(found, reports, known)
    assert declared(dag, store, changed).estimate(x).counts.keys() <= {"reused", "read"}


@settings(max_examples=40, deadline=None)
@given(dags(), MASKS, st.booleans())
def test_what_is_not_there_is_made_again_as_often_as_was_said(dag, blobs, leaves):
    """Many nodes of a graph give the same: the first makes it again, and may keep it."""
    store, x = MemoryStore(), 5
    with kept_only_at_leaves_and_mapped() if leaves else nullcontext():
        done_then(dag, store, x)
        drop_blobs(store, blobs)
        known = digests(store)
        found, reports = done_then(dag, store, x)
    assert not {"computed", "always", "unknown"} & found.counts.keys()
    check(found, reports, known)


class TestShown:
    def test_as_plain_data(self, known):
        found = known.estimate(X + 1, Y)
        data = json.loads(json.dumps(found.to_dict()))
        assert data["phases"] == ["fit", "forward"]
        assert data["counts"] == {"reused": 2, "computed": 1, "unknown": 4}
        assert data["known_ms"] == found.rows[0].ms
        assert data["never"] == 0
        assert [one["node"] for one in data["rows"]] == [one.node for one in found.rows]
        assert data["rows"][0]["passes"] == []

    @pytest.mark.parametrize("ms", [float("nan"), float("inf"), 1e308, 3.0])
    @pytest.mark.parametrize("at", [1e30, -1e18, float("nan"), float("-inf"), 1e9])
    def test_of_a_record_with_odd_numbers(self, store, ms, at):
        record(store, "scale", Scale(), "output", ms=ms, at=at)
        record(store, "other", Scale(), "output", ms=ms, at=at)
        g = Graph.somatize(Scale(1.0) >> Scale(2.0), cache=store)
        found = g.estimate(X)
        assert [one.ms for one in found.rows] == [ms if np.isfinite(ms) else None] * 2
        assert [one.since for one in found.rows] == [at if np.isfinite(at) else None] * 2
        assert found.to_text()
        assert str(found)

        def refused(name):
            raise AssertionError(f"{name} is no JSON")

        assert json.loads(json.dumps(found.to_dict()), parse_constant=refused)["rows"]
