"""What the cases of the session suite have in common: runners, graphs, and what counts as equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from soma.contracts import Runner
from soma.frame import content_hash
from soma.graph import Graph
from soma.testing import _session_filters as filters
from soma.testing._suite import ConformanceSuite

__all__ = [
    "TIMEOUT_S",
    "SessionCases",
    "X",
    "Y",
    "assert_same",
    "cancel_when",
    "chain",
    "fitted_chain",
]

TIMEOUT_S = 60
"""How long anything may take that another thread waits for."""

X = np.arange(24.0).reshape(8, 3) ** 1.5
Y = np.linspace(-1.0, 2.0, 8)


class SessionCases(ConformanceSuite):
    """Gives what the cases need: a runner, and sessions that are closed afterwards."""

    @pytest.fixture
    def runner(self) -> Runner:
        """Give the runner whose sessions are checked. It may be one for all checks."""
        pytest.fail(f"{type(self).__name__} has to give the fixture 'runner'")

    @pytest.fixture
    def another(self, runner: Runner) -> Iterator[Runner]:
        """Give a runner that a check may shut down. Override it where making one takes more."""
        made = type(runner)()
        yield made
        made.shutdown()

    @pytest.fixture
    def opened(self, runner: Runner) -> Iterator[Callable[..., Any]]:
        """Give a function that opens the program of a graph, until the check is over."""
        with ExitStack() as stack:

            def open_(graph: Graph, on_event: Any = None) -> Any:
                session = runner.open(graph.program(), on_event=on_event)
                stack.callback(session.close)
                return session

            yield open_


def chain() -> Graph:
    """Return a graph of two nodes that learn, with a store of its own, so that nothing is known."""
    g = Graph(cache="memory")
    g.node("scale", filters.Scaler())
    g.node("slopes", filters.Slopes(damping=0.5))
    g.edge("scale", "slopes")
    return g


def fitted_chain() -> Graph:
    """Return the same graph, fitted."""
    g = chain()
    g.fit(X, Y)
    return g


def assert_same(found: Any, expected: Any) -> None:
    """Check that two values are the same, type by type and bit by bit."""
    assert content_hash(found) == content_hash(expected), f"{found!r} is not {expected!r}"


def cancel_when(begun: threading.Event, session: Any) -> threading.Thread:
    """Return a thread, started, that cancels a session as soon as something has begun."""

    def cancel() -> None:
        if begun.wait(TIMEOUT_S):
            session.cancel()

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    return thread
