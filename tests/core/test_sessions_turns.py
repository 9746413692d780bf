"""Whose turn it is at a child, and what becomes of a call that is cancelled, late, lost or left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest

from soma import Graph
from soma.errors import SessionCancelled, SessionError, SessionLost, SessionTimeout
from soma.sessions import LocalRunner, members, send_message, underway
from soma.sessions.process import ChildProcess
from soma.sessions.turns import Turns, take_one_of
from soma.sessions.underway import GRACE_S, UnderWay
from support.threads import run_in_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped")

INLINE = np.zeros(100_000)
"""More than a socket takes at once, and too little for a file of its own."""


class Left(Exception):
    """A callback leaves in the middle of a call."""


def pid():
    return os.getpid()


def die():
    os._exit(3)


def size(x):
    return x.nbytes


def talk():
    return send_message("begun")


def talk_and_sleep():
    send_message("begun")
    time.sleep(120)


def take_the_signal():
    """Leave a handler of its own behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def take_the_signal_and_sleep():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    talk_and_sleep()


def miss_the_signal_and_sleep():
    """Be deaf while the call is cancelled, and only then wait."""
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    send_message("begun")
    signal.signal(signal.SIGINT, ours)
    time.sleep(120)


def plus_one(x):
    return x + 1


def program():
    g = Graph(cache="off")
    g.node("a", plus_one)
    return g.program()


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def in_thread(work):
    """Start something; return a function that waits for it and returns what came of it."""
    made = []

    def run():
        try:
            made.append(work())
        except Exception as error:  # noqa: BLE001  # whatever it is, is looked at
            made.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(30)
        assert not thread.is_alive()
        return made[0]

    return result


class Place:
    def __init__(self, name):
        self.turns = Turns(name)


@pytest.fixture(scope="module")
def shared():
    with LocalRunner("local://turns", count=2) as made:
        yield made


@pytest.fixture
def two(shared):
    first, second = shared.open(program()), shared.open(program())
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def session(two):
    return two[0]


@pytest.fixture
def runner():
    with LocalRunner() as made:
        yield made


@pytest.fixture
def stopped_child(runner):
    """A session whose process does not run, and its number."""
    made = runner.open(program())
    number = made.call(pid)
    os.kill(number, signal.SIGSTOP)
    return made


def test_who_has_waited_longest_is_next():
    place, order = Place("one"), []
    take_one_of([place])

    def take(number):
        take_one_of([place])
        order.append(number)
        place.turns.release()

    waits = []
    for number in range(4):
        waits.append(in_thread(lambda number=number: take(number)))
        wait_until(lambda number=number: len(place.turns._waiting) == number + 1)
    place.turns.release()
    for wait in waits:
        wait()
    assert order == [0, 1, 2, 3]
    assert not place.turns._waiting


def test_who_stops_waiting_keeps_nobody_waiting():
    place, stop = Place("one"), threading.Event()
    take_one_of([place])
    given_up = in_thread(lambda: take_one_of([place], stop.is_set))
    wait_until(lambda: len(place.turns._waiting) == 1)
    next_one = in_thread(lambda: take_one_of([place]))
    wait_until(lambda: len(place.turns._waiting) == 2)
    stop.set()
    assert isinstance(given_up(), SessionCancelled)
    place.turns.release()
    assert next_one() is place


def test_who_waits_for_several_leaves_every_queue_with_the_first():
    one, two = Place("one"), Place("two")
    take_one_of([one])
    take_one_of([two])
    waits = in_thread(lambda: take_one_of([one, two]))
    wait_until(lambda: two.turns._waiting)
    two.turns.release()
    assert waits() is two
    assert not one.turns._waiting
    one.turns.release()
    assert take_one_of([one]) is one


def test_two_sessions_of_one_process_are_served_in_turn(runner):
    sessions = [runner.open(program()), runner.open(program())]
    found = [[], []]

    def work(number):
        found[number] += [sessions[number].call(pid) for _ in range(20)]

    run_in_threads(work, 2)
    assert list(map(len, found)) == [20, 20]
    assert len(set(found[0] + found[1])) == 1


def test_the_one_who_left_waits_until_its_child_is_idle(session, monkeypatch):
    """The turn is handed over before there is a thread that could take it."""
    start, refused = threading.Thread.start, []
    member = session._place.member

    def late_start(thread):
        if thread.name.startswith("soma-settle"):
            with pytest.raises(SessionCancelled):
                take_one_of([member], iter([False, True]).__next__)
            refused.append(thread.name)
        start(thread)

    before = session.call(pid)
    monkeypatch.setattr(threading.Thread, "start", late_start)
    with pytest.raises(Left):
        session.call(talk_and_sleep, on_message=leave)
    assert session.call(pid) == before
    assert refused == [f"soma-settle-{member.name}"]


def test_a_system_without_another_thread_costs_the_process_and_no_more(session, monkeypatch):
    start = threading.Thread.start

    def no_start(thread):
        if thread.name.startswith("soma-settle"):
            raise RuntimeError("can't start new thread")
        start(thread)

    before = session.call(pid)
    monkeypatch.setattr(threading.Thread, "start", no_start)
    with pytest.raises(Left):
        session.call(talk_and_sleep, on_message=leave)
    assert session.call(pid) != before


def leave(message):
    raise Left


def test_a_callback_may_lose_a_process_of_its_own(two):
    one, other = two
    here = one.call(pid)
    assert other.call(pid) != here
    with pytest.raises(SessionLost, match=other.name) as found:
        one.call(talk, on_message=lambda _: other.call(die))
    assert one.name not in str(found.value)
    assert in_thread(lambda: one.call(pid))() == here
    assert in_thread(lambda: other.call(plus_one, 1))() == 2


def test_a_handler_of_its_own_that_a_call_left_behind_keeps_nobody_from_cancelling(session):
    session.call(take_the_signal)
    before = session.call(pid)
    with pytest.raises(SessionCancelled):
        session.call(talk_and_sleep, on_message=lambda _: session.cancel())
    assert session.call(pid) == before


def test_what_a_handler_of_its_own_makes_of_a_cancel_is_a_cancel(session):
    before = session.call(pid)
    with pytest.raises(SessionCancelled):
        session.call(take_the_signal_and_sleep, on_message=lambda _: session.cancel())
    assert session.call(pid) == before


def test_a_call_that_has_missed_the_signal_is_told_again(session):
    before = session.call(pid)
    with pytest.raises(SessionCancelled):
        session.call(miss_the_signal_and_sleep, on_message=lambda _: session.cancel())
    assert session.call(pid) == before


def test_a_cancel_hits_the_call_that_it_means(shared):
    member = shared.members[0]
    with member.use() as child:
        child.request("forget", {"owner": "nobody"}, during="test")
        child.cancel(child.calls)  # which is over
        child.cancel(child.calls + 1)  # which has not begun
        child.request("forget", {"owner": "nobody"}, during="test")
        child.cancel()
        with pytest.raises(SessionCancelled, match="before the test began"):
            child.request("forget", {"owner": "nobody"}, during="test")
        asked = child.calls
    with member.use() as child:
        assert child.calls == asked
        child.request("forget", {"owner": "nobody"}, during="test")
        assert not child.unsettled


def test_a_request_that_nobody_waits_for_is_not_sent(shared):
    with shared.members[0].use() as child:
        asked = child.calls
        with pytest.raises(SessionCancelled):
            child.request("forget", {"owner": "nobody"}, during="test", stopped=lambda: True)
        assert (child.calls, child.unsettled) == (asked, False)


def test_a_process_that_does_not_listen_is_killed_when_its_time_is_over():
    with LocalRunner(timeout_s=60) as runner:
        session = runner.open(program())
        before = session.call(pid)
        runner.members[0]._child._timeout_s = 0.5
        os.kill(before, signal.SIGSTOP)
        found = in_thread(lambda: session.call(size, INLINE))()
        assert isinstance(found, SessionTimeout)
        assert "after 0.5 s, which is its timeout_s" in str(found)
        assert "add_worker" not in str(found)
        assert session.call(size, INLINE) == INLINE.nbytes


def test_a_call_to_a_process_that_does_not_listen_can_be_cancelled(runner, stopped_child):
    call = in_thread(lambda: stopped_child.call(size, INLINE))
    wait_until(lambda: runner.members[0]._child.unsettled)
    assert in_thread(stopped_child.cancel)() is None
    assert isinstance(call(), SessionCancelled)
    assert stopped_child.call(size, INLINE) == INLINE.nbytes


def test_a_session_is_closed_although_its_process_is_stopped(runner, stopped_child):
    assert in_thread(stopped_child.close)() is None
    assert in_thread(lambda: runner.open(program()).call(plus_one, 1))() == 2


def test_a_runner_that_is_shut_down_while_a_process_starts_ends_that_as_well(runner, monkeypatch):
    started = []

    def start(*args, **settings):
        started.append(ChildProcess.start(*args, **settings))
        runner.shutdown()
        return started[0]

    class Slow:
        pass

    Slow.start = staticmethod(start)
    session = runner.open(program())
    monkeypatch.setattr(members, "ChildProcess", Slow)
    with pytest.raises(SessionError, match=r"was shut down.*Make another LocalRunner"):
        session.call(pid)
    assert not started[0].alive
    assert started[0].ended() != "is running"


def test_a_runner_that_is_shut_down_opens_nothing_and_has_closed_what_was_open(runner):
    session, kept = runner.open(program()), runner.open(program())
    ref = weakref.ref(session)
    call = in_thread(lambda: kept.call(talk_and_sleep, on_message=lambda _: begun.set()))
    begun = threading.Event()
    del session
    gc.collect()
    assert ref() is None
    assert begun.wait(30)
    runner.shutdown()
    assert isinstance(call(), SessionError)
    with pytest.raises(SessionError, match="is closed"):
        kept.call(pid)
    with pytest.raises(SessionError, match="opens no more programs"):
        runner.open(program())


def test_workers_of_a_graph_that_is_gone_are_let_go_without_waiting(monkeypatch):
    """Its last reference may go on the very thread that everybody waits for."""
    waited = []
    g = Graph(cache="off")
    g.node("a", pid_of)
    g.add_worker("local://gone")
    g.on_event(partial(isinstance, g))  # it refers to itself, as much does
    number = g.forward(1)
    assert number != os.getpid()
    ref = weakref.ref(g)
    monkeypatch.setattr(ChildProcess, "close", lambda *_: waited.append("closed"))
    del g
    gc.collect()
    assert ref() is None
    assert not waited
    wait_until(lambda: not os.path.exists(f"/proc/{number}"))  # noqa: PTH110  # not a path of ours


def pid_of(x):
    return os.getpid()


def test_an_interpreter_that_ends_says_nothing_of_a_call_on_a_daemon_thread(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(
        "import threading, time\n"
        "from soma import Graph\n"
        "from soma.sessions import LocalRunner, send_message\n"
        "def work():\n"
        "    send_message('begun')\n"
        "    time.sleep(120)\n"
        "def call():\n"
        "    session.call(work, on_message=lambda _: begun.set())\n"
        "if __name__ == '__main__':\n"
        "    g = Graph(cache='off')\n"
        "    g.node('a', abs)\n"
        "    runner = LocalRunner()\n"
        "    session, begun = runner.open(g.program()), threading.Event()\n"
        "    threading.Thread(target=call, daemon=True).start()\n"
        "    print(begun.wait(60))\n"
    )
    made = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (made.stdout, made.stderr, made.returncode) == ("True\n", "", 0)


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(underway, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_what_callbacks_take_is_not_the_time_of_a_call(clock):
    call = UnderWay(1, "test", 10.0)
    clock.now += 6
    began = clock.now
    clock.now += 100
    call.was_away(began)
    assert not call.gives_up()
    assert not call.is_out_of_time()
    assert call.wait_until(60) == clock.now + 4
    clock.now += 5
    assert call.gives_up()
    assert call.is_out_of_time()
    assert not call.is_out_of_time()
    assert call.timed_out


def test_a_process_has_its_grace_after_a_callback_in_which_it_was_told_to_stop(clock):
    call = UnderWay(1, "test", None)
    began = clock.now
    clock.now += 5
    call.stop()
    clock.now += 5
    call.was_away(began)
    assert call.stop_by == clock.now + GRACE_S
    assert not call.is_stuck()
    began = clock.now
    clock.now += 1
    call.stop()
    call.was_away(began)
    assert call.stop_by == clock.now + GRACE_S
    clock.now += GRACE_S
    assert call.is_stuck()
