"""Sessions in this process: the suite that all sessions pass, and what is particular to these."""

from __future__ import annotations

import gc
import os
import sys
import threading
from time import monotonic, sleep

import numpy as np
import pytest
from blake3 import blake3

from soma import Filter, Graph, InvalidInput, InvalidOutput, SessionCancelled, SessionError
from soma.engine.keys import fan_in_hash, output_key, rows_hash
from soma.frame import content_hash
from soma.identity import identify
from soma.sessions import machine
from soma.sessions.inprocess import InProcessRunner, InProcessSession
from soma.sessions.messages import messages_to, send_message
from soma.sessions.shelf import Shelf, cut, rows_of
from soma.testing import SessionSuite
from support.threads import run_in_threads

LIMIT_S = 60


def same(x):
    return x


def graph(*nodes, cache="off"):
    g = Graph(cache=cache)
    for node in nodes:
        g.node(node)
    return g


@pytest.fixture
def session():
    with InProcessRunner() as runner:
        yield runner.open(graph(same).program())


def spin():
    end = monotonic() + LIMIT_S
    while monotonic() < end:
        sleep(0.002)
    raise TimeoutError


class TestInProcess(SessionSuite):
    @pytest.fixture
    def runner(self):
        with InProcessRunner() as runner:
            yield runner


class TestRunner:
    def test_shutdown_closes_sessions_and_opens_no_more(self):
        runner = InProcessRunner("here")
        opened = [runner.open(graph(same).program()) for _ in range(2)]
        runner.shutdown()
        runner.shutdown()
        assert [one.closed for one in opened] == [True, True]
        with pytest.raises(SessionError, match="'here' was shut down"):
            runner.open(graph(same).program())
        assert repr(runner) == "<InProcessRunner 'here', shut down>"
        assert repr(opened[0]) == "<InProcessSession 'here': 1 nodes, closed>"

    def test_what_listens_must_be_a_function(self):
        with InProcessRunner() as runner, pytest.raises(InvalidInput):
            runner.open(graph(same).program(), on_event=3)

    def test_a_program_is_what_the_graph_was_then(self):
        class Count(Filter):
            def fit(self, x, y=None):
                return {"rows": len(x)}

            def forward(self, x, state):
                return state["rows"]

        g = graph(Count())
        g.fit(np.zeros(3), seed=4)
        program = g.program()
        g.fit(np.zeros(5), seed=5)
        g.node("later", same)
        assert program.states == {"count": {"rows": 3}}
        assert program.seed == 4
        assert repr(program) == "<Program: nodes=1, fitted>"
        with InProcessRunner() as runner:
            assert runner.open(program).forward(np.zeros(1)) == 3


class TestWithinACall:
    """A session that is asked for something in its own call would wait for itself."""

    def test_a_function(self, session):
        with pytest.raises(SessionError, match="in the middle of a call"):
            session.call(lambda: session.forward(1))
        assert session.forward(1) == 1

    def test_another_session_is_free(self, session):
        with InProcessRunner() as runner:
            other = runner.open(graph(same).program())
            assert session.call(lambda: other.forward(2)) == 2

    def test_a_listener(self):
        found = []

        def on_event(event):
            try:
                session.forward(1)
            except SessionError as error:
                found.append(str(error))

        with InProcessRunner() as runner:
            session = runner.open(graph(same).program(), on_event=on_event)
            assert session.forward(2) == 2
        assert found
        assert all("in the middle of a call" in one for one in found)

    def test_a_node_on_a_thread_of_the_engine(self):
        """Those inherit what the call is, so that they are refused instead of waiting."""
        found = []

        def asks(x):
            sleep(0.01)  # slow nodes get threads
            try:
                session.forward(1)
            except SessionError as error:
                found.append((threading.get_ident(), str(error)))
            return x

        g = Graph(cache="off")
        for name in "abcd":
            g.node(name, asks)
        with InProcessRunner() as runner:
            session = runner.open(g.program())
            session.forward(1)
            session.forward(1)
        assert len(found) == 8
        assert all("in the middle of a call" in text for _, text in found)
        assert {thread for thread, _ in found} != {threading.get_ident()}

    def test_a_listener_waits_for_no_other_session(self, session):
        busy, done, found = threading.Event(), threading.Event(), []

        def hold():
            busy.set()
            assert done.wait(LIMIT_S)

        def on_event(event):
            if not found:
                with pytest.raises(SessionError, match="busy, and a callback cannot wait") as told:
                    session.forward(1)
                found.append(told.value)

        thread = threading.Thread(target=session.call, args=(hold,), daemon=True)
        thread.start()
        assert busy.wait(LIMIT_S)
        with InProcessRunner() as runner:
            assert runner.open(graph(same).program(), on_event=on_event).forward(3) == 3
        done.set()
        thread.join(LIMIT_S)
        assert len(found) == 1


class TestCancel:
    def test_at_any_moment_a_call_ends_as_it_should(self, session):
        """Asked for all the time, it hits calls at their start, in the middle and at their end.

        Without the garbage collector, which calls back code of others (hypothesis has some there):
        what is raised in a callback goes no further than to standard error.
        """
        over, interval = threading.Event(), sys.getswitchinterval()

        def cancel_all_the_time():
            while not over.is_set():
                session.cancel()

        thread = threading.Thread(target=cancel_all_the_time, daemon=True)
        sys.setswitchinterval(1e-6)
        gc.disable()
        try:
            thread.start()
            outcomes = set()
            for number in range(3000):
                try:
                    assert session.call(sum, range(number)) == sum(range(number))
                    outcomes.add("done")
                except SessionCancelled:
                    outcomes.add("cancelled")
        finally:
            gc.enable()
            sys.setswitchinterval(interval)
            over.set()
            thread.join(LIMIT_S)
        assert "cancelled" in outcomes
        assert session.forward(1) == 1
        with pytest.raises(SessionError, match=r"in a function that session\.call runs"):
            send_message(1)

    def test_who_waits_for_a_turn_is_not_cancelled(self, session):
        begun, found = threading.Event(), []

        def begin_and_spin():
            begun.set()
            spin()

        def first():
            with pytest.raises(SessionCancelled):
                session.call(begin_and_spin)

        def second():
            found.append(session.forward("second"))

        threads = [threading.Thread(target=one, daemon=True) for one in (first, second)]
        threads[0].start()
        assert begun.wait(LIMIT_S)
        threads[1].start()
        session.cancel()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        assert found == ["second"]

    def test_what_was_caught_can_be_asked_for_again(self, session):
        begun, caught = threading.Event(), []

        def stubborn():
            begun.set()
            try:
                spin()
            except BaseException as error:  # noqa: BLE001  # as some code does
                caught.append(type(error).__name__)
            spin()

        def cancel():
            assert begun.wait(LIMIT_S)
            while not over.is_set():
                session.cancel()
                sleep(0.05)

        over = threading.Event()
        thread = threading.Thread(target=cancel, daemon=True)
        thread.start()
        with pytest.raises(SessionCancelled):
            session.call(stubborn)
        over.set()
        thread.join(LIMIT_S)
        assert caught == ["Cancelled"]

    def test_closing_cancels(self, session):
        begun = threading.Event()

        def begin_and_spin():
            begun.set()
            spin()

        def close():
            if begun.wait(LIMIT_S):
                session.close()

        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        with pytest.raises(SessionCancelled):
            session.call(begin_and_spin)
        thread.join(LIMIT_S)
        with pytest.raises(SessionError, match="closed"):
            session.forward(1)

    def test_ctrl_c_is_no_cancel(self, session):
        def interrupted():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            session.call(interrupted)
        assert session.forward(1) == 1


class TestMessages:
    def test_outside_of_a_call(self):
        with pytest.raises(SessionError, match=r"in a function that session\.call runs"):
            send_message(1)

    def test_a_thread_that_a_function_starts_is_in_no_call(self, session):
        found = []

        def start():
            def work(number):
                with pytest.raises(SessionError):
                    send_message(number)
                found.append(number)

            run_in_threads(work, 1)

        session.call(start, on_message=same)
        assert found == [0]

    def test_calls_in_calls_have_their_own_listeners(self):
        heard = []

        def inner():
            with messages_to(lambda message: heard.append(("inner", message))):
                send_message(1)
            with messages_to(None), pytest.raises(SessionError, match="Nobody listens"):
                send_message(2)
            return send_message(3)

        with messages_to(lambda message: ("outer", message)):
            assert inner() == ("outer", 3)
        assert heard == [("inner", 1)]
        with pytest.raises(SessionError):
            send_message(4)

    def test_each_side_has_a_copy(self, session):
        def talk():
            message = np.zeros(2)
            answer = send_message(message)
            answer[:] = 9
            return message

        answers = []

        def listen(message):
            message[:] = 5
            answers.append(np.ones(2))
            return answers[0]

        assert session.call(talk, on_message=listen).tolist() == [0, 0]
        assert answers[0].tolist() == [1, 1]

    def test_a_result_that_can_be_read_once(self, session):
        with pytest.raises(InvalidOutput, match="generator"):
            session.call(lambda: (one for one in "abc"))


class TestRows:
    def test_the_hash_of_rows_is_of_hash_and_bounds(self):
        one = rows_hash("ab" * 32, 3, 5)
        others = [
            rows_hash("ab" * 32, 3, 6),
            rows_hash("ab" * 32, 35, 0),
            rows_hash("cd" * 32, 3, 5),
            fan_in_hash({"3": "5"}),
        ]
        assert one not in others
        assert len(set(others)) == 4
        assert one == rows_hash("ab" * 32, 3, 5)

    def test_it_is_what_the_document_says(self):
        raw = b"soma-key-1"
        for part in ("rows", "ab" * 32, "3", "5"):
            raw += len(part).to_bytes(8, "little") + part.encode()
        assert rows_hash("ab" * 32, 3, 5) == blake3(raw).hexdigest()

    def test_what_is_found_says_what_it_is_called(self):
        shelf = Shelf("s", "name", frozenset())
        value = np.arange(6.0)
        ref = shelf.put(value)
        whole, some = shelf.find(ref, "x"), shelf.find(ref.rows(1, 3), "x")
        assert (whole.digest, whole.rows) == (content_hash(value), 6)
        assert (some.digest, some.rows) == (rows_hash(content_hash(value), 1, 3), 2)
        assert some.open().tolist() == [1, 2]
        assert some.packed().open().tolist() == [1, 2]
        assert (whole.packed().digest, some.packed().digest) == (whole.digest, some.digest)
        assert shelf.find(value, "x") is None

    def test_keys_are_made_of_it(self):
        """So what was put is known to a graph that is given the value, and the other way round."""
        found = []
        g = graph(same, cache="memory")
        with InProcessRunner() as runner:
            session = runner.open(g.program(), on_event=found.append)
            value = np.arange(6.0)
            ref = session.put(value)
            for given in (ref, ref.rows(1, 3), ref.rows(1, 3)):
                session.forward(given)
        keys = [one.key for one in found if one.event_type in {"NodeCacheMiss", "NodeCacheHit"}]
        expected = [
            output_key(identify(same), state=None, x=digest, seed=None)
            for digest in (content_hash(value), rows_hash(content_hash(value), 1, 3))
        ]
        assert keys == [expected[0], expected[1], expected[1]]
        assert sum(one.event_type == "NodeCacheMiss" for one in found) == 2
        g.forward(value)
        assert g.last_run.computed == ()

    def test_a_table_is_cut_by_position(self):
        class Table:
            shape = (4, 2)
            iloc = [10, 11, 12, 13]  # noqa: RUF012  # a stand-in

            def __getitem__(self, given):
                raise AssertionError("by label")

        assert rows_of(Table()) == 4
        assert cut(Table(), 1, 3) == [11, 12]


class TestMachine:
    @pytest.mark.parametrize(
        ("visible", "count"),
        [("0", 1), ("0,1, 3", 3), ("", 0), ("-1", 0), ("0,-1,2", 1), ("GPU-8a1,GPU-8a2", 2)],
    )
    def test_gpus_that_are_visible(self, monkeypatch, visible, count):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert InProcessRunner().info().gpus == count

    def test_gpus_that_the_driver_has(self, monkeypatch, tmp_path):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(machine, "_NVIDIA", tmp_path / "none")
        assert InProcessRunner().info().gpus == 0
        for name in ("0000:01:00.0", "0000:02:00.0"):
            (tmp_path / name).mkdir()
        monkeypatch.setattr(machine, "_NVIDIA", tmp_path)
        assert InProcessRunner().info().gpus == 2

    def test_the_rest(self):
        info = InProcessRunner("here").info()
        assert (info.name, info.tags) == ("here", ())
        assert info.cpus == len(os.sched_getaffinity(0))
        assert info.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert info.python == f"{sys.version_info.major}.{sys.version_info.minor}"
        assert info.capabilities == {"call", "put"}


def test_filters_that_cannot_be_copied_are_the_graphs_own():
    class Locks(Filter):
        def __init__(self):
            self._lock = threading.Lock()
            self._seen = []

        def forward(self, x, state):
            self._seen.append(x)
            return x

    class Lists(Filter):
        def __init__(self):
            self._seen = []

        def forward(self, x, state):
            self._seen.append(x)
            return x

    locks, lists = Locks(), Lists()
    with InProcessRunner() as runner:
        found = runner.open(graph(locks, lists).program()).forward(3)
    assert found == {"locks": 3, "lists": 3}
    assert (locks._seen, lists._seen) == ([3], [])


def test_who_waits_for_another_session_can_be_cancelled():
    begun, go_on = threading.Event(), threading.Event()
    with InProcessRunner() as runner:
        busy, waits = (runner.open(graph(same).program()) for _ in range(2))

        def hold():
            begun.set()
            go_on.wait(60)

        def ask():
            asking.set()
            return busy.forward(1)

        asking, found = threading.Event(), []

        def wait():
            try:
                found.append(waits.call(ask))
            except SessionCancelled as error:
                found.append(type(error))

        holder = threading.Thread(target=lambda: busy.call(hold), daemon=True)
        holder.start()
        assert begun.wait(60)
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        assert asking.wait(60)
        waits.cancel()
        waiter.join(60)
        assert found == [SessionCancelled]
        go_on.set()
        holder.join(60)
        assert busy.forward(2) == 2


def test_values_that_nothing_can_write_down_are_given_as_they_are(session):
    given = object()
    assert session.forward(given) is given
    assert session.call(same, given) is given


def test_a_fork_may_call_a_session_that_was_busy(session):
    busy, done = threading.Event(), threading.Event()

    def hold():
        busy.set()
        assert done.wait(LIMIT_S)

    thread = threading.Thread(target=session.call, args=(hold,), daemon=True)
    thread.start()
    assert busy.wait(LIMIT_S)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if session.forward(5) == 5 else 1)
        finally:
            os._exit(2)
    end, status = monotonic() + LIMIT_S, None
    while status is None and monotonic() < end:
        pid, code = os.waitpid(child, os.WNOHANG)
        status = code if pid else None
        sleep(0.01)
    if status is None:
        os.kill(child, 9)
        os.waitpid(child, 0)
    done.set()
    thread.join(LIMIT_S)
    assert status == 0


def test_a_session_that_promises_what_it_does_not_define_is_named():
    class Promising(InProcessSession):
        CAPABILITIES = frozenset({"call", "put", "gradients"})

    promising = Promising("here", graph(same).program())
    with pytest.raises(SessionError, match="Promising says that it can gradients") as caught:
        promising.gradients(1, 2)
    assert "Leave it out of its CAPABILITIES, or define it" in str(caught.value)
