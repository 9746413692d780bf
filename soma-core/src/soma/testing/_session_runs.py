"""The session suite: whatever a graph can be, a session runs it to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from soma.contracts import FitReport
from soma.errors import InvalidInput, NotFittedError, UnknownNode
from soma.graph import Graph
from soma.testing import _session_filters as filters
from soma.testing._session_base import SessionCases, X, Y, assert_same, chain, fitted_chain

__all__ = ["RunCases"]


def _line(*nodes: Any) -> Graph:
    """Return a graph of nodes one after the other: n0, n1, ..."""
    g = Graph(cache="memory")
    for place, node in enumerate(nodes):
        g.node(f"n{place}", node)
        if place:
            g.edge(f"n{place - 1}", f"n{place}")
    return g


def _fan_in() -> Graph:
    g = Graph(cache="memory")
    g.node("zwei", filters.double)
    g.node("eins", filters.Scaler())
    g.node("join", filters.Join())
    g.edge("zwei", "join")
    g.edge("eins", "join")
    return g


def _branch() -> Graph:
    g = Graph(cache="memory")
    arms = {"positive": filters.Scaler(), "negative": filters.halve}
    g.branch("which", filters.sign, arms)
    g.node("after", filters.double)
    g.edge("which", "after")
    return g


def _loop() -> Graph:
    g = Graph(cache="memory")
    g.node("before", filters.double)
    g.loop("again", filters.Refine(), until=filters.below_one)
    g.edge("before", "again")
    return g


class RunCases(SessionCases):
    """Graphs of every kind, states, seeds and options."""

    def _both(
        self, opened: Any, make: Callable[[], Graph], x: Any, y: Any = None, *, seed: Any = None
    ) -> tuple[Graph, Any]:
        """Fit and forward a graph here and in a session, compare, and return both."""
        here, session = make(), opened(make())
        here.fit(x, y, seed=seed)
        report = session.fit(x, y, seed=seed, options={})
        assert isinstance(report, FitReport)
        assert_same(dict(report.states), dict(here.state()))
        assert_same(dict(session.state()), dict(here.state()))
        assert_same(session.forward(x), here.forward(x))
        return here, session

    def test_a_chain(self, opened: Any) -> None:
        """What one node learns from is what the one before gives."""
        g, session = self._both(opened, chain, X, Y)
        assert_same(session.forward(X[:2] - 1), g.forward(X[:2] - 1))

    def test_a_fan_in(self, opened: Any) -> None:
        """A node that several feed gets a dict, in the order of ids."""
        _, session = self._both(opened, _fan_in, X)
        assert session.forward(X)[0] == ["eins", "zwei"]

    def test_several_leaves(self, opened: Any) -> None:
        """What comes back is a dict by node id."""

        def make() -> Graph:
            g = Graph(cache="memory")
            g.node("b", filters.Scaler())
            g.node("a", filters.double)
            return g

        _, session = self._both(opened, make, X)
        assert list(session.forward(X)) == ["b", "a"]

    def test_a_branch(self, opened: Any) -> None:
        """Only the arm that the data take has learned; the other needs nothing."""
        g, session = self._both(opened, _branch, X)
        assert_same(session.forward(-X), g.forward(-X))

    def test_an_arm_that_was_never_fitted(self, opened: Any) -> None:
        """It is refused as in a graph, and the arm that can run runs."""
        _, session = self._both(opened, _branch, -X)
        with pytest.raises(NotFittedError, match="positive"):
            session.forward(X)
        assert_same(session.forward(-X), -X)

    def test_a_loop(self, opened: Any) -> None:
        """A node that learns in a loop goes on from pass to pass."""
        _, session = self._both(opened, _loop, X)
        (state,) = session.state().values()
        assert state["passes"] > 1

    def test_plain_functions_and_partials(self, opened: Any) -> None:
        """What needs no fit runs without one."""
        make = partial(_line, filters.double, partial(filters.scale, factor=0.1), filters.halve)
        self._both(opened, make, X)
        assert_same(opened(make()).forward(X), make().forward(X))

    @pytest.mark.parametrize("seed", [None, 0, 12345, 2**70])
    def test_numbers_that_are_drawn(self, opened: Any, seed: int | None) -> None:
        """A generator is made from the key, so that it is the same everywhere."""
        self._both(opened, partial(_line, filters.Noise(), filters.Noise()), X, seed=seed)

    def test_a_seed_holds_from_its_fit_on(self, opened: Any) -> None:
        """A forward takes the seed of the last fit, or its own for once."""
        make = partial(_line, filters.Noise())
        g, session = self._both(opened, make, X, seed=3)
        assert_same(session.forward(X, seed=4), g.forward(X, seed=4))
        assert_same(session.forward(X), g.forward(X, seed=3))
        with pytest.raises(AssertionError):
            assert_same(session.forward(X, seed=4), session.forward(X))
        session.fit(X, seed=None, options={})
        assert_same(session.forward(X), g.forward(X))

    def test_the_seed_of_the_graph(self, opened: Any) -> None:
        """A program has the seed that its graph had."""
        g = _line(filters.Noise())
        g.fit(X, seed=9)
        assert_same(opened(g).forward(X), g.forward(X))

    def test_fit_options(self, opened: Any) -> None:
        """They reach the filter that names them; one that there is not is refused by name."""
        session = opened(_line(filters.Steps()))
        given = {"epochs": 4, "batch_size": 2, "shuffle": True}
        report = session.fit(X, seed=None, options=given)
        assert dict(report.states) == {"n0": {"steps": 4, "batch_size": 2, "shuffle": True}}
        with pytest.raises(InvalidInput, match="epochs"):
            session.fit(X, seed=None, options={"epoch": 4})
        with pytest.raises(InvalidInput, match="epochs"):
            session.fit(X, seed=None, options={"epochs": 0})

    def test_a_fit_starts_from_scratch_or_from_init(self, opened: Any) -> None:
        """Without ``init`` what was learned before counts for nothing."""
        session = opened(_line(filters.Steps()))
        for _ in range(2):
            report = session.fit(X, seed=None, options={"epochs": 2})
            assert report.states["n0"]["steps"] == 2  # noqa: PLR2004  # two epochs
        start: dict[str, Any] = {"n0": {"steps": 10, "batch_size": None, "shuffle": False}}
        report = session.fit(X, seed=None, init=start, options={})
        assert report.states["n0"]["steps"] == 11  # noqa: PLR2004  # 10 of init, one epoch
        assert_same(session.forward(X), X * 11)
        with pytest.raises(UnknownNode, match="'nobody'"):
            session.fit(X, seed=None, init={"nobody": {}}, options={})

    def test_what_the_graph_knows_is_open_as_well(self, opened: Any) -> None:
        """A program carries the states of its graph, and a session's fit changes none of them."""
        g = fitted_chain()
        before = g.state()
        session = opened(g)
        assert_same(dict(session.state()), dict(before))
        assert_same(session.forward(X), g.forward(X))
        session.fit(X * 2, Y, seed=None, options={})
        assert_same(dict(g.state()), dict(before))

    def test_states_go_round(self, opened: Any) -> None:
        """What ``state`` returns, ``load_state`` takes, in any other session of the program."""
        first, second = opened(chain()), opened(chain())
        first.fit(X, Y, seed=None, options={})
        second.load_state(first.state())
        assert_same(dict(second.state()), dict(first.state()))
        assert_same(second.forward(X), first.forward(X))
        with pytest.raises(UnknownNode, match="'nobody'"):
            second.load_state({"nobody": {}})
        with pytest.raises(InvalidInput):
            second.load_state([1])

    def test_states_are_the_callers_own(self, opened: Any) -> None:
        """What is done to a state that was returned or loaded changes nothing."""
        session = opened(chain())
        report = session.fit(X, Y, seed=None, options={})
        expected = session.forward(X)
        for states in (report.states, session.state()):
            states["scale"]["mean"][:] = 99
            session.load_state(session.state())
        assert_same(session.forward(X), expected)

    def test_forward_before_fit(self, opened: Any) -> None:
        """It is refused, and names the nodes."""
        session = opened(chain())
        with pytest.raises(NotFittedError, match="'scale'"):
            session.forward(X)

    def test_a_fit_report(self, opened: Any) -> None:
        """It counts rows, and what was known and what was computed."""
        session = opened(chain())
        cold = session.fit(X, Y, seed=None, options={})
        warm = session.fit(X, Y, seed=None, options={})
        assert (cold.rows, warm.rows) == (len(X), len(X))
        assert (cold.metrics["hits"], warm.metrics["computed"]) == (0, 0)
        assert warm.metrics["hits"] > 0
        assert cold.metrics["computed"] > 0
        assert cold.metrics["duration_ms"] > 0
        assert_same(dict(warm.states), dict(cold.states))

    def test_the_store_of_the_graph(self, opened: Any) -> None:
        """What a session computes the graph need not compute, and the other way round."""
        g = chain()
        session = opened(g)
        session.fit(X, Y, seed=None, options={})
        g.fit(X, Y)
        assert g.last_run is not None
        assert g.last_run.computed == ()
        g.fit(X + 1, Y)
        assert session.fit(X + 1, Y, seed=None, options={}).metrics["computed"] == 0

    @pytest.mark.parametrize("cache", ["memory", "off"])
    def test_the_input_stays_as_it_was(self, opened: Any, cache: str) -> None:
        """A filter that writes to its input writes to a copy."""
        g = Graph(cache=cache)
        g.node(filters.Greedy())
        given = np.ones((2, 3))
        session = opened(g)
        ref = session.put(given)
        for x in (given, ref, ref.rows(0, 2), given):
            assert_same(session.forward(x), np.zeros((2, 3)))
        assert_same(given, np.ones((2, 3)))
