"""What is in a folder, in numbers: from the index, which the files have the last word on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from soma.errors import describe_error
from soma_cache import listing
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.listing import Progress
from soma_cache.pins import look_at_pins

if TYPE_CHECKING:
    from soma_cache.rows import Sums
    from soma_cache.tables import Tables

__all__ = ["Survey", "stats", "survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is in the folder of a cache."""

    records: int
    """Results that are known."""
    record_bytes: int
    """Bytes of their records, with the small values that lie in them."""
    blobs: int
    """Files of values."""
    bytes: int
    """Bytes of these files: what a gc is about."""
    pins: int
    compute_ms: float
    """What is banked: the milliseconds that computing again would take what is there."""
    banked: int
    """How many results that are: those of whose outputs none is gone."""
    recorded_ms: float
    """The milliseconds that all recorded results have taken, also those whose values are gone."""
    unfinished: int
    """Files in tmp: of writers at work, and of killed ones."""
    unfinished_bytes: int
    unreadable: tuple[tuple[str, str], ...] = ()
    """(name of a file or folder in the cache, why it cannot be read).

    What was known of it before is in the figures, and else they lack it.
    """


def survey(folder: Folder, *, progress: Progress | None = None) -> Survey:
    """Return what is in a folder.

    Args:
        folder: the folder.
        progress: called with (done, total) while the index is brought up to date.

    Raises:
        SomaError: this Python has no SQLite, in which the index is kept.
    """
    unreadable: dict[str, str] = {}

    def ask(tables: Tables) -> Sums:
        unreadable.update(tables.unreadable)
        return tables.sums()

    sums = consult(folder, ask, progress=progress)
    pins = look_at_pins(folder)
    unreadable.update(pins.unreadable())
    unfinished: list[int] = []
    try:
        unfinished += [file.nbytes for file in listing.unfinished(folder.root)]
    except OSError as error:
        unreadable["tmp"] = describe_error(error)
    return Survey(
        records=sums.records,
        record_bytes=sums.record_bytes,
        blobs=sums.blobs,
        bytes=sums.blob_bytes,
        pins=len(pins.keys),
        compute_ms=sums.banked_ms,
        banked=sums.banked,
        recorded_ms=sums.recorded_ms,
        unfinished=len(unfinished),
        unfinished_bytes=sum(unfinished),
        unreadable=tuple(sorted(unreadable.items())),
    )


def stats(folder: Folder) -> dict[str, float]:
    """Return what ``ActionStore.stats`` does."""
    found = survey(folder)
    return {
        "records": found.records,
        "record_bytes": found.record_bytes,
        "blobs": found.blobs,
        "bytes": found.bytes,
        "pins": found.pins,
        "compute_ms": found.compute_ms,
    }
