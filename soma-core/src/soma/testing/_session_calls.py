"""The session suite: what is put into a session, and functions that it runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from soma.contracts import DataRef, Ref, Rows
from soma.errors import CodecError, InvalidInput, MissingCapability, SessionError
from soma.graph import Graph
from soma.testing import _session_filters as filters
from soma.testing._session_base import (
    TIMEOUT_S,
    SessionCases,
    X,
    Y,
    assert_same,
    chain,
    fitted_chain,
)

__all__ = ["CallCases"]


def _identity() -> Graph:
    g = Graph(cache="memory")
    g.node(filters.same)
    return g


class CallCases(SessionCases):
    """References, rows, functions and messages."""

    def test_what_was_put_stands_for_the_value(self, opened: Any) -> None:
        """In x, y and states alike."""
        g, session = fitted_chain(), opened(chain())
        x, y = session.put(X), session.put(Y)
        report = session.fit(x, y, seed=None, options={})
        assert report.rows == len(X)
        assert_same(dict(report.states), dict(g.state()))
        assert_same(session.forward(x), g.forward(X))
        states = {id_: session.put(state) for id_, state in g.state().items()}
        again = opened(chain())
        again.load_state({id_: again.put(state) for id_, state in g.state().items()})
        assert_same(again.forward(X), g.forward(X))
        session.fit(x, y, seed=None, init=states, options={})
        assert_same(session.forward(x), g.forward(X))

    def test_what_was_put_stays_as_it_was(self, opened: Any) -> None:
        """A session holds a copy, and equal values are one."""
        session, value = opened(_identity()), np.arange(3.0)
        ref = session.put(value)
        assert session.put(np.arange(3.0)) == ref
        value[:] = 0
        found = session.forward(ref)
        assert_same(found, np.arange(3.0))
        found[:] = 0
        assert_same(session.forward(ref), np.arange(3.0))

    @pytest.mark.parametrize("value", [X, X[:, 0], list(range(8)), np.arange(8, dtype="<i2")])
    def test_rows(self, opened: Any, value: Any) -> None:
        """They are cut along the first axis, the last excluded; rows of rows as well."""
        session = opened(_identity())
        ref = session.put(value)
        for start, stop in [(0, 8), (2, 5), (7, 8), (3, 3), (0, 0), (8, 8)]:
            assert_same(session.forward(ref.rows(start, stop)), value[start:stop])
            assert_same(session.forward(ref.rows(start, stop)), value[start:stop])  # known now
        assert_same(session.forward(ref.rows(2, 7).rows(1, 3)), value[3:5])

    def test_a_fit_on_rows(self, opened: Any) -> None:
        """Both x and y are cut alike."""
        g, session = chain(), opened(chain())
        x, y = session.put(X), session.put(Y)
        g.fit(X[2:6], Y[2:6])
        report = session.fit(x.rows(2, 6), y.rows(2, 6), seed=None, options={})
        assert_same(dict(report.states), dict(g.state()))
        assert report.rows == len(X[2:6])

    @pytest.mark.parametrize("bounds", [(0, 9), (-1, 3), (5, 4), (9, 9), (0, 1.5), (None, 3)])
    def test_rows_that_are_not_there(self, opened: Any, bounds: tuple[Any, Any]) -> None:
        """They are refused, with the rows that there are."""
        session = opened(_identity())
        ref = session.put(X)
        with pytest.raises(InvalidInput, match="0 to 8"):
            session.forward(ref.rows(*bounds))
        assert_same(session.forward(ref.rows(0, 8)), X)

    @pytest.mark.parametrize("value", [np.float64(3), np.array(3.0), {"a": X}, 5, None, "abc"])
    def test_rows_of_what_has_none(self, opened: Any, value: Any) -> None:
        """They are refused."""
        session = opened(_identity())
        with pytest.raises(InvalidInput, match="without rows"):
            session.forward(session.put(value).rows(0, 1))

    def test_references_of_others(self, opened: Any) -> None:
        """What lies in another session, or nowhere, is refused by name."""
        session, other = opened(_identity()), opened(_identity())
        ref = other.put(X)
        for given in (ref, ref.rows(0, 1)):
            with pytest.raises(InvalidInput, match="another session"):
                session.forward(given)
        with pytest.raises(InvalidInput, match="was not put"):
            session.forward(Ref(session=session.put(X).session, digest="0" * 64))
        with pytest.raises(InvalidInput, match="rows of a Ref"):
            session.forward(Rows(source=X, start=0, stop=1))  # type: ignore[arg-type]  # on purpose
        if "data" not in session.capabilities:
            with pytest.raises(MissingCapability, match="soma-data"):
                session.forward(DataRef(key="k", digest="0" * 64, bytes=8))

    def test_what_cannot_be_written_down_is_not_put(self, opened: Any) -> None:
        """It has no hash that could stand for it."""
        session = opened(_identity())
        with pytest.raises(CodecError, match="object"):
            session.put(object())

    def test_a_function(self, opened: Any) -> None:
        """It gets its arguments, and what it returns comes back."""
        session = opened(chain())
        assert_same(session.call(filters.add, X, 1), X + 1)
        assert session.call(filters.add, "a", "b") == "ab"
        assert session.call(filters.same, None) is None

    def test_what_was_put_is_an_argument(self, opened: Any) -> None:
        """It stands for the value or the rows, as often as it is given; another's is refused."""
        session, other = opened(fitted_chain()), opened(chain())
        ref = session.put(X)
        for _ in range(2):
            assert_same(session.call(filters.add, ref, 1), X + 1)
            assert_same(session.call(filters.add, 1, ref.rows(2, 4)), X[2:4] + 1)
            assert_same(session.forward(ref), fitted_chain().forward(X))
        assert session.call(filters.overwrite, ref.rows(0, 1)) == 21.0  # noqa: PLR2004  # 3 times 7
        assert_same(session.call(filters.same, ref), X)
        with pytest.raises(InvalidInput, match="argument 2 is a Ref of another session"):
            session.call(filters.add, 1, other.put(X))
        with pytest.raises(InvalidInput, match="0 to 8"):
            session.call(filters.same, ref.rows(0, 9))
        assert_same(session.call(filters.same, ref), X)

    def test_arguments_stay_as_they_were(self, opened: Any) -> None:
        """A function that writes to its argument writes to a copy."""
        session, given = opened(chain()), np.zeros(3)
        assert session.call(filters.overwrite, given) == 21.0  # noqa: PLR2004  # 3 times 7
        assert_same(given, np.zeros(3))

    def test_a_function_that_raises(self, opened: Any) -> None:
        """Its exception has its type and what is in it, and the next call works."""
        session = opened(chain())
        with pytest.raises(filters.Mishap) as caught:
            session.call(filters.fail, 3)
        assert (caught.value.code, caught.value.where) == (3, "call")
        assert session.call(filters.add, 1, 2) == 3  # noqa: PLR2004  # 1 + 2

    def test_what_is_no_function(self, opened: Any) -> None:
        """It is refused."""
        session = opened(chain())
        with pytest.raises(InvalidInput, match="function"):
            session.call(3)
        with pytest.raises(InvalidInput, match="on_message"):
            session.call(filters.add, 1, 2, on_message=3)

    def test_messages(self, opened: Any) -> None:
        """They come in order, each is answered, and the answers come back."""
        session, heard = opened(chain()), []
        words = ["one", 2, X, {"three": None}, "ключ"]

        def listen(message: Any) -> Any:
            heard.append(message)
            return [len(heard), message]

        answers = session.call(filters.talk, words, on_message=listen)
        assert_same(heard, words)
        assert_same(answers, [[place, word] for place, word in enumerate(words, start=1)])

    def test_a_message_to_nobody(self, opened: Any) -> None:
        """It is an error where it is sent."""
        session = opened(chain())
        with pytest.raises(SessionError, match="on_message"):
            session.call(filters.talk, ["word"])

    def test_listeners_that_call_each_others_sessions(self, opened: Any) -> None:
        """A listener waits for nobody: it is served at once, or refused, and nothing hangs."""
        sessions = [opened(chain()) for _ in range(2)]
        both, found = threading.Barrier(2), list[Any]()

        def work(place: int) -> None:
            def listen(_: Any) -> Any:
                with suppress(threading.BrokenBarrierError):  # a runner may have one worker
                    both.wait(1.0)
                return sessions[1 - place].call(filters.add, 1, 2)

            try:
                found.append(sessions[place].call(filters.talk, ["word"], on_message=listen))
            except SessionError as error:
                found.append(error)

        threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        assert len(found) == 2  # noqa: PLR2004  # one each
        for one in found:
            assert one == [3] or "callback" in str(one) or "in the middle of a call" in str(one)
        for session in sessions:
            assert session.call(filters.add, 1, 2) == 3  # noqa: PLR2004  # 1 + 2

    def test_a_listener_of_messages_that_raises(self, opened: Any) -> None:
        """The call ends with that, and the next one works."""

        def listen(message: Any) -> Any:
            raise LookupError(message)

        session = opened(chain())
        with pytest.raises(LookupError, match="word"):
            session.call(filters.talk, ["word"], on_message=listen)
        assert session.call(filters.add, 1, 2) == 3  # noqa: PLR2004  # 1 + 2
