"""Blobs go by what they are worth, until those that are left fit; records stay.

    blobs, with their times ──► the index: what records say of them ──► pins ──► who goes, in order
                                                                    ──► unlinked, worst first

Nobody is kept from anything meanwhile: who has mapped a blob keeps it, and who comes later makes it
again. The blobs are listed before the index is brought up to date, so that a record which is
committed in between is known. What was used since is let be.

The surprise: the index is compared with all names first. A blob is an orphan if no record that is
there names it, never because the index did not know; where records cannot be read none is called
one. And an orphan has an hour even where no age is asked for: its writer may be about to commit the
record. Who cannot tell what a pin keeps removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from soma.errors import InvalidInput, describe_error, shown
from soma_cache import listing
from soma_cache.clock import now_s
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.layout import record_name
from soma_cache.listing import Progress, Use
from soma_cache.pins import sure_pins
from soma_cache.ranking import ORPHAN_S, Ranked, Victim, Worth, is_orphan, ranked, victim
from soma_cache.shards import hides_records
from soma_cache.sweeping import leftovers, sweep
from soma_cache.unlinking import Removal

if TYPE_CHECKING:
    from soma_cache.tables import Tables

__all__ = ["Cleaning", "Victim", "collect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What a gc has done, or would do."""

    max_bytes: int
    before_bytes: int
    """Bytes of all blobs before."""
    freed_bytes: int
    """Bytes of the blobs that went."""
    after_bytes: int
    removed: tuple[Victim, ...]
    """In the order in which they went."""
    temporary: int
    """Files of dead writers that went as well, and folders that were in somebody's way."""
    temporary_bytes: int
    pinned_bytes: int
    """Bytes that pins keep."""
    young_bytes: int
    """Bytes that no pin keeps, and that were used too short a time ago.

    Within the hour, of what no record names; within the age that was asked for, of all else.
    """
    over_bytes: int
    """Bytes that are still above the limit."""
    failed: tuple[tuple[str, str], ...]
    """(digest, why it cannot be removed)."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """(name of a file or folder in the cache, why it cannot be read)."""
    unsure_bytes: int = 0
    """Bytes that no record names, as long as others cannot be read: they are kept."""
    dry_run: bool


def collect(
    folder: Folder,
    *,
    max_bytes: int,
    min_age_s: float = 3600.0,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Cleaning:
    """Remove blobs of the least worth until ``max_bytes`` remain; records stay.

    What pins keep stays, and so does what was used less than ``min_age_s`` ago. Blobs that no
    record names go in any case, where they have not been used for that long and an hour at least,
    and all records can be read; and so does what killed writers have left.

    Args:
        folder: the folder.
        max_bytes: how many bytes of blobs may remain.
        min_age_s: for how long at least what goes was not used.
        dry_run: remove nothing, and say what would go.
        progress: called with (done, total): folders that are looked through, then bytes that go.

    Raises:
        InvalidInput: ``max_bytes`` or ``min_age_s`` is no such number.
        OSError: the cache is read-only, or what time it is there cannot be told; or what a pin
            keeps, since its file or record cannot be read. Nothing was removed.
        SomaError: this Python has no SQLite, in which the index is kept.
    """
    _check_limits(max_bytes, min_age_s)
    if not dry_run:
        folder.prepare_to_change()
    unreadable: dict[str, str] = {}
    plan = _planned(folder, min_age_s, progress, unreadable, dry_run=dry_run)
    work = Removal(folder, plan.now_s, dry_run=dry_run, progress=progress)
    orphans, others = _in_order(plan)
    work.remove(orphans)
    work.remove(others, need_bytes=plan.before_bytes - work.gone_bytes - max_bytes)
    removed = tuple(victim(one, plan.worth) for one in work.removed)
    temporary, temporary_bytes = _swept(folder, plan.now_s, unreadable, dry_run=dry_run)
    after_bytes = plan.before_bytes - work.gone_bytes
    return Cleaning(
        max_bytes=max_bytes,
        before_bytes=plan.before_bytes,
        freed_bytes=sum(one.nbytes for one in removed),
        after_bytes=after_bytes,
        removed=removed,
        temporary=temporary,
        temporary_bytes=temporary_bytes,
        pinned_bytes=plan.pinned_bytes,
        young_bytes=plan.young_bytes,
        over_bytes=max(0, after_bytes - max_bytes),
        failed=tuple(work.failed),
        unreadable=tuple(sorted(unreadable.items())),
        unsure_bytes=plan.unsure_bytes,
        dry_run=dry_run,
    )


def _check_limits(max_bytes: Any, min_age_s: Any) -> None:
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise InvalidInput(
            f"max_bytes is a whole number of bytes, 0 or more, not {shown(max_bytes)}"
        )
    is_number = isinstance(min_age_s, int | float) and not isinstance(min_age_s, bool)
    if not is_number or not min_age_s >= 0:
        raise InvalidInput(f"min_age_s is a number of seconds, 0 or more, not {shown(min_age_s)}")


class _Plan(NamedTuple):
    now_s: float
    worth: Worth
    blobs: list[Use]
    """Those that may go."""
    before_bytes: int
    pinned_bytes: int
    young_bytes: int
    unsure_bytes: int


def _planned(
    folder: Folder,
    min_age_s: float,
    progress: Progress | None,
    unreadable: dict[str, str],
    *,
    dry_run: bool,
) -> _Plan:
    def tell(name: str, error: OSError) -> None:
        unreadable[name] = describe_error(error)

    def ask(tables: Tables) -> Worth:
        unreadable.update(tables.unreadable)
        return Worth(*tables.worth())

    blobs = listing.uses(folder.root, tell)
    now = now_s(folder, deleting=not dry_run)
    worth = consult(folder, ask, everything=True, progress=progress)
    spared = _spared(folder)
    loose = [one for one in blobs if one[0] not in spared] if spared else blobs
    known = loose
    if hides_records(unreadable):
        known = [one for one in loose if one[0] in worth.compute_ms]
    old = _old(known, worth, now, min_age_s)
    total, of_loose, of_known, of_old = (
        sum(nbytes for _, nbytes, _ in part) for part in (blobs, loose, known, old)
    )
    pinned, unsure, young = total - of_loose, of_loose - of_known, of_known - of_old
    return _Plan(now, worth, old, total, pinned, young, unsure)


def _old(blobs: list[Use], worth: Worth, now: float, min_age_s: float) -> list[Use]:
    """Return those that were not used for so long that they may go."""
    orphan_age_s, named = max(min_age_s, ORPHAN_S), worth.compute_ms
    return [
        one
        for one in blobs
        if max(0.0, now - one[2]) >= (min_age_s if one[0] in named else orphan_age_s)
    ]


def _in_order(plan: _Plan) -> tuple[list[Ranked], Iterator[Ranked]]:
    """Return the orphans, which go in any case, and all others, as they go."""
    order = ranked(plan.blobs, plan.worth, plan.now_s)
    orphans: list[Ranked] = []
    for one in order:
        if not is_orphan(one):
            return orphans, chain((one,), order)
        orphans.append(one)
    return orphans, iter(())


def _spared(folder: Folder) -> set[bytes]:
    """Return the digests that a pin keeps: by their records, which are read.

    Raises:
        OSError: of one that cannot be told.
    """
    found: set[bytes] = set()
    for name, key in sure_pins(folder).items():
        try:
            read = folder.read_record(key)
        except OSError as error:
            raise OSError(
                f"{folder.root}/{record_name(key)} cannot be read ({error.strerror or error}), and "
                f"says what the pin {shown(name)} keeps. Nothing was removed: have it be readable, "
                "or take the pin away (soma cache unpin NAME)"
            ) from error
        if read is not None:
            found.update(map(bytes.fromhex, read.record.outputs.values()))
    return found


def _swept(
    folder: Folder, now: float, unreadable: dict[str, str], *, dry_run: bool
) -> tuple[int, int]:
    """Remove what killed writers have left; return how many files and bytes that were."""
    count = nbytes = 0
    try:
        left = leftovers(folder, now)
    except OSError as error:
        unreadable["tmp"] = describe_error(error)
        return 0, 0
    for one in left:
        with suppress(OSError):
            if not dry_run:
                sweep(one)
            count += 1
            nbytes += one.nbytes
    return count, nbytes
