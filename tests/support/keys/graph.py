"""Where a node stands in its graph."""

from __future__ import annotations

from soma import Filter, Graph
from support.keys.lab import Keys, Lab, Probe, X, alone, keys, row

Pair = tuple[Keys, Keys]


class Times(Filter):
    def __init__(self, factor=1):
        self.factor = factor

    def forward(self, x, state):
        return x * self.factor


def fed(**above: Filter) -> Graph:
    """Return a graph in which the node is fed by some others."""
    g = alone(Probe())
    for name, node in above.items():
        g.node(name, node)
        g.edge(name, "probe")
    return g


@row("the id of the node")
def _(lab: Lab) -> Pair:
    return keys(), keys(name="another")


@row("the order in which nodes and edges were declared")
def _(lab: Lab) -> Pair:
    return keys(graph=fed(a=Times(1), b=Times(2))), keys(graph=fed(b=Times(2), a=Times(1)))


@row("nodes that it does not depend on, beside it or below")
def _(lab: Lab) -> Pair:
    g = alone(Probe())
    g.node("beside", Times(3))
    g.node("below", Times(2))
    g.edge("probe", "below")
    return keys(), keys(graph=g)


@row("a node above that hands on what it gets")
def _(lab: Lab) -> Pair:
    return keys(), keys(graph=fed(a=Times(1)))


@row("the id of the only node that feeds it")
def _(lab: Lab) -> Pair:
    return keys(graph=fed(a=Times(2))), keys(graph=fed(b=Times(2)))


@row("the id of one of several that feed it")
def _(lab: Lab) -> Pair:
    one = fed(a=Times(1), b=Times(2))
    return keys(graph=one), keys(graph=fed(a=Times(1), c=Times(2)))


@row("one node more that feeds it, or one less")
def _(lab: Lab) -> Pair:
    return keys(graph=fed(a=Times(1))), keys(graph=fed(a=Times(1), b=Times(2)))


@row("an edge that is cut: `optional`, `set_edge(..., False)`")
def _(lab: Lab) -> Pair:
    g = fed(a=Times(1), b=Times(2))
    g.optional("b", "probe")
    before = keys(graph=g)
    g.set_edge("b", "probe", False)  # as it is called
    return before, keys(graph=g)


@row("the arm of a branch that it stands in")
def _(lab: Lab) -> Pair:
    g = Graph(cache="memory")
    g.branch("way", is_long, arms={True: Probe(), False: Times(2)})
    assert is_long(X)
    return keys(), keys(graph=g)


def is_long(x):
    return len(x) > 1
