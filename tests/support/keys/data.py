"""The data that a node is given."""

from __future__ import annotations

import numpy as np

from soma import Filter, Graph
from support.keys.lab import Keys, Lab, Probe, X, Y, alone, key_of, keys, row

Pair = tuple[Keys, Keys]

MANY = np.arange(6.0).reshape(2, 3)


def given(before, after) -> Pair:
    """Return the keys where both fit and forward are given one thing, and another."""
    both = [keys(x=value, y=None, given=value) for value in (before, after)]
    return both[0], both[1]


@row("a value in the x of `fit`")
def _(lab: Lab) -> Pair:
    return keys(), keys(x=X + 1)


@row("a value in y, or the order of y")
def _(lab: Lab) -> Pair:
    assert keys(y=Y[::-1]).fit != keys().fit
    return keys(), keys(y=Y + 1)


@row("no y where there was one")
def _(lab: Lab) -> Pair:
    return keys(), keys(y=None)


@row("a value in the x of `forward`")
def _(lab: Lab) -> Pair:
    return keys(), keys(given=X + 1)


@row("the x of both: its dtype, `float32` for `float64`")
def _(lab: Lab) -> Pair:
    return given(X, X.astype("f4"))


@row("the byte order of x")
def _(lab: Lab) -> Pair:
    return given(X, X.astype(">f8"))


@row("the shape of x, `(3, 2)` for `(2, 3)`")
def _(lab: Lab) -> Pair:
    return given(MANY, MANY.reshape(3, 2))


@row("0 dimensions for one item in one dimension")
def _(lab: Lab) -> Pair:
    return given(np.array([1.0]), np.array(1.0))


@row("the order of x in memory, Fortran for C")
def _(lab: Lab) -> Pair:
    return given(MANY, np.asfortranarray(MANY))


@row("a view, contiguous or not, for an array of its own")
def _(lab: Lab) -> Pair:
    apart = np.repeat(X, 2)[::2]
    assert not apart.flags.c_contiguous
    return given(X, apart)


@row('an array in a file (`np.load(..., mmap_mode="r")`) for one in memory')
def _(lab: Lab) -> Pair:
    np.save(lab.folder / "x.npy", X)
    return given(X, np.load(lab.folder / "x.npy", mmap_mode="r"))


@row("a list for an array, a tuple for a list")
def _(lab: Lab) -> Pair:
    assert len(set(given(X.tolist(), tuple(X.tolist())))) > 1
    return given(X, X.tolist())


@row("the order of a dict")
def _(lab: Lab) -> Pair:
    return given({"a": 1, "b": 2}, {"b": 2, "a": 1})


@row("the order of a set")
def _(lab: Lab) -> Pair:
    return given({0, 8}, {8, 0})


@row("`-0.0` for `0.0`, another bit of a NaN")
def _(lab: Lab) -> Pair:
    quiet = np.array([0x7FF8000000000000, 0x7FF8000000000001], "u8").view("f8")
    assert len(set(given(quiet[:1].copy(), quiet[1:].copy()))) > 1
    return given(np.array([0.0]), np.array([-0.0]))


class Shift(Filter):
    """Comes before the node that is looked at."""

    def __init__(self, by, note=""):
        self.by = by
        self.note = note

    def forward(self, x, state):
        return x + self.by


def below(first) -> Keys:
    return keys(graph=Graph.somatize(first >> Probe(), cache="memory"))


@row("a node above, whose output comes out the same")
def _(lab: Lab) -> Pair:
    return below(Shift(1)), below(Shift(1, note="edited"))


@row("a node above, whose output comes out differently")
def _(lab: Lab) -> Pair:
    return below(Shift(1)), below(Shift(2))


@row("what `fit` has learned, or a state that is loaded")
def _(lab: Lab) -> Pair:
    found = []
    for state in (1, 2):
        g = alone(Probe())
        g.load_state({"probe": state})
        g.forward(X)
        found.append(Keys("", key_of(g, "probe", "output")))
    return found[0], found[1]
