"""What is in a cache: how much, whether it is still what was written, and what was left behind."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial

from soma.contracts import Finding
from soma.doctor.guarded import Check, guarded
from soma.events.human import human_bytes, human_ms, times
from soma_cache.clock import now_s
from soma_cache.collecting import Cleaning, collect
from soma_cache.folder import Folder
from soma_cache.place import allowing
from soma_cache.survey import survey
from soma_cache.sweeping import leftovers
from soma_cache.verifying import Verified, verify

__all__ = ["look_at_contents"]

_SAMPLE = 100
"""Files that are read; a disk takes seconds for the largest of them."""
_SHOWN = 3


def look_at_contents(folder: Folder, limit: int | None) -> Iterator[Finding]:
    """Look at what is in a cache.

    Args:
        folder: its folder, which is one.
        limit: the bytes that it is held to, if any.
    """
    yield from _listed("cache size", folder, partial(_size, folder, limit))
    yield from _listed("cache sample", folder, partial(_sample, folder))
    yield from _listed("cache tmp", folder, partial(_left, folder))


def _listed(about: str, folder: Folder, check: Check) -> Iterator[Finding]:
    """Yield what a check finds; a folder that is closed to us is no fault of the check."""

    def checked() -> Iterator[Finding]:
        try:
            yield from check()
        except PermissionError as error:
            yield _closed(about, folder, str(error.filename or folder.root), error)

    yield from guarded(about, checked)


def _closed(about: str, folder: Folder, path: str, why: object) -> Finding:
    """Return that something in the folder cannot be read, and who can change that."""
    said = why.strerror if isinstance(why, OSError) else why
    advice = "dmesg and smartctl tell of the disk"
    if os.path.lexists(path) and not os.access(path, os.R_OK):
        is_ours = os.lstat(path).st_uid == os.geteuid()
        advice = allowing(folder.root, "-R u+rX") if is_ours else allowing(path, "u+rX")
    return Finding(about=about, state="wrong", text=f"{path} cannot be read: {said}", advice=advice)


def _size(folder: Folder, limit: int | None) -> Iterator[Finding]:
    there = survey(folder)
    text = f"{times(there.records, 'result')}; {times(there.blobs, 'blob')}, "
    text += f"{human_bytes(there.bytes)}; computed in {human_ms(there.compute_ms)}"
    for path, why in getattr(there, "unreadable", ())[:_SHOWN]:
        yield _closed("cache size", folder, os.path.join(folder.root, path), why)
    if limit is None or there.bytes <= limit:
        yield Finding(about="cache size", state="fine", text=text)
        return
    would = collect(folder, max_bytes=limit, dry_run=True)
    yield Finding(
        about="cache size",
        state="note",
        text=f"{text}; SOMA_CACHE_MAX_SIZE is {human_bytes(limit)}{_kept(would)}",
        advice=_making_room(folder, limit, would),
    )


def _kept(would: Cleaning) -> str:
    """Return what a gc would leave although it is too much."""
    kept = []
    if would.over_bytes and would.young_bytes:
        kept.append(f"{human_bytes(would.young_bytes)} was used in the last hour")
    if would.over_bytes and would.pinned_bytes:
        kept.append(f"{human_bytes(would.pinned_bytes)} is pinned")
    return f", but {' and '.join(kept)}, and stays" if kept else ""


def _making_room(folder: Folder, limit: int, would: Cleaning) -> str:
    size = shlex.quote(os.environ.get("SOMA_CACHE_MAX_SIZE") or str(limit))
    command = f"soma cache gc --max-size {size}"
    if folder.read_only:
        return f"nothing can be removed from here; whoever can write to it may: {command}"
    if not would.over_bytes:
        return f"the next run that keeps something cleans up, or now: {command}"
    if would.young_bytes:
        return f"wait an hour, or take that as well: {command} --min-age 0"
    return "soma cache pins lists what is pinned: unpin some of it, or allow more"


def _sample(folder: Folder) -> Iterator[Finding]:
    """Read what was used last: that is what the next run will read."""
    about = "cache sample"
    seen = verify(folder, sample=_SAMPLE)
    if seen.records or seen.blobs:
        yield Finding(
            about=about,
            state="wrong",
            text=f"damaged: {_named(seen)}. They count as absent, and are made again where they "
            "are needed; but a disk that does this does more of it",
            advice="soma cache verify --all reads everything; dmesg and smartctl tell of the disk",
        )
    for name, why in seen.unreadable[:_SHOWN]:
        yield _closed(about, folder, os.path.join(folder.root, name), why)
    if not (seen.records or seen.blobs or seen.unreadable):
        read = f"{times(seen.checked, 'blob')} read, {human_bytes(seen.checked_bytes)}"
        known = f"; {seen.skipped:,} as they were when read before" if seen.skipped else ""
        yield Finding(about=about, state="fine", text=f"{read}, and right{known}")


def _named(seen: Verified) -> str:
    parts = []
    for what, names in (("blob", seen.blobs), ("record", seen.records)):
        if names:
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            shown = ", ".join(f"{name[:12]}…" for name in names[:_SHOWN])
            parts.append(f"{times(len(names), what)} ({shown}{more})")
    return " and ".join(parts)


def _left(folder: Folder) -> Iterator[Finding]:
    """Look for what writers have left that were killed."""
    left = leftovers(folder, now_s(folder))
    if left:
        nbytes = human_bytes(sum(one.nbytes for one in left))
        yield Finding(
            about="cache tmp",
            state="note",
            text=f"{times(len(left), 'file')} of writers that did not end well, {nbytes}",
            advice="soma cache gc --max-size SIZE sweeps them away, however large SIZE is",
        )
