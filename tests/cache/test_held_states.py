"""What becomes of a state whose file is damaged while a graph holds it.

Each kind of damage in a process of its own: looking at a map of a file that was cut ends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import numpy as np
from soma import Filter, Graph
from soma.errors import NotFittedError
from soma.sessions import InProcessRunner, LocalRunner
from soma_cache import open_store
from support.cache_folders import blobs_of, damage

FOLDER, KIND = sys.argv[1], sys.argv[2]
ITEMS = 300_000  # of 8 bytes: what is mapped
CALLS = []


class Learn(Filter):
    def __init__(self, by):
        self.by = by

    def fit(self, x, y=None, state=None):
        CALLS.append("fit")
        return {"seen": x * self.by if state is None else state["seen"] + x}

    def forward(self, x, state):
        CALLS.append("forward")
        return x + state["seen"]


def outcome(call, expected):
    try:
        found = call()
    except NotFittedError as error:
        return [str(error)]
    return "right" if np.array_equal(found, expected) else "wrong"


def ways(g, x, by):
    yield "forward", lambda: g.forward(x + 1), x + 1 + x * by
    yield "state", lambda: g.state()["learn"]["seen"], x * by
    yield "program", lambda: g.program().states["learn"]["seen"], x * by
    yield "in process", lambda: in_session(InProcessRunner, g, x + 2), x + 2 + x * by
    yield "in a process", lambda: in_session(LocalRunner, g, x + 3), x + 3 + x * by
    yield "warm start", lambda: warm(g, x + 4), x * by + x + 4


def in_session(runner, g, x):
    with runner() as made, made.open(g.program()) as session:
        return session.forward(x)


def warm(g, x):
    g.fit(x, warm_start=True)
    return g.state()["learn"]["seen"]


def after_a_fit():
    x, found = np.arange(ITEMS, dtype=float), {}
    names = [name for name, *_ in ways(None, x, 0)]
    for by, first in enumerate(names, 2):
        before = blobs_of(FOLDER)
        g = Graph()
        g.node("learn", Learn(by))
        g.fit(x)
        made = [one for one in blobs_of(FOLDER) if one not in before]
        damage(made, KIND)
        again = {name: (call, right) for name, call, right in ways(g, x, by)}
        found[first] = [outcome(*again[first]), len(made)]
        if first != "warm start":  # which is another state afterwards
            found[first].append([outcome(*again[name]) for name in ("forward", "state")])
        else:
            found[first].append([])
        g.fit(x)
        found[first].append(outcome(*again["state"]))
        found[first].append(outcome(*again["forward"]))
    return found


class Damaging(type(open_store(FOLDER))):
    def commit(self, record):
        super().commit(record)
        self.armed = "state" in record.outputs and not self.done

    def lookup(self, key):
        if self.armed:  # the state is kept, and the node is about to be forwarded
            self.armed, self.done = False, True
            damage(blobs_of(FOLDER), KIND)
        return super().lookup(key)


def within_a_fit():
    x = np.arange(ITEMS, dtype=float)
    store = open_store(FOLDER)
    store.__class__ = Damaging
    store.armed = store.done = False
    g = Graph(cache=store)
    g.node("learn", Learn(7))
    g.node("next", Learn(2))
    g.edge("learn", "next")
    del CALLS[:]
    g.fit(x)
    return list(CALLS), outcome(lambda: g.state()["next"]["seen"], 2 * (x + 7 * x))


print(json.dumps({"after_a_fit": after_a_fit, "within_a_fit": within_a_fit}[sys.argv[3]]()))
"""

TESTS = Path(__file__).parents[1]
GONE = ["emptied", "halved", "one byte less", "middle bit", "zeros"]


def run(folder, kind, what):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), kind, what],
        env={**os.environ, "PYTHONPATH": str(TESTS), "SOMA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", GONE)
def test_a_held_state_whose_file_was_damaged_is_an_error(folder, kind):
    found = run(folder, kind, "after_a_fit")
    assert len(found) == 6
    for first, (outcome, count, others, state, output) in found.items():
        assert count == 1, first
        assert not isinstance(outcome, str), (first, outcome)
        assert "damaged in the cache" in outcome[0], first
        assert "Call fit again" in outcome[0], first
        assert "'learn'" in outcome[0], first
        assert (state, output) == ("right", "right"), first
        assert "right" not in others, first
        assert "wrong" not in others, first


@pytest.mark.parametrize("kind", ["removed", "folder", "one byte more", "first bit"])
def test_a_held_state_outlives_its_file(folder, kind):
    """It lies in a map of the file, also where that is gone or longer; its head does not."""
    for first, (outcome, _, others, *rest) in run(folder, kind, "after_a_fit").items():
        assert outcome == "right", first
        assert others in ([], ["right"] * 2), first
        assert rest == ["right"] * 2, first


@pytest.mark.parametrize("kind", [*GONE, "removed"])
def test_a_state_that_is_damaged_within_a_fit_is_made_again(folder, kind):
    calls, outcome = run(folder, kind, "within_a_fit")
    assert outcome == "right"
    again = [] if kind == "removed" else ["fit"]
    assert calls == ["fit", *again, "forward", "fit"]
