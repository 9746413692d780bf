"""What every session must do, as tests: the same cases on every runner.

    RunCases     graphs of every kind        (_session_runs.py)
    FaultCases   errors, cancel, events      (_session_faults.py)
    CallCases    references and functions    (_session_calls.py)
    SessionSuite what is left: values, several sessions, closing, capabilities

Each result is held against a plain graph of this process, to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from soma.contracts import Runner, WorkerInfo
from soma.errors import InvalidInput, MissingCapability, SessionError
from soma.graph import Graph
from soma.testing import _session_filters as filters
from soma.testing._session_base import TIMEOUT_S, X, Y, assert_same, chain, fitted_chain
from soma.testing._session_calls import CallCases
from soma.testing._session_faults import FaultCases
from soma.testing._session_runs import RunCases

__all__ = ["SessionSuite"]

_NAN_WITH_PAYLOAD = np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000042], dtype="<u8").view("<f8")
_VALUES: dict[str, Any] = {
    "0-d array": np.array(2.5),
    "numpy scalar": np.float32(0.1),
    "none": None,
    "nan payload": _NAN_WITH_PAYLOAD,
    "negative zero": -0.0,
    "huge int": 10**400,
    "negative int": -(2**63) - 1,
    "bool": True,
    "complex": 1 - 2j,
    "bytes": bytes(range(256)),
    "text": "naïve ключ 节点 \U0001f600",
    "3 MB": np.arange(393216.0).reshape(3, -1),
    "3 MB, by columns": np.asfortranarray(np.arange(393216.0).reshape(3, -1)),
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((2, 0), dtype="<i4"),
    "empty list": [],
    "dict": {"b": X, "a": [1, (2, "three")], 3: None},
    "tuple": (X, "x", (1.5, ())),
    "nested": [[[{"deep": [np.array(["ab", "c"]), np.array([True, False])]}]]],
    "dates": np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "records": np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "<i2"), ("b", "<f8")]),
}

_METHODS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "call": ("call", lambda session: session.call(filters.add, 1, 2)),
    "put": ("put", lambda session: session.put(1)),
    "stream": ("stream", lambda session: session.stream(iter([X]), run_id="r")),
    "gradients": ("gradients", lambda session: session.gradients(X, Y)),
    "apply_gradients": ("gradients", lambda session: session.apply_gradients(None)),
    "stage_forward": ("stages", lambda session: session.stage_forward(X, 0)),
    "stage_backward": ("stages", lambda session: session.stage_backward(0)),
    "train_state": ("train_state", lambda session: session.train_state()),
    "load_train_state": ("train_state", lambda session: session.load_train_state({})),
    "join": ("group", lambda session: session.join(None)),
    "leave": ("group", lambda session: session.leave()),
}
"""Method -> the capability that it needs, and a call of it."""


class SessionSuite(RunCases, FaultCases, CallCases):
    """Derive from it and give the fixture ``runner``: a ``soma.contracts.Runner``.

    One runner will do for all checks: let the fixture return what one of ``scope="module"`` gives
    and shuts down. Several sessions are open at once; there need be no second worker.
    """

    @pytest.mark.parametrize("name", _VALUES)
    def test_values_come_back_to_the_bit(self, opened: Any, name: str) -> None:
        """Through a node, cold and known, as what was put, and through a function."""
        value = _VALUES[name]
        g = Graph(cache="memory")
        g.node(filters.same)
        session = opened(g)
        for x in (value, value, session.put(value)):
            assert_same(session.forward(x), value)
        assert_same(session.call(filters.same, value), value)

    def test_ids_of_any_kind(self, opened: Any) -> None:
        """Node ids are texts, in whatever script."""
        g = Graph(cache="memory")
        g.node("ключ", filters.Scaler())
        g.node("节点 with a space", filters.double)
        g.node("\U0001f600/'\"", filters.Join())
        g.edge("ключ", "\U0001f600/'\"")
        g.edge("节点 with a space", "\U0001f600/'\"")
        session = opened(g)
        session.fit(X, seed=None, options={})
        assert list(session.state()) == ["ключ"]
        assert session.forward(X)[0] == ["ключ", "节点 with a space"]

    def test_two_sessions_at_once(self, opened: Any) -> None:
        """Each has its own program, states and values, whoever calls when."""
        sessions = [opened(chain()) for _ in range(2)]
        found: list[list[Any]] = [[], []]

        def work(place: int) -> None:
            session, x = sessions[place], X + place
            for _ in range(5):
                session.fit(x, Y, seed=place, options={})
                found[place].append(session.forward(session.put(x)))

        _in_threads(work, 2)
        for place in range(2):
            g = chain()
            g.fit(X + place, Y)
            expected = g.forward(X + place)
            assert len(found[place]) == 5  # noqa: PLR2004  # as often as above
            for one in found[place]:
                assert_same(one, expected)

    def test_two_threads_on_one_session(self, opened: Any) -> None:
        """Calls come one after the other, and each gets its own answer."""
        session = opened(fitted_chain())
        found: list[Any] = [None] * 4

        def work(place: int) -> None:
            found[place] = session.forward(X * place), session.call(filters.add, place, 1)

        _in_threads(work, 4)
        for place in range(4):
            assert_same(found[place], (fitted_chain().forward(X * place), place + 1))

    def test_closing(self, opened: Any) -> None:
        """A closed session takes no call and says so; closing it again does nothing."""
        session, other = opened(fitted_chain()), opened(fitted_chain())
        ref = session.put(X)
        session.close()
        session.close()
        for call in (
            lambda: session.forward(ref),
            lambda: session.fit(X, Y, seed=None, options={}),
            session.state,
            lambda: session.load_state({}),
            lambda: session.put(X),
            lambda: session.call(filters.add, 1, 2),
        ):
            with pytest.raises(SessionError, match="closed"):
                call()
        session.cancel()
        assert isinstance(session.capabilities, frozenset)
        assert_same(other.forward(X), fitted_chain().forward(X))

    def test_sessions_have_filters_of_their_own(self, opened: Any) -> None:
        """What a fit keeps on a filter, and what others do to it, is nobody else's."""
        keeper, g = filters.Keeper(), Graph(cache="memory")
        g.node("keeper", keeper)
        first, second = opened(g), opened(g)
        first.fit(X, seed=None, options={})
        second.fit(X + 1, seed=None, options={})
        keeper.factor = 3.0
        assert_same(first.forward(X), (X, X.sum()))
        assert_same(second.forward(X), (X, (X + 1).sum()))
        assert vars(keeper).get("_sum") is None
        third = opened(g)
        third.fit(X, seed=None, options={})
        assert_same(third.forward(X), (X * 3, X.sum()))

    def test_targets_mean_nothing_in_a_session(self, opened: Any) -> None:
        """Everything runs where the session is, whether there are such workers or not."""
        g = Graph(cache="memory")
        g.node("scale", filters.Scaler(), target="nobody")
        g.node("double", filters.double, target="local")
        g.edge("scale", "double")
        plain = Graph(cache="memory")
        plain.node("scale", filters.Scaler())
        plain.node("double", filters.double)
        plain.edge("scale", "double")
        plain.fit(X)
        session = opened(g)
        session.fit(X, seed=None, options={})
        assert_same(session.forward(X), plain.forward(X))

    def test_a_runner_that_was_shut_down(self, another: Runner) -> None:
        """It opens nothing, and its sessions are closed."""
        session = another.open(fitted_chain().program())
        assert_same(session.forward(X), fitted_chain().forward(X))
        another.shutdown()
        another.shutdown()
        with pytest.raises(SessionError, match="shut down"):
            another.open(chain().program())
        for call in (lambda: session.forward(X), session.state):
            with pytest.raises(SessionError, match="closed"):
                call()

    def test_a_with_block_closes(self, runner: Runner) -> None:
        """A session is a context manager."""
        with runner.open(chain().program()) as session:  # type: ignore[attr-defined]  # ours all are
            session.fit(X, Y, seed=None, options={})
        with pytest.raises(SessionError, match="closed"):
            session.forward(X)

    @pytest.mark.parametrize("method", _METHODS)
    def test_what_a_session_cannot_do(self, opened: Any, method: str) -> None:
        """It says which session, which method, what that needs and what there is instead."""
        session = opened(chain())
        needed, call = _METHODS[method]
        if needed in session.capabilities:
            return
        with pytest.raises(MissingCapability) as caught:
            call(session)
        text = str(caught.value)
        assert f"{method}()" in text
        assert repr(needed) in text
        for one in session.capabilities:
            assert repr(one) in text

    def test_what_a_runner_says_of_itself(self, runner: Runner, opened: Any) -> None:
        """Its sessions can do what it says that they can, and it has what a machine has."""
        info = runner.info()
        assert isinstance(info, WorkerInfo)
        assert info.name
        assert opened(chain()).capabilities <= info.capabilities
        assert info.cpus >= 1
        assert info.memory_bytes > 0
        assert info.gpus >= 0
        assert info.python.startswith("3.")
        assert all(isinstance(one, str) for one in (*info.tags, *info.plugins.values()))

    def test_what_is_no_program(self, runner: Runner) -> None:
        """It is refused, with the way to get one."""
        for given in (None, chain(), "program"):
            with pytest.raises(InvalidInput, match=r"g\.program\(\)"):
                runner.open(given)  # type: ignore[arg-type]  # on purpose


def _in_threads(work: Callable[[int], None], count: int) -> None:
    """Call ``work`` on so many threads at once, and raise what one of them raises."""
    failed: list[BaseException] = []

    def guarded(place: int) -> None:
        try:
            work(place)
        except BaseException as error:  # noqa: BLE001  # raised below, where the test sees it
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(one,), daemon=True) for one in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
