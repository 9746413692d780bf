"""A remote tier, such that nothing about it can hold up a run or give it a wrong value.

    Remote ──► Patience   who answers late, or fails, is left alone for a while
           └─► Sender     what is computed here is sent in the background

What comes from it is bytes that anybody may have written: a blob counts only where its BLAKE3 is
the digest that was asked for. The hash is taken where it was fetched, by the thread that may hang:
the bytes of a map come from the server only when somebody looks at them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from soma.contracts import CacheTier, Frame
from soma.frame import hash_parts
from soma_cache.layout import blob_name, record_name
from soma_cache.patience import Patience
from soma_cache.sending import Sender, frame_bytes, size_of

__all__ = ["MOST_RECORD_BYTES", "Remote"]

MOST_RECORD_BYTES = 16 << 20
"""A record with the small outputs of a very long block has some hundred thousand bytes."""

T = TypeVar("T")


class Remote:
    """A ``CacheTier`` with patience. Safe for threads; no call raises what the tier raises.

    Args:
        tier: the tier. Where it has ``size(name) -> int | None``, nothing is fetched that is longer
            than expected; where it has a true ``read_only``, nothing is sent.
        name: what notices call it; no secret is in it.
        read_only: send nothing.
        clock: seconds that only ever grow.
        patience_s: how long an answer may take; a blob has more time, at 20 MB/s.
        rest_s: for how long the tier is left alone when it fails.
    """

    def __init__(
        self,
        tier: CacheTier,
        name: str,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = 2.0,
        rest_s: float = 30.0,
    ) -> None:
        self.tier = tier
        self.name = name
        self.read_only = read_only or bool(getattr(tier, "read_only", False))
        self._patience = Patience(name, clock=clock, patience_s=patience_s, rest_s=rest_s)
        self._sender = Sender(tier, self._patience)

    def record(self, key: str) -> bytes | None:
        """Return the bytes of a record, as they are; None where there are none to be had."""

        def fetch() -> bytes | None:
            found = self._fetch(record_name(key), lambda size: size <= MOST_RECORD_BYTES)
            return None if found is None else bytes(found)

        return self._ask(fetch)

    def has(self, digest: str) -> bool:
        """Say whether a blob seems to be there, without fetching it."""
        return bool(self._ask(lambda: self.tier.exists(blob_name(digest))))

    def blob(self, digest: str, nbytes: int | None = None) -> memoryview | None:
        """Return the bytes of a blob, which have that hash; None where there are none to be had.

        Args:
            digest: its hash.
            nbytes: how many bytes it has, where that is known; it gets the time for so many.
        """
        if nbytes is None and hasattr(self.tier, "size"):  # to know how long to wait
            nbytes = self._ask(lambda: size_of(self.tier, blob_name(digest)), counts=False)

        def fetch() -> memoryview | None:
            try:
                found = self._fetch(blob_name(digest), lambda size: nbytes in (None, size))
                return None if found is None else _checked(found, digest)
            except _Damaged as error:
                self._sender.damaged.add(digest)
                self._patience.tell(f"has something that is damaged, and is not used: {error}")
                raise

        return self._patience.ask(fetch, self._patience.limit_s(nbytes or 0))

    def _ask(self, work: Callable[[], T], *, counts: bool = True) -> T | None:
        return self._patience.ask(work, self._patience.patience_s, counts=counts)

    def _fetch(self, name: str, fits: Callable[[int], bool]) -> memoryview | None:
        size = size_of(self.tier, name)
        if size is not None and not fits(size):
            raise _Damaged(f"{name} has {size:,} bytes, which cannot be")
        frame = self.tier.get(name)
        if frame is None:
            return None
        if not fits(frame_bytes(frame)):
            raise _Damaged(f"{name} came with {frame_bytes(frame):,} bytes, which cannot be")
        return _joined(frame)

    def push(self, key: str, record: bytes, frames: Mapping[str, Frame]) -> None:
        """Send a result in the background: its blobs, except those that are there, then its record.

        Where the tier is away, or does not keep up, the result stays here and is counted.

        Args:
            key: the key of the record.
            record: its bytes.
            frames: digest -> frame, for each output with a blob. Nobody may write to them any more.
        """
        if not self.read_only:
            self._sender.push(key, record, frames)

    def flush(self, timeout_s: float) -> bool:
        """Wait, at most so long; say whether all is sent that was pushed since the last flush."""
        return self._sender.flush(timeout_s)

    def is_away(self) -> bool:
        """Say whether the tier is left alone right now: then it is asked nothing."""
        return self._patience.is_away()

    @property
    def dropped(self) -> int:
        """How many results of this process were not sent."""
        return self._sender.dropped


class _Damaged(Exception):
    """What lies in the tier is not what was put there."""


def _checked(found: memoryview, digest: str) -> memoryview:
    if hash_parts(b"", [found]) != digest:
        raise _Damaged(f"{blob_name(digest)} does not have the hash in its name")
    return found


def _joined(frame: Frame) -> memoryview:
    """Return a frame in one piece; no copy is made where it comes as one."""
    views = [memoryview(frame[0]), *frame[1]]
    pieces = [one.cast("B") for one in views if one.nbytes]
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
