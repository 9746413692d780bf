"""What goes to a remote tier: in the background, in order, and only as much as it can take.

    push ──► at most 256 MiB and 1,000 results ──► one thread ──► blobs, then their record

A run waits for none of it, except where so much has gathered that memory would fill up: then for a
moment, and what finds no room is not sent. The thread ends when it has had nothing to do for a
second, and is not waited for at the end of the process: only for ten seconds, while it gets on.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from soma.contracts import CacheTier, Frame
from soma.errors import describe_error
from soma_cache.layout import blob_name, record_name
from soma_cache.patience import Patience

__all__ = ["Parcel", "Sender", "frame_bytes", "size_of"]

_MOST_BYTES = 256 << 20
_MOST_PARCELS = 1000
_LINGER_S = 1.0
_POLL_S = 0.05
"""How often somebody who flushes looks whether the tier still gets on."""
_EXIT_S = 10.0
_TAKES_NOTHING = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
)
"""A tier that is full, or that we may not write to, can still be read."""


def frame_bytes(frame: Frame) -> int:
    """Return the size of a frame in bytes."""
    return len(frame[0]) + sum(one.nbytes for one in frame[1])


def size_of(tier: CacheTier, name: str) -> int | None:
    """Return the size of what lies under a name; None where it is not there, or cannot be told."""
    size = getattr(tier, "size", None)
    found: int | None = None if size is None else size(name)
    return found


class Parcel(NamedTuple):
    """One result."""

    key: str
    record: bytes
    frames: Mapping[str, Frame]
    """Digest -> frame."""
    nbytes: int


class Sender:
    """The queue of one remote tier. Safe for threads.

    Args:
        tier: where it goes.
        patience: what has become of that so far.
    """

    def __init__(self, tier: CacheTier, patience: Patience) -> None:
        self._tier = tier
        self._patience = patience
        self.damaged: set[str] = set()
        """Digests of blobs that lie there damaged: sent again although they are there."""
        self._open_at = float("-inf")
        self._finishes_in = 0
        """The process that waits for it at its end."""
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Parcel] = deque()
        self._nbytes = 0
        self._thread: threading.Thread | None = None
        self._crowded = False
        self._overdue_at = float("inf")
        self.dropped = 0
        """Results that were not sent."""
        self._flushed = 0  # how many those were at the last flush

    def push(self, key: str, record: bytes, frames: Mapping[str, Frame]) -> None:
        """Send a result, some time later; or not, where the tier takes nothing."""
        parcel = Parcel(key, record, frames, len(record) + sum(map(frame_bytes, frames.values())))
        with self._changed:
            if self._takes_nothing() or not self._finds_room(parcel):
                self.dropped += 1
                return
            self._queue.append(parcel)
            self._nbytes += parcel.nbytes
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def _takes_nothing(self) -> bool:
        return self._patience.is_away() or self._patience.clock() < self._open_at

    def _finds_room(self, parcel: Parcel) -> bool:
        """Wait until a parcel fits; not where the one before has waited in vain."""
        if not self._fits(parcel) and not self._crowded:
            self._changed.wait_for(lambda: self._fits(parcel), self._patience.patience_s)
        self._crowded = not self._fits(parcel)
        return not self._crowded and not self._takes_nothing()

    def _fits(self, parcel: Parcel) -> bool:
        if not self._queue:  # one that is larger than all the room goes alone
            return True
        fits = self._nbytes + parcel.nbytes <= _MOST_BYTES
        return fits and len(self._queue) < _MOST_PARCELS

    def _start(self) -> None:
        if self._finishes_in != os.getpid():
            self._finishes_in = os.getpid()
            _finish_with_multiprocessing()
        name = f"soma: sending to {self._patience.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process ends, or has as many threads as it may
            self.dropped += len(self._queue)
            self._queue.clear()
            self._nbytes = 0

    def _run(self) -> None:
        while self._has_work():
            self._work()

    def _has_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._queue, _LINGER_S)
            if self._thread is not threading.current_thread():  # Ctrl-C came as it was started
                return False
            if not self._queue:
                self._thread = None
            return bool(self._queue)

    def _work(self) -> None:
        parcel = self._queue[0]  # counted until it is there
        sent = False
        try:
            sent = self._send(parcel)
        except OSError as error:
            if error.errno in _TAKES_NOTHING:
                self._close(error)
            else:
                self._patience.failed(error)
        except BaseException as error:  # noqa: BLE001  # the thread is ours and goes on
            self._patience.failed(error)
        with self._changed:
            self._queue.popleft()
            self._nbytes -= parcel.nbytes
            self._overdue_at = float("inf")
            self.dropped += not sent
            self._changed.notify_all()

    def _send(self, parcel: Parcel) -> bool:
        if self._takes_nothing():
            return False
        for digest, frame in parcel.frames.items():
            name, nbytes = blob_name(digest), frame_bytes(frame)
            self._expect(0)
            if digest in self.damaged or not self._is_there(name, nbytes):
                self._expect(nbytes)
                self._tier.put(name, frame)
                self.damaged.discard(digest)
        self._expect(len(parcel.record))
        self._tier.put(record_name(parcel.key), (parcel.record, []))
        self._patience.succeeded()
        return True

    def _is_there(self, name: str, nbytes: int) -> bool:
        return self._tier.exists(name) and size_of(self._tier, name) in (None, nbytes)

    def _expect(self, nbytes: int) -> None:
        """Note until when the next call should be through."""
        self._overdue_at = self._patience.clock() + self._patience.limit_s(nbytes)

    def _close(self, error: OSError) -> None:
        """Send nothing for a while, and go on asking."""
        self._open_at = self._patience.clock() + self._patience.rest_s
        self._patience.tell(
            "takes no results, which stay on this machine; what it has is still used: "
            f"{describe_error(error)}"
        )

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is sent; say whether all since the last flush was.

        Args:
            timeout_s: at most so long, and less where the tier does not get on.
        """
        deadline = monotonic() + timeout_s
        with self._changed:
            while self._queue and not self._stands_still():
                rest_s = deadline - monotonic()
                if rest_s <= 0:
                    break
                self._changed.wait(min(rest_s, _POLL_S))
            before, self._flushed = self._flushed, self.dropped
            return not self._queue and self.dropped == before

    def _stands_still(self) -> bool:
        return self._patience.is_away() or self._patience.clock() > self._overdue_at

    def finish(self, timeout_s: float) -> None:
        """Flush at the end of the process, and say what was not sent."""
        try:
            self.flush(timeout_s)
        finally:  # Ctrl-C: nobody wants to wait for it
            missing = self.dropped + len(self._queue)
            if missing:
                results = "1 result" if missing == 1 else f"{missing:,} results"
                why = self._patience.last_error or "it does not keep up"
                self._patience.tell(f"did not take {results}, left on this machine alone: {why}")


_all: weakref.WeakSet[Sender] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    deadline = monotonic() + _EXIT_S
    for sender in list(_all):
        with suppress(KeyboardInterrupt):
            sender.finish(max(0.0, deadline - monotonic()))


def _finish_with_multiprocessing() -> None:
    """Have it done in a child of multiprocessing as well, which leaves without ``atexit``."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _finish, exitpriority=0)


def _after_fork() -> None:
    """Start with nothing to send: the parent sends what it has."""
    for sender in _all:
        sender._begin()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
