"""Claims of a store: one computes and the others wait, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from soma.contracts import ActionStore
from soma.testing import _threads
from soma.testing._frames import hash_of
from soma.testing._store_base import StoreCases, assert_kept, keep
from soma.testing._threads import PATIENCE_S, Background, in_threads

__all__ = ["ClaimCases"]

_KEY = hash_of("claimed")
_OTHER = hash_of("another")


class _Taker:
    """A thread that wants a key: it sets ``took`` when it has it, and keeps it until told."""

    def __init__(self, store: ActionStore, key: str = _KEY) -> None:
        self.took = threading.Event()
        self._go_on = threading.Event()
        self.claim = store.claim(key)
        self._thread = Background(self._hold)

    def _hold(self) -> None:
        with self.claim:
            self.took.set()
            assert self._go_on.wait(_threads.TIMEOUT_S)

    def has_it(self) -> None:
        """Wait until it holds the key."""
        assert self.took.wait(_threads.TIMEOUT_S), "nobody else holds the key, and it is not given"

    def waits(self) -> None:
        """Look whether it waits."""
        assert not self.took.wait(PATIENCE_S), "two hold one key at once"

    def end(self) -> None:
        """Have it let go."""
        self._go_on.set()
        self._thread.join()


class ClaimCases(StoreCases):
    """Who holds a key, and who waits."""

    def test_one_computes_and_the_others_find_it(self, store: ActionStore) -> None:
        """Eight want what is not there yet: the work is done once."""
        computed: list[int] = []

        def work(number: int) -> None:
            with store.claim(_KEY):
                if store.lookup(_KEY) is None:
                    time.sleep(0.05)  # so that the others come meanwhile
                    computed.append(number)
                    keep(store, "claimed", [1.5, "a"])
            assert store.lookup(_KEY) is not None
            assert_kept(store, [1.5, "a"])

        in_threads(work, 8)
        assert len(computed) == 1, f"it was computed {len(computed)} times"

    def test_who_comes_second_waits(self, store: ActionStore) -> None:
        """Until the first has let go, and no longer."""
        first = _Taker(store)
        first.has_it()
        second = _Taker(store)
        second.waits()
        first.end()
        second.has_it()
        second.end()

    def test_other_keys_are_free(self, store: ActionStore) -> None:
        """Two nodes that have nothing to do with each other run at once."""
        takers = [_Taker(store, hash_of(f"free {number}")) for number in range(4)]
        for one in takers:
            one.has_it()
        for one in takers:
            one.end()

    def test_a_lookup_waits_for_nobody(self, store: ActionStore) -> None:
        """Looking up and reading take no lock: a hit is not held up by who computes."""
        keep(store, "claimed", "there")
        first = _Taker(store)
        first.has_it()

        def look() -> None:
            assert store.lookup(_KEY) is not None
            assert store.lookup(_OTHER) is None
            assert_kept(store, "there")
            keep(store, "another", "new")

        Background(look).join()
        first.end()

    def test_a_body_that_raises_lets_go(self, store: ActionStore) -> None:
        """The error passes as it is, and the next one computes."""

        def fail() -> None:
            with store.claim(_KEY):
                raise LookupError("from the body")

        with pytest.raises(LookupError, match="from the body"):
            fail()
        following = _Taker(store)
        following.has_it()
        following.end()

    def test_a_thread_does_not_wait_for_itself(self, store: ActionStore) -> None:
        """It may claim what it holds; only the outer claim lets go."""
        inner_left, go_on = threading.Event(), threading.Event()

        def work() -> None:
            with store.claim(_KEY):
                with store.claim(_KEY):
                    pass
                inner_left.set()
                assert go_on.wait(_threads.TIMEOUT_S)

        thread = Background(work)
        assert inner_left.wait(_threads.TIMEOUT_S), "it waits for itself"
        other = _Taker(store)
        other.waits()
        go_on.set()
        thread.join()
        other.has_it()
        other.end()

    def test_two_that_want_what_the_other_holds_go_on(self, store: ActionStore) -> None:
        """Who holds a claim waits for no second one: computing twice is better than never."""
        both = threading.Barrier(2, timeout=_threads.TIMEOUT_S)

        def work(number: int) -> None:
            mine, wanted = (_KEY, _OTHER) if number else (_OTHER, _KEY)
            with store.claim(mine):
                both.wait()
                with store.claim(wanted):
                    pass

        in_threads(work, 2)

    def test_a_claim_is_let_go_from_another_thread(self, store: ActionStore) -> None:
        """Ctrl-C frees what an abandoned thread holds, which then lets go of nothing else."""
        abandoned = _Taker(store)
        abandoned.has_it()
        abandoned.claim.__exit__(None, None, None)
        second = _Taker(store)
        second.has_it()
        abandoned.end()  # it leaves its claim once more
        third = _Taker(store)
        third.waits()
        second.end()
        third.has_it()
        third.end()

    def test_a_claim_at_once(self, store: ActionStore) -> None:
        """``try_claim`` holds for another process, at once or not at all; any thread ends it."""
        attempt = getattr(store, "try_claim", None)
        if attempt is None:
            pytest.skip("the store has no try_claim()")
        held = attempt(_KEY, "process 12345")
        assert held is not None
        assert attempt(_KEY, "process 23456") is None
        other = attempt(_OTHER, "process 23456")
        assert other is not None
        other.__exit__(None, None, None)
        waiting = _Taker(store)
        waiting.waits()
        Background(lambda: held.__exit__(None, None, None)).join()
        waiting.has_it()
        assert attempt(_KEY, "process 23456") is None
        waiting.end()
        again = attempt(_KEY, "process 23456")
        assert again is not None
        again.__exit__(None, None, None)

    def test_who_holds_a_claim_knows_it(self, store: ActionStore) -> None:
        """``holds_claim`` is about this thread: what others hold does not count."""
        holds: Any = getattr(store, "holds_claim", None)
        if holds is None:
            pytest.skip("the store has no holds_claim()")
        assert not holds()
        first = _Taker(store)
        first.has_it()
        assert not holds(), "it is another thread that holds one"
        with store.claim(_OTHER):
            assert holds()
        assert not holds()
        first.end()
