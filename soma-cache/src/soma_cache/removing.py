"""One result is forgotten: its record, and the values that no other record names.

The record goes first. Whoever had it in memory finds its values gone, and makes them again.

The surprise: a value that was used within the hour stays, although nobody names it. Some writer has
found that it is there, and is about to commit the record that names it. gc takes it later on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from soma.errors import InvalidInput, UnknownName, shown
from soma_cache import changes
from soma_cache.clock import now_s
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.layout import blob_name, is_hash, record_name
from soma_cache.pins import sure_pins
from soma_cache.ranking import ORPHAN_S
from soma_cache.shards import hides_records

if TYPE_CHECKING:
    from soma_cache.tables import Tables

__all__ = ["Removed", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What went."""

    key: str
    blobs: tuple[str, ...]
    """Digests of the values that went with it."""
    freed_bytes: int
    """Bytes of all these files, that of the record among them."""
    kept: tuple[str, ...] = ()
    """Digests of values that no other record is known to name, and that are left to gc.

    They were used within the hour; or else some records cannot be read.
    """


def remove(folder: Folder, key: Any) -> Removed:
    """Remove the record of ``key``, and the blobs that no other record names.

    Args:
        folder: the folder.
        key: the key.

    Raises:
        InvalidInput: it is no key, or a pin holds it.
        UnknownName: there is no such record.
        OSError: it cannot be removed, or the cache is read-only; or nobody can say what time it is
            there, or which keys are pinned.
        SomaError: this Python has no SQLite, in which the index is kept.
    """
    _check(folder, key)
    folder.prepare_to_change()
    now = now_s(folder)
    found = folder.record(key)
    digests = set() if found is None else {*found.record.outputs.values()} - found.inline.keys()
    freed = _unlinked(folder, record_name(key))
    if freed is None:
        raise UnknownName(f"there is no record of the key {shown(key)}")
    changes.note(folder.root, keys=(key,))
    went, kept = [], []
    unnamed, is_sure = _unnamed(folder, sorted(digests))
    for digest in unnamed:
        age_s = _age_s(folder, digest, now)
        if age_s is None:
            continue
        if age_s < ORPHAN_S or not is_sure:
            kept.append(digest)
            continue
        nbytes = _unlinked(folder, blob_name(digest))
        if nbytes is not None:
            went.append(digest)
            freed += nbytes
    changes.note(folder.root, digests=went)
    return Removed(key=key, blobs=tuple(went), freed_bytes=freed, kept=tuple(kept))


def _check(folder: Folder, key: Any) -> None:
    if not isinstance(key, str) or not is_hash(key):
        raise InvalidInput(f"a key is 64 hexadecimal digits in lower case, not {shown(key)}")
    held = sorted(name for name, pinned in sure_pins(folder).items() if pinned == key)
    if held:
        names = ", ".join(map(shown, held))
        raise InvalidInput(
            f"the key {key} is pinned ({names}), and is kept: take the pin away first, "
            "with soma cache unpin NAME"
        )


def _unnamed(folder: Folder, digests: list[str]) -> tuple[list[str], bool]:
    """Return those that no record names, now that the one is gone, and whether that is sure."""

    def ask(tables: Tables) -> tuple[list[str], bool]:
        is_sure = not hides_records(tables.unreadable)
        return [digest for digest in digests if not tables.keys_naming(digest)], is_sure

    return consult(folder, ask, everything=True) if digests else ([], True)


def _age_s(folder: Folder, digest: str, now: float) -> float | None:
    """Return for how long a blob was not used; None where it is gone."""
    try:
        about = os.lstat(f"{folder.root}/{blob_name(digest)}")
    except FileNotFoundError:
        return None
    return now - max(about.st_atime, about.st_mtime)


def _unlinked(folder: Folder, name: str) -> int | None:
    """Remove a file, and return its size; None where it is gone already."""
    path = f"{folder.root}/{name}"
    try:
        nbytes = os.lstat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        return None
    return nbytes
