"""``soma cache gc``: make room, the blobs of the least value first."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import click

from soma._sizes import parse_bytes
from soma.errors import InvalidInput
from soma.events.human import human_bytes, one_line, printable, times
from soma_cache.cli.bars import bar
from soma_cache.cli.options import WrongUse, as_json_option, dir_option, parsed_age, parsed_size
from soma_cache.cli.places import folder_to_change, folder_to_read
from soma_cache.cli.saying import (
    human_age,
    human_compute,
    print_facts,
    print_json,
    print_table,
    short,
    told_unread,
    unread_of,
)
from soma_cache.collecting import Cleaning, Victim, collect

__all__ = ["gc"]

_REASONS = {"orphan": "no record names it", "value": "least value"}
_FAILURES = 10
_HOUR_S = 3_600.0
_HEADER = ("BLOB", "SIZE", "NOT USED FOR", "TOOK", "WHY")


@click.command()
@click.option(
    "--max-size",
    callback=parsed_size,
    metavar="SIZE",
    help="Until the blobs take so much.  [default: $SOMA_CACHE_MAX_SIZE]",
)
@click.option(
    "--min-age",
    "min_age_s",
    callback=parsed_age,
    metavar="AGE",
    default="1h",
    show_default=True,
    help="Only what was not used for so long.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@dir_option
@as_json_option
def gc(
    *, max_size: int | None, min_age_s: float, dry_run: bool, root: str | None, as_json: bool
) -> None:
    """Make room: blobs of the least value go.

    Until those that are left take no more than SIZE. Records stay, and so does what a pin keeps.
    What is needed again is computed again.

    Exits with 1 if it is still too large, or something could not be removed.
    """
    limit = _limit() if max_size is None else max_size
    folder = folder_to_read(root) if dry_run else folder_to_change(root)
    with bar("looking" if dry_run else "removing") as progress:
        done = collect(
            folder, max_bytes=limit, min_age_s=min_age_s, dry_run=dry_run, progress=progress
        )
    if as_json:
        print_json({"path": folder.root, **_as_data(done)})
    else:
        if dry_run:
            print_table([_HEADER, *map(_row, done.removed)] if done.removed else [])
        print_facts(_facts(done, min_age_s))
        for digest, why in done.failed[:_FAILURES]:
            click.echo(
                f"Error: {printable(digest)} could not be removed: {one_line(why)}", err=True
            )
        if len(done.failed) > _FAILURES:
            click.echo(f"... and {len(done.failed) - _FAILURES:,} more (--json)", err=True)
    click.get_current_context().exit(1 if done.over_bytes or done.failed else 0)


def _limit() -> int:
    """Return the size that the environment says.

    Raises:
        WrongUse: it says none, or something else.
    """
    said = os.environ.get("SOMA_CACHE_MAX_SIZE")
    if not said:
        raise WrongUse(
            "How large may it be? Give --max-size, such as 20G, or set SOMA_CACHE_MAX_SIZE"
        )
    try:
        return parse_bytes("SOMA_CACHE_MAX_SIZE", said)
    except InvalidInput as error:
        raise WrongUse(str(error)) from error


def _facts(done: Cleaning, min_age_s: float) -> Iterator[tuple[str, str]]:
    would = "would go" if done.dry_run else "removed"
    yield would, _went(done)
    if done.temporary:
        files = f"{times(done.temporary, 'file')} ({human_bytes(done.temporary_bytes)})"
        also = "would go too" if done.dry_run else "swept"
        yield also, f"{files} of writers that are no more"
    left = f"{human_bytes(done.after_bytes)} of {human_bytes(done.max_bytes)}"
    yield ("would stay" if done.dry_run else "left"), left
    yield "not read", told_unread(unread_of(done))
    if done.over_bytes:
        yield "too much", f"{human_bytes(done.over_bytes)} {_why_over(done, min_age_s)}"


def _went(done: Cleaning) -> str:
    if not done.removed:
        return "nothing"
    counts = dict.fromkeys(_REASONS, 0)
    for one in done.removed:
        counts[one.reason] += 1
    said = [f"{count:,}: {_REASONS[reason]}" for reason, count in counts.items() if count]
    blobs = "1 blob" if len(done.removed) == 1 else f"{len(done.removed):,} blobs"
    return f"{blobs}, {human_bytes(done.freed_bytes)} ({'; '.join(said)})"


def _why_over(done: Cleaning, min_age_s: float) -> str:
    spared = []
    if done.pinned_bytes:
        spared.append(f"{human_bytes(done.pinned_bytes)} pinned (soma cache pins)")
    if done.young_bytes:
        spared.append(f"{human_bytes(done.young_bytes)} {_young(min_age_s)}")
    if done.unsure_bytes:
        spared.append(f"{human_bytes(done.unsure_bytes)} that an unreadable record may name")
    if done.failed:
        spared.append("not all of it can be removed")
    return f"above that: {', '.join(spared)}" if spared else "above that"


def _young(min_age_s: float) -> str:
    """Return what is too young; what no record names is so for an hour, whatever is asked for."""
    asked = f"used in the last {human_age(min_age_s)} (--min-age)"
    unnamed = "written within the hour, and named by no record yet"
    if min_age_s >= _HOUR_S:
        return asked
    return f"{asked}, or {unnamed}" if min_age_s else unnamed


def _row(one: Victim) -> tuple[str, ...]:
    took = human_compute(one.compute_ms) if one.reason != "orphan" else ""
    why = f"{_REASONS[one.reason]}{', expensive' if one.expensive else ''}"
    return short(one.digest), human_bytes(one.nbytes), human_age(one.age_s), took, why


def _as_data(done: Cleaning) -> dict[str, Any]:
    found = {one.name: getattr(done, one.name) for one in dataclasses.fields(done)}
    found["removed"] = [one._asdict() for one in done.removed]
    found["failed"] = [{"digest": digest, "why": why} for digest, why in done.failed]
    found["unreadable"] = unread_of(done)
    return found
