"""The folder stays below ``$SOMA_CACHE_MAX_SIZE``, which is looked after when a run is over.

Never while something is kept: a run would wait for it. And seldom: only by a process that has
written, the first time at once, then whenever it has added a hundredth of the limit. What is above
the limit goes down to nine tenths of it, so that the next run does not do it again. Nothing goes
that was used within the hour.

The surprise: who looks for the first time may wait, since all files are looked at for the index.
Where that takes longer than a moment a line says what is going on.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from soma._notices import tell_once
from soma.errors import InvalidInput
from soma_cache.folder import Folder

if TYPE_CHECKING:
    from soma_cache.collecting import Cleaning

__all__ = ["Limit"]

_VARIABLE = "SOMA_CACHE_MAX_SIZE"
_MIN_AGE_S = 3_600.0
_MOMENT_S = 1.0


class Limit:
    """Keeps one folder below the limit, if there is one.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._looked_at: int | None = None
        """How much this process had written when it looked last."""

    def look_after(self) -> None:
        """Remove what is above the limit, where this process has added to the folder.

        Raises:
            OSError: the folder cannot be listed, or changed.
            SomaError: this Python has no SQLite, in which the index is kept.
        """
        said = os.environ.get(_VARIABLE)
        if not said or self._folder.read_only:
            return
        limit = _parsed(said)
        written = self._folder.written_bytes
        since = written if self._looked_at is None else written - self._looked_at
        if limit is None or since <= 0 or (self._looked_at is not None and since < limit / 100):
            return
        self._looked_at = written
        self._keep_below(limit)

    def _keep_below(self, limit: int) -> None:
        from soma_cache.collecting import collect
        from soma_cache.index import consult

        waiting = _Waiting(self._folder)
        sums = consult(self._folder, lambda tables: tables.sums(), progress=waiting.tell)
        if sums.blob_bytes > limit:
            target = limit - limit // 10
            done = collect(self._folder, max_bytes=target, min_age_s=_MIN_AGE_S)
            _tell(self._folder, limit, done)


class _Waiting:
    """Says once what a run waits for, where that takes longer than a moment."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._until = time.monotonic() + _MOMENT_S

    def tell(self, done: int, total: int) -> None:
        if done < total and time.monotonic() > self._until:
            tell_once(
                (_VARIABLE, "looking", self._folder.root),
                f"looking through the cache in {self._folder.root}, for {_VARIABLE}: the first "
                "time this takes about 0.1 ms for each file, and later ones are quick",
            )


def _parsed(said: str) -> int | None:
    from soma._sizes import parse_bytes

    try:
        return parse_bytes(_VARIABLE, said)
    except InvalidInput as error:
        tell_once((_VARIABLE, said), f"{error}: the cache grows as it likes")
    return None


def _tell(folder: Folder, limit: int, done: Cleaning) -> None:
    from soma.events.human import human_bytes

    if done.removed:
        tell_once(
            (_VARIABLE, "removed", folder.root),
            f"the cache in {folder.root} was above {_VARIABLE} ({human_bytes(limit)}): "
            f"{len(done.removed):,} values of the least worth were removed, "
            f"{human_bytes(done.freed_bytes)}; {human_bytes(done.after_bytes)} are left. They are "
            "computed again where they are needed",
        )
    if done.after_bytes > limit:
        tell_once(
            (_VARIABLE, "above", folder.root),
            f"the cache in {folder.root} stays above {_VARIABLE} ({human_bytes(limit)}): it "
            f"has {human_bytes(done.after_bytes)}, and {_why(done)}",
        )


def _why(done: Cleaning) -> str:
    from soma.events.human import human_bytes

    why = []
    if done.pinned_bytes:
        why.append(f"{human_bytes(done.pinned_bytes)} are pinned")
    if done.young_bytes:
        why.append(f"{human_bytes(done.young_bytes)} were used within the hour")
    if done.failed:
        why.append(f"{len(done.failed):,} files cannot be removed ({done.failed[0][1]})")
    if done.unsure_bytes:
        first = done.unreadable[0][0]  # by name, so that records come first
        why.append(
            f"{human_bytes(done.unsure_bytes)} may be named by records that cannot be read "
            f"({first})"
        )
    return ", and ".join(why) or "more was written meanwhile"
