"""Whether what a folder lies on does what a cache needs: a file is written there, and looked at.

    written    a file can be made, filled, synced and removed
    free       there is room for more, in bytes and in files
    locks      one is taken, and given back
    times      of last use are kept, which gc goes by; its clock is ours

Only the first of these, and no room at all, keep a cache from working. The surprise: permissions
are not what is asked. They say nothing of a quota, of a file system that is mounted to be read, or
of a server that takes the bytes and fails when they are synced.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from soma.contracts import Finding
from soma.doctor.guarded import guarded
from soma.errors import describe_error
from soma.events.human import human_bytes
from soma_cache.layout import is_shard
from soma_cache.locks import KeyLocks
from soma_cache.place import ELSEWHERE, allowing

__all__ = ["look_at_room", "look_at_writing"]

_PROBE = bytes(1 << 16)
_LEAST_BYTES = 100_000_000
"""Below this a run soon fails to keep something."""
_FEW_BYTES = 1_000_000_000
_FEW = 0.05
_MANY_BYTES = 50_000_000_000
"""Of a very large disk 5% are plenty."""
_LEAST_FILES = 1_000
_FEW_FILES = 0.01
_USED_AGO_S = 2 * 86_400
_COARSE_S = 2.0
"""How exact times are on the coarsest of file systems."""
_CLOCK_S = 60.0


def look_at_writing(root: str, *, is_cache: bool) -> Iterator[Finding]:
    """Look whether files can be written in a folder, and what becomes of their times.

    Args:
        root: the folder, which is there.
        is_cache: whether it is one already, so that a lock can be taken in it.
    """
    try:
        with _probe(root) as path:
            text = "a file was written, synced and removed"
            yield Finding(about="cache writing", state="fine", text=text)
            yield from guarded("cache times", partial(_times, path))
    except OSError as error:
        yield Finding(
            about="cache writing",
            state="wrong",
            text=f"nothing can be kept in {root}: {describe_error(error)}",
            advice=_freeing(root, error),
        )
        return
    if is_cache:
        yield from guarded("cache writing", partial(_closed, root))
        yield from guarded("cache locks", partial(_locks, root))


def _freeing(root: str, error: OSError) -> str:
    folder = os.path.dirname(str(error.filename or "")) or root
    if isinstance(error, PermissionError) and os.path.isdir(folder):
        return _opening(root, folder)
    return f"free some space, remove what is no folder there, or {ELSEWHERE}"


@contextmanager
def _probe(root: str) -> Iterator[str]:
    """Give a file that was written where every write of a cache starts; remove it."""
    tmp = f"{root}/tmp"  # noqa: S108  # ours
    folder = tmp if os.path.lexists(tmp) else root
    path = f"{folder}/doctor-{os.getpid()}-{secrets.token_hex(4)}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, _PROBE)
            os.fsync(fd)
        finally:
            os.close(fd)
        yield path
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _closed(root: str) -> Iterator[Finding]:
    """Look for folders that take no files, or cannot be listed, or are none."""
    found = [f"{root}/{name}" for name in ("actions", "cas", "cas/b3", "pins")]
    for parent in (found[0], found[2]):
        with suppress(OSError):
            found += [f"{parent}/{name}" for name in sorted(os.listdir(parent)) if is_shard(name)]
    there = [one for one in found if os.path.lexists(one)]
    closed = [one for one in there if not _takes_files(one)]
    hidden = [one for one in there if one not in closed and not os.access(one, os.R_OK)]
    for paths, what in ((closed, "nothing can be put into"), (hidden, "we cannot see what is in")):
        if paths:
            more = f", nor {len(paths) - 1:,} more like it" if len(paths) > 1 else ""
            yield Finding(
                about="cache writing",
                state="wrong",
                text=f"{what} {paths[0]}{more}",
                advice=_opening(root, paths[0]),
            )


def _opening(root: str, path: str) -> str:
    """Return what to do so that something can be put into a folder of the cache."""
    if not os.path.isdir(path):
        return f"it is no folder: remove it, or {ELSEWHERE}"
    if os.stat(path).st_uid == os.geteuid():
        return allowing(root, "-R u+rwX")
    return allowing(path, "u+rwx")


def _takes_files(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def _times(path: str) -> Iterator[Finding]:
    about = "cache times"
    skew_s = os.stat(path).st_mtime - time.time()
    if abs(skew_s) > _CLOCK_S:
        yield Finding(
            about=about,
            state="note",
            text=f"the clock of its file system is {abs(skew_s):,.0f} s "
            f"{'ahead of' if skew_s > 0 else 'behind'} ours; ages are taken by its own",
            advice="have both machines ask a time server",
        )
    then_s = int(time.time()) - _USED_AGO_S
    os.utime(path, (then_s, then_s))
    found = os.stat(path)
    if abs(found.st_atime - then_s) > _COARSE_S or abs(found.st_mtime - then_s) > _COARSE_S:
        yield Finding(
            about=about,
            state="note",
            text="its file system does not keep the time of last use, so that gc goes by when "
            "something was written",
            advice="pin what is used often: soma cache pin NAME KEY",
        )
    elif abs(skew_s) <= _CLOCK_S:
        yield Finding(about=about, state="fine", text="times of last use are kept")


def _locks(root: str) -> Iterator[Finding]:
    path, about = f"{root}/locks", "cache locks"
    locks, key = KeyLocks(path), secrets.token_hex(32)
    try:
        locks.lock(key)
        locks.unlock(key)
    except OSError as error:
        yield Finding(
            about=about,
            state="note",
            text=f"they do not work, so that processes may compute the same: "
            f"{describe_error(error)}",
            advice=f"remove {path} if it is no empty file of yours; on a network file system, ask "
            "for its lock service",
        )
    else:
        yield Finding(about=about, state="fine", text="one was taken and given back")


def look_at_room(path: str) -> Iterator[Finding]:
    """Look how much room there is where a folder is, or would be made.

    Args:
        path: the folder, or what it would be made in.
    """
    yield from guarded("free disk", partial(_bytes, path))
    yield from guarded("free files", partial(_files, path))


def _bytes(path: str) -> Iterator[Finding]:
    total, _, free = shutil.disk_usage(path)
    text = f"{human_bytes(free)} of {human_bytes(total)}"
    few = free < _FEW_BYTES or (free < _FEW * total and free < _MANY_BYTES)
    if free >= _LEAST_BYTES and not few:
        yield Finding(about="free disk", state="fine", text=text)
        return
    yield Finding(
        about="free disk",
        state="note" if free >= _LEAST_BYTES else "wrong",
        text=f"{text}: what does not fit is not kept, and computed every time",
        advice="soma cache gc --max-size SIZE, such as 20G; or name a folder on another disk: "
        "export SOMA_CACHE_DIR=...",
    )


def _files(path: str) -> Iterator[Finding]:
    found = os.statvfs(path)
    if found.f_files == 0:  # there is no limit of its own, as on btrfs
        return
    free, total = found.f_favail, found.f_files
    if free >= _LEAST_FILES and free >= _FEW_FILES * total:
        return
    yield Finding(
        about="free files",
        state="note" if free >= _LEAST_FILES else "wrong",
        text=f"{free:,} of {total:,} inodes: there is hardly room for another file, however small",
        advice="soma cache gc --max-size SIZE, or name a folder on another disk: "
        "export SOMA_CACHE_DIR=...",
    )
