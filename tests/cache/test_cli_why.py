"""``soma cache why RUN NODE``: which part of a key was another, of real runs and of odd ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from soma import Filter, Graph
from soma_cache import open_store
from support.cache_cli import new_store, soma_cache
from support.run_dirs import event, write_run


class Scale(Filter):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, x, state):
        return x * self.factor


class Centre(Filter):
    def fit(self, x, y=None):
        return x.mean(axis=0)

    def forward(self, x, mean):
        return x - mean


class Edited(Filter):
    def forward(self, x, state):
        return x + 1


class Never(Filter):
    _cacheable = False

    def forward(self, x, state):
        return x + 2


class Fails(Filter):
    def forward(self, x, state):
        raise ValueError("no\nmore")


class Mean(Filter):
    def forward(self, x, state):
        return {"left": x["scale"], "right": x["add"]}


X = np.arange(6.0).reshape(3, 2)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def tracked(root, expression, x=X, *, fit=False, **options):
    g = expression if isinstance(expression, Graph) else Graph.somatize(expression)
    with g.track_run("study", root=root):
        if fit:
            g.fit(x, **options)
        g.forward(x)
    return g


def why(root, node, *words, run="last"):
    return soma_cache("why", run, node, "--root", root, *words)


def reasons(root, node):
    done = why(root, node, "--json")
    assert (done.status, done.err) == (0, "")
    return [(one["what"], one["reason"]) for one in json.loads(done.out)["misses"]]


class TestWhatDiffers:
    def test_an_attribute(self, root):
        tracked(root, Scale(2.0) >> Centre(), fit=True)
        tracked(root, Scale(3.0) >> Centre(), fit=True)
        done = why(root, "scale")
        assert (done.status, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0] == "scale: 1 computed, 1 known"
        assert lines[1] == "  output: the attribute 'factor' is another"
        assert lines[2].startswith("    compared with the output of node scale, call ")
        (state, first), (output, second) = reasons(root, "centre")
        assert (state, output) == ("state", "output")
        assert first.startswith("its input is another (")
        assert "scale" in first
        assert first in second
        assert "what it has learned is another" in second

    def test_the_input(self, root):
        tracked(root, Scale(2.0))
        tracked(root, Scale(2.0), X + 1)
        assert reasons(root, "scale") == [("output", "its input is another (the x of the graph)")]

    def test_an_edited_method_also_where_the_run_has_others_of_its_class(self, root, monkeypatch):
        tracked(root, Edited() >> Scale(2.0) >> Edited())
        monkeypatch.setattr(Edited, "forward", lambda self, x, state: x + 1.0 + 0)
        tracked(root, Edited() >> Scale(2.0) >> Edited())
        for node in ("edited", "edited_2"):
            ((what, reason),) = reasons(root, node)
            assert what == "output"
            assert "the method 'forward' is another" in reason

    def test_the_seed(self, root):
        tracked(root, Scale(2.0) >> Centre(), fit=True, seed=1)
        tracked(root, Scale(2.0) >> Centre(), fit=True, seed=2)
        assert reasons(root, "centre")[0] == ("state", "the seed is another")

    def test_one_input_of_several(self, root):
        def built(factor):
            g = Graph()
            g.node("scale", Scale(factor))
            g.node("add", Edited())
            g.node("mean", Mean())
            g.edge("scale", "mean")
            g.edge("add", "mean")
            return g

        tracked(root, built(2.0))
        tracked(root, built(3.0))
        assert reasons(root, "mean") == [("output", "what it was given by node 'scale' is another")]

    def test_a_node_in_a_loop(self, root):
        for factor in (2.0, 3.0):
            g = Graph()
            g.loop("refine", Scale(factor).named("step"), until=False, max_iterations=3)
            tracked(root, g)
        done = why(root, "step")
        assert done.out.splitlines()[0] == "step: 3 computed"
        assert "  output in pass 1: the attribute 'factor' is another\n" in done.out
        misses = json.loads(why(root, "step", "--json").out)["misses"]
        assert [one["passes"] for one in misses] == [[1], [2], [3]]
        done = why(root, "refine")
        assert (done.status, "is a branch or a loop" in done.err) == (2, True)

    def test_a_source_is_named_only_where_it_is_known(self, root):
        """As ``g.explain_miss`` does, which has seen the run."""

        def small(x):
            return bool(x.max() < 100)

        def built(factor):
            g = Graph()
            g.node("scale", Scale(factor))
            arm = Edited().named("first") >> Edited().named("second")
            g.branch("tame", small, arms={True: arm, False: Edited().named("other")})
            g.edge("scale", "tame")
            g.loop("refine", Edited().named("step"), until=False, max_iterations=2)
            g.edge("tame", "refine")
            g.branch("alone", small, arms={True: Edited().named("far")})
            return g

        tracked(root, built(2.0))
        g = tracked(root, built(3.0))
        given = {"small": "'scale'", "second": "'first'", "first": None, "step": None}
        for node, source in given.items():
            ((_, told), *_) = reasons(root, node)
            assert told == g.explain_miss(node).misses[0].reason
            assert told == "its input is another" + (
                f" (what node {source} gave)" if source else ""
            )
        tracked(root, built(3.0), X + 1)
        for node in ("scale", "small_2"):
            assert reasons(root, node)[0][1] == "its input is another (the x of the graph)"
        assert reasons(root, "far")[0][1] == "its input is another"

    def test_as_json(self, root):
        tracked(root, Scale(2.0))
        tracked(root, Scale(3.0))
        found = json.loads(why(root, "scale", "--json").out)
        assert found["run"].startswith("run_")
        (miss,) = found.pop("misses")
        assert (found["node"], found["hits"]) == ("scale", 0)
        assert (miss["what"], miss["passes"]) == ("output", [])
        assert miss["differs"] == [{"part": "attribute factor", "how": "changed"}]
        assert miss["nearest"]["node"] == "scale"
        assert len(miss["key"]) == len(miss["nearest"]["key"]) == 64
        assert miss["key"] != miss["nearest"]["key"]


class TestWhatWasRecordedSince:
    def test_it_is_compared_with_that(self, root):
        tracked(root, Scale(2.0))
        tracked(root, Scale(3.0))
        g = Graph.somatize(Scale(2.0))
        g.forward(X, refresh=True)  # which records it anew
        ((_, reason),) = reasons(root, "scale")
        assert reason.endswith(
            "Compared with a record made since: the attribute 'factor' is another"
        )
        (miss,) = json.loads(why(root, "scale", "--json").out)["misses"]
        (kept,) = [one for one in open_store().records() if one.key == miss["nearest"]["key"]]
        assert miss["nearest"]["created_at"] == kept.created_at
        assert "compared with the output of node scale, call " in why(root, "scale").out

    def test_a_cache_that_had_it_was_not_asked(self, root):
        Graph.somatize(Scale(2.0)).forward(X)
        g = Graph(cache="memory")
        g.node("scale", Scale(2.0))
        tracked(root, g)
        for _ in range(2):
            ((_, reason),) = reasons(root, "scale")
            assert reason.startswith("this cache had it before that: the run used another cache")
            Graph.somatize(Scale(5.0)).forward(X)  # nor is that a reason


class TestNothingToCompare:
    def test_the_first_of_its_class(self, root):
        tracked(root, Scale(2.0))
        ((what, reason),) = reasons(root, "scale")
        assert what == "output"
        assert reason.startswith("the cache had no output of ")

    def test_a_node_that_only_hit(self, root):
        tracked(root, Scale(2.0))
        tracked(root, Scale(2.0))
        for words in ((), ("--dir", root / "nowhere")):  # which nobody has to ask
            assert why(root, "scale", *words) == (
                0,
                "scale did not miss: all of it was known\n",
                "",
            )

    def test_what_is_never_kept(self, root):
        tracked(root, Never())
        ((what, reason),) = reasons(root, "never")
        assert (what, "it was not looked up" in reason) == ("output", True)

    def test_a_node_that_raised(self, root):
        with pytest.raises(ValueError, match="no\nmore"):
            tracked(root, Fails())
        ((_, reason),) = reasons(root, "fails")
        assert reason == "it was not known, and then it raised ValueError: no more"

    def test_what_was_made_again(self, root, folder):
        tracked(root, Scale(2.0) >> Edited(), np.arange(10_000.0))
        for blob in (folder / "cas").rglob("*.bin"):
            blob.unlink()
        tracked(root, Scale(2.0) >> Edited(), np.arange(10_000.0))
        ((_, reason),) = reasons(root, "edited")
        assert reason.startswith("it was known, and its value was needed and not there")

    def test_a_run_with_another_cache(self, root, tmp_path):
        g = Graph(cache="memory")
        g.node("scale", Scale(2.0))
        tracked(root, g)
        new_store(tmp_path / "cache")
        done = why(root, "scale", "--dir", tmp_path / "cache")
        assert done.status == 0
        assert "there is no record of it in this cache" in done.out


class TestRefresh:
    def test_is_the_reason_also_where_something_differs(self, root):
        tracked(root, Scale(2.0))
        g = Graph()
        g.node("scale", Scale(3.0))
        with g.track_run("study", root=root):
            g.forward(1.0, refresh=True)
        assert "refresh= asked for it" in why(root, "scale").out


class TestWrongUse:
    def test_no_such_run_node_or_cache(self, root, tmp_path):
        tracked(root, Scale(2.0))
        done = why(root, "scael")
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("Error: There is no node 'scael' in the run run_")
        assert done.err.endswith("Did you mean 'scale'?\n")
        done = why(root, "scale", run="studdy")
        assert (done.status, "Did you mean 'study'?" in done.err) == (2, True)
        assert why(tmp_path / "nowhere", "scale").status == 2
        done = why(root, "scale", "--dir", tmp_path / "nowhere")
        assert done == (2, "", f"Error: There is no cache in {tmp_path}/nowhere yet.\n")

    def test_odd_names(self, root):
        tracked(root, Scale(2.0))
        done = why(root, "\x1b[31m\n")
        assert (done.status, "\x1b" in done.err) == (2, False)


class TestEventsOfAnySort:
    def test_events_that_are_not_what_they_should_be(self, root, folder):
        new_store(folder)
        run_id = "c1"
        events = [
            event("RunStarted", run_id, phase="forward", plan_summary={}, seed=None),
            event("NodeCacheMiss", 7, node_id="scaler", what=None, key=["x"], passes="abc"),
            event("NodeCompleted", run_id, node_id="scaler", outcome={}, passes=[None, "1"]),
            event(
                "NodeCacheMiss", run_id, node_id="scaler", what="output", key="../..", passes=[2]
            ),
            event("NodeNotKept", run_id, node_id="scaler", message="\x1b[31mred\n"),
            event("NodeCacheMiss", run_id, node_id={}, what="output", key="aa", passes=[]),
            b"no JSON\n",
        ]
        write_run(root, events=events)
        done = why(root, "scaler")
        assert (done.status, done.err) == (0, "")
        assert all(one.isprintable() or one == "\n" for one in done.out)

    def test_another_made_it_meanwhile(self, root, folder):
        new_store(folder)
        about = {"node_id": "scaler", "what": "output", "key": "ab" * 32, "passes": [3]}
        write_run(
            root,
            events=[
                event("NodeCacheMiss", **about),
                event("NodeCacheHit", **about, tier="Local", load_time=1.0, bytes=1),
            ],
        )
        assert why(root, "scaler").out == "scaler did not miss: all of it was known\n"

    def test_a_run_that_did_not_get_that_far(self, root, folder):
        new_store(folder)
        write_run(
            root, events=[event("NodeCacheMiss", node_id="a", what="output", key="", passes=[])]
        )
        assert why(root, "scaler") == (0, "scaler did not run\n", "")
        assert "nothing says that it was made" in why(root, "a").out
