"""What is in a folder, what may go, and what is damaged: found by walking through it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from soma.contracts import ActionRecord
from soma.errors import InvalidInput, did_you_mean, shown
from soma_cache import files
from soma_cache.folder import Entry, Folder
from soma_cache.layout import is_hash, name_of_pin, pin_file

__all__ = ["collect", "damaged", "pin", "pins", "stats", "unpin"]

_DAY_S = 86_400.0
_MOST_NAME_BYTES = 255


def pin(folder: Folder, name: Any, key: str) -> None:
    """Note a key under a name.

    Raises:
        InvalidInput: it is no name, or too long for a file.
        OSError: it cannot be written.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"the name of a pin is a text, not {shown(name)}")
    file = pin_file(name)
    if len(file) > _MOST_NAME_BYTES:
        raise InvalidInput(f"the name of a pin is too long: {shown(name)}")
    _prepare_to_change(folder)
    files.put_file(folder.root, f"pins/{file}", [f"{key}\n".encode("ascii")], durable=True)
    folder.sync_name(f"pins/{file}")


def unpin(folder: Folder, name: str) -> None:
    """Take a pin away.

    Raises:
        KeyError: there is no pin of that name.
        OSError: it cannot be taken away.
    """
    known = pins(folder)
    if name not in known:
        raise KeyError(f"There is no pin {name!r}.{did_you_mean(str(name), known)}")
    _prepare_to_change(folder)
    with suppress(FileNotFoundError):  # somebody else has taken it away just now
        os.unlink(f"{folder.root}/pins/{pin_file(name)}")


def pins(folder: Folder) -> dict[str, str]:
    """Return name -> key of every pin. What else lies in their folder is none."""
    found = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for file in os.listdir(f"{folder.root}/pins"):
            try:
                name = name_of_pin(file)
            except UnicodeError:  # somebody else's
                continue
            if pin_file(name) != file:
                continue
            key = (files.read_file(f"{folder.root}/pins/{file}") or b"").decode("ascii", "replace")
            if is_hash(key.removesuffix("\n")):
                found[name] = key.removesuffix("\n")
    return found


def _prepare_to_change(folder: Folder) -> None:
    if folder.read_only:
        raise OSError(errno.EROFS, "this cache was opened to be read only", folder.root)
    folder.ensure()


def stats(folder: Folder) -> dict[str, float]:
    """Return counts, sizes in bytes, and the milliseconds of compute that are banked.

    Banked is what has its outputs here: what a gc has taken is computed again when it is needed.
    """
    blobs = {one.name: one.nbytes for one in folder.blobs()}
    records, record_bytes, compute_ms = 0, 0, 0.0
    for entry in folder.records():
        found = folder.record(entry.name)
        if found is None:
            continue
        records += 1
        record_bytes += entry.nbytes
        outputs = found.record.outputs.values()
        if all(one in blobs or one in found.inline for one in outputs):
            compute_ms += found.record.compute_ms
    return {
        "records": records,
        "record_bytes": record_bytes,
        "blobs": len(blobs),
        "bytes": sum(blobs.values()),
        "pins": len(pins(folder)),
        "compute_ms": compute_ms,
    }


def collect(folder: Folder, *, max_bytes: int, min_age_s: float, dry_run: bool) -> int:
    """Remove blobs of the least value until ``max_bytes`` remain; records stay.

    The value of a blob is compute_ms / (bytes x (1 + days since its last use)), summed over the
    actions that made it. Those of pinned keys, and those younger than ``min_age_s``, stay.

    Returns:
        The bytes freed, or that would be.

    Raises:
        InvalidInput: ``max_bytes`` or ``min_age_s`` is no such number.
        OSError: it is read-only, or does not let a blob go.
    """
    _check_limits(max_bytes, min_age_s)
    if not dry_run:
        _prepare_to_change(folder)
    blobs = list(folder.blobs())
    total = sum(one.nbytes for one in blobs)
    now = time.time()
    if not dry_run:
        _sweep(folder, now)
    if total <= max_bytes:
        return 0
    worth, spared = _worth(folder), _spared(folder)
    freed = 0
    for blob in sorted(blobs, key=lambda one: _density(one, worth.get(one.name, 0.0), now)):
        if total - freed <= max_bytes:
            break
        if blob.name in spared or _age_s(blob, now) < min_age_s:
            continue
        if not dry_run:
            try:
                os.unlink(blob.path)
            except FileNotFoundError:
                continue
        freed += blob.nbytes
    return freed


def _check_limits(max_bytes: Any, min_age_s: Any) -> None:
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise InvalidInput(
            f"max_bytes is a whole number of bytes, 0 or more, not {shown(max_bytes)}"
        )
    if not isinstance(min_age_s, int | float) or not min_age_s >= 0:
        raise InvalidInput(f"min_age_s is a number of seconds, 0 or more, not {shown(min_age_s)}")


def _sweep(folder: Folder, now: float) -> None:
    """Remove what writers have left in tmp that were killed: what is older than a day."""
    for file in folder.unfinished():
        if now - file.used_at > _DAY_S:
            with suppress(OSError):
                os.unlink(file.path)


def _density(blob: Entry, compute_ms: float, now: float) -> float:
    days = _age_s(blob, now) / _DAY_S
    return compute_ms / (max(1, blob.nbytes) * (1.0 + days))  # one that was emptied is there too


def _age_s(blob: Entry, now: float) -> float:
    """Return how long ago a blob was used; never less than nothing, whatever the clocks say."""
    return max(0.0, now - blob.used_at)


def _worth(folder: Folder) -> dict[str, float]:
    """Return digest -> the milliseconds that computing it has taken, over all actions."""
    worth: dict[str, float] = {}
    for record in _records(folder, (one.name for one in folder.records())):
        value = float("inf") if record.expensive else record.compute_ms
        for digest in record.outputs.values():
            worth[digest] = worth.get(digest, 0.0) + value
    return worth


def _spared(folder: Folder) -> set[str]:
    """Return the digests that a pin keeps."""
    return {
        digest
        for record in _records(folder, pins(folder).values())
        for digest in record.outputs.values()
    }


def _records(folder: Folder, keys: Iterable[str]) -> Iterable[ActionRecord]:
    for key in keys:
        found = folder.record(key)
        if found is not None:
            yield found.record


def damaged(folder: Folder) -> list[str]:
    """Return the digests of blobs whose hash is another. All are read; none is taken away."""
    return [blob.name for blob in folder.blobs() if not folder.is_right(blob.name)]
