"""What a node is set to."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from support.keys.lab import Keys, Lab, Probe, keys, row

Pair = tuple[Keys, Keys]


def amounts(before, after) -> Pair:
    """Return the keys of a node with one public attribute, before and after."""
    return keys(Probe(before)), keys(Probe(after))


class Keeps(Probe):
    """Keeps an argument out of sight."""

    def __init__(self, hidden):
        super().__init__()
        self._hidden = hidden


class Says(Keeps):
    """Says itself what it was constructed with."""

    def kwargs(self):
        return {}


class Configured(Probe):
    def __soma_config__(self):
        return self.amount // 10


def twice(x):
    return x * 2


def thrice(x):
    return x * 3


@row("a public attribute")
def _(lab: Lab) -> Pair:
    return amounts(1, 2)


@row("a public attribute that `fit` or `forward` never reads")
def _(lab: Lab) -> Pair:
    other = Probe()
    other.note = "hello"
    return keys(), keys(other)


@row("an attribute whose name starts with `_`")
def _(lab: Lab) -> Pair:
    other = Probe()
    other._note = "hello"
    return keys(), keys(other)


@row("the order in which attributes were set")
def _(lab: Lab) -> Pair:
    one, other = Probe(), Probe()
    one.a, one.b = 1, 2
    other.b, other.a = 2, 1
    return keys(one), keys(other)


@row("`1` becomes `1.0`, or `True`")
def _(lab: Lab) -> Pair:
    one, two, three = (keys(Probe(value)) for value in (1, 1.0, True))
    assert two != three
    assert two.fit != one.fit
    return one, three


@row("`(1, 2)` becomes `[1, 2]`")
def _(lab: Lab) -> Pair:
    return amounts((1, 2), [1, 2])


@row("`0.0` becomes `-0.0`")
def _(lab: Lab) -> Pair:
    return amounts(0.0, -0.0)


@row("the order of a dict that is an attribute")
def _(lab: Lab) -> Pair:
    return amounts({"a": 1, "b": 2}, {"b": 2, "a": 1})


@row("the order of an `OrderedDict` that is one")
def _(lab: Lab) -> Pair:
    return amounts(OrderedDict(a=1, b=2), OrderedDict(b=2, a=1))


@row("a list or an array in an attribute, changed in place")
def _(lab: Lab) -> Pair:
    node = Probe([np.zeros(2)])
    before = keys(node)
    node.amount[0][1] = 1.0
    return before, keys(node)


@row("a function in an attribute becomes another")
def _(lab: Lab) -> Pair:
    return amounts(twice, thrice)


@row("the code of a function or an object that is called, in an attribute")
def _(lab: Lab) -> Pair:
    text = """
    class Op:
        def __call__(self, x): return x * {0}
    def op(x): return x * {0}
    """
    functions = [lab.module(text.format(k)).op for k in (2, 3)]
    objects = [lab.module(text.format(k)).Op() for k in (2, 3)]
    assert len({keys(Probe(one)) for one in objects}) == len(objects)
    return amounts(*functions)


@row("an attribute of a filter that is an attribute")
def _(lab: Lab) -> Pair:
    return amounts(Probe(1), Probe(2))


@row("the value of a `search(...)`")
def _(lab: Lab) -> Pair:
    return lab.texts(SEARCHED.format(high=8, set=2), SEARCHED.format(high=8, set=3))


@row("where a `search(...)` may go: bounds, choices, scale")
def _(lab: Lab) -> Pair:
    return lab.texts(SEARCHED.format(high=8, set=2), SEARCHED.format(high=9, set=2))


@row("a constructor argument that is kept only as `_name`")
def _(lab: Lab) -> Pair:
    return keys(Keeps(1)), keys(Keeps(2))


@row("the same, where the class overrides `kwargs()` and leaves it out")
def _(lab: Lab) -> Pair:
    return keys(Says(1)), keys(Says(2))


@row("an attribute that `__soma_config__()` leaves out")
def _(lab: Lab) -> Pair:
    return keys(Configured(11)), keys(Configured(12))


SEARCHED = """
class Searched(Filter):
    width = search(1, {high}, default=1)
    def fit(self, x, y=None): return 0
    def forward(self, x, state): return x
node = Searched()
node.width = {set}
"""
