"""What would be done, by a process that has seen nothing of the folder; which stays as it is."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from soma import Filter, Graph
from soma_cache import open_store
from support.cache_folders import blobs_of, everything
from support.notes import CALLS, note

X = np.arange(3000.0).reshape(1000, 3)
"""Larger than what lies in a record."""


class Center(Filter):
    def fit(self, x, y=None):
        note("center fit")
        return x.mean(axis=0)

    def forward(self, x, mean):
        note("center forward")
        return x - mean


def doubled(x):
    note("doubled")
    return x * 2


def is_large(x):
    note("is_large")
    return bool(np.abs(x).max() > 10)


def says_and_hands_on(x):
    note("says")
    return {"branch": bool(np.abs(x).max() > 10), "x": x}


def unpacked(x):
    return x["x"]


def graph(store, condition=is_large):
    g = Graph(cache=store)
    g.node("center", Center())
    arms = {True: doubled, False: Center()}
    if condition is says_and_hands_on:
        g.node("says", condition)
        g.edge("center", "says")
        g.branch("pick", "says", {True: unpacked, False: unpacked})
        g.edge("says", "pick")
    else:
        g.branch("pick", condition, arms)
        g.edge("center", "pick")
    return g


def done(store, condition=is_large):
    g = graph(store, condition)
    g.fit(X)
    g.forward(X)
    return g


def besides_the_index(folder):
    """Return what is in a folder; the index is derived from it, at any time and by anybody."""
    # The folder itself and tmp have a new time where the index is made.
    derived = (".", "index", "tmp")
    return {
        path: one for path, one in everything(folder).items() if path.split("/")[0] not in derived
    }


@pytest.fixture
def unseen(tmp_path):
    """A folder that this process knows nothing of, in which everything is known."""
    done(open_store(tmp_path / "there"))
    shutil.copytree(tmp_path / "there", tmp_path / "unseen")
    return tmp_path / "unseen"


@pytest.mark.parametrize("read_only", [False, True])
def test_everything_is_known_and_the_folder_is_as_it_was(unseen, read_only):
    store = open_store(unseen, read_only=read_only)
    before, called = besides_the_index(unseen), list(CALLS)
    g = graph(store)
    found = g.estimate(X)
    assert [(one.node, one.what, one.outcome) for one in found.rows] == [
        ("center", "state", "reused"),
        ("center", "output", "reused"),
        ("is_large", "output", "reused"),
        ("center", "output", "reused"),
        ("is_large", "output", "reused"),
        ("doubled", "output", "read"),
    ]
    other = g.estimate(X + 1)
    assert other.counts == {"reused": 2, "computed": 1, "unknown": 5}
    assert other.never == ()
    assert besides_the_index(unseen) == before
    assert called == CALLS


def test_a_condition_that_hands_its_data_on_is_read_from_its_file(tmp_path):
    done(open_store(tmp_path / "there"), says_and_hands_on)
    shutil.copytree(tmp_path / "there", tmp_path / "unseen")
    found = graph(open_store(tmp_path / "unseen"), says_and_hands_on).estimate(X)
    assert {one.node: one.outcome for one in found.rows if one.phase == "forward"} == {
        "center": "reused",
        "says": "read",
        "unpacked": "read",
    }


def test_a_blob_that_was_removed(unseen):
    for path in blobs_of(unseen):
        path.unlink()
    g = graph(open_store(unseen))
    rows = {(one.phase, one.node, one.what): one.outcome for one in g.estimate(X).rows}
    assert rows["fit", "center", "state"] == "reused"  # it lies in its record
    assert rows["fit", "center", "output"] == "reused"  # nobody needs it
    assert rows["forward", "center", "output"] == "recomputed"
    assert rows["forward", "doubled", "output"] == "recomputed"
    g.fit(X)
    assert g.last_run.computed == ()
    g.forward(X)
    assert g.last_run.computed == ("center", "doubled")


def test_what_a_tier_has_is_known_and_not_fetched(tmp_path, unseen):
    here = tmp_path / "here"
    store = open_store(here, url=unseen.absolute().as_uri())
    before = {folder: besides_the_index(folder) for folder in (here, unseen)}
    found = graph(store).estimate(X)
    assert {folder: besides_the_index(folder) for folder in (here, unseen)} == before
    assert [(one.node, one.what, one.outcome) for one in found.rows][:3] == [
        ("center", "state", "reused"),
        ("center", "output", "read"),
        ("is_large", "output", "reused"),
    ]
    # What the condition said is not here, so that it is not known which arm is taken.
    assert {one.node for one in found.rows if one.outcome == "unknown"} == {"doubled", "center_2"}
