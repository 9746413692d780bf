"""The session suite: errors, cancelling and events."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import numpy as np
import pytest

from soma.errors import SessionCancelled
from soma.events.base import Event
from soma.graph import Graph
from soma.testing import _session_filters as filters
from soma.testing._session_base import (
    TIMEOUT_S,
    SessionCases,
    X,
    Y,
    assert_same,
    cancel_when,
    chain,
)

__all__ = ["FaultCases"]

_GOOD = np.array([1.0, 2.0])
_BAD = -_GOOD


def _graph_of(node: Any) -> Graph:
    g = Graph(cache="memory")
    g.node("first", filters.same)
    g.node("culprit", node)
    g.edge("first", "culprit")
    return g


class FaultCases(SessionCases):
    """What goes wrong has a name, and the next call works."""

    @pytest.mark.parametrize("during", ["fit", "forward"])
    def test_an_error_of_a_filter(self, opened: Any, during: str) -> None:
        """It has its type, what is in it, and a note that names the node."""
        session = opened(_graph_of(filters.Faulty()))
        session.fit(_GOOD, seed=None, options={})
        with pytest.raises(filters.Mishap) as caught:
            _run(session, during, _BAD)
        assert (caught.value.code, caught.value.where) == (7, during)
        notes = "\n".join(caught.value.__notes__)
        assert "in node 'culprit' (Faulty)" in notes
        assert f"during {during}" in notes
        assert session.forward(_GOOD) == 6.0  # noqa: PLR2004  # 3 of the input, 3 of the state

    def test_a_fit_that_fails_leaves_states_as_they_were(self, opened: Any) -> None:
        """Seed and states are those of the last fit that was done."""
        session = opened(_graph_of(filters.Faulty()))
        session.fit(_GOOD, seed=None, options={})
        with pytest.raises(filters.Mishap):
            session.fit(_BAD, seed=5, options={})
        assert dict(session.state()) == {"culprit": {"sum": 3.0}}

    @pytest.mark.parametrize("during", ["fit", "forward"])
    def test_cancelling_a_run(self, opened: Any, during: str) -> None:
        """Another thread cancels it: it ends soon, by name, and the next call works."""
        begun = threading.Event()

        def on_event(event: Event) -> None:
            if event.event_type == "NodeStarted" and getattr(event, "node_id", "") == "culprit":
                begun.set()

        session = opened(_graph_of(filters.Spin()), on_event)
        session.fit(_GOOD, seed=None, options={})
        begun.clear()
        started = monotonic()
        thread = cancel_when(begun, session)
        with pytest.raises(SessionCancelled):
            _run(session, during, _BAD)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        assert monotonic() - started < TIMEOUT_S / 2
        assert session.forward(_GOOD) == 6.0  # noqa: PLR2004  # 3 of the input, 3 of the state

    def test_cancelling_a_call(self, opened: Any) -> None:
        """A function is cancelled as a run is."""
        session, begun = opened(chain()), threading.Event()
        thread = cancel_when(begun, session)
        with pytest.raises(SessionCancelled):
            session.call(filters.spin_after_a_word, on_message=lambda _word: begun.set())
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        assert session.call(filters.add, 1, 2) == 3  # noqa: PLR2004  # 1 + 2

    def test_cancelling_nothing(self, opened: Any) -> None:
        """It does nothing, and nothing to the next call either."""
        session = opened(chain())
        session.cancel()
        assert session.call(filters.add, 1, 2) == 3  # noqa: PLR2004  # 1 + 2
        session.cancel()
        session.fit(X, Y, seed=None, options={})

    def test_events_are_those_of_a_graph(self, opened: Any) -> None:
        """The same, in the same order, as objects, and all of them before the call returns."""
        expected: list[Any] = []
        g = chain()
        g.on_event(lambda event: expected.append(_told(event)))
        found: list[Event] = []
        session = opened(chain(), found.append)
        for _ in range(2):
            g.fit(X, Y)
            session.fit(X, Y, seed=None, options={})
            assert [_told(one.to_dict()) for one in found] == expected
        g.forward(X, run_id="r")
        session.forward(X, run_id="r")
        assert [_told(one.to_dict()) for one in found] == expected
        assert found[-1].event_type == "RunCompleted"
        assert getattr(found[-1], "run_id", "") == "r"

    def test_events_of_a_run_that_fails(self, opened: Any) -> None:
        """Its last one says what it failed of."""
        found: list[Event] = []
        session = opened(_graph_of(filters.Faulty()), found.append)
        with pytest.raises(filters.Mishap):
            session.fit(_BAD, seed=None, options={})
        assert [one.event_type for one in found][-2:] == ["NodeFailed", "RunFailed"]
        assert "Mishap" in getattr(found[-1], "error", "")

    def test_a_listener_that_raises(self, opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
        """It is one line on stderr, and stops nothing."""

        def on_event(event: Event) -> None:
            raise LookupError(f"no room for {event.event_type}")

        session = opened(chain(), on_event)
        session.fit(X, Y, seed=None, options={})
        expected = chain()
        expected.fit(X, Y)
        assert_same(session.forward(X), expected.forward(X))
        assert capsys.readouterr().err.count("no room for") == 1


def _run(session: Any, during: str, x: Any) -> None:
    if during == "fit":
        session.fit(x, seed=None, options={})
    else:
        session.forward(x)


def _told(event: dict[str, Any]) -> Any:
    """Return what of an event does not depend on time and place."""
    return tuple(event.get(name) for name in ("event_type", "node_id", "what", "key", "phase"))
