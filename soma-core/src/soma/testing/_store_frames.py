"""Values in a store: every kind of frame comes back, and belongs to whoever takes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from soma.contracts import ActionRecord, ActionStore
from soma.engine.blobs import Blob
from soma.frame import encode
from soma.testing._frames import Breaking, assert_same_frame, hash_of
from soma.testing._store_base import StoreCases, assert_kept, bytes_like, keep

__all__ = ["FrameCases"]

_MIB = 1 << 20
_START = 64
"""Bytes before the first buffer of a frame with a short header."""


_BUFFERS = (1, 63, 64, 65, 2047, 2048, 2049, 65_536, _MIB - 1, _MIB, _MIB + 1)
_WHOLE = (2047, 2048, 2049, _MIB - 1, _MIB, _MIB + 1)

_VALUES: dict[str, Callable[[], Any]] = {
    "no buffers": lambda: {"a": [1, (2.5, None)], "b": "naïve ключ 节点"},
    "none": lambda: None,
    "long header": lambda: [f"number {one}" for one in range(20_000)],
    "0-d array": lambda: np.array(2.5),
    "empty buffer": lambda: np.empty((0, 3)),
    "only empty buffers": lambda: [np.empty(0), np.empty((2, 0))],
    "several buffers": lambda: [np.arange(3), np.empty(0), "x", np.arange(5.0), b"y" * 5000],
    "4,000 pieces": lambda: [np.array([one]) for one in range(2000)],
    "nan payload": lambda: np.array([0x7FF8DEADBEEF0001, 1 << 63], dtype="<u8").view("<f8"),
    "by columns": lambda: np.asfortranarray(np.arange(393_216.0).reshape(3, -1)),
    "large and small": lambda: [bytes_like(1, 2 * _MIB), np.arange(3), bytes_like(2, _MIB)],
}
_VALUES |= {f"buffer of {one:,} bytes": partial(bytes_like, one, one) for one in _BUFFERS}
_VALUES |= {f"frame of {one:,} bytes": partial(bytes_like, 7, one - _START) for one in _WHOLE}
"""What it is -> what makes it: whoever imports a suite does not pay for its megabytes."""

_SIZES = (100, 100_000, 2 * _MIB)
"""One that may lie in a record, one that is copied, one that is mapped."""


class FrameCases(StoreCases):
    """What is written, what is read, and whose the memory is."""

    def test_what_was_never_written_is_not_there(self, store: ActionStore) -> None:
        """An unknown digest is None and no error: it is what a blob that went looks like."""
        assert store.read(hash_of("never")) is None
        assert store.has(hash_of("never")) is False

    @pytest.mark.parametrize("name", _VALUES)
    def test_every_kind_of_frame_comes_back(self, store: ActionStore, name: str) -> None:
        """Header and buffers as they were written, one by one with the padding between them."""
        value = _VALUES[name]()
        (digest,) = keep(store, name, value)
        assert digest == hash_of(encode(value).to_bytes())
        assert store.has(digest) is True
        for _ in range(2):  # the second may come from another place
            assert_kept(store, value)
        assert list(store.verify()) == []

    @pytest.mark.parametrize("name", _VALUES)
    def test_a_digest_that_is_known_is_given_back(self, store: ActionStore, name: str) -> None:
        """Whoever knows the hash gives it along, and it is not taken again."""
        value = _VALUES[name]()
        written = encode(value)
        digest = hash_of(written.to_bytes())
        assert store.write((written.header, written.buffers), digest) == digest
        keep(store, name, value)
        assert_kept(store, value)

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_what_is_taken_is_the_takers_own(self, store: ActionStore, nbytes: int) -> None:
        """A taker writes into its buffers, and whoever comes later reads what was written down."""
        value = bytes_like(1, nbytes)
        (digest,) = keep(store, "own", value)
        for _ in range(2):
            found = store.read(digest)
            assert found is not None
            for piece in found[1][::2]:  # between them lies padding
                assert not piece.readonly, "a taker cannot write to its buffer"
                piece[:] = bytes(len(piece))
            assert_kept(store, value)
        assert list(store.verify()) == []

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_the_writer_may_go_on_with_its_memory(self, store: ActionStore, nbytes: int) -> None:
        """When ``write`` has returned, the store holds nothing of the array that it was given."""
        value = bytes_like(1, nbytes)
        keep(store, "kept", value)
        value[:] = 0
        assert_kept(store, bytes_like(1, nbytes))

    def test_equal_values_are_one_blob(self, store: ActionStore) -> None:
        """A value lies there once, under its hash, however many records name it."""
        value = bytes_like(1, 100_000)
        digests = {*keep(store, "one", value), *keep(store, "other", value, value)}
        assert digests == {hash_of(encode(value).to_bytes())}
        stats = store.stats()
        assert (stats["records"], stats["blobs"]) == (2, 1)
        assert_kept(store, value)

    @pytest.mark.parametrize("looks", range(4))
    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_a_write_that_breaks_off_leaves_nothing(
        self, store: ActionStore, nbytes: int, looks: int
    ) -> None:
        """What cannot be kept is an error and is not there; the next write of it keeps it."""
        value = [bytes_like(1, nbytes), bytes_like(2, nbytes)]
        written = encode(value)
        digest = hash_of(written.to_bytes())
        try:
            store.write((written.header, Breaking(written.buffers, looks)), digest)
        except OSError:  # that of the buffers, or the store's own
            assert store.has(digest) is False, "a broken write has left something"
            assert store.read(digest) is None
        keep(store, "whole", value)
        assert_kept(store, value)
        assert list(store.verify()) == []

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_bytes_in_memory_are_adopted_as_they_are(self, store: ActionStore, nbytes: int) -> None:
        """A blob that came from another process is kept without copying it."""
        adopt = getattr(store, "adopt", None)
        if adopt is None:
            pytest.skip("the store has no adopt()")
        value = bytes_like(1, nbytes)
        written = encode(value)
        digest = hash_of(written.to_bytes())
        adopt(Blob(written.header, written.buffers), digest)
        store.commit(
            ActionRecord(
                key=hash_of("adopted"),
                outputs={"output": digest},
                bytes={"output": written.nbytes},
                compute_ms=1.0,
            )
        )
        assert store.has(digest) is True
        assert_kept(store, value)

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_bytes_are_shared_as_they_lie_in_memory(self, store: ActionStore, nbytes: int) -> None:
        """A blob is handed to another process; None says that it is gone."""
        share = getattr(store, "share", None)
        if share is None:
            pytest.skip("the store has no share()")
        assert share(hash_of("never")) is None
        value = bytes_like(1, nbytes)
        written = encode(value)
        (digest,) = keep(store, "shared", value)
        blob = share(digest)
        assert blob is not None
        assert blob.nbytes == written.nbytes
        assert_same_frame(blob.frame(), (written.header, written.buffers))
