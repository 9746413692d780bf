"""What a store keeps and lets go: pins, gc, figures, and the look at every blob.

What remains after a gc is counted by ``stats``, never by reading: a store may hold in memory what
it has removed elsewhere, and then it gives the right value still.
"""

from __future__ import annotations

import pytest

from soma.contracts import ActionStore
from soma.testing._frames import hash_of
from soma.testing._store_base import StoreCases, assert_kept, bytes_like, keep

__all__ = ["KeepingCases"]

_NBYTES = 100_000
"""Too large to lie in a record, which gc does not touch."""
_NAMES = ("best", "Best", "a/b", "a%2Fb", "..", ".", "a b", "ключ 節点 \U0001f600", "'\"\\\n")


class KeepingCases(StoreCases):
    """Pins, gc, stats and verify."""

    def test_gc_lets_blobs_go_and_records_stay(self, store: ActionStore) -> None:
        """Keys below a blob that went are still found; whoever needs it has it made again."""
        digests = [keep(store, str(number), bytes_like(number, _NBYTES))[0] for number in range(3)]
        assert store.gc(max_bytes=0, min_age_s=0.0) >= 3 * _NBYTES
        assert store.stats()["blobs"] == 0
        for number, digest in enumerate(digests):
            assert_kept(store, bytes_like(number, _NBYTES), or_gone=True)
            record = store.lookup(hash_of(str(number)))
            assert record is not None, "gc has removed a record"
            assert list(record.outputs.values()) == [digest]
        assert len(list(store.records())) == len(digests)
        assert list(store.verify()) == []

    def test_what_went_can_be_written_again(self, store: ActionStore) -> None:
        """It is computed again on demand, and is there as before."""
        value = bytes_like(1, _NBYTES)
        keep(store, "healed", value)
        store.gc(max_bytes=0)
        keep(store, "healed", value)
        assert store.stats()["blobs"] == 1
        assert_kept(store, value)

    def test_gc_stops_at_the_bytes_that_may_remain(self, store: ActionStore) -> None:
        """No more goes than has to."""
        for number in range(5):
            keep(store, str(number), bytes_like(number, _NBYTES))
        assert store.gc(max_bytes=1 << 40) == 0
        store.gc(max_bytes=_NBYTES * 5 // 2)
        assert store.stats()["blobs"] == 2  # noqa: PLR2004  # two and a half fit
        for number in range(5):
            assert_kept(store, bytes_like(number, _NBYTES), or_gone=True)

    def test_a_dry_run_removes_nothing_and_says_what_would_go(self, store: ActionStore) -> None:
        """Its figure is what the real one then frees."""
        for number in range(3):
            keep(store, str(number), bytes_like(number, _NBYTES))
        said = store.gc(max_bytes=_NBYTES * 3 // 2, dry_run=True)
        assert store.stats()["blobs"] == 3  # noqa: PLR2004  # as many as were kept
        for number in range(3):
            assert_kept(store, bytes_like(number, _NBYTES))
        assert store.gc(max_bytes=_NBYTES * 3 // 2) == said
        assert said >= 2 * _NBYTES
        assert store.gc(max_bytes=_NBYTES * 3 // 2) == 0

    def test_what_is_pinned_survives_every_gc(self, store: ActionStore) -> None:
        """All outputs of a pinned record stay, until its last pin is taken away."""
        values = [bytes_like(1, _NBYTES), bytes_like(2, _NBYTES)]
        keep(store, "pinned", *values)
        keep(store, "loose", bytes_like(3, _NBYTES))
        store.pin("best", hash_of("pinned"))
        store.pin("best so far", hash_of("pinned"))
        for name in ("best so far", "best"):
            store.gc(max_bytes=0)
            assert store.stats()["blobs"] == len(values)
            for value in values:
                assert_kept(store, value)
            store.unpin(name)
        store.gc(max_bytes=0)
        assert store.stats()["blobs"] == 0

    def test_a_pin_moves_to_the_key_that_was_named_last(self, store: ActionStore) -> None:
        """A name pins one record: the best so far is not the best for ever."""
        keep(store, "old", bytes_like(1, _NBYTES))
        keep(store, "new", bytes_like(2, _NBYTES))
        store.pin("best", hash_of("old"))
        store.pin("best", hash_of("new"))
        store.gc(max_bytes=0)
        assert store.stats()["blobs"] == 1
        assert_kept(store, bytes_like(2, _NBYTES))
        store.unpin("best")

    def test_pins_have_names_of_any_kind(self, store: ActionStore) -> None:
        """Names are the user's: each is its own, whatever a folder makes of its characters."""
        for number, name in enumerate(_NAMES):
            keep(store, str(number), bytes_like(number, _NBYTES))
            store.pin(name, hash_of(str(number)))
        store.gc(max_bytes=0)
        assert store.stats()["blobs"] == len(_NAMES)
        for number, name in enumerate(_NAMES):
            assert_kept(store, bytes_like(number, _NBYTES))
            store.unpin(name)
            with pytest.raises(KeyError):
                store.unpin(name)
        assert list(store.verify()) == []

    def test_a_pin_that_is_not_there_cannot_be_taken_away(self, store: ActionStore) -> None:
        """It is an error, so that a mistyped name is seen."""
        keep(store, "pinned", 1)
        store.pin("best", hash_of("pinned"))
        with pytest.raises(KeyError):
            store.unpin("bets")
        store.unpin("best")
        with pytest.raises(KeyError):
            store.unpin("best")

    def test_stats_count_what_was_committed(self, store: ActionStore) -> None:
        """Among its figures are ``records``, ``blobs``, ``bytes`` and ``compute_ms``."""
        empty = store.stats()
        assert (empty["records"], empty["blobs"], empty["compute_ms"]) == (0, 0, 0)
        for number in range(3):
            keep(store, str(number), bytes_like(number, _NBYTES), compute_ms=2.0**number)
        stats = store.stats()
        assert (stats["records"], stats["blobs"]) == (3, 3)
        assert stats["compute_ms"] == pytest.approx(7.0)
        assert stats["bytes"] >= 3 * _NBYTES
        for name, figure in (*empty.items(), *stats.items()):
            assert isinstance(name, str)
            assert figure >= 0, f"{name} is {figure}"
        store.gc(max_bytes=0)
        after = store.stats()
        assert (after["records"], after["blobs"]) == (3, 0)
        assert after["bytes"] < stats["bytes"]

    def test_a_healthy_store_has_nothing_to_tell(self, store: ActionStore) -> None:
        """``verify`` names the digests of what is damaged, and of nothing else."""
        assert list(store.verify()) == []
        for number, nbytes in enumerate((1, 2048, _NBYTES, 2 << 20)):
            keep(store, str(number), bytes_like(number, nbytes))
        assert list(store.verify()) == []
