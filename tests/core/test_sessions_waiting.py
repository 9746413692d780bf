"""Who waits for whom where sessions and claims meet; and a child with a store of its own."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest

from soma import Filter, Graph
from soma.engine import MemoryStore
from soma.engine.claims import Claims
from soma.events.bus import calling_back
from soma.sessions import InProcessRunner, LocalRunner
from soma.sessions.child import opened
from soma.sessions.child.impatient import Impatient
from soma.sessions.exchange import Exchange
from soma.sessions.place import Has

LIMIT_S = 60
HOOK = "soma_test_hook_of_waiting"
DISK = pytest.param("disk", marks=pytest.mark.skipif(not find_spec("soma_cache"), reason="no disk"))
STORES = pytest.mark.parametrize("cache", ["memory", DISK])
RUNNERS = pytest.mark.parametrize("runner", [InProcessRunner, LocalRunner])


def asks(x):
    """Ask somebody else first, where a test says so; never in a child."""
    hook = sys.modules.get(HOOK)
    if hook is not None:
        hook.ask(x)
    return x + 1


def graph(cache, tmp_path):
    g = Graph(cache=cache, cache_path=tmp_path / "cache" if cache == "disk" else None)
    g.node("asks", asks)
    return g


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
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "it waits for ever"
        return made[0]

    return result


@RUNNERS
@STORES
def test_who_waits_for_a_session_holds_nothing_that_its_call_waits_for(
    runner, cache, tmp_path, monkeypatch
):
    g = graph(cache, tmp_path)
    computes, goes_on, once = threading.Event(), threading.Event(), [1]

    class Hook:
        def ask(self, x):
            if x == 5 and once and once.pop():
                computes.set()
                assert goes_on.wait(LIMIT_S)
                found.append(session.forward(7))

    found = []
    monkeypatch.setitem(sys.modules, HOOK, Hook())
    with runner() as made, made.open(g.program()) as session:
        if runner is LocalRunner:
            assert session.call(abs, -1) == 1  # the process is there
        outer = in_thread(lambda: g.forward(5))
        assert computes.wait(LIMIT_S)
        inner = in_thread(lambda: session.forward(5))
        deadline = monotonic() + LIMIT_S
        while not session._turn.locked():
            assert monotonic() < deadline
        goes_on.set()
        assert inner() == 6
        assert outer() == 6
    assert found == [8]


@STORES
def test_a_session_that_is_free_costs_no_claim(cache, tmp_path):
    g = graph(cache, tmp_path)
    store = g.program().store
    with InProcessRunner() as runner, runner.open(g.program()) as session, store.claim("ab" * 32):
        assert session.forward(1) == 2
        assert store.holds_claim()


@pytest.mark.parametrize("holds", ["a claim", "a callback"])
@STORES
def test_a_child_waits_for_nobody_where_its_caller_may_be_waited_for(cache, tmp_path, holds):
    """Another has claimed what is to be computed, and does not let go of it."""
    g, key = graph(cache, tmp_path), key_of(6)
    held = g.program().store.try_claim(key, "somebody")
    held_too = g.program().store.claim("cd" * 32) if holds == "a claim" else calling_back()
    with LocalRunner() as runner, runner.open(g.program()) as session:

        def forward():
            with held_too:
                return session.forward(6)

        assert in_thread(forward)() == 7
    assert g.program().store.try_claim(key, "another") is None
    held.__exit__(None, None, None)


def key_of(x):
    """Return the key of what ``asks`` makes of something."""
    keys = []

    class Spy(MemoryStore):
        def claim(self, key):
            keys.append(key)
            return super().claim(key)

    g = Graph(cache=Spy())
    g.node("asks", asks)
    g.forward(x)
    (key,) = keys
    return key


def exchange(store):
    place = SimpleNamespace(borrow=lambda child: Has())
    child = SimpleNamespace(tell=None, name="a child")
    bus = SimpleNamespace(listening=False)
    return Exchange(place, child, states={}, shelf=None, bus=bus, store=store, asks_us=False)


def test_a_call_says_whether_the_child_may_wait():
    store = MemoryStore()
    assert exchange(None).fields["waits"]
    assert exchange(store).fields["waits"]
    with store.claim("k"):
        assert not exchange(store).fields["waits"]
        assert in_thread(lambda: exchange(store).fields["waits"])()  # the claim is not its own
    with calling_back():
        assert not exchange(store).fields["waits"]
    assert exchange(store).fields["waits"]


def test_a_store_of_the_child_s_own_is_impatient_where_the_call_says_so():
    store = MemoryStore()
    session = opened._Session(None, (), store, "")

    def of_a_call(waits):
        return session.store(SimpleNamespace(message=SimpleNamespace(fields={"waits": waits})))

    assert of_a_call(waits=True) is store
    impatient = of_a_call(waits=False)
    assert isinstance(impatient, Impatient)
    assert impatient._store is store
    without = opened._Session(None, (), None, "")
    assert without.store(SimpleNamespace(message=SimpleNamespace(fields={"waits": False}))) is None


# Impatient


def test_a_key_that_is_free_is_held_from_when_it_is_entered():
    store = MemoryStore()
    claim = Impatient(store, "me").claim("k")
    assert not store._claims._held  # nobody has entered it, and nobody would leave it
    with claim:
        assert store.try_claim("k", "another") is None
        assert not store.holds_claim()  # it is no thread's, so that any may let go of it
    again = store.try_claim("k", "another")
    assert again is not None
    claim.__exit__(None, None, None)  # once more: that is not its own
    assert store.try_claim("k", "a third") is None
    again.__exit__(None, None, None)
    with claim:
        assert store.try_claim("k", "another") is None
    assert not store._claims._held


def test_a_key_that_another_thread_holds_is_not_waited_for():
    store, held, go_on = MemoryStore(), threading.Event(), threading.Event()

    def hold():
        with store.claim("k"):
            held.set()
            assert go_on.wait(LIMIT_S)

    ends = in_thread(hold)
    assert held.wait(LIMIT_S)

    def go():
        with Impatient(store, "me").claim("k"):
            return [one.who for one in store._claims._held.values()]

    assert in_thread(go)() != ["me"]
    assert store.try_claim("k", "another") is None  # its holder's still
    go_on.set()
    assert ends() is None
    assert not store._claims._held


def test_a_key_that_another_process_holds_is_not_waited_for():
    locks = SimpleNamespace(lock=lambda key: False, unlock=None, holder=lambda key: "process 1")
    claims = Claims(locks)
    store = SimpleNamespace(try_claim=claims.attempt)

    def go():
        with Impatient(store, "me").claim("k"):
            return dict(claims._held)

    assert in_thread(go)() == {}


def test_a_store_that_cannot_claim_at_once_is_asked_for_no_claim():
    def claim(key):
        raise AssertionError

    with Impatient(SimpleNamespace(claim=claim), "me").claim("k"):
        pass


def test_all_else_is_the_stores():
    store = SimpleNamespace(tier="Local", inline_bytes=7, lookup=lambda key: key * 2)
    impatient = Impatient(store, "me")
    assert (impatient.tier, impatient.inline_bytes, impatient.lookup("k")) == ("Local", 7, "kk")
    with pytest.raises(AttributeError):
        impatient.share  # noqa: B018  # what it lacks is lacking


def test_an_error_of_the_store_goes_through_and_holds_nothing():
    def try_claim(key, who):
        raise OSError(5, "Input/output error")

    claim = Impatient(SimpleNamespace(try_claim=try_claim), "me").claim("k")
    with pytest.raises(OSError, match="Input"), claim:
        raise AssertionError
    claim.__exit__(None, None, None)


# A store that cannot be opened


class Learn(Filter):
    def fit(self, x, y=None):
        return {"sum": float(x.sum())}

    def forward(self, x, state):
        return x + state["sum"]


@pytest.mark.parametrize("name", ["no such store", "disk"])
def test_a_session_goes_on_where_its_child_cannot_open_the_store(capfd, name):
    if name == "disk":
        pytest.importorskip("soma_cache")
    g = Graph(cache="memory")
    g.node("learn", Learn())
    sent = replace(g.program(), store_source=(name, {"nothing like it": 1}))
    x = np.arange(4.0)
    with LocalRunner() as runner, runner.open(sent) as session:
        session.fit(x, seed=None, options={})
        assert session.state() == {"learn": {"sum": 6.0}}
        for _ in range(2):
            assert session.forward(x).tolist() == (x + 6.0).tolist()
        assert session.forward(x * 2).tolist() == (x * 2 + 6.0).tolist()
    said = [line for line in capfd.readouterr().err.splitlines() if "soma:" in line]
    assert len(said) == 1
    assert "cannot open the cache, and goes on without it" in said[0]
