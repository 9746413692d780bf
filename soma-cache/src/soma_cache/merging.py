"""The index is brought up to date: logs say which names to look at, files say what is there.

    times of folders ──► logs: names ──► each file is looked at ──► its row
                     └─► folders that no log explains: names that are new, gone or replaced ──┘

Looking twice does no harm, so whatever is interrupted is begun again, and two may do it at once.
The times are taken before the logs are read: who writes in between is seen by the next one.

The surprise: a folder whose change a log explains may have been changed by somebody else as well.
It is listed too, as long as that is quick; where there are many names its turn comes later. And
one that was changed just now is not settled: the clock of a file system moves in steps.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice

from soma.errors import describe_error
from soma_cache import changes, shards
from soma_cache.changes import Log
from soma_cache.clock import now_s
from soma_cache.folder import Folder
from soma_cache.layout import blob_name, is_shard, record_name
from soma_cache.listing import Progress
from soma_cache.rows import RecordRow
from soma_cache.shards import State
from soma_cache.tables import Tables

__all__ = ["look_at", "merge"]

_AT_ONCE = 2_000
"""So many names are gathered before they are looked at."""
_IN_ONE = 250
"""So many are looked at while others wait."""
_MOST_LISTED = 10_000
"""So many names are listed for folders that a log explains."""
_GONE_NS = -1
_UNSEEN_NS = -2
_NEVER = (_GONE_NS, _GONE_NS)
"""In the place of times: of a folder that is not there, of one that has to be listed again."""
_SETTLED_NS = 2_000_000_000
"""The coarsest clock of a file system that is in use."""


def merge(
    folder: Folder,
    tables: Tables,
    *,
    lasting: bool,
    everything: bool = False,
    progress: Progress | None = None,
) -> None:
    """Have the rows say what is in the folder.

    What cannot be read is told in ``tables.unreadable``. What was known of it stays.

    Args:
        folder: the folder.
        tables: the rows.
        lasting: whether others see these rows, so that logs need not be kept for them.
        everything: list every folder, whatever times and logs say.
        progress: called with (done, total).

    Raises:
        sqlite3.Error: the rows cannot be read or written.
    """
    now_ns = int(now_s(folder, deleting=False) * 1e9) if lasting else time.time_ns()
    told = partial(_tell, tables)
    states = shards.states(folder.root, told)
    explained, complete = _follow_logs(folder, tables, lasting=lasting)
    known = tables.shards()
    due = [
        name
        for name in known.keys() | states.keys()
        if tables.unreadable.keys().isdisjoint(_above(name))  # else its rows stay as they are
    ]
    sure = {
        name
        for name in due
        if everything
        or not complete
        or (states.get(name, _GONE_NS) != known.get(name, _NEVER)[0] and name not in explained)
    }
    maybe = [
        name
        for name in due
        if name not in sure and states.get(name, _GONE_NS) != known.get(name, _NEVER)[1]
    ]
    maybe.sort(key=lambda name: abs(known.get(name, _NEVER)[1]))  # who has waited longest
    rows = {}
    listing = _Listing(folder, tables, states.keys())
    for done, name in enumerate(sorted(sure, key=_blobs_first)):
        listing.add(name)
        rows[name] = _settled(name, states, now_ns)
        if progress is not None:
            progress(done + 1, len(sure))
    listed = listing.names
    for name in maybe:
        if listing.names - listed < _MOST_LISTED:
            listing.add(name)
            rows[name] = _settled(name, states, now_ns)
        else:
            rows[name] = (states.get(name, _GONE_NS), known.get(name, _NEVER)[1])
    listing.look()
    for name in {*map(_shard_of, tables.unreadable)} & (known.keys() | states.keys()):
        rows[name] = (_UNSEEN_NS, _UNSEEN_NS)
    if rows:
        with tables.changing():
            tables.put_shards((name, *times) for name, times in rows.items())


def _tell(tables: Tables, name: str, error: OSError) -> None:
    tables.unreadable[name] = describe_error(error)


def _blobs_first(name: str) -> tuple[bool, str]:
    return name.startswith(shards.RECORDS), name


def _above(name: str) -> tuple[str, str]:
    """Return the folder of a name, and the folder above."""
    return name, os.path.dirname(name)


def _shard_of(name: str) -> str:
    """Return the folder of something that cannot be read: itself, or that in which it lies."""
    above, _, last = name.rpartition("/")
    return name if is_shard(last) else above


def _settled(name: str, states: dict[str, int], now_ns: int) -> tuple[int, int]:
    """Return the times of a folder that was listed: it is as it was, if its time is long past."""
    state = states.get(name, _GONE_NS)
    return state, state if now_ns - state > _SETTLED_NS else -now_ns


def _follow_logs(folder: Folder, tables: Tables, *, lasting: bool) -> tuple[set[str], bool]:
    """Look at what the logs name; return the folders of that, and whether it is all there was."""
    found, ends = changes.logs(folder.root), tables.log_ends()
    keys, digests, now_ends, complete = set[str](), set[str](), {}, True
    for log in found:
        head, start = ends.get(log.inode, (b"", 0))
        if head != log.head or start > log.nbytes:
            start = 0  # another file with the same number
        part = changes.read_on(log, start)
        keys |= part.keys
        digests |= part.digests
        now_ends[log.inode] = (log.inode, log.head, part.end)
        if log.is_full and not log.is_old:
            complete = False
    look_at(folder, tables, keys=keys, digests=digests)
    if now_ends != {inode: (inode, *end) for inode, end in ends.items()}:
        with tables.changing():
            tables.put_log_ends(now_ends.values())
    if lasting:
        _tidy(tables, found)
    explained = {*map(shards.folder_of_record, keys), *map(shards.folder_of_blob, digests)}
    return explained, complete


def _tidy(tables: Tables, found: Iterable[Log]) -> None:
    """Remove logs that were read to their end after they were renamed; begin long ones anew."""
    found = [log for log in found if log.is_old or log.is_long]
    if found:
        with tables.changing():  # so that no other process does it at the same time
            for log in found:
                changes.tidy(log)


class _Listing:
    """Looks at what is new, gone or replaced in folders; many folders at once, as few have much."""

    def __init__(self, folder: Folder, tables: Tables, there: Collection[str]) -> None:
        self._folder = folder
        self._tables = tables
        self._there = there
        self._keys: list[str] = []
        self._digests: list[str] = []
        self.names = 0
        """How many are in the folders that were listed."""

    def add(self, name: str) -> None:
        """List a folder."""
        above, _, shard = name.rpartition("/")
        there, told = dict[str, State](), partial(_tell, self._tables)
        if name in self._there:
            try:
                there = shards.names(self._folder.root, name, told)
            except OSError as error:
                told(name, error)
                return
        self.names += len(there)
        if above == shards.BLOBS:
            self._digests += _differing(there, self._tables.blob_states(shard))
        else:
            self._keys += _differing(there, self._tables.record_states(shard))
        if len(self._keys) + len(self._digests) >= _AT_ONCE:
            self.look()

    def look(self) -> None:
        """Look at the files of what was found so far."""
        look_at(self._folder, self._tables, keys=self._keys, digests=self._digests)
        self._keys, self._digests = [], []


def _differing(there: dict[str, State], known: dict[str, State]) -> list[str]:
    changed = {*there.items()} ^ {*known.items()}
    return sorted({name for name, _ in changed})


def look_at(
    folder: Folder, tables: Tables, *, keys: Iterable[str] = (), digests: Iterable[str] = ()
) -> None:
    """Have the rows of some names say what their files are.

    What cannot be read is told in ``tables.unreadable``, and its row stays.

    Raises:
        sqlite3.Error: the rows cannot be read or written.
    """
    for batch in _batches(digests):
        with tables.changing():
            for digest in batch:
                _look_at_blob(folder, tables, digest)
    for batch in _batches(keys):
        with tables.changing():
            for key in batch:
                _look_at_record(folder, tables, key)


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, _IN_ONE)):
        yield batch


def _look_at_blob(folder: Folder, tables: Tables, digest: str) -> None:
    try:
        about = _about(f"{folder.root}/{blob_name(digest)}")
    except OSError as error:
        _tell(tables, blob_name(digest), error)
        return
    if about is None:
        tables.drop_blob(digest)
    else:
        tables.put_blob(digest, shards.state_of_blob(about))


def _look_at_record(folder: Folder, tables: Tables, key: str) -> None:
    try:
        about = _about(f"{folder.root}/{record_name(key)}")
        found = None if about is None else folder.read_record(key)
    except OSError as error:
        _tell(tables, record_name(key), error)
        return
    if about is None or found is None:
        tables.drop_record(key)
    else:
        tables.put_record(key, RecordRow.of(found, shards.state_of_record(about)))


def _about(path: str) -> os.stat_result | None:
    """Return what is to be known of a file; None where there is none.

    Raises:
        OSError: the system will not say.
    """
    try:
        about = os.lstat(path)
    except shards.GONE:
        return None
    return about if stat.S_ISREG(about.st_mode) else None
