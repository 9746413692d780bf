"""What the cases of the store suite have in common: stores, keys, and values that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from soma.contracts import ActionRecord, ActionStore
from soma.frame import Encoded, decode_parts, encode
from soma.testing._frames import assert_same_frame, hash_of
from soma.testing._suite import ConformanceSuite

__all__ = ["StoreCases", "assert_kept", "bytes_like", "keep"]


class StoreCases(ConformanceSuite):
    """Gives what the cases need: a store, and perhaps a second one over the same storage."""

    @pytest.fixture
    def store(self) -> ActionStore:
        """Give a store that nobody has used and in which nothing is."""
        pytest.fail(f"{type(self).__name__} has to give the fixture 'store'")

    @pytest.fixture
    def another(self, store: ActionStore) -> ActionStore | None:  # noqa: ARG002  # for who overrides
        """Give a second object over the storage of ``store``, as another process would open it."""
        return None


def bytes_like(number: int, nbytes: int) -> Any:
    """Return an array of so many bytes; another number gives other bytes."""
    return np.random.default_rng(number).integers(0, 256, nbytes, dtype=np.uint8)


def keep(store: ActionStore, text: str, *values: Any, compute_ms: float = 2.0) -> list[str]:
    """Write values and commit the record that names them: the only way to keep something.

    Args:
        store: the store.
        text: the key is the hash of it.
        values: one for each output.
        compute_ms: what the record says.

    Returns:
        The digest of each.
    """
    written = [encode(value) for value in values]
    digests = [store.write((one.header, one.buffers)) for one in written]
    store.commit(
        ActionRecord(
            key=hash_of(text),
            outputs={f"output {place}": digest for place, digest in enumerate(digests)},
            bytes={f"output {place}": one.nbytes for place, one in enumerate(written)},
            compute_ms=compute_ms,
        )
    )
    return digests


def assert_kept(store: ActionStore, value: Any, *, or_gone: bool = False) -> None:
    """Check that a value comes back piece by piece as it was written, and is the same value."""
    written: Encoded = encode(value)
    digest = hash_of(written.to_bytes())
    found = store.read(digest)
    if found is None:
        assert or_gone, "the store does not give what a record of it names"
        return
    header, buffers = found
    assert isinstance(header, bytes), "a header is bytes"
    assert_same_frame(found, (written.header, written.buffers))
    assert encode(decode_parts(header, buffers)).digest == digest
