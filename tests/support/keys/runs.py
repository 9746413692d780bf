"""What one run is told: seeds, options, states, marks."""

from __future__ import annotations

import numpy as np

from soma import Filter, Graph
from support.keys.lab import Keys, Lab, Probe, X, Y, alone, keys, row

Pair = tuple[Keys, Keys]


class Unseeded(Probe):
    _uses_seed = False


class Trains(Probe):
    """Names an option and a state."""

    def fit(self, x, y=None, *, epochs, state=None):
        return 0


class Draws(Filter):
    def forward(self, x, state, *, rng):
        return x


class Keeps(Filter):
    def forward(self, x, state):
        return x


def loaded(node, **states) -> Keys:
    g = alone(node)
    g.load_state(states)
    return keys(graph=g)


@row("the seed, or whether one was given")
def _(lab: Lab) -> Pair:
    none, one, two = keys(), keys(seed=1), keys(seed=2)
    assert (
        len({none.fit, one.fit, two.fit}) == len({none.output, one.output, two.output}) == 3
    )  # all
    return one, two


@row("the same, of a filter with `_uses_seed = False`")
def _(lab: Lab) -> Pair:
    return keys(Unseeded(), seed=1), keys(Unseeded(), seed=2)


@row("`epochs`, `batch_size`, `shuffle`, where `fit` names it")
def _(lab: Lab) -> Pair:
    return keys(Trains()), keys(Trains(), epochs=2)


@row("the same, where it does not")
def _(lab: Lab) -> Pair:
    return keys(), keys(epochs=2, batch_size=7, shuffle=True)


@row("a state that was loaded, where `fit` names `state`")
def _(lab: Lab) -> Pair:
    assert loaded(Trains(), probe=1).fit != loaded(Trains(), probe=2).fit
    return keys(Trains()), loaded(Trains(), probe=1)


@row("the same, where it does not name it")
def _(lab: Lab) -> Pair:
    return keys(), loaded(Probe(), probe=1)


def _again(node: Filter, *, warm_start: bool) -> Keys:
    g = alone(node)
    g.fit(X, Y)
    return keys(graph=g, warm_start=warm_start)


@row("`warm_start=True` after a fit, where `fit` names `state`")
def _(lab: Lab) -> Pair:
    return _again(Trains(), warm_start=False), _again(Trains(), warm_start=True)


@row("an earlier fit with other data, without `warm_start`")
def _(lab: Lab) -> Pair:
    g = alone(Trains())
    g.fit(X + 1, Y)
    return keys(Trains()), keys(graph=g)


@row("`refresh=True`: it is computed anew, under the same key")
def _(lab: Lab) -> Pair:
    return keys(), keys(refresh=True)


@row("`.frozen()`, `.cached()`, `target=`")
def _(lab: Lab) -> Pair:
    g = Graph(cache="memory")
    g.node("probe", Probe().frozen().cached(), target="local")
    return keys(), keys(graph=g)


@row("listeners, progress, a tracked run")
def _(lab: Lab) -> Pair:
    g = alone(Probe())
    g.on_event(lambda event: None)
    with g.track_run("looked at", root=lab.folder / "runs"):
        return keys(), keys(graph=g)


def passes(node: Filter) -> Pair:
    """Return the keys of the first pass of a loop and of the second, which are given the same."""
    g = Graph(cache="memory")
    g.loop("twice", node, until=False, max_iterations=2)
    g.forward(np.array(1.0))
    one, two = (run.key for run in g.last_run.actions if run.what == "output")
    return Keys("", one), Keys("", two)


@row("the pass of a loop, given the same")
def _(lab: Lab) -> Pair:
    return passes(Keeps())


@row("the pass of a loop, of a filter that names `rng`")
def _(lab: Lab) -> Pair:
    return passes(Draws())
