"""What a run did, as it is laid over a picture: outcomes and words, worked out by hand."""

from __future__ import annotations

import pytest

from soma import Filter, Graph
from soma.engine import Decision, NodeRun
from soma.events.overlay import overlay_of
from soma.events.table import summarize
from soma.pictures import Did


class Step(Filter):
    def fit(self, x, y=None):
        return {"by": 1}

    def forward(self, x, state):
        return x + state["by"]


def looping():
    g = Graph(cache="off")
    g.node("first", abs)
    g.loop("around", Step().named("inner"), until=False, max_iterations=2)
    g.edge("first", "around")
    return g


def plan():
    return looping().compile()


def laid(rows, decisions=(), **more):
    return overlay_of(plan(), summarize(rows), decisions, **more).nodes


@pytest.mark.parametrize(
    ("rows", "did"),
    [
        ([("output", "hit", 0.0)], Did(outcome="hit", text="hit")),
        ([("state", "hit", 0.0), ("output", "hit", 0.0)], Did(outcome="hit", text="hit")),
        ([("output", "hit", 0.0)] * 2, Did(outcome="hit", text="2 hits")),
        ([("output", "computed", 1.5)], Did(outcome="computed", text="computed, 1.5 ms")),
        (
            [("state", "computed", 1.0), ("output", "hit", 0.0)],
            Did(outcome="computed", text="computed, 1 hit, 1.0 ms"),
        ),
        (
            [("output", "computed", 1.0), ("output", "computed", 2.0), ("output", "hit", 0.0)],
            Did(outcome="computed", text="2 computed, 1 hit, 3.0 ms"),
        ),
        ([("output", "recomputed", 2.0)], Did(outcome="recomputed", text="recomputed, 2.0 ms")),
    ],
)
def test_what_was_done_with_a_node(rows, did):
    found = laid([NodeRun("first", *row, 8) for row in rows])
    assert found == {"first": did}


def test_a_loop_did_what_the_worst_of_its_nodes_did():
    rows = [NodeRun("inner", "state", "hit", 0.0, 8), NodeRun("inner", "output", "hit", 0.0, 8)]
    assert laid(rows)["around"].outcome == "hit"
    rows.append(NodeRun("inner", "output", "computed", 1.0, 8))
    assert laid(rows)["around"].outcome == "computed"
    assert laid(rows, running=["inner"])["around"].outcome == "running"
    assert laid(rows, failed=["inner"])["around"].outcome == "failed"
    assert laid([]) == {}


@pytest.mark.parametrize(
    ("decisions", "text"),
    [
        ([(3, True)], "3 passes, stopped"),
        ([(3, True)] * 2, "3 passes, stopped, 2 times"),
        ([(3, True), (1, True), (12, True)], "1 to 12 passes, 3 times"),
    ],
)
def test_how_a_loop_went(decisions, text):
    told = [
        Decision("around", f"{count} passes, stopped", (), iterations=count, stopped=stopped)
        for count, stopped in decisions
    ]
    assert laid([], told)["around"] == Did(outcome="computed", text=text)


@pytest.mark.parametrize(
    ("arms", "text", "taken"),
    [
        (["a"], "took arm 'a'", ("a",)),
        (["a", "a"], "took arm 'a', 2 times", ("a",)),
        (["a", "b", "a"], "'a' 2 times, 'b' 1 time", ("a", "b")),
    ],
)
def test_which_arms_were_taken(arms, text, taken):
    told = [Decision("around", f"took arm {arm!r}", (), arm=arm) for arm in arms]
    assert laid([], told)["around"] == Did(outcome="computed", text=text, arms=taken)


def test_of_a_report_of_a_real_run():
    g = looping()
    g.fit(0)
    g.forward(0)
    overlay = g.last_run.overlay(g.compile())
    assert overlay.title.startswith("forward, ")
    assert {id_: did.outcome for id_, did in overlay.nodes.items()} == {
        "first": "computed",
        "inner": "computed",
        "around": "computed",
    }
    assert overlay.nodes["around"].text == "2 passes"


def test_of_a_run_that_failed():
    g = Graph(cache="off")
    g.node("before", lambda x: x)
    g.node("breaks", lambda x: 1 / x)
    g.node("after", abs)
    g.edge("before", "breaks")
    g.edge("breaks", "after")
    with pytest.raises(ZeroDivisionError):
        g.forward(0)
    outcomes = {id_: one.outcome for id_, one in g.last_run.overlay(g.compile()).nodes.items()}
    assert outcomes == {"before": "computed", "breaks": "failed"}
