"""Every file is read, and what is not what its name says is told. Nothing is taken away.

Blobs are skipped that are as they were when they were found right: inode, size and time of change.
A disk that goes bad changes none of these, which is what ``everything`` is for; it also throws the
index away, so that this is made again from what was read.

The surprise: a file is read, and never mapped, as whoever uses it does: if somebody cut it
meanwhile, looking at a map would kill the process that wants to find that out. And it is read
without counting as used, where the system lets us. Who stops it waits for a piece of a file, and
not for all of it.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from blake3 import blake3

from soma.errors import InvalidInput, describe_error, shown
from soma_cache import files, listing, shards
from soma_cache.folder import Folder
from soma_cache.index import consult, discard
from soma_cache.layout import blob_name, record_name
from soma_cache.listing import Failed, Progress
from soma_cache.pins import look_at_pins
from soma_cache.records import REST, has_right_check, load_record, unpack_inline

if TYPE_CHECKING:
    from soma_cache.tables import Tables

__all__ = ["Verified", "verify"]

_THREADS = 2
"""A disk and a core work at once; more of them gain nothing where there are two cores."""
_SLICE = 32
_SLICE_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_MOST_SAMPLE_BYTES = 1 << 30
_LEAST_BYTES = 16
"""No frame is smaller than its preamble."""
_TRIES = 5
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

_Outcome: TypeAlias = Literal["right", "gone", "skipped", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was looked at, and what is wrong with it."""

    checked: int
    """Blobs that were read."""
    checked_bytes: int
    skipped: int
    """Blobs that are as they were when they were found right."""
    blobs: tuple[str, ...]
    """Digests whose blob has another hash."""
    records: tuple[str, ...]
    """Keys whose record is not whole, or says another key."""
    unreadable: tuple[tuple[str, str], ...]
    """(name of a file or folder in the cache, why it cannot be read, or says no key as a pin)."""


class _Look(NamedTuple):
    """What came of looking at one file."""

    name: str
    outcome: _Outcome | OSError
    nbytes: int = 0
    state: str = ""
    """Of the file that was found right, so that it is known again."""


_Looking: TypeAlias = Callable[[str, threading.Event], _Look]
"""Looks at the file of a name, until the event says that nobody waits for it."""


def verify(
    folder: Folder,
    *,
    everything: bool = False,
    sample: int | None = None,
    progress: Progress | None = None,
) -> Verified:
    """Read what is there, and say what is damaged.

    What goes or is replaced meanwhile is no damage.

    Args:
        folder: the folder.
        everything: read also what is as it was when it was found right.
        sample: at most so many blobs, those that were used last, and no more of them than 1 GiB;
            and as many records, the newest.
        progress: called with (done, total), in files.

    Raises:
        InvalidInput: ``sample`` is no number of files.
        SomaError: this Python has no SQLite, in which the index is kept.
    """
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int)):
        raise InvalidInput(f"sample is a number of files, or None for all, not {shown(sample)}")
    if everything:
        discard(folder)
    known = consult(folder, lambda tables: {} if everything else tables.verified())
    unlisted = dict(look_at_pins(folder).unreadable())

    def tell(name: str, error: OSError) -> None:
        unlisted[name] = describe_error(error)

    blobs, keys = _blobs(folder, sample, tell), _keys(folder, sample, tell)
    told = _Told(progress, len(blobs) + len(keys))
    looks: list[_Look] = []
    try:
        for look in _in_threads(partial(_looked_at_blob, folder, known), blobs.items()):
            looks.append(look)
            told.one_more()
    finally:  # also of half of it, where somebody would wait no longer
        _keep(folder, looks)
    of_records = []
    records = ((key, 0) for key in keys)
    for look in _in_threads(partial(_looked_at_record, folder), records):
        told.one_more()
        if look.outcome not in ("right", "gone"):
            of_records.append(look)
    _look_again(folder, _damaged(of_records))
    return _verified(looks, of_records, unlisted)


def _verified(
    looks: Sequence[_Look], of_records: Sequence[_Look], unlisted: dict[str, str]
) -> Verified:
    read = [look for look in looks if look.outcome in ("right", "damaged")]
    unread = [(blob_name(look.name), look.outcome) for look in looks]
    unread += [(record_name(look.name), look.outcome) for look in of_records]
    why = {name: describe_error(error) for name, error in unread if isinstance(error, OSError)}
    return Verified(
        checked=len(read),
        checked_bytes=sum(look.nbytes for look in read),
        skipped=sum(look.outcome == "skipped" for look in looks),
        blobs=tuple(sorted(_damaged(looks))),
        records=tuple(sorted(_damaged(of_records))),
        unreadable=(*unlisted.items(), *why.items()),
    )


def _damaged(looks: Iterable[_Look]) -> list[str]:
    return [look.name for look in looks if look.outcome == "damaged"]


class _Told:
    """Tells how far it is."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def one_more(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def _in_threads(look: _Looking, items: Iterable[tuple[str, int]]) -> Iterator[_Look]:
    """Yield what comes of looking at each (name, bytes).

    They are handed out in slices, since handing out costs more than looking at a small file, and a
    few at a time, so that nobody waits long who stops it.
    """
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="soma-verify")
    stop = threading.Event()
    rest = iter(items)
    try:
        waiting = deque[Callable[[], list[_Look]]]()
        while names := _slice(rest):
            try:
                waiting.append(pool.submit(_looked_at, look, names, stop).result)
            except RuntimeError:  # the system gives no thread
                waiting.append(partial(_looked_at, look, names, stop))
            if len(waiting) > 2 * _THREADS:
                yield from waiting.popleft()()
        for one in waiting:
            yield from one()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _looked_at(look: _Looking, names: list[str], stop: threading.Event) -> list[_Look]:
    return [look(name, stop) for name in names if not stop.is_set()]


def _slice(rest: Iterator[tuple[str, int]]) -> list[str]:
    names, left = [], _SLICE_BYTES
    for name, nbytes in rest:
        names.append(name)
        left -= nbytes
        if len(names) == _SLICE or left <= 0:
            break
    return names


def _blobs(folder: Folder, sample: int | None, failed: Failed) -> dict[str, int]:
    """Return digest -> bytes of those to be looked at."""
    if sample is None:
        return {blob.name: blob.nbytes for blob in listing.blobs(folder.root, failed)}
    found: dict[str, int] = {}
    newest = sorted(listing.blobs(folder.root, failed), key=lambda blob: (-blob.used_at, blob.name))
    for blob in newest[: max(0, sample)]:
        if sum(found.values()) + blob.nbytes > _MOST_SAMPLE_BYTES:
            break
        found[blob.name] = blob.nbytes
    return found


def _keys(folder: Folder, sample: int | None, failed: Failed) -> list[str]:
    if sample is not None:
        most = max(0, sample)
        return consult(folder, lambda tables: tables.newest_of_all(most))
    states = sorted(shards.states(folder.root, failed))
    keys: list[str] = []
    for name in states:
        if name.startswith(shards.RECORDS):
            try:
                keys += shards.names(folder.root, name, failed)
            except OSError as error:
                failed(name, error)
    return keys


def _looked_at_blob(
    folder: Folder, known: dict[str, str], digest: str, stop: threading.Event
) -> _Look:
    path = f"{folder.root}/{blob_name(digest)}"
    try:
        if digest in known and _state(os.lstat(path)) == known[digest]:
            return _Look(digest, "skipped")
        for _ in range(_TRIES):
            look, before = _read_blob(path, digest, stop)
            if look.outcome == "right" or _state(os.lstat(path)) == before:
                return look
    except (FileNotFoundError, NotADirectoryError):
        return _Look(digest, "gone")
    except OSError as error:
        return _Look(digest, error)
    return _Look(digest, "gone")  # replaced again and again


def _read_blob(path: str, digest: str, stop: threading.Event) -> tuple[_Look, str]:
    """Return what one file is, and in which state it was."""
    fd = _opened(path)
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return _Look(digest, "gone"), _state(about)
        found, nbytes = _hashed(fd, about.st_size, stop)
        if stop.is_set():  # nobody wants to know any more
            return _Look(digest, "gone"), _state(about)
        is_right = nbytes >= _LEAST_BYTES and found == digest
    finally:
        os.close(fd)
    state = _state(about)
    return _Look(digest, "right" if is_right else "damaged", nbytes, state), state


def _hashed(fd: int, expected_bytes: int, stop: threading.Event) -> tuple[str, int]:
    """Return the hash of a file, and its bytes, which may be others than were expected."""
    if expected_bytes < _PIECE_BYTES:
        whole = os.read(fd, _PIECE_BYTES)
        if len(whole) == expected_bytes:
            return blake3(whole).hexdigest(), expected_bytes
        os.lseek(fd, 0, os.SEEK_SET)
    hasher, piece, nbytes = blake3(), bytearray(_PIECE_BYTES), 0
    while not stop.is_set() and (count := os.readv(fd, [piece])):
        hasher.update(memoryview(piece)[:count])
        nbytes += count
    return hasher.hexdigest(), nbytes


def _opened(path: str) -> int:
    """Open a file so that reading it is no use of it, which only its owner may."""
    try:
        return os.open(path, _READ | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, _READ)


def _state(about: os.stat_result) -> str:
    return f"{about.st_ino} {about.st_size} {about.st_mtime_ns}"


def _looked_at_record(folder: Folder, key: str, stop: threading.Event) -> _Look:
    del stop  # it is small
    path = f"{folder.root}/{record_name(key)}"
    try:
        for _ in range(_TRIES):
            before = os.lstat(path)
            raw = files.read_file(path)
            if not stat.S_ISREG(before.st_mode):
                return _Look(key, "gone")
            if raw is not None and _is_whole(raw, key):
                return _Look(key, "right")
            if _state(os.lstat(path)) == _state(before):
                return _Look(key, "damaged")
    except (FileNotFoundError, NotADirectoryError):
        return _Look(key, "gone")
    except OSError as error:
        return _Look(key, error)
    return _Look(key, "gone")


def _is_whole(raw: bytes, key: str) -> bool:
    if raw.startswith(b'"key":"%b",' % key.encode("ascii"), REST) and b'"inline"' not in raw:
        return has_right_check(raw)  # as we write it: most of the time goes into the rest
    found = load_record(raw, key)
    return found is not None and all(
        unpack_inline(text, digest) is not None for digest, text in found.inline.items()
    )


def _keep(folder: Folder, looks: Sequence[_Look]) -> None:
    """Note what was found right; have the index look at what is damaged."""
    states = [(look.name, look.state or None) for look in looks if look.outcome == "right"]
    damaged = _damaged(looks)

    def note(tables: Tables) -> None:
        from soma_cache.merging import look_at

        look_at(folder, tables, digests=damaged)
        with tables.changing():
            tables.note_verified(states)
            tables.note_verified((digest, None) for digest in damaged)

    if states or damaged:
        consult(folder, note)


def _look_again(folder: Folder, keys: Sequence[str]) -> None:
    """Have the index look at records that are damaged."""

    def look(tables: Tables) -> None:
        from soma_cache.merging import look_at

        look_at(folder, tables, keys=keys)

    if keys:
        consult(folder, look)
