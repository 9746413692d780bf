"""Blobs are unlinked, several at a time: that is what takes long where a disk is slow at it.

They go in their order, in slices, each of which one thread removes; so not quite in their order.
What was used since it was ranked is let be, and what will not go does not stop the others: the next
ones go in its place. Where the system gives no thread the one that asks does it all. And who stops
it waits for one file of each thread, no more.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from soma.errors import describe_error
from soma_cache import changes
from soma_cache.folder import Folder
from soma_cache.layout import blob_name
from soma_cache.listing import Progress
from soma_cache.ranking import Ranked

__all__ = ["Removal"]

_THREADS = 4
"""On a disk twice as quick as one, and as quick as eight; in memory one would do."""
_SLICE = 16
_AT_ONCE = 256
"""So many are unlinked before it is noted, and asked whether that was enough."""

_Outcome: TypeAlias = Literal["freed", "gone", "used"] | OSError


class Removal:
    """Removes blobs of one folder.

    Args:
        folder: the folder.
        now_s: the time against which they were ranked.
        dry_run: remove nothing, and say what would go.
        progress: called with (done, total), in bytes.
    """

    def __init__(
        self, folder: Folder, now_s: float, *, dry_run: bool, progress: Progress | None
    ) -> None:
        self._folder = folder
        self._now_s = now_s
        self._dry_run = dry_run
        self._progress = progress
        self.removed: list[Ranked] = []
        self.failed: list[tuple[str, str]] = []
        """(digest, why it cannot be removed)."""
        self.gone_bytes = 0
        """Bytes that are there no more, whoever has removed them."""

    def remove(self, blobs: Iterable[Ranked], *, need_bytes: float = math.inf) -> None:
        """Remove blobs in their order, until that is enough."""
        rest, first = iter(blobs), self.gone_bytes
        while (left := first + need_bytes - self.gone_bytes) > 0:
            batch = _batch(rest, left)
            if not batch:
                break
            for one, outcome in zip(batch, self._outcomes(batch), strict=True):
                self._enter(one, outcome)
            if self._progress is not None and need_bytes < math.inf:
                done = min(self.gone_bytes - first, int(need_bytes))
                self._progress(done, int(need_bytes))

    def _outcomes(self, batch: Sequence[Ranked]) -> list[_Outcome]:
        if self._dry_run:
            return ["freed"] * len(batch)
        try:
            return _Batch(self._folder.root, self._now_s, batch).unlink()
        finally:  # also of half of it
            changes.note(self._folder.root, digests=[digest.hex() for _, digest, *_ in batch])

    def _enter(self, one: Ranked, outcome: _Outcome) -> None:
        _, digest, nbytes, _ = one
        if isinstance(outcome, OSError):
            self.failed.append((digest.hex(), describe_error(outcome)))
        elif outcome != "used":
            self.gone_bytes += nbytes
            if outcome == "freed":
                self.removed.append(one)


def _batch(rest: Iterator[Ranked], need_bytes: float) -> list[Ranked]:
    """Return those that come next: as many as are enough, or as go at once."""
    found: list[Ranked] = []
    while need_bytes > 0 and len(found) < _AT_ONCE:
        one = next(rest, None)
        if one is None:
            break
        found.append(one)
        need_bytes -= one[2]
    return found


class _Batch:
    """Blobs that are unlinked by several threads, each of them once."""

    def __init__(self, root: str, now_s: float, blobs: Sequence[Ranked]) -> None:
        self._root = root
        self._now_s = now_s
        self._blobs = blobs
        self._outcomes: dict[int, _Outcome] = {}
        self._slices = deque(range(0, len(blobs), _SLICE))
        self._stop = threading.Event()

    def unlink(self) -> list[_Outcome]:
        """Unlink them, and return what came of each."""
        helpers: list[threading.Thread] = []
        try:
            for _ in range(min(_THREADS, len(self._slices)) - 1):
                helper = threading.Thread(target=self._some, name="soma-gc", daemon=True)
                try:
                    helper.start()
                except RuntimeError:  # the system gives no thread
                    break
                helpers.append(helper)
            self._some()
            for helper in helpers:
                helper.join()
        finally:
            self._stop.set()
            for helper in helpers:
                helper.join()
        for at in range(len(self._blobs)):  # of a thread that has failed
            if at not in self._outcomes:
                self._one(at)
        return [self._outcomes[at] for at in range(len(self._blobs))]

    def _some(self) -> None:
        """Unlink slices, as long as there are any."""
        while True:
            try:
                start = self._slices.popleft()
            except IndexError:
                return
            for at in range(start, min(start + _SLICE, len(self._blobs))):
                if self._stop.is_set():
                    return
                self._one(at)

    def _one(self, at: int) -> None:
        _, digest, _, age_s = self._blobs[at]
        self._outcomes[at] = _unlinked(self._root, self._now_s, digest.hex(), age_s)


def _unlinked(root: str, now_s: float, digest: str, age_s: float) -> _Outcome:
    """Remove a blob, unless it was used since it was ranked."""
    path = f"{root}/{blob_name(digest)}"
    try:
        about = os.lstat(path)
        if max(0.0, now_s - max(about.st_atime, about.st_mtime)) < age_s:
            return "used"
        os.unlink(path)
    except FileNotFoundError:  # somebody else has
        return "gone"
    except OSError as error:
        return error
    return "freed"
