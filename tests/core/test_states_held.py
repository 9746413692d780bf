"""States that are held when their store has let them go: where they lie, and what is hashed."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from soma import Filter, Graph
from soma.engine import MemoryStore, NodeState
from soma.engine import states as room
from soma.engine.states import StateGone
from soma.errors import NotFittedError
from soma.frame import encode

SMALL, LARGE = 100, 300_000


class Learn(Filter):
    def fit(self, x, y=None):
        return {"seen": x * 3}

    def forward(self, x, state):
        return x + state["seen"]


class Forgetful(MemoryStore):
    """Lets go of everything at once, when it is asked to."""

    forgets = False

    def read(self, digest):
        return None if self.forgets else super().read(digest)


@pytest.fixture
def hashed(monkeypatch):
    """How many times a held state was hashed."""
    calls = []
    real = room.hash_parts
    monkeypatch.setattr(room, "hash_parts", lambda *parts: calls.append(1) or real(*parts))
    return calls


@pytest.mark.parametrize(("items", "once"), [(SMALL, []), (LARGE, [1])])
def test_what_the_store_has_is_not_hashed_and_what_is_held_once_at_most(hashed, items, once):
    store, x = Forgetful(), np.arange(items, dtype=float)
    g = Graph(cache=store)
    g.node("learn", Learn())
    g.fit(x)
    for add in (1, 2):
        assert np.array_equal(g.forward(x + add), 4 * x + add)
    assert hashed == []
    store.forgets = True
    for add in (3, 4, 5):
        assert np.array_equal(g.forward(x + add), 4 * x + add)
        g.state()["learn"]["seen"][:] = 0  # everybody's own
    assert hashed == once


class Files:
    """A store whose frames are maps of files, which are written to at will."""

    def __init__(self, folder):
        self.folder, self.gone = folder, False

    def put(self, value):
        encoded = encode(value)
        raw = b"".join(encoded.buffers)
        self.header, self.lengths = encoded.header, [len(one) for one in encoded.buffers]
        self.path = self.folder / "blob"
        self.path.write_bytes(raw)
        return encoded.digest

    def read(self, digest):
        if self.gone:
            return None
        with self.path.open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
        views, start = [], 0
        for length in self.lengths:
            views.append(whole[start : start + length])
            start += length
        return self.header, views


@pytest.fixture
def held(tmp_path):
    """A state that is held, and its store, which has let it go."""
    store = Files(tmp_path)
    state = NodeState.stored(store, store.put({"a": np.arange(5000.0)}))
    store.gone = True
    return state, store


def write(path, at, raw):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def test_what_is_right_still_is_taken_and_then_holds_whatever_becomes_of_the_file(held):
    state, store = held
    assert state.take()["a"].tolist() == list(range(5000))
    write(store.path, 0, b"\xff" * 8)
    os.truncate(store.path, 0)
    assert state.take()["a"].tolist() == list(range(5000))
    assert state.pack().open()["a"].tolist() == list(range(5000))


@pytest.mark.parametrize("cut", [None, 0, 1, 4096, 39_999])
@pytest.mark.parametrize("use", [NodeState.take, NodeState.pack])
def test_what_is_not_right_any_more_is_gone(held, cut, use):
    state, store = held
    if cut is None:
        write(store.path, 20_000, b"\xff")
    else:
        os.truncate(store.path, cut)
    with pytest.raises(NotFittedError, match="What a node has learned was damaged") as caught:
        use(state)
    assert type(caught.value) is NotFittedError
    assert state.hash() == state.digest != ""  # which needs no bytes
    state.settle("the node")
    with pytest.raises(NotFittedError, match=r"'the node'.* Call fit again"):
        use(state)


def test_the_run_that_has_made_it_is_told_as_long_as_it_goes_on(held):
    class Maker:
        pass

    state, store = held
    os.truncate(store.path, 0)
    maker = Maker()
    state.settle("a", maker)
    for _ in range(2):
        with pytest.raises(StateGone):
            state.take()
    del maker
    with pytest.raises(NotFittedError, match="'a'") as caught:
        state.take()
    assert type(caught.value) is NotFittedError


def test_when_a_fit_is_over_its_run_is_told_no_more():
    g = Graph(cache=MemoryStore())
    for name in "abcd":
        g.node(name, Learn())
        g.node(f"next {name}", Learn())
        g.edge(name, f"next {name}")
    g.fit(np.arange(LARGE, dtype=float))
    assert len(g._states) == 8
    for id_, state in g._states.items():
        assert (state._node, state._maker) == (id_, None)


def test_a_lost_state_of_another_graph_does_not_start_a_run_over():
    store, x, calls = Lossy(), np.arange(LARGE, dtype=float), []
    inner = Graph(cache=store)
    inner.node("learn", Learn())
    inner.fit(x)
    store.lose()

    def looks(x):
        calls.append(1)
        assert len(calls) < 5
        return inner.state()["learn"]["seen"]

    outer = Graph(cache=MemoryStore())
    outer.node("looks", looks)
    outer.node("learn", Learn())
    outer.edge("looks", "learn")
    with pytest.raises(NotFittedError, match="damaged"):
        outer.fit(1)
    assert calls == [1]


class Lossy(MemoryStore):
    """Loses what it has, and what others have read of it."""

    def __init__(self):
        super().__init__()
        self.read_of_it, self.lost = [], False

    def read(self, digest):
        if self.lost:
            return None
        found = super().read(digest)
        if found is not None:
            self.read_of_it.append(found)
        return found

    def lose(self):
        self.lost = True
        for _, buffers in self.read_of_it:
            for one in buffers:
                one[:8] = b"\xff" * 8


def test_a_store_that_has_it_again_is_asked_again(held):
    state, store = held
    raw = store.path.read_bytes()
    os.truncate(store.path, 0)
    with pytest.raises(NotFittedError):
        state.take()
    store.path.write_bytes(raw)
    store.gone = False
    assert state.take()["a"].tolist() == list(range(5000))


def test_a_map_of_which_nothing_is_known_is_not_looked_at():
    with mmap.mmap(-1, 4096) as whole:
        assert room._is_there(whole)  # it is of no file
    assert not room._is_there(whole)
