"""What every action store must do, as tests.

    FrameCases       values, piece by piece       (_store_frames.py)
    RecordCases      what is committed            (_store_records.py)
    ClaimCases       one computes, others wait    (_store_claims.py)
    KeepingCases     pins, gc, stats, verify      (_store_keeping.py)
    ActionStoreSuite what is left: many threads, and a second object over the same storage

Whatever is read was written *and committed* before: a blob that no record names may go at any time.
All values are real frames, and keys are 64 hexadecimal digits, as Soma's are.
"""

from __future__ import annotations

import threading

import pytest

from soma.contracts import ActionStore
from soma.testing._frames import hash_of
from soma.testing._store_base import assert_kept, bytes_like, keep
from soma.testing._store_claims import ClaimCases
from soma.testing._store_frames import FrameCases
from soma.testing._store_keeping import KeepingCases
from soma.testing._store_records import RecordCases
from soma.testing._threads import in_threads

__all__ = ["ActionStoreSuite"]

_THREADS = 8
_ROUNDS = 20
_NBYTES = 100_000
_SIZES = (1, 1000, 2047, 2048, 2049, _NBYTES, (1 << 20) + 1)


class ActionStoreSuite(FrameCases, RecordCases, ClaimCases, KeepingCases):
    """Derive from it and give the fixtures.

    - ``store``: a ``soma.contracts.ActionStore`` that nobody has used, another for each check;
    - ``another``: a second object over the storage of ``store``, as another process would open it.
      Where there can be none, leave it out: the checks that need it are then skipped.

    The optional methods of a store (``adopt``, ``share``, ``try_claim``, ``holds_claim``) are
    checked where they are present.
    """

    def test_many_threads_keep_the_same_and_different_things(self, store: ActionStore) -> None:
        """Each finds what it has committed, at once and whole; afterwards everything is there."""

        def work(number: int) -> None:
            for turn in range(_ROUNDS):
                common, own = bytes_like(turn, 3000 + turn), [number, turn, bytes(3000)]
                keep(store, f"common {turn}", common)
                keep(store, f"own {number} {turn}", own, common)
                assert store.lookup(hash_of(f"common {turn}")) is not None
                assert store.lookup(hash_of(f"own {number} {turn}")) is not None
                assert_kept(store, common)
                assert_kept(store, own)

        in_threads(work, _THREADS)
        assert len(list(store.records())) == _ROUNDS * (_THREADS + 1)
        assert store.stats()["records"] == _ROUNDS * (_THREADS + 1)
        assert list(store.verify()) == []
        for turn in range(_ROUNDS):
            assert_kept(store, bytes_like(turn, 3000 + turn))

    def test_gc_beside_those_who_read_and_write(self, store: ActionStore) -> None:
        """A value is there and right, or gone: never an error, and never half of it."""
        values = [bytes_like(number, _NBYTES) for number in range(3)]
        done = threading.Semaphore(0)

        def work(number: int) -> None:
            if number == 0:
                while not done.acquire(blocking=False):
                    store.gc(max_bytes=_NBYTES)
                return
            try:
                for turn in range(_ROUNDS):
                    value = values[(number + turn) % len(values)]
                    keep(store, f"{number} {turn}", value)
                    assert_kept(store, value, or_gone=True)
                    assert store.lookup(hash_of(f"{number} {turn}")) is not None
            finally:
                done.release()

        in_threads(work, _THREADS)
        assert list(store.verify()) == []
        for number, value in enumerate(values):
            keep(store, f"after {number}", value)
            assert_kept(store, value)

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_another_finds_what_was_committed(
        self, store: ActionStore, another: ActionStore | None, nbytes: int
    ) -> None:
        """In both directions, and also where it has looked before and found nothing."""
        both = (store, _given(another, store))
        for number, (one, other) in enumerate((both, both[::-1])):
            key, value = hash_of(str(number)), bytes_like(number, nbytes)
            assert other.lookup(key) is None
            (digest,) = keep(one, str(number), value, compute_ms=3.5)
            record = other.lookup(key)
            assert record is not None, "what one has committed the other does not find"
            assert (record.key, list(record.outputs.values())) == (key, [digest])
            assert record.compute_ms == 3.5  # noqa: PLR2004  # as above
            assert other.has(digest) is True
            assert_kept(other, value)
            assert_kept(one, value)
            assert {found.key for found in other.records()} == {
                found.key for found in one.records()
            }
            assert list(other.verify()) == []

    def test_another_keeps_what_one_has_pinned(
        self, store: ActionStore, another: ActionStore | None
    ) -> None:
        """A pin holds against every gc, whoever starts it, and whoever takes it away."""
        other = _given(another, store)
        value = bytes_like(1, _NBYTES)
        keep(store, "pinned", value)
        keep(store, "loose", bytes_like(2, _NBYTES))
        store.pin("best", hash_of("pinned"))
        other.gc(max_bytes=0)
        assert other.stats()["blobs"] == 1
        assert_kept(other, value)
        assert_kept(store, value)
        other.unpin("best")
        with pytest.raises(KeyError):
            store.unpin("best")
        store.gc(max_bytes=0)
        assert store.stats()["blobs"] == 0

    def test_another_lets_go_what_one_has_read(
        self, store: ActionStore, another: ActionStore | None
    ) -> None:
        """The one that did not notice has the value still or misses it; it can be kept again."""
        other = _given(another, store)
        value = bytes_like(1, _NBYTES)
        keep(store, "gone", value)
        assert_kept(store, value)
        other.gc(max_bytes=0)
        assert_kept(store, value, or_gone=True)
        assert store.lookup(hash_of("gone")) is not None
        keep(store, "gone", value)
        assert_kept(store, value)

    def test_threads_on_two_objects(self, store: ActionStore, another: ActionStore | None) -> None:
        """Two processes that keep the same at once do not get in each other's way."""
        both = (store, _given(another, store))

        def work(number: int) -> None:
            for turn in range(_ROUNDS):
                one = both[(number + turn) % 2]
                keep(one, f"common {turn}", bytes_like(turn, 3000))
                keep(one, f"own {number} {turn}", [number, turn])
                assert one.lookup(hash_of(f"own {number} {turn}")) is not None
                assert_kept(one, bytes_like(turn, 3000))

        in_threads(work, _THREADS)
        for one in both:
            assert len(list(one.records())) == _ROUNDS * (_THREADS + 1)
            assert list(one.verify()) == []


def _given(another: ActionStore | None, store: ActionStore) -> ActionStore:
    if another is None:
        pytest.skip(
            "there is no second object over the storage: the fixture 'another' is not given"
        )
    assert another is not store, "'another' is the same object: it proves nothing"
    return another
